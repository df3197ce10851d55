"""Texts to workflows: every format there is, every reason there is, and what is mended."""

# ruff: noqa: RUF001 (smart quotes are meant)

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_texts import NASTY, WORKERS, workflows

from nsed_torch.conductor.parsing import MAX_CHARS, parse, repair
from nsed_torch.conductor.workflow import Reason, Workflow, WorkflowError
from nsed_torch.conductor.workflow import WorkflowStep as Step

A, B = Step(1, "Solve it."), Step(0, "Check it.", "all")
PLAIN = """model_id = [1, 0]
subtasks = ["Solve it.", "Check it."]
access_list = [[], "all"]"""


def text(ids="[0, 1]", subtasks='["a", "b"]', access="[[], []]"):
    return f"model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {access}"


FORMATS = {
    "plain": PLAIN,
    "reasoning around": f"First I think.\n{PLAIN}\nThat is all [really].",
    "wrapped all": PLAIN.replace('"all"', '["all"]'),
    "All": PLAIN.replace('"all"', '"All"'),
    "colons": PLAIN.replace(" =", ":"),
    "any case": PLAIN.replace("model_id", "MODEL_ID").replace("subtasks", "Subtasks"),
    "variants": PLAIN.replace("model_id", "Model IDs").replace("subtasks", "sub-task").replace("_list", "lists"),
    "single quotes": PLAIN.replace('"', "'"),
    "threefold quotes": PLAIN.replace('"Check it."', '"""Check it."""'),
    "smart quotes": PLAIN.replace('"Solve it."', "“Solve it.”").replace('"all"', "“all”"),
    "smart single quotes": PLAIN.replace('"Solve it."', "‘Solve it.’"),
    "one line": PLAIN.replace("\n", ", "),
    "many lines": PLAIN.replace("[", "[\n  ").replace(", ", ",\n  "),
    "Windows lines": PLAIN.replace("\n", "\r\n"),
    "trailing commas": PLAIN.replace("]\n", ",]\n"),
    "comments": PLAIN.replace('"Solve it.",', '"Solve it.",  # it\'s [the "first" step]\n'),
    "fenced": f"```python\n{PLAIN}\n```",
    "fences apart": "\n".join(f"```\n{line}\n```" for line in PLAIN.splitlines()),
    "bold labels": re.sub(r"^(\w+)", r"**\1**", PLAIN, flags=re.MULTILINE),
    "JSON": "{" + re.sub(r"^(\w+) =", r'"\1":', PLAIN, flags=re.MULTILINE).replace("]\n", "],\n") + "}",
    "after thinking": f"<think>{text()} or not?</think>\n{PLAIN}",
    "the last of several": f"{text()}\nNo, better:\n{PLAIN}",
    "the last complete one": f'{PLAIN}\nOr rather\nmodel_id = [0]\nsubtasks = ["write model_id = [1]',
    "unbalanced before": f"model_id = [ and it's \" open\n{PLAIN}",
}


@pytest.mark.parametrize("written", FORMATS.values(), ids=FORMATS)
def test_formats(written):
    assert parse(written, workers=2) == Workflow((A, B))


@pytest.mark.parametrize(
    ("written", "inside"),
    [
        ('"it\'s “so”"', "it's “so”"),
        ('“say "hi", it’s [fine]”', 'say "hi", it’s [fine]'),
        ("‘it’s [fine’", "it’s [fine"),
        (r"“a \" b \n c”", 'a " b \n c'),
        (r'"\d and \( stay"', r"\d and \( stay"),
        ('"""two\nlines, a " and ]"""', 'two\nlines, a " and ]'),
        ('"model_id = [3] </think> # no comment"', "model_id = [3] </think> # no comment"),
        ('"a" "b"', "ab"),
        (r'"\\"', "\\"),
        (r'"\ud83d\ude00 and \u00e9 and \U0001f989"', "😀 and é and 🦉"),
        (r"“\uD83D\uDE00\uD83D\uDE00”", "😀😀"),
        (r'"\\ud83d\\ude00"', r"\ud83d\ude00"),
    ],
)
def test_strings(written, inside):
    assert parse(text("[0]", f"[{written}]", "[[]]"), workers=1).steps[0].subtask == inside


def test_json_with_escaped_letters_is_read():
    """What `json.dumps` writes by itself."""
    workflow = Workflow((Step(0, "Ask 🦉 and 😀."),))
    escaped = json.dumps({"model_id": [0], "subtasks": [workflow.steps[0].subtask], "access_list": [[]]})
    assert r"\ud83e\udd89" in escaped
    assert parse(escaped, workers=1) == workflow


def test_access_is_by_number_of_a_step_before():
    rows = text("[0, 0, 0, 0]", '["a", "b", "c", "d"]', '[[], [0], [0, 1], "all"]')
    assert [step.access for step in parse(rows, workers=1).steps] == [(), (0,), (0, 1), "all"]


