"""Every text has the facts it is said to have, and the answer follows from those that matter in the end."""

import dataclasses
import re

import pytest
from planted_readings import planted_traces

from nsed_lab.reading_tasks import FAMILIES, reading_tasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.trace import Trace
from nsed_torch.tuning.lessons import content

SETTINGS = {
    "hidden_profile": {"uninformed": 3, "statements": 2},
    "needles": {"pieces": 20, "needles": 3},
    "last": {"family": "hands", "pieces": 20, "moves": 5},
    "first": {"family": "hands", "pieces": 20, "which": "first"},
    "before": {"family": "hands", "pieces": 20, "which": "before"},
    "chains": {"pieces": 20},
    "swaps": {"pieces": 20, "people": 4, "swaps": 2},
}
GRADED = reading_tasks(SETTINGS, size=140, seed=3)


def of(label):
    return [task for task in GRADED.tasks if GRADED.strata[task.id] == label]


def texts(piece):
    return {None: piece} if isinstance(piece, str) else piece


def kept(task):
    """What the facts say that matter in the end."""
    return [fact.text for fact in GRADED.facts[task.id] if fact.matters(len(task.inputs))]


def test_families_come_in_turn_and_every_one_is_among_them():
    assert [GRADED.strata[task.id] for task in GRADED.tasks] == list(SETTINGS) * 20
    assert {settings.get("family", name) for name, settings in SETTINGS.items()} == set(FAMILIES)


@pytest.mark.parametrize("label", sorted({*SETTINGS} - {"swaps"}))
def test_a_fact_stands_in_its_piece_and_nowhere_else(label):
    for task in of(label):
        assert GRADED.facts[task.id]
        for fact in GRADED.facts[task.id]:
            found = [(i, who) for i, p in enumerate(task.inputs, 1) for who, t in texts(p).items() if fact.text in t]
            assert found == [(fact.piece, fact.reader)]


def who_and_what(text):
    """Whom and what a statement is about."""
    who, whose, what = re.fullmatch(r"(\w+)(?:'s (\w+) is| (.+)) \w+\.", text).groups()
    return {who, whose or what}


@pytest.mark.parametrize("family", ["needles", "chains"])
@pytest.mark.parametrize(("share", "pieces", "least"), [(0.5, 8, 14), (0.02, 256, 18), (1.0, 256, 100)])
def test_a_share_of_a_text_is_near_what_is_asked(family, share, pieces, least):
    settings = {"family": family, "pieces": pieces, "statements": 4}
    for task in (graded := reading_tasks({family: {**settings, "near": share}}, size=2, seed=5)).tasks:
        facts = [fact.text for fact in graded.facts[task.id]]
        about = set().union(*map(who_and_what, facts))
        said = [text.strip() for piece in task.inputs for text in re.findall(r"[^.]+\.", piece)]
        near = [text for text in said if about & who_and_what(text) and text not in facts]
        assert len(said) == len({*said}) == 4 * pieces
        assert least <= len(near) <= max(share * 4 * pieces, 4 * pieces - 900)


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "half"])
def test_a_share_is_a_share(share):
    with pytest.raises(ValueError, match=r"near: expected a share in \[0, 1\], got"):
        reading_tasks({"needles": {"near": share}}, size=1)


def solve(task):
    """The answer, from the question and what matters alone."""
    facts, question = kept(task), task.question
    if "boxes" in question:
        first, last = re.search(r"boxes, (.*) and (\w+), holds", question).groups()
        (left,) = {*first.split(", "), last} - {fact.split()[1] for fact in facts}
        return left
    if "swap" in question:
        (state,) = facts
        asked = re.search(r"does (\w+) have", question)[1]
        return re.search(rf"{asked} (\w+)", state)[1]
    if "colours" in question:
        said = dict(fact.removesuffix(".").split(" is ") for fact in facts)
        return ", ".join(said[name] for name in re.findall(r"\w+'s \w+", question))
    if "gets the" in question:
        days = sorted((int(re.search(r"day (\d+)", fact)[1]), re.search(r", (\w+) gets", fact)[1]) for fact in facts)
        return days[-2 if "but one" in question else -1][1]
    kin, placed = facts
    middle = re.search(r"is (\w+)\.", kin)[1]
    assert kin.startswith(re.search(r"Think of (\w+'s \w+)", question)[1])
    assert placed.startswith(middle)
    return placed.removesuffix(".").split()[-1]


@pytest.mark.parametrize("label", SETTINGS)
def test_the_answer_follows_from_what_matters_in_the_end(label):
    assert [solve(task) for task in of(label)] == [task.target for task in of(label)]
    right = GRADED.verdicts([(t, GRADED.grader.extract(t, f"Answer: {t.target}.")) for t in of(label)])
    assert set(right) == {Verdict.RIGHT}


