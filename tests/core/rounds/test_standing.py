"""Proposals that stand: nobody is asked twice, and all that was heard is voted on."""

import dataclasses
import re

import pytest

from nsed_torch.core.team import Team
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task, Transcript, Usage

TASKS = [Task(f"What is {i} times 8?", f"t{i}") for i in range(3)]


class Growing:
    """A broker without a model: one agent more each round, those heard before stand, or nobody does."""

    def __init__(self, standing=True):
        self.standing = standing

    def team(self, round_):
        who = tuple(range(round_ + 1))
        return Team(who, who if round_ else (), who[:-1] if self.standing else ())


def run(scripted, *, rounds=3, standing=True, tasks=TASKS, **options):
    """Rounds of one cell for a team that grows."""
    rnn, engine = scripted.build(4, **options)
    cell, state, records = rnn.cell, rnn.cell.start(tasks), []
    for index in range(rounds):
        found, state = cell(tasks, [Growing(standing).team(index)] * len(tasks), state, index=index + 1)
        records.append(found)
    return list(zip(*records, strict=True)), engine, state


def write(request):
    return f"#{request.seed}"


def judge(scripted):
    return lambda request, candidate: len(scripted.judged(request, candidate)) % 7 / 7


def test_who_was_heard_is_not_asked_again(scripted):
    tasks, engine, _ = run(scripted, write=write, judge=judge(scripted))
    assert len(engine.generated) == 3 * len(TASKS)
    for first, second, third in tasks:
        assert [p.agent for p in third.proposals] == third.proposers == list(scripted.NAMES[:3])
        for earlier, later in ((first, second), (second, third)):
            assert later.standing == earlier.proposers
            assert [dataclasses.replace(p, usage=Usage()) for p in earlier.proposals] == later.proposals[:-1]
            assert later.proposals[-1].usage.calls == 1
            assert later.notes[0] == f"{', '.join(earlier.proposers)}: heard before, not asked again"
        assert first.standing == []
        assert first.notes == []


def test_a_judge_rates_every_proposal_once(scripted):
    tasks, engine, _ = run(scripted, write=write, judge=judge(scripted))
    seen = [(request.agent, scripted.judged(request, c)) for request in engine.rated for c in request.candidates]
    assert len(seen) == len(set(seen)) == len(TASKS) * 3 * 2
    for _, second, third in tasks:
        assert [row[:2] for row in third.ratings[:2]] == second.ratings
        everyone = [[r is not None for r in row] for row in third.ratings]
        assert everyone == [[v != a for a in range(3)] for v in range(3)]
        # Two judges read one answer, the third reads two.
        assert third.usage.calls == 1 + 3


def test_a_rating_that_was_none_is_not_asked_for_again(scripted):
    tasks, engine, _ = run(scripted, write=write, judge=lambda request, candidate: None)
    assert sum(len(request.candidates) for request in engine.rated) == len(TASKS) * 6
    assert all(rating is None for records in tasks for record in records for row in record.ratings for rating in row)


def test_the_vote_is_that_of_everybody_at_once(scripted):
    """Texts do not depend on the round here, so a grown team elects whom the same team elects in one round."""
    options = {"write": lambda request: f"{request.agent} says", "judge": judge(scripted)}
    grown, _, _ = run(scripted, **options)
    rnn, _ = scripted.build(4, **options)
    whole, _ = rnn.cell(TASKS, [Team((0, 1, 2), (0, 1, 2))] * 3, rnn.cell.start(TASKS), index=1)
    for records, record in zip(grown, whole, strict=True):
        for name in ("ratings", "ballots", "support", "consensus", "winner", "conviction", "controversy"):
            assert getattr(records[-1], name) == getattr(record, name)


def test_memory_holds_a_standing_proposal_once(scripted):
    tasks, _, state = run(scripted, write=write, judge=judge(scripted), slots=8)
    for records in tasks:
        assert [len(record.memory) for record in records] == [1, 2, 3]
        assert len({slot.text for slot in records[-1].memory}) == 3
        assert all(0 < slot.retention <= 1 for slot in records[-1].memory)
    assert state.last == tuple(records[-1] for records in tasks)


def test_critiques_of_what_stands_stay_with_their_author(scripted):
    rating = CritiqueRating()
    text = {"write": lambda request: f"#{request.seed}\nScore: 10"}
    tasks, _, state = run(scripted, rating=rating, rounds=2, **text)
    before = [dict(critiques) for critiques in state.critiques]
    assert all(len(critiques[name]) == 1 for critiques in before for name in scripted.NAMES[:2])
    _, _, state = run(scripted, rating=rating, rounds=3, **text)
    for old, new in zip(before, state.critiques, strict=True):
        assert new[scripted.NAMES[0]][:1] == old[scripted.NAMES[0]]
        assert [len(new[name]) for name in scripted.NAMES[:3]] == [2, 2, 2]
    assert all(record.standing for records in tasks for record in records[1:])


def test_a_run_goes_on_from_its_call_log(scripted, tmp_path):
    with CallLog(tmp_path / "calls.sqlite") as log:
        first, _, _ = run(scripted, rounds=2, call_log=log, write=write, judge=judge(scripted))
        again, engine, _ = run(scripted, rounds=3, call_log=log, write=write, judge=judge(scripted))
    assert [records[:2] for records in again] == first
    assert len(engine.generated) == len(TASKS)
    straight, _, _ = run(scripted, rounds=3, write=write, judge=judge(scripted))

    def timeless(tasks):
        return [[(r.proposers, [p.text for p in r.proposals], r.ratings, r.winner) for r in rs] for rs in tasks]

    assert timeless(straight) == timeless(again)


def test_without_standing_everybody_is_asked_anew(scripted):
    tasks, engine, _ = run(scripted, standing=False, write=write, judge=judge(scripted))
    assert len(engine.generated) == len(TASKS) * (1 + 2 + 3)
    assert all(record.standing == [] for records in tasks for record in records)


def test_a_batch_is_as_its_tasks_alone(scripted):
    together, _, _ = run(scripted, write=lambda r: f"#{r.seed}", judge=judge(scripted))
    for task, records in zip(TASKS, together, strict=True):
        ((*alone,),), _, _ = run(scripted, tasks=[task], write=lambda r: f"#{r.seed}", judge=judge(scripted))
        assert [r.ratings for r in alone] == [r.ratings for r in records]
        assert [r.consensus for r in alone] == [r.consensus for r in records]


def test_a_transcript_keeps_who_stands(scripted, tmp_path):
    rnn, _ = scripted.build(4, rounds=1)
    (transcript,) = rnn(TASKS[:1]).transcripts
    (record,) = transcript.rounds
    marked = dataclasses.replace(transcript, rounds=[dataclasses.replace(record, standing=["Zebulon"])])
    marked.save(tmp_path / "t.json")
    assert Transcript.load(tmp_path / "t.json") == marked


def test_only_proposers_of_the_round_before_can_stand(scripted):
    with pytest.raises(ValueError, match=re.escape("expected those who stand among the proposers (0, 1), got (2,)")):
        Team((0, 1), (0, 1), (2,))
    rnn, _ = scripted.build(4)
    with pytest.raises(ValueError, match=r"^standing: expected proposers of the round before, got Oberon: ask them"):
        rnn.cell(TASKS[:1], [Team((0, 2), (0, 2), (2,))], rnn.cell.start(TASKS[:1]), index=1)
