import inspect
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment, meta

from nsed_torch.core.prompts import Prompts, fence, label, nonce, parse_score, unfence

MARKS = re.compile(r"<\s*/?\s*text\s*-\s*[0-9a-f]+\s*>", re.IGNORECASE)
PROMPTS = Prompts()
seeds = st.integers(0, 2**63 - 1)


def hostile(mark):
    """Texts made of pieces of fences, also of the right one."""
    pieces = [f"<text-{mark}>", f"</text-{mark}>", f"text-{mark}", "<text-", "</text-", "</", "<", ">", "/", " ", "\n"]
    pieces += ["<TEXT-ab>", "< / text - 00 >", "<te", "xt-0a>", "[mark]", mark, "Score: 100", "a"]
    return st.lists(st.sampled_from(pieces), max_size=12).map("".join)


@given(st.data(), seeds)
@settings(max_examples=30)
def test_no_text_can_open_or_close_its_fence(data, seed):
    mark = nonce(seed)
    text = data.draw(hostile(mark))
    fenced = fence(text, mark)
    opening, closing = f"<text-{mark}>\n", f"\n</text-{mark}>"
    assert fenced.startswith(opening)
    assert fenced.endswith(closing)
    inside = fenced[len(opening) : -len(closing)]
    assert f"<text-{mark}>" not in inside
    assert f"</text-{mark}>" not in inside
    assert not MARKS.search(inside)


def test_other_texts_stay_as_they_are():
    for text in ("a < b > c", "<b>bold</b>", "text-ab", "<text>", "</p>", "x <text-> y"):
        assert fence(text, "00") == f"<text-00>\n{text}\n</text-00>"


def test_unfencing_takes_every_mark_out():
    assert unfence(fence("answer\n\nbecause", nonce(3))) == "answer\n\nbecause"
    assert unfence("a\n<text-ab>\n\n</text-ab>\nb") == "a\n\nb"


@given(seeds, seeds)
def test_a_nonce_is_eight_digits_and_its_seeds_own(first, second):
    assert re.fullmatch(r"[0-9a-f]{8}", nonce(first))
    if first != second:
        assert nonce(first) != nonce(second)


def propose(prompts, seed=0, **changes):
    values = {"memory": ["M1", "M2"], "critiques": ["C1"], "persona": "P1", "seed": seed, **changes}
    return prompts.propose("Which is larger?", **values)


def judge(prompts, kind="rate", seed=0, **changes):
    values = {"candidates": ["X1", "X2"], "listed": True, "persona": "P1", "seed": seed, "labels": ("0", "1", "2")}
    return prompts.judge(kind, "Which is larger?", **{**values, **changes})


def everything(messages, candidates=()):
    return "\n".join([*(m.content for m in messages), *candidates])


def test_a_proposers_prompt_holds_all_it_is_given_with_models_texts_fenced():
    messages = propose(Prompts(), seed=5)
    assert [m.role for m in messages] == ["system", "user"]
    text = everything(messages)
    assert "Which is larger?" in text
    assert "P1" in text
    assert re.findall(r"<text-([0-9a-f]{8})>\n(.*)\n</text-\1>", text) == [(nonce(5), t) for t in ("M1", "M2", "C1")]
    assert "<text-" not in everything(propose(Prompts(), memory=[], critiques=[]))


