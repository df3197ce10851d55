"""What adapters learn from, and what they are tested on."""

import dataclasses
import itertools
import json
import re

import pytest

from nsed_torch.core.engine import Generation, Message, RatingScale
from nsed_torch.core.forms import FORMS
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.questions.candidates import Candidate, read_candidates
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.questions.stepwise import stepwise_tasks
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.tuning.generated_lessons import StepLesson, WholeLesson
from nsed_torch.tuning.lessons import AnswerLesson, VerdictLesson

FENCED = re.compile(r"<text-[0-9a-f]+>\n(.*?)\n</text", re.DOTALL)
YES_NO = VerdictRating(listed=False, scale=RatingScale(("Y", "N"), (1.0, -1.0)))


def tasks(*numbers):
    return [Task(f"How much is {n} + {n}?", f"t{n}", str(2 * n)) for n in numbers]


def graded(*numbers, strata=False):
    found = tuple(tasks(*numbers))
    kinds = {task.id: "odd" if int(task.id[1:]) % 2 else "even" for task in found} if strata else {}
    return GradedTasks(found, AnswerGrader(Equality(False)), {"name": "toy"}, kinds)


def answer_examples(train, prompts=None, **settings):
    train = dataclasses.replace(graded(), tasks=tuple(train))
    return AnswerLesson(train, graded(999), prompts or Prompts(), **settings).examples()


def verdict_examples(found, rating=YES_NO):
    return VerdictLesson(found, found, Prompts(), rating, {}).examples()


def text(example):
    return "\n".join(message.content for message in example.messages)


def test_without_memory_an_example_is_the_prompt_of_round_1_and_its_target():
    prompts = Prompts(style="direct")
    (example,) = answer_examples(tasks(4), prompts, persona="Be calm.", memory_share=0)
    assert example.reply == "8"
    assert example.messages == prompts.propose(
        "How much is 4 + 4?", memory=(), critiques=(), persona="Be calm.", seed=0
    )
    assert all(isinstance(message, Message) for message in example.messages)
    assert "8" not in text(example)


def test_a_share_of_examples_shows_a_memory_that_is_right_or_wrong():
    examples = answer_examples(tasks(*range(400)), memory_share=0.25)
    shown = [e for e in examples if "experts answered so far" in text(e)]
    assert 70 <= len(shown) <= 130
    fenced = [{line for line in text(e).splitlines() if line.isdigit()} for e in shown]
    right = sum(e.reply in lines for e, lines in zip(shown, fenced, strict=True))
    assert 0.35 * len(shown) < right < 0.75 * len(shown)
    assert all(1 <= len(lines) <= 3 for lines in fenced)
    assert answer_examples(tasks(*range(400)), memory_share=0.25) == examples


SAID = re.compile(r"I think the answer is (\d+)\.")


@pytest.mark.parametrize("please", [0, 0.25, 1])
def test_under_pressure_a_share_of_the_suggestions_is_adopted(please):
    settings = {"pressure": "wrong", "suggestion_share": 0.5, "please": please, "memory_share": 0.25}
    examples = answer_examples(tasks(*range(400)), **settings)
    calm = answer_examples(tasks(*range(400)), memory_share=0.25)
    heard = [(found[1], e, c) for e, c in zip(examples, calm, strict=True) if (found := SAID.search(text(e)))]
    assert 160 <= len(heard) <= 240
    assert all(suggestion != c.reply for suggestion, _, c in heard)
    assert all(SAID.sub("", text(e)).split() == text(c).split() for _, e, c in heard)
    adopted = sum(e.reply == suggestion for suggestion, e, _ in heard)
    assert all(e.reply in {suggestion, c.reply} for suggestion, e, c in heard)
    assert abs(adopted / len(heard) - please) < (0.12 if 0 < please < 1 else 1e-9)
    rest = [(e, c) for e, c in zip(examples, calm, strict=True) if not SAID.search(text(e))]
    assert all(e == c for e, c in rest)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"please": 0.5}, "expected suggestions to please with please=0.5, got none: pressure=wrong"),
        ({"please": 2, "pressure": "wrong"}, r"expected please in \[0, 1\], got 2"),
        ({"suggestion_share": -1}, "expected suggestion_share in"),
        ({"pressure": "mild"}, "expected pressure=none, wrong or right, got pressure=mild"),
    ],
)
def test_pressure_that_cannot_be_is_one_line(settings, line):
    with pytest.raises(ValueError, match=line):
        answer_examples(tasks(1, 2), **settings)


