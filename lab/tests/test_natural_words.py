"""Wordings of lessons and of tests are made of other phrases, and what is asked in them is answered by hand."""

import re

import pytest

from nsed_lab.composite import KINDS, TEMPLATES, composite_tasks, referring
from nsed_lab.natural_words import KINDS_IN_WORDS, WORDINGS, Wording, natural_tasks, planned_by_rules, words_of
from nsed_lab.studies.hop_lines import hop_lines, main
from nsed_torch.conductor.references import referred
from nsed_torch.questions.generated import canonical_question
from nsed_torch.questions.known import Hop
from nsed_torch.records.outcome import Verdict

pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")

KIN = re.compile(r"(\w+) is married to (\w+)\. They have a child called (\w+)\.(?: \w+ is married to (\w+)\.)?")


@pytest.fixture(scope="module", params=WORDINGS)
def graded(request):
    return natural_tasks(140, 7, wordings=request.param)


def works(hop, asked):
    """What a worker who makes no mistake says to a subtask that is all it reads; None where only the hop knows."""
    if hop.kind == "sums":
        return str(sum(map(int, re.fullmatch(r"Calculate (\d+) \+ (\d+)\.", asked).groups())))
    if hop.kind == "words":
        return ", ".join(reversed(re.fullmatch(r"Reverse this list of words: (.+)", asked)[1].split(", ")))
    if hop.kind == "siblings":
        (kind,) = re.findall(r"How many (female friends|sisters|brothers) does", asked)
        return str(int(re.search(rf"(\d+) {kind}", asked)[1]) + 1)
    one, other = re.search(r"What is (\w+) to (\w+)\?", asked).groups()
    husband, wife, child, spouse = KIN.search(asked).groups()
    assert {one, other} <= {husband, wife, child, spouse}
    return None


def test_the_hops_lead_to_the_answer_and_need_no_question_beside_them(graded):
    for task in graded.tasks:
        replies = {}
        for place, hop in enumerate(graded.hops[task.id]):
            asked = referred(hop.subtask, replies if hop.reads else {})
            assert "{" not in asked
            assert works(hop, asked) in (hop.reply, None)
            replies[place] = hop.reply
        assert graded.verdicts([(task, replies[place])]) == [Verdict.RIGHT]


def test_what_a_hop_is_told_stands_in_the_question(graded):
    digits = {words_of(number): str(number) for number in range(200)}
    spelled = re.compile(rf"\b(?:{'|'.join(sorted(digits, key=len, reverse=True))})\b", re.IGNORECASE)
    for task in graded.tasks:
        question = spelled.sub(lambda word: digits[word[0].lower()], task.question)
        for hop in graded.hops[task.id]:
            told = re.sub(r"\{.*?\}|How many .*", "", hop.subtask.partition("\n")[0])
            for value in re.findall(r"\b(?:\d+|[A-Z][a-z]+)\b", told):
                known = {"Calculate", "Reverse", "They", "How"} | ({"0", "1"} if hop.kind == "siblings" else set())
                assert value in known or value in question


def test_no_wording_of_a_test_is_one_of_a_lesson():
    lessons, test = (Wording.load(name) for name in WORDINGS)
    assert len(lessons.frames()) > 400
    assert len(test.frames()) > 200
    assert lessons.frames() & test.frames() == set()
    for kind in ("women", "men", "nouns"):
        assert not {*lessons.phrases[kind]} & {*test.phrases[kind]}


def test_questions_are_fresh_and_come_once():
    first = natural_tasks(60, 3)
    asked = {canonical_question(task.question) for task in first.tasks}
    assert len(asked) == 60
    again = natural_tasks(60, 4, unlike={3: 60})
    assert not asked & {canonical_question(task.question) for task in again.tasks}
    assert {*first.strata.values()} == {*TEMPLATES, *KINDS} == {*KINDS_IN_WORDS}


def test_a_share_is_in_the_templates_own_words():
    tasks = natural_tasks(40, 0, wordings="lessons", plain=0.5)
    assert sum(task.id.startswith("lessons-") for task in tasks.tasks) == 20


def test_templates_refer_to_replies_in_place_of_what_stands_above():
    tasks = composite_tasks(40, 7, singles=0)
    for hops in tasks.hops.values():
        told = referring(hops)
        assert told == referring(told)
        assert not any("above" in hop.subtask for hop in told)


@pytest.mark.parametrize("settings", [{"wordings": "other"}, {"size": 0}, {"singles": 2}, {"plain": 1.0}])
def test_settings_that_cannot_be(settings):
    with pytest.raises(ValueError, match="expected wordings out of lessons, test"):
        natural_tasks(**settings)


@pytest.mark.parametrize(
    ("question", "plan"),
    [
        (
            "Nina read 15 pages on Monday, 22 on Tuesday and nine on Wednesday. How many is that?",
            ["Calculate 15 + 22.", "Calculate {0} + 9."],
        ),
        (
            "Ann has 2 sisters. How many sisters has her brother? Then add 8.",
            ["Ann has 2 sisters. How many sisters has her brother?", "Calculate {0} + 8."],
        ),
        ("Write lamp, fish and bread backwards.", ["Reverse this list of words: lamp, fish, bread"]),
    ],
)
def test_regular_expressions_plan(question, plan):
    assert [hop.subtask for hop in planned_by_rules(question)] == plan


def test_whom_somebody_has_is_told_in_the_order_of_the_question(graded):
    digits, turned = {words_of(number): str(number) for number in range(200)}, set()
    for task in graded.tasks:
        (hop, *others) = graded.hops[task.id]
        if hop.kind != "siblings" or any(other.kind == "siblings" for other in others) or "friend" in hop.subtask:
            continue
        pairs = re.findall(r"(\d+) (sister|brother)s", hop.subtask)
        said = " ".join(digits.get(word, word) for word in re.findall(r"\w+", task.question.lower()))
        if all(said.count(" ".join(pair)) == 1 for pair in pairs):
            first, second = (said.find(" ".join(pair)) for pair in pairs)
            assert first < second, (task.question, hop.subtask)
            turned.add(f"How many {pairs[0][1]}s" in hop.subtask)
    assert turned == {False, True}


def test_lines_of_hops_are_what_a_worker_reads_alone_and_none_comes_twice():
    lines = dict(hop_lines("siblings", 60, 3))
    assert len(lines) == len(list(hop_lines("siblings", 60, 3))) > 10
    for question, answer in lines.items():
        assert "{" not in question
        assert works(Hop("siblings", question, answer), question) == answer
    with pytest.raises(SystemExit, match="expected a kind out of sums, siblings, words, relations, got 'aiw'"):
        main(["aiw", "3", "0"])
