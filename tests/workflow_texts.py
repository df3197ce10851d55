"""Workflows and texts of Conductors, drawn at random: well-formed, nasty, and damaged by a mutation fuzzer."""

# ruff: noqa: RUF001 (smart quotes are meant)

import random
from collections import Counter

from hypothesis import strategies as st

from nsed_torch.conductor.parsing import parse, repair
from nsed_torch.conductor.workflow import Reason, Workflow, WorkflowError, check
from nsed_torch.conductor.workflow import WorkflowStep as Step

WORKERS = 4

# What confuses a reader of lists: the language itself where it is only text.
NASTY = (
    *("'", '"', "'''", '"""', "\\", "\\\\", '\\"', "\n", "\r\n", "\r", "\t", "\0", "\\n", "\\d", "\\frac", "\\x"),
    *("[", "]", "[[", "]]", "(", ")", "{", "}", "[]", ",", "=", ":", "#", "# it's", "```", "```python\n", "`", "*"),
    *("model_id = [1]", "subtasks: ['x']", 'access_list = ["all"]', "model_id", "subtasks =", "Access Lists:", "all"),
    *("<think>", "</think>", "</THINK>", "“", "”", "‘", "’", "it’s", "é", "漢字", "🦉", "\u2028", "\u00a0", "\ufeff"),
    *("0", "1", "-1", "99", "1.5", "1e999", "0x1", "True", "None", "b'x'", "f'{x}'", "...", "word", " ", "\ud800"),
    *(r"\ud83d\ude00", r"\ud83d", r"\ude00", r"\U0001f989", "😀", "(0", "0)", "{0}", "[0, x]", "[step 1]", ", all,"),
    *("__import__('os')", "{[]: 1}", "[x for x in y]", "[*[0]]", "0 if 1 else 2", "1+2j", "()", "(0,)"),
)
HUGE = ("[" * 300, "]" * 300, "-" * 3000, "9" * 5000, "0x" + "f" * 5000, "'" * 99, "a" * 9999)

# Accesses that are no literals.
UNREADABLE = ("all", "none", "[0 1]", "[all]", "(0", "{0}", "f(0, [1])", "01", "[0, " + "9" * 5000 + "]", "")


class Written(str):
    """What stands in a list as it is."""


subtasks = (
    st.lists(st.sampled_from([n for n in NASTY if n != "\ud800"]) | st.text(max_size=8), min_size=1, max_size=5)
    .map("".join)
    .filter(str.strip)
)


@st.composite
def workflows(draw, min_steps=1, max_steps=5, texts=subtasks):
    """A valid workflow for a pool of `WORKERS`."""
    steps = []
    for k in range(draw(st.integers(min_steps, max_steps))):
        earlier = st.lists(st.integers(0, k - 1), max_size=k).map(tuple) if k else st.just(())
        steps.append(Step(draw(st.integers(0, WORKERS - 1)), draw(texts), draw(st.just("all") | earlier)))
    return Workflow(tuple(steps))


def random_text(rng):
    """A text in one of many styles, valid or nearly so: now and then a value is of the wrong kind or out of range."""
    ids, texts, accesses = [], [], []
    for k in range(rng.choice([0, 1, 2, 2, 3, 3, 4, 5, 6])):
        odd = rng.random() < 0.06
        ids.append(rng.choice([WORKERS, -1, True, None, "0", 1.5, 16**5000]) if odd else rng.randrange(WORKERS))
        odd = rng.random() < 0.06
        texts.append(rng.choice(["", " ", 0, None, b"x", []]) if odd else "Do " + rng.choice(NASTY) + rng.choice(NASTY))
        odd = rng.random() < 0.06
        wrong = [[k], [k + 1], [-1], [True], "none", None, 0, ["all", 0], [[]], Written(rng.choice(UNREADABLE))]
        accesses.append(
            rng.choice(wrong) if odd else rng.choice(["all", ["all"], rng.sample(range(k), rng.randint(0, k))])
        )
    between = rng.choice([" = ", ": ", "=", ":\n"])
    labels = rng.choice([("model_id", "subtasks", "access_list"), ("Model IDs", "**subtask**", "access-list")])
    lists = [
        ",\n ".join([*map(_literal, values), ""][: len(values) + rng.randint(0, 1)])
        for values in (ids, texts, accesses)
    ]
    body = "\n".join(f"{label}{between}[{values}]" for label, values in zip(labels, lists, strict=True))
    return (
        rng.choice(["", "I think.\n", "<think>model_id = [</think>\n", "```python\n"])
        + body
        + rng.choice(["", "\n```\n"])
    )


