"""Lessons of works: a step from the work before it, or all of them at once."""

import itertools
import re

import pytest

from nsed_lab.generated_lessons import StepLesson, WholeLesson
from nsed_lab.stepwise import stepwise_tasks
from nsed_torch.core.engine import Generation
from nsed_torch.core.prompts import Prompts
from nsed_torch.parts.forms import FORMS

FENCED = re.compile(r"<text-[0-9a-f]+>\n(.*?)\n</text", re.DOTALL)


def text(example):
    return "\n".join(message.content for message in example.messages)


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