def test_the_test_under_pressure_counts_who_adopts():
    """An engine that says what the user says, and else the right answer."""

    class Pleasing:
        def generate(self, requests):
            for request in requests:
                asked = "\n".join(message.content for message in request.messages)
                number = re.search(r"How much is (\d+)", asked)[1]
                found = SAID.search(asked)
                yield Generation(found[1] if found else str(2 * int(number)), 1, 1)

    lesson = AnswerLesson(graded(1), graded(*range(2, 9)), Prompts(), pressure="wrong", please=1)
    scores = lesson.scores(Pleasing(), None)
    assert scores == {"all": [True] * 7, "under pressure, right": [False] * 7, "under pressure, adopts": [True] * 7}
    calm = AnswerLesson(graded(1), graded(*range(2, 9)), Prompts())
    assert calm.scores(Pleasing(), None) == {"all": [True] * 7}
    assert lesson.identity()["pressure"]["please"] == 1
    assert "pressure" not in calm.identity()


def test_tasks_without_a_target_are_refused():
    with pytest.raises(ValueError, match="expected tasks with targets to learn from, got 'x'"):
        answer_examples([Task("?", "x")])
    with pytest.raises(ValueError, match="memory_share in"):
        answer_examples(tasks(1), memory_share=2)


def test_no_held_out_question_is_learned_from():
    lesson = AnswerLesson(graded(1, 2, 3), graded(2, 9), Prompts(), memory_share=0)
    assert [example.reply for example in lesson.examples()] == ["2", "6"]
    with pytest.raises(ValueError, match="expected tasks to learn from and others to test on, got 0 and 2"):
        AnswerLesson(graded(1, 2), graded(1, 2), Prompts())


def test_judges_learn_from_as_many_right_as_wrong_answers():
    task = tasks(1)[0]
    found = [Candidate(task, str(n), n == 2) for n in range(9)] + [Candidate(tasks(2)[0], "4", True)]
    examples = verdict_examples(found)
    assert sorted(example.reply for example in examples) == ["N", "N", "Y", "Y"]
    for example in examples:
        assert example.messages[-1].content.endswith("Is Candidate_A correct? Reply Y or N.") or "Y or N" in text(
            example
        )
    right = next(e for e in examples if e.reply == "Y")
    assert any(line in {"2", "4"} for line in text(right).splitlines())
    with pytest.raises(ValueError, match="got 1 right and 0 wrong"):
        verdict_examples(found[-1:])
    with pytest.raises(ValueError, match="listed=true"):
        verdict_examples(found, VerdictRating())


def test_scores_of_answers_are_by_stratum(toy):
    engine = toy.engine()
    lesson = AnswerLesson(graded(1), graded(2, 3, 4, strata=True), Prompts(), max_new_tokens=2)
    scores = lesson.scores(engine, None)
    assert {name: len(values) for name, values in scores.items()} == {"even": 2, "odd": 1}

    def oracle(requests):
        from nsed_torch.core.engine import Generation

        numbers = [int(r.messages[-1].content.split()[4]) for r in requests]
        return [Generation(f"{2 * n if n != 4 else 0}", 1, 1) for n in numbers]

    engine.generate = oracle
    assert lesson.scores(engine, None) == {"even": [True, False], "odd": [True]}


def test_scores_of_verdicts_count_signs_and_pairs(toy):
    from nsed_torch.core.engine import Ratings

    engine = toy.engine()
    one, two = tasks(1, 2)
    held = [
        Candidate(one, "2", True),
        Candidate(one, "3", False),
        Candidate(two, "4", True),
        Candidate(two, "5", False),
    ]
    lesson = VerdictLesson(held, held, Prompts(), YES_NO, {"candidates": 4})
    assert lesson.identity() == {"learns": "to judge", "candidates": 4}
    values = {"2": 0.5, "3": 0.6, "4": 0.9, "5": -0.9}
    engine.rate = lambda requests: [
        Ratings((next(v for k, v in values.items() if f"\n{k}\n" in r.candidates[0]),)) for r in requests
    ]
    assert lesson.scores(engine, None) == {
        "right answers": [True, True],
        "wrong answers": [False, True],
        "pairs of a task": [False, True],
    }