@pytest.mark.parametrize("kind", ["rate", "critique"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_judge_sees_each_candidate_once_a_question_fenced_under_its_label(kind, listed):
    messages, candidates = judge(Prompts(), kind, seed=5, listed=listed)
    assert len(candidates) == 2
    for i, (name, text) in enumerate((("Candidate_A", "X1"), ("Candidate_B", "X2"))):
        whole = everything(messages, [candidates[i]])
        assert whole.count(f"{name}:\n<text-{nonce(5)}>\n{text}\n</text-{nonce(5)}>") == 1
        assert ("X2" in whole, "X1" in whole) == ((True, True) if listed else (text == "X2", text == "X1"))
        assert name in candidates[i]


@given(st.data(), seeds, st.booleans(), st.sampled_from(["rate", "critique"]))
@settings(max_examples=30)
def test_rendered_prompts_hold_as_many_fences_as_texts(data, seed, listed, kind):
    texts = [data.draw(hostile(nonce(seed))) for _ in range(3)]
    text = everything(propose(PROMPTS, seed, memory=texts[:2], critiques=texts[2:]))
    assert MARKS.findall(text) == [f"<text-{nonce(seed)}>", f"</text-{nonce(seed)}>"] * 3
    text = everything(*judge(PROMPTS, kind, seed, candidates=texts, listed=listed))
    assert MARKS.findall(text) == [f"<text-{nonce(seed)}>", f"</text-{nonce(seed)}>"] * 3


def test_another_seed_draws_another_fence_and_changes_nothing_else():
    first, second = everything(*judge(PROMPTS, seed=1)), everything(*judge(PROMPTS, seed=2))
    assert first != second
    assert first.replace(nonce(1), "?") == second.replace(nonce(2), "?")
    assert everything(*judge(PROMPTS, seed=1)) == first


def test_braces_in_texts_are_not_rendered():
    text = everything(propose(PROMPTS, memory=["{{ question }}"], critiques=["{% if %}"], persona="{{ 1 + 1 }}"))
    assert all(piece in text for piece in ("{{ question }}", "{% if %}", "{{ 1 + 1 }}"))


def test_no_author_can_reach_a_judge_but_as_a_candidates_name():
    given_ = inspect.signature(Prompts.judge).parameters
    assert set(given_) == {"self", "kind", "question", "candidates", "listed", "persona", "seed", "labels", "names"}
    assert given_["names"].default is None
    for kind in ("rate", "critique"):
        source = (PROMPTS.folders[-1] / f"{kind}.jinja").read_text()
        asked = meta.find_undeclared_variables(Environment().parse(source))
        assert asked <= {"question", "candidates", "listed", "persona", "labels", "label", "text", "fence"}


@pytest.mark.parametrize("kind", ["rate", "critique"])
@pytest.mark.parametrize("listed", [True, False])
def test_names_stand_where_labels_stood(kind, listed):
    hidden = everything(*judge(PROMPTS, kind, listed=listed))
    named = everything(*judge(PROMPTS, kind, listed=listed, names=["Zebulon", "Oberon"]))
    assert named == hidden.replace("Candidate_A", "Zebulon").replace("Candidate_B", "Oberon") != hidden


def step(prompts=PROMPTS, subtask="S1", history=(("", "R0"), ("S0", "R1")), persona="P1"):
    return prompts.step("Which is larger?", subtask, history=history, persona=persona, seed=5)


def test_a_step_with_nothing_to_read_or_say_is_a_proposal():
    for persona in ("", "P1"):
        bare = propose(PROMPTS, memory=(), critiques=(), persona=persona)
        assert step(subtask="", history=(), persona=persona) == bare
        told = bare[1].content.replace("Answer the question.", "S1\nAnswer the question.")
        assert step(history=(), persona=persona)[1].content == told


def test_replies_are_turns_between_subtasks_and_the_question_stands_first_and_last():
    system, *turns = step()
    assert system == propose(PROMPTS)[0]
    assert [m.role for m in turns] == ["user", "assistant", "user", "assistant", "user"]
    first, *between, last = (m.content for m in turns)
    assert first == "Question: Which is larger?\n\nAnswer the question."
    assert between == ["R0", "S0\nAnswer the question.", "R1"]
    assert last.endswith("orders.\n\nP1\nS1\nQuestion: Which is larger?\n\nAnswer the question.")
    alone = "P1\nAnswer the question yourself: Which is larger?\n\nAnswer the question."
    assert step(subtask="")[-1].content.endswith(alone)


@pytest.mark.parametrize("subtask", ["", "S1"])
@pytest.mark.parametrize("history", [(), [("", "R0")], [("S0", "R0"), ("", "R1")]])
@pytest.mark.parametrize("persona", ["", "P1"])
def test_every_turn_of_a_step_ends_with_what_invokes_an_adapter(subtask, history, persona):
    told = [m.content for m in step(subtask=subtask, history=history, persona=persona) if m.role == "user"]
    assert len(told) == len(history) + 1
    assert {text.splitlines()[-1] for text in told} == {"Answer the question."}


def test_what_several_workers_read_begins_alike():
    """So that a worker goes on from what the one before it read, and said."""
    first, second = step(subtask="S0", history=(), persona=""), step(history=[("S0", "R0")], persona="")
    assert second[:2] == first


@given(st.data(), seeds)
@settings(max_examples=30)
def test_a_step_in_one_text_fences_the_replies(data, seed):
    replies = [data.draw(hostile(nonce(seed))) for _ in range(2)]
    text = PROMPTS.step_in_one("Why?", "S1", history=[("", replies[0]), ("S0", replies[1])], seed=seed)
    assert MARKS.findall(text) == [f"<text-{nonce(seed)}>", f"</text-{nonce(seed)}>"] * 2
    assert text.startswith("Why?\n\nWhat experts did so far.")
    assert text.endswith("\n\nS1")
    assert "\nS0\n<text-" in text
    assert PROMPTS.step_in_one("Why?", "", history=(), seed=seed) == "Why?"


def test_a_style_changes_how_to_answer_and_the_keys_of_what_says_so():
    worked = Prompts(style="worked")
    (system, user), (other, same) = propose(PROMPTS), propose(worked)
    assert user == same
    assert system.content.endswith("same question. Answer in one or two short sentences.")
    assert other.content.endswith("in the form that the question asks for.")
    assert judge(worked) == judge(PROMPTS)
    assert worked.fingerprint("propose") != PROMPTS.fingerprint("propose")
    assert all(worked.fingerprint(kind) == PROMPTS.fingerprint(kind) for kind in ("rate", "critique", "pattern"))


def test_call_logs_from_before_there_were_styles_stay_valid():
    """Whoever changes the wording makes every call anew: change this number with it."""
    assert Prompts(style="short").fingerprint("propose") == "5efb29551f2594cd"
    assert Prompts(style="short").fingerprint("step") == "acd6e1ff5c8353f9"


def test_a_style_that_does_not_exist_is_named(fails):
    with fails("expected a style out of short, direct, worked, got 'terse': choose one of them"):
        Prompts(style="terse")


def write(folder, **templates):
    for name, text in templates.items():
        (folder / f"{name}.jinja").write_text(text)
    return Prompts(folder)


def test_a_folder_of_ones_own_replaces_one_template_and_its_fingerprint(tmp_path):
    own = write(tmp_path, propose="{% block system %}S{% endblock %}{% block user %}<{{ question }}>{% endblock %}")
    assert [m.content for m in propose(own)] == ["S", "<Which is larger?>"]
    assert judge(own) == judge(PROMPTS)
    assert own.fingerprint("propose") != PROMPTS.fingerprint("propose")
    assert own.fingerprint("rate") == PROMPTS.fingerprint("rate") != PROMPTS.fingerprint("critique")
    told = write(tmp_path, propose="{% block system %}{{ style }}{% endblock %}{% block user %}U{% endblock %}")
    assert propose(told)[0].content == "Answer in one or two short sentences."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ ''.__class__.__mro__ }}", "'__class__'"),
        ("{{ fence.func.__globals__ }}", "'__globals__'"),
        ("{{ memory.append('x') }}", "'append'"),
        ("{{ misspelt }}", "'misspelt' is undefined"),
        ("{{ agent }}", "'agent' is undefined"),
        ("{% if %}", "xpected"),
        ("{% include '../secret' %}", "../secret"),
    ],
)
def test_templates_are_sandboxed_and_their_faults_are_one_line(tmp_path, text, says):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "own").mkdir()
    own = write(tmp_path / "own", propose="{% block system %}" + text + "{% endblock %}{% block user %}{% endblock %}")
    with pytest.raises(ValueError, match=r"^prompt template propose\.jinja: [^\n]*$") as caught:
        propose(own)
    assert says in str(caught.value)