REASONS = [
    ("x" * (MAX_CHARS + 1), Reason.TOO_LONG),
    ("", Reason.NO_LISTS),
    ("I would ask Model 0.", Reason.NO_LISTS),
    ("model_id = 0\nsubtasks = 'a'\naccess_list = 'all'", Reason.NO_LISTS),
    ("subtasks = ['a']\nmodel_id = [0]\naccess_list = [[]]", Reason.NO_LISTS),
    (text().replace("model_id", "my_model_id"), Reason.NO_LISTS),
    (f"<think>{text()}</think> Done.", Reason.NO_LISTS),
    (text()[:-1], Reason.BROKEN_LIST),
    (text(subtasks='["a", "b]'), Reason.BROKEN_LIST),
    (text(subtasks='["a\n", "b"]'), Reason.BROKEN_LIST),
    (text(subtasks="[“a, “b”]"), Reason.BROKEN_LIST),
    (text(ids="[__import__('os').getpid(), 1]"), Reason.BROKEN_LIST),
    (text(ids="[0, {1}]"), Reason.BROKEN_LIST),
    (text(ids="[zero, one]"), Reason.NOT_LITERAL),
    (text(ids="[0 if 1 else 1, 1]"), Reason.NOT_LITERAL),
    (text(ids="[0 1]"), Reason.NOT_LITERAL),
    (text(ids="[" * 5000 + "]" * 5000), Reason.BROKEN_LIST),
    (text(ids="[" + "-" * 50_000 + "1, 0]"), Reason.NOT_LITERAL),
    (text(ids="[0, " + "9" * 5000 + "]"), Reason.NOT_LITERAL),
    (text(subtasks='["a\0", "b"]'), Reason.NOT_LITERAL),
    (text(subtasks='["a\ud800", "b"]'), Reason.NOT_LITERAL),
    (text(subtasks="[f'a', 'b']"), Reason.NOT_LITERAL),
    (text(subtasks=r"['\x1', 'b']"), Reason.NOT_LITERAL),
    (text(ids="[0]"), Reason.UNEQUAL_LENGTHS),
    (text(access="[]"), Reason.UNEQUAL_LENGTHS),
    (text("[]", "[]", "[]"), Reason.NO_STEPS),
    (text(str([0] * 6), str(["a"] * 6), str([[]] * 6)), Reason.TOO_MANY_STEPS),
    (text(ids="[0, True]"), Reason.BAD_WORKER),
    (text(ids="[0, '1']"), Reason.BAD_WORKER),
    (text(ids="[0, 1.0]"), Reason.BAD_WORKER),
    (text(ids="[0, 4]"), Reason.UNKNOWN_WORKER),
    (text(ids="[0, -1]"), Reason.UNKNOWN_WORKER),
    (text(ids="[0, 0x" + "f" * 5000 + "]"), Reason.UNKNOWN_WORKER),
    (text(subtasks='["a", 1]'), Reason.BAD_SUBTASK),
    (text(subtasks='["a", b"b"]'), Reason.BAD_SUBTASK),
    (text(subtasks=r'["a", "\ud800"]'), Reason.BAD_SUBTASK),
    (text(subtasks=r'["a", "\ude00\ud83d"]'), Reason.BAD_SUBTASK),
    (text(subtasks='["a", " "]'), Reason.EMPTY_SUBTASK),
    (text(access="[[], None]"), Reason.BAD_ACCESS),
    (text(access="[[], 0]"), Reason.BAD_ACCESS),
    (text(access="[[], [[0]]]"), Reason.BAD_ACCESS),
    (text(access="[[], ['all', 0]]"), Reason.BAD_ACCESS),
    (text(access="[[], [-1]]"), Reason.BAD_ACCESS),
    (text(access="[[], [False]]"), Reason.BAD_ACCESS),
    (text(access="[[], all]"), Reason.BAD_ACCESS),
    (text(access="[[], {0}]"), Reason.BAD_ACCESS),
    (text(access="[[], a\n\u2028\x1fb]"), Reason.BAD_ACCESS),
    (text(access="[[], __import__('os').getpid()]"), Reason.BAD_ACCESS),
    (text(access="[[], [1]]"), Reason.FORWARD_REFERENCE),
    (text(access="[[1], []]"), Reason.FORWARD_REFERENCE),
]


@pytest.mark.parametrize(("written", "reason"), REASONS, ids=[f"{i}-{reason}" for i, (_, reason) in enumerate(REASONS)])
def test_reasons(written, reason):
    with pytest.raises(WorkflowError) as caught:
        parse(written, workers=WORKERS)
    assert caught.value.reason == reason
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_every_reason_has_an_example():
    assert {reason for _, reason in REASONS} == set(Reason)