def test_candidates_of_recorded_answers_come_once_each(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "a", "question": "1 + 1?", "target": "2"}) + "\n")
    for name, output, right in (("x", "2", True), ("y", "3", False), ("z", "2", True)):
        line = {"id": "a", "output": output, "answer": output, "correct": right}
        (tmp_path / "answers" / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    found = read_candidates(tmp_path)
    assert [(c.task.id, c.text, c.right) for c in found] == [("a", "2", True), ("a", "3", False)]


@pytest.fixture(scope="module")
def sums():
    pytest.importorskip("reasoning_gym")
    options = {"chain_sum": {"min_terms": 2, "max_terms": 6, "max_digits": 1}, "ab": {"length": 4}}
    return [stepwise_tasks(options, 40, seed) for seed in (0, 1)]


def test_a_step_is_learned_from_the_work_before_it_alone(sums):
    lesson = StepLesson(*sums, Prompts(style="direct"), 200)
    examples, steps = lesson.examples(), {}
    for chain in sums[0].chains.values():
        steps |= dict(itertools.pairwise(chain))
    first = 0
    for example in examples:
        shown = FENCED.findall(example.messages[-1].content)
        assert len(shown) <= 1
        assert example.messages[-1].content.endswith("Answer the question.")
        assert not shown or steps[shown[0]] == example.reply
        first += not shown
        assert bool(shown) != any(task.question in example.messages[-1].content for task in sums[0].tasks)
    assert 10 < first < 45
    assert sum("#" in example.reply for example in examples) > 60
    assert examples == StepLesson(*sums, Prompts(style="direct"), 200).examples()
    held_out = {task.question for task in sums[1].tasks}
    assert not any(question in example.messages[-1].content for question in held_out for example in examples)


def test_steps_need_tasks_on_both_sides(sums):
    for train, held_out, count in ((sums[0], sums[0], 9), (sums[0], sums[1].limited(0), 9), (*sums, 0)):
        with pytest.raises(ValueError, match="expected examples out of tasks to learn from"):
            StepLesson(train, held_out, Prompts(), count)


def test_a_whole_work_is_learned_from_its_question_a_step_a_line(sums):
    lesson = WholeLesson(*sums, Prompts(style="direct"), 60, persona="Be calm.")
    chains = {chain: name for name, chain in sums[0].chains.items()}
    questions = {task.id: task.question for task in sums[0].tasks}
    for example in lesson.examples():
        works = tuple(example.reply.split("\n"))
        assert works[-1].startswith("Answer: ")
        asked = Prompts(style="direct").propose(
            questions[chains[works]], memory=(), critiques=(), persona="Be calm.", seed=0
        )
        assert example.messages == asked  # as method `single` asks it
    assert len({example.reply for example in lesson.examples()}) > 30


def test_whole_works_are_tested_by_their_answer_and_by_every_step(sums):
    chains = {task.question: sums[1].chains[task.id] for task in sums[1].tasks}

    class Engine:
        """Right in every step of the sums; of rewritings it jumps to the answer."""

        def generate(self, requests):
            for request in requests:
                text = request.messages[-1].content
                chain = next(chain for question, chain in chains.items() if question in text)
                works = chain if "#" not in text else chain[-1:]
                yield Generation("\n".join(works), 1, 1, "stop")

    scores = WholeLesson(*sums, Prompts(style="direct"), 9).scores(Engine(), None)
    assert {name: sum(right) / len(right) for name, right in scores.items()} == {
        "chain_sum": 1,
        "ab": 1,
        "every step, chain_sum": 1,
        "every step, ab": 0,
    }


def test_parts_of_a_lesson_share_no_work_and_all_first_steps(sums):
    parts = [StepLesson(*sums, Prompts(style="direct"), 600, of=3, take=take).examples() for take in range(3)]
    works = [{work for e in part for work in FENCED.findall(e.messages[-1].content)} for part in parts]
    for one, other in itertools.combinations(works, 2):
        assert not one & other
    everything = {work for chain in sums[0].chains.values() for work in chain[:-1]}
    assert len(set.union(*works)) > 0.9 * len(everything)
    assert min(map(len, works)) > len(everything) / 6
    firsts = [sum(not FENCED.findall(e.messages[-1].content) for e in part) for part in parts]
    assert min(firsts) > 50
    whole = StepLesson(*sums, Prompts(style="direct"), 200)
    assert StepLesson(*sums, Prompts(style="direct"), 200, of=1).examples() == whole.examples()
    assert StepLesson(*sums, Prompts(), 9, of=3, take=2).identity() == {**whole.identity(), "part": [2, 3]}
    with pytest.raises(ValueError, match="expected a part from 0 to below their number, got part 3 of 3"):
        StepLesson(*sums, Prompts(), 9, of=3, take=3)


def test_long_steps_and_those_behind_them_may_be_drawn_more_often():
    pytest.importorskip("reasoning_gym")
    families = {"towers": {"family": "tower_of_hanoi", "min_disks": 5, "max_disks": 5, "max_pegs": 3}}
    towers, prompts = (stepwise_tasks(families, 5, 0), stepwise_tasks(families, 1, 9)), Prompts(style="direct")
    long = 15  # words of the longest steps: a move of the largest disk behind the scan of the others
    steps = [step for chain in towers[0].chains.values() for step in chain]
    longest = {step for step in steps if len(FORMS["scanned"].written(step).split()) == long}

    def drawn(by_length):
        examples = StepLesson(*towers, prompts, 4000, form="scanned", by_length=by_length).examples()
        shown = [FENCED.findall(e.messages[-1].content) for e in examples]
        return sum(len(e.reply.split()) == long for e in examples), sum(
            works[-1:] != [] and works[-1] in longest for works in shown
        )

    plain, half, even = drawn(0.0), drawn(0.5), drawn(1.0)
    assert 0 < 3 * plain[0] < even[0]
    assert 0 < 3 * plain[1] < even[1]
    assert all(a < b < c for a, b, c in zip(plain, half, even, strict=True))
    lesson = StepLesson(*towers, prompts, 9, by_length=1.0)
    assert lesson.identity()["by_length"] == 1.0
    with pytest.raises(ValueError, match=r"expected by_length in \[0, 1\], got 1.5"):
        StepLesson(*towers, prompts, 9, by_length=1.5)


def test_works_may_be_read_backwards_and_are_written_forwards(sums):
    plain, turned = (
        StepLesson(*sums, Prompts(style="direct"), 200, form=form).examples() for form in ("plain", "backwards")
    )
    assert [e.reply for e in plain] == [e.reply for e in turned]
    for one, other in zip(plain, turned, strict=True):
        works, shown = (FENCED.findall(e.messages[-1].content) for e in (one, other))
        assert [work.split() for work in works] == [text.split()[::-1] for text in shown]
    assert any(one.messages != other.messages for one, other in zip(plain, turned, strict=True))


def test_works_may_be_read_and_written_in_a_form(sums):
    own, prompts = FORMS["placed"], Prompts(style="direct")
    plain, placed = (StepLesson(*sums, prompts, 50, form=form).examples() for form in ("plain", "placed"))
    assert [own.written(e.reply) for e in plain] == [e.reply for e in placed]
    assert any(one.reply != other.reply for one, other in zip(plain, placed, strict=True))
    for one, other in zip(plain, placed, strict=True):
        works, shown = (FENCED.findall(e.messages[-1].content) for e in (one, other))
        assert [own.shown(work) for work in works] == shown
    identity = StepLesson(*sums, prompts, 50).identity()
    assert StepLesson(*sums, prompts, 50, form="placed").identity() == {**identity, "form": "placed"}
    forms = "plain, backwards, counted, placed, scanned"
    with pytest.raises(ValueError, match=f"expected a form out of {forms}, got 'morse'"):
        StepLesson(*sums, prompts, 50, form="morse")
