"""What is learned of reading: notes, nothing and answers, asked for as a deliberation over inputs asks."""

import random
import re
from types import SimpleNamespace

import pytest

from nsed_lab.generated_lessons import ReadLesson, moments
from nsed_lab.reading_tasks import people_in, reading_tasks
from nsed_torch.core.engine import Generation
from nsed_torch.core.inputs import sentences
from nsed_torch.core.prompts import NOTHING, Prompts

FAMILIES = {
    "hidden_profile": {"uninformed": 2},
    "needles": {"pieces": 12, "needles": 3},
    "first": {"family": "hands", "which": "first", "pieces": 12},
    "before": {"family": "hands", "which": "before", "pieces": 12},
    "chains": {"pieces": 12},
}
TRAIN, HELD_OUT = (reading_tasks(FAMILIES, size=50, seed=seed) for seed in (1, 2))
FENCED = re.compile(r"<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", re.DOTALL)


def lesson(train=TRAIN, held_out=HELD_OUT, count=600, **options):
    return ReadLesson(train, held_out, Prompts(style="direct"), count, persona="Be calm.", **options)


def task_of(graded, text):
    """The tasks that ask what a prompt asks."""
    return [task for task in graded.tasks if task.question in text]


def test_replies_are_what_should_be_said():
    seen = {"notes": 0, "nothing": 0, "answers": 0}
    for example in lesson().examples():
        text = example.messages[-1].content
        tasks = task_of(TRAIN, text)
        facts = {fact.text for task in tasks for fact in TRAIN.facts[task.id]}
        piece = FENCED.findall(text.partition("A piece to read now.")[2])
        if not piece:
            seen["answers"] += 1
            assert example.reply in {task.target for task in tasks}
            continue
        assert len(piece) == 1
        told = {fact for fact in facts if fact in piece[0][1]}
        seen["notes" if told else "nothing"] += 1
        assert (example.reply == NOTHING) == (not told)
        assert set(re.findall(r"[^.]+\.", example.reply)) == {fact.replace(".", "") + "." for fact in told}
    assert min(seen.values()) > 120


def test_pieces_of_nothing_can_be_drawn_near_to_what_is_asked_for():
    """Somebody's knife where his hat is asked for, or what a noted person does elsewhere."""

    def near(share, family):
        draw, found, misled = random.Random(0), [], {"nothing": [], "notes": []}
        for task in [task for task in TRAIN.tasks if TRAIN.strata[task.id] == family for _ in range(100)]:
            for moment in moments(TRAIN, task, draw, share):
                if moment.piece:
                    pieces = [text for piece in TRAIN.inputs_of(task) for text in piece.values()]
                    index = pieces.index(moment.piece) + 1
                    told = [fact.text for fact in TRAIN.facts[task.id] if fact.piece < index]
                    if moment.kind == "nothing":
                        found.append(bool(people_in(moment.piece) & people_in(" ".join([task.question, *told]))))
                    useless = [note for note in moment.memory if note not in told]
                    misled[moment.kind].append(any(people_in(note) & people_in(moment.piece) for note in useless))
        return [sum(those) / len(those) for those in (found, misled["nothing"], misled["notes"])]

    for family in ("needles", "chains"):
        never, half, always = (near(share, family) for share in (0.0, 0.5, 1.0))
        assert never[0] < 0.6 * always[0]
        assert never[0] < half[0] < always[0]
        # A note that misleads says nothing of what the piece tells.
        for place in (1, 2):
            assert never[place] < half[place] < always[place]
        assert always[2] > 0.6 * always[1]
    last = [task for task in TRAIN.tasks if TRAIN.strata[task.id] == "before"]
    ends = [moments(TRAIN, task, random.Random(0), 1.0)[-1] for task in last]
    assert all(
        {fact.text for fact in TRAIN.facts[task.id]} <= set(end.memory) for task, end in zip(last, ends, strict=True)
    )
    needles = [task for task in TRAIN.tasks if TRAIN.strata[task.id] == "needles"]
    told = {fact.text for task in needles for fact in TRAIN.facts[task.id]}
    crossed = [{*moments(TRAIN, task, random.Random(0), 1.0)[-1].memory} - told for task in needles]
    assert any(
        people_in(" ".join(notes)) & people_in(task.question) for notes, task in zip(crossed, needles, strict=True)
    )
    chains = [task for task in TRAIN.tasks if TRAIN.strata[task.id] == "chains"]

    def same_said_of_others(share):
        """How many ends of chains show where others live beside where that person does."""
        ends = [(task, moments(TRAIN, task, random.Random(seed), share)[-1]) for task in chains for seed in range(9)]
        shown = [(TRAIN.facts[task.id], end.memory) for task, end in ends]
        return sum(any(n.split()[1:-1] == f[1].text.split()[1:-1] and n != f[1].text for n in m) for f, m in shown)

    assert same_said_of_others(1.0) > 5 * max(1, same_said_of_others(0.0))
    plain, nearer = lesson(), lesson(near_share=0.5)
    assert plain.examples() == lesson(near_share=0.0).examples() != nearer.examples()
    assert nearer.identity() == {**plain.identity(), "near_share": 0.5}
    with pytest.raises(ValueError, match=r"expected near_share in \[0, 1\], got 2"):
        lesson(near_share=2)