def test_an_independent_reading_of_all_statements_gives_the_same_answer():
    """Whoever replays every statement, labels aside, comes to the target: no distractor says otherwise."""
    for label in ("last", "first", "before"):
        for task in of(label):
            thing = re.search(r"gets the (\w+)", task.question)[1]
            holders = re.findall(rf"(\w+) gets the {thing}\.", " ".join(task.inputs))
            assert holders[{"last": -1, "first": 0, "before": -2}[label]] == task.target
    for task in of("swaps"):
        held = dict(pair.split() for pair in re.search(r": (.*)\.", task.inputs[0])[1].split(", "))
        for fact, piece in zip(GRADED.facts[task.id], task.inputs, strict=True):
            for one, other in re.findall(r"(\w+) and (\w+) swap", piece):
                held[one], held[other] = held[other], held[one]
            assert all(f"{name} {colour}" in fact.text for name, colour in held.items())
        assert held[re.search(r"does (\w+) have", task.question)[1]] == task.target
    for task in of("needles"):
        whole = " ".join(task.inputs)
        found = [re.findall(rf"{name} is (\w+)\.", whole) for name in re.findall(r"\w+'s \w+", task.question)]
        assert [len(colours) for colours in found] == [1, 1, 1]
        assert ", ".join(colour for (colour,) in found) == task.target
    for task in of("chains"):
        whole = " ".join(task.inputs)
        (middle,) = re.findall(rf"{re.search(r'of (.*):', task.question)[1]} is (\w+)\.", whole)
        placed = re.search(r"this person (.*)\?", task.question)[1]
        assert re.findall(rf"{middle} {placed} (\w+)\.", whole) == [task.target]


def test_links_of_a_chain_lie_far_apart():
    for task in of("chains"):
        one, other = GRADED.facts[task.id]
        assert other.piece - one.piece > len(task.inputs) // 2


def test_a_fact_that_was_superseded_no_longer_matters():
    for label, most in (("last", 1), ("first", 1), ("before", 2), ("swaps", 1)):
        for task in of(label):
            facts = GRADED.facts[task.id]
            held = [sum(fact.matters(index) for fact in facts) for index in range(facts[0].piece, len(task.inputs) + 1)]
            assert max(held) == held[-1] == most
            assert not any(fact.matters(fact.piece - 1) for fact in facts)


def test_traces_keep_how_long_each_note_is_needed():
    graded = reading_tasks({"hands": {"pieces": 9, "which": "before", "moves": 4}}, size=3)
    for trace in planted_traces(graded):
        task = trace.transcript.task
        for record, row in zip(trace.transcript.rounds, trace.needed, strict=True):
            for proposal, needed in zip(record.proposals, row, strict=True):
                said = [fact for fact in graded.facts[task.id] if fact.text == proposal.text]
                held = [r for r in range(1, 10) if any(fact.matters(r) for fact in said)]
                assert held == list(range(record.index, needed + 1))
        assert Trace.from_line(trace.to_line(), "here") == trace
        assert '"needed"' not in dataclasses.replace(trace, needed=[]).to_line()
        with pytest.raises(ValueError, match="expected needed of"):
            dataclasses.replace(trace, needed=trace.needed[1:])


def test_who_reads_a_hidden_profile_is_drawn_and_nobody_has_two_facts():
    readers = [tuple(fact.reader for fact in GRADED.facts[task.id]) for task in of("hidden_profile")]
    assert len(set(readers)) > 10
    assert all(len(set(four)) == 4 for four in readers)
    for task in of("hidden_profile"):
        (piece,) = task.inputs
        assert list(piece) == [str(i) for i in range(7)]
        assert all(text.count(".") == 2 for text in piece.values())


def test_answers_are_spread_over_their_closed_set_so_that_chance_is_what_it_says():
    many = reading_tasks({"hands": {"pieces": 4}, "chains": {"pieces": 4}}, size=400, seed=8)
    for label, names in (("hands", r"out of (.*)\."), ("chains", None)):
        right = 0
        for task in (t for t in many.tasks if many.strata[t.id] == label):
            options = re.search(names, task.question)[1].split(", ") if names else ["Rome"]
            right += options[0] == task.target
            assert many.chances[task.id] == 1 / 8
        assert 10 < right < 45


def test_a_task_depends_on_its_place_and_seed_alone():
    fewer = reading_tasks(SETTINGS, size=12, seed=3)
    assert fewer.tasks == GRADED.tasks[:12]
    other = reading_tasks(SETTINGS, size=12, seed=4)
    assert not {content(t) for t in other.tasks} & {content(t) for t in GRADED.tasks}


@pytest.mark.parametrize("family", ["needles", "hands", "chains"])
@pytest.mark.parametrize("pieces", [16, 256])
def test_sizes_reach_from_16_to_256_pieces(family, pieces):
    (task,) = reading_tasks({family: {"pieces": pieces}}, size=1).tasks
    assert len(task.inputs) == pieces
    assert all(piece.count(".") == 4 for piece in task.inputs)


def test_swaps_reach_from_2_to_256_pieces():
    for pieces in (2, 256):
        (task,) = reading_tasks({"swaps": {"pieces": pieces}}, size=1).tasks
        assert len(task.inputs) == pieces


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ({}, "expected one family or more"),
        ({"poems": {}}, "expected families out of hidden_profile, needles, hands, chains, swaps, got 'poems'"),
        ({"needles": {"pieces": 257}}, "pieces: expected a whole number from 1 to 256, got 257"),
        ({"needles": {"pieces": 256, "statements": 5}}, "statements: expected a whole number from 1 to 4, got 5"),
        ({"needles": {"words": 5}}, "reading family 'needles': .*correct its settings"),
        ({"hidden_profile": {"uninformed": 9}}, "uninformed: expected a whole number from 0 to 8, got 9"),
        ({"hands": {"which": "second"}}, "which: expected one of last, first, before, got 'second'"),
        ({"hands": {"moves": 1}}, "moves: expected a whole number from 2 to 16, got 1"),
        ({"swaps": {"people": 7}}, "people: expected a whole number from 2 to 6, got 7"),
        ({"chains": {"pieces": "many"}}, "pieces: expected a whole number from 2 to 256, got 'many'"),
    ],
)
def test_faulty_settings_are_refused_in_one_line(families, message):
    with pytest.raises(ValueError, match=message):
        reading_tasks(families, size=1)