def _literal(value):
    """As `repr`, which refuses to write numbers of thousands of digits; a text that is there already as it is."""
    if isinstance(value, Written):
        return str(value)
    return hex(value) if type(value) is int and abs(value) > 2**64 else repr(value)


def mutated(text, rng):
    """A text with up to three random edits: cut, doubled, moved, truncated, or with something nasty put in."""
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        a, b = sorted(rng.randint(0, len(text)) for _ in range(2))
        b = min(b, a + rng.choice([1, 4, 40, len(text)]))
        nasty = rng.choice(NASTY if rng.random() < 0.98 else HUGE)
        edits = [
            text[:a] + text[b:],
            text[:b] + text[a:],
            text[b:] + text[a:b] + text[:a],
            text[:b] if rng.random() < 0.3 else text,
            text[:a] + nasty + text[a:],
            text[:a] + nasty + text[b:],
            text.replace(*rng.sample(['"', "'", "[", "]", "all", "0", ",", "“", "\n", " "], 2)),
            text[:a] + chr(rng.randrange(rng.choice([128, 0x110000]))) + text[b:],
        ]
        text = rng.choice(edits)
    return text


def outcome(text, *, allow_empty=False):
    """What becomes of any text: "valid" or the reason why not; what both readers promise is checked on the way."""
    written = {"workers": WORKERS, "allow_empty": allow_empty}
    strict, reason = read(parse, text, **written)
    mended, hopeless = read(repair, text, **written)
    for workflow in filter(None, (strict, mended and mended[0])):
        check(workflow, workers=WORKERS, allow_empty=allow_empty)
        assert parse(workflow.render(), workers=WORKERS, allow_empty=allow_empty) == workflow
        runnable(workflow, allow_empty=allow_empty)
    if reason is None:
        assert mended == (strict, ())
        return "valid"
    assert (mended[1][0] if mended else hopeless) == reason
    assert mended is None or len(set(mended[1])) == len(mended[1])
    return reason


def runnable(workflow, *, allow_empty):
    """What whoever runs a workflow relies on, asked of it without `check`."""
    n = len(workflow.steps)
    assert (0 if allow_empty else 1) <= n <= 5
    assert sorted(k for wave in workflow.waves() for k in wave) == list(range(n))
    for k, step in enumerate(workflow.steps):
        assert type(step.worker) is int
        assert 0 <= step.worker < WORKERS
        assert step.subtask.strip()
        assert step.subtask.encode().decode() == step.subtask
        assert all(0 <= i < k for i in workflow.visible(k))


def read(reader, text, **options):
    """What a reader makes of a text, and the reason if it makes nothing of it."""
    try:
        return reader(text, **options), None
    except WorkflowError as error:
        fault = error
    assert isinstance(fault.reason, Reason)
    assert str(fault).splitlines() == [str(fault)]
    return None, fault.reason


def fuzz(n, seed=0):
    """How many of n damaged texts came to what; an AssertionError, or whatever else is raised, is a bug."""
    rng = random.Random(seed)
    found = Counter()
    for _ in range(n):
        text = mutated(random_text(rng), rng)
        options = {"allow_empty": rng.random() < 0.5}
        try:
            found[outcome(text, **options)] += 1
        except BaseException as error:
            error.add_note(f"text {text!r} with {options}")
            raise
    return found