def test_what_is_made_up_beside_the_answer_makes_no_other_answer_right():
    """Of who is asked about it says something else than is asked; of what changes hands nothing is made up."""
    made_up = set()
    for task, seed in ((task, seed) for task in TRAIN.tasks for seed in range(9)):
        said = {text for piece in TRAIN.inputs_of(task) for shown in piece.values() for text in sentences(shown)}
        end = moments(TRAIN, task, random.Random(seed), 1.0)[-1]
        new = {note for note in end.memory if note not in said}
        family = TRAIN.strata[task.id]
        made_up |= {family} if new else set()
        assert all(people_in(note) & people_in(task.question) for note in new)
        if family == "needles":
            asked = set(re.findall(r"\w+'s \w+", task.question))
            assert not asked & {" ".join(note.split()[:2]) for note in new}
    assert made_up == {"needles", "chains"}


def test_of_a_share_of_the_examples_the_end_is_asked_for():
    def answers(**options):
        texts = [example.messages[-1].content for example in lesson(**options).examples()]
        return sum("A piece to read now." not in text for text in texts) / len(texts)

    plain = answers()
    assert 0.25 < plain < 0.5  # one of two or three kinds
    assert answers(answers_share=0.5) == pytest.approx(0.5 + plain / 2, abs=0.08)
    assert answers(answers_share=1.0) == 1
    assert lesson(answers_share=0.5).identity() == {**lesson().identity(), "answers_share": 0.5}
    with pytest.raises(ValueError, match=r"expected answers_share in \[0, 1\], got -1"):
        lesson(answers_share=-1)


def test_the_end_shows_every_fact_that_matters_and_no_piece():
    for task in TRAIN.tasks:
        end = moments(TRAIN, task, random.Random(0))[-1]
        kept = [fact.text for fact in TRAIN.facts[task.id] if fact.matters(len(task.inputs))]
        assert (end.kind, end.piece, end.reply) == ("answers", "", task.target)
        assert set(kept) <= set(end.memory)


def test_what_is_remembered_before_a_piece_was_read_before_it():
    draw = random.Random(3)
    for task in [task for task in TRAIN.tasks for _ in range(5)]:
        for moment in moments(TRAIN, task, draw):
            if moment.piece:
                pieces = [text for piece in TRAIN.inputs_of(task) for text in piece.values()]
                before = " ".join(pieces[: pieces.index(moment.piece)])
                assert all(note in before for note in moment.memory)


def test_memories_have_stale_notes_and_useless_ones_among_them_in_disorder():
    draw = random.Random(0)
    ends = [(task, moments(TRAIN, task, draw)[-1].memory) for task in TRAIN.tasks for _ in range(4)]
    useful = [{f.text for f in TRAIN.facts[task.id]} for task, _ in ends]
    needed = [{f.text for f in TRAIN.facts[task.id] if f.until is None} for task, _ in ends]
    share = sum(bool(set(memory) - facts) for (_, memory), facts in zip(ends, useful, strict=True)) / len(ends)
    assert 0.1 < share < 0.4
    assert any(set(memory) & facts - kept for (_, memory), facts, kept in zip(ends, useful, needed, strict=True))
    newest = [memory[-1] == max(kept) for (_, memory), kept in zip(ends, needed, strict=True)]
    assert 0.1 < sum(newest) / len(newest) < 0.9


def test_every_prompt_ends_in_the_line_that_activated_adapters_read_from():
    assert {e.messages[-1].content.splitlines()[-1] for e in lesson().examples()} == {"Answer the question."}


def test_a_task_that_is_held_out_is_not_learned_from_and_another_of_the_same_question_is():
    mixed = lesson(TRAIN, reading_tasks(FAMILIES, size=5, seed=1))
    assert [task.id for task in mixed._learned()] == [task.id for task in TRAIN.tasks[5:]]
    with pytest.raises(ValueError, match="expected examples out of tasks to learn from and others to test on"):
        lesson(TRAIN, TRAIN)


@pytest.mark.parametrize("say", ["right", "nothing"])
def test_scores_are_by_kind_and_family(say):
    draw = random.Random(0)
    due = [moment for task in HELD_OUT.tasks for moment in moments(HELD_OUT, task, draw)]
    texts = {"right": [m.reply for m in due], "nothing": ["Nothing."] * len(due)}[say]
    engine = SimpleNamespace(generate=lambda requests: [Generation(t, 1, 1) for t in texts[: len(requests)]])
    scores = lesson().scores(engine, None)
    assert set(scores) == {f"{kind}, {name}" for kind in ("answers", "notes", "nothing") for name in FAMILIES}
    assert all(len(right) == 10 for right in scores.values())
    for kind, right in scores.items():
        assert all(right) if say == "right" or kind.startswith("nothing") else not any(right)