@pytest.mark.parametrize(
    ("written", "steps", "reasons"),
    [
        (text(ids="[0]"), [Step(0, "a")], [Reason.UNEQUAL_LENGTHS]),
        (text(ids="[7, 1]", access='[[], "all"]'), [Step(1, "b", "all")], [Reason.UNKNOWN_WORKER]),
        (text(ids="[7, 1]", access="[[], [0]]"), [Step(1, "b")], [Reason.UNKNOWN_WORKER]),
        (text(subtasks='["a", ""]'), [Step(0, "a")], [Reason.EMPTY_SUBTASK]),
        (
            text(access="[[0], [0, 1, 9]]"),
            [Step(0, "a"), Step(1, "b", (0,))],
            [Reason.FORWARD_REFERENCE],
        ),
        (text(access="[None, [0, 'all']]"), [Step(0, "a"), Step(1, "b", "all")], [Reason.BAD_ACCESS]),
        *(
            (
                text("[0, 1, 2]", '["a", "b", "c"]', f'[[], {entry}, "all"]'),
                [Step(0, "a"), Step(1, "b"), Step(2, "c", "all")],
                [Reason.BAD_ACCESS],
            )
            for entry in ("all", "none", "[step 0]", "[0 1]", "(0, 1 2)", "{[]}", "f(a, [b])", "0)", "01", "")
        ),
        (
            text("[0, 1]", '["a", "b"]', "[x # the first, all\n , [0, " + "9" * 5000 + "], # no more, \n]"),
            [Step(0, "a"), Step(1, "b")],
            [Reason.BAD_ACCESS],
        ),
        (text(access="[“,”, (0,)]"), [Step(0, "a"), Step(1, "b", (0,))], [Reason.BAD_ACCESS]),
        (
            text("[0, 9, 1, 2]", '["a", "b", "c", "d"]', "[[], [], [0, 1], [1, 2]]"),
            [Step(0, "a"), Step(1, "c", (0,)), Step(2, "d", (1,))],
            [Reason.UNKNOWN_WORKER],
        ),
        (
            text("[0, 1, 2, 3, 0, True]", '["a", "", "c", 4, "e"]', "[[], [], [5], [], [0, 2], []]"),
            [Step(0, "a"), Step(2, "c"), Step(0, "e", (0, 1))],
            [Reason.UNEQUAL_LENGTHS, Reason.EMPTY_SUBTASK, Reason.FORWARD_REFERENCE, Reason.BAD_SUBTASK],
        ),
        (text().rjust(MAX_CHARS + 1), [Step(0, "a"), Step(1, "b")], [Reason.TOO_LONG]),
    ],
)
def test_repairs(written, steps, reasons):
    assert repair(written, workers=WORKERS) == (Workflow(tuple(steps)), tuple(reasons))


def test_too_many_steps_are_cut():
    written = text("[0, 1, 2]", '["a", "b", "c"]', '[[], "all", "all"]')
    mended = repair(written, workers=3, max_steps=2)
    assert mended == (Workflow((Step(0, "a"), Step(1, "b", "all"))), (Reason.TOO_MANY_STEPS,))


@pytest.mark.parametrize("allow_empty", [False, True])
def test_a_workflow_that_loses_all_its_steps_is_no_acceptance(allow_empty):
    with pytest.raises(WorkflowError) as caught:
        repair(text(ids="[8, 9]"), workers=WORKERS, allow_empty=allow_empty)
    assert caught.value.reason == Reason.UNKNOWN_WORKER


def test_three_empty_lists_accept_where_that_is_allowed():
    empty = text("[]", "[]", "[]")
    assert parse(empty, workers=1, allow_empty=True) == Workflow()
    assert repair(empty, workers=1, allow_empty=True) == (Workflow(), ())
    assert parse(Workflow().render(), workers=1, allow_empty=True) == Workflow()
    with pytest.raises(WorkflowError) as caught:
        repair(empty, workers=1)
    assert caught.value.reason == Reason.NO_STEPS


@given(workflows())
def test_what_is_rendered_is_read_back(workflow):
    assert parse(workflow.render(), workers=WORKERS) == workflow
    assert repair(workflow.render(), workers=WORKERS) == (workflow, ())


# A string in threefold quotes may swallow what comes behind it, and a text is its own where it has labels or tags.
before = st.lists(st.sampled_from([n for n in NASTY if n not in ("'''", '"""')] + ["model_id = [", '["']), max_size=8)
after = st.text(alphabet=st.characters(exclude_characters="=:<")).filter(lambda t: "think" not in t)


@given(before.map("".join).filter(lambda t: "'''" not in t and '"""' not in t), workflows(), after)
def test_nothing_before_or_after_hides_the_lists(garbage, workflow, rest):
    assert parse(f"{garbage}\n{workflow.render()}{rest}", workers=WORKERS) == workflow


def test_huge_pools_and_plans():
    workflow = Workflow(tuple(Step(k, f"part {k}", "all") for k in range(1000)))
    assert parse(workflow.render(), workers=1000, max_steps=1000) == workflow