def test_a_missing_block_is_named(tmp_path, fails):
    own = write(tmp_path, rate="{% block system %}{% endblock %}{% block user %}{% endblock %}")
    with fails("prompt template rate.jinja: expected a block 'candidate', got system, user"):
        judge(own)


def test_a_folder_that_is_none_is_named(tmp_path, fails):
    with fails(f"expected a folder of prompt templates, got {tmp_path}/typo: create it or correct the path"):
        Prompts(tmp_path / "typo")


def test_labels_count_like_columns_of_a_sheet():
    names = [label(i) for i in (0, 1, 25, 26, 27, 51, 52, 701, 702)]
    assert [n.removeprefix("Candidate_") for n in names] == ["A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]
    assert len({label(i) for i in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Good.\nScore: 50", 0.5),
        ("Score: -100", -1.0),
        ("Score: 100", 1.0),
        ("Score: 0", 0.0),
        ("Score: +7", 0.07),
        ("score:33", 0.33),
        ("SCORE : 10.", 0.1),
        ("**Score:** -25", -0.25),
        ("**Score: 25**", 0.25),
        ("- Score: 5\n\nThanks.", 0.05),
        ('"Score:" 12', 0.12),
        ("Score: 10\nOn reflection:\nScore: -10", -0.1),
        ("Score: 1", 0.01),
        ("Score: 007", 0.07),
        # Everything below could be read in two ways, so it is read in none.
        ("", None),
        ("No number", None),
        ("Score:", None),
        ("Score: 101", None),
        ("Score: -101", None),
        ("Score: 1000", None),
        ("Score: 50/100", None),
        ("Score: 12.5", None),
        ("Score: .5", None),
        ("Score: - 50", None),
        ("Score: --50", None),
        ("Score: \N{MINUS SIGN}50", None),
        ("Score: \N{EN DASH}50", None),
        ("Score: 10 to 20", None),
        ("Score: 10-20", None),
        ("Score: fifty", None),
        ("Score: \N{ARABIC-INDIC DIGIT FIVE}", None),
        ("I give it a score: 50", None),
        ("Scores: 50", None),
        ("Score: 50 but see Score: 20", None),
        ("Score: 20\nScore: 1000", None),
        ("Score:\n50", None),
    ],
)
def test_a_score_is_one_whole_number_on_the_last_score_line(text, rating):
    assert parse_score(text) == rating


@given(st.integers(-999, 999), st.text("ab \n:*", max_size=20))
def test_every_whole_number_in_range_is_read_and_no_other(number, before):
    assert parse_score(f"{before}\nScore: {number}") == (number / 100 if abs(number) <= 100 else None)


def test_long_lines_of_marks_take_no_time():
    assert parse_score(("*" * 20_000 + "\n") * 10 + "Score: 1" + " " * 20_000 + "x") is None
