"""A broker, a halting rule and a rating of one's own: plain classes of one method, and what is said of their faults."""

import re

import pytest

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.ratings import JudgeReply
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.team import Team
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation
from nsed_torch.parts.budget_broker import Budget, BudgetBroker
from nsed_torch.records.transcript import Task, Transcript

TASK = Task("17 or 71?")


class Widening:
    def team(self, task, rounds):
        return None if len(rounds) == 3 else Team(tuple(range(len(rounds) + 2)), (0, 1, 2))


class Sure:
    def reasons(self, convictions):
        return ["sure" if row[-1] > 0.9 and len(row) > 1 else "" for row in convictions]


class ByLength:
    def rate(self, ensemble, prompts, questions, progress=None):
        longest = max(len(text) for question in questions for text in question.candidates)
        return [JudgeReply(tuple(len(text) / longest for text in q.candidates)) for q in questions]


def test_a_broker_of_one_method_names_the_teams_and_ends_the_task(scripted):
    rnn, _ = scripted.build(4, broker=Widening(), rounds=9)
    (transcript,) = rnn([TASK]).transcripts
    assert [len(record.proposers) for record in transcript.rounds] == [2, 3, 4]
    assert [record.voters for record in transcript.rounds] == [list(scripted.NAMES[:3])] * 3
    assert (transcript.stop_reason, transcript.settings["broker"]) == ("broker", "Widening")


def test_a_function_is_a_broker(scripted):
    def pair(task, rounds):
        return Team((1, 2), (1, 2))

    rnn, _ = scripted.build(4, broker=pair)
    (transcript,) = rnn([TASK]).transcripts
    assert all(record.proposers == list(scripted.NAMES[1:3]) for record in transcript.rounds)
    assert transcript.settings["broker"].endswith("pair")
    assert rnn.with_(broker=None)([TASK]).transcripts[0].rounds[0].proposers == list(scripted.NAMES[:4])


def test_hooks_are_asked_of_who_has_them_alone(scripted):
    told = []

    class Listening(Widening):
        def begin(self, tasks, cell):
            told.append((len(tasks), cell.consensus.slots))

    scripted.build(4, broker=Listening(), slots=3)[0]([TASK])
    assert told == [(1, 3)]


def test_a_halting_rule_of_one_method_stops_and_else_eight_rounds_are_the_most(scripted):
    options = {"write": lambda r: f"{r.agent}", "judge": lambda r, c: 1 if scripted.NAMES[0] in c else -1}
    rnn, _ = scripted.build(3, halting=Sure(), **options)
    assert rnn.rounds == 8
    (transcript,) = rnn([TASK]).transcripts
    assert transcript.settings["halting"] == "Sure"
    assert transcript.stop_reason in {"sure", "rounds"}
    never = type("Never", (), {"reasons": lambda self, convictions: [""] * len(convictions)})()
    (transcript,) = rnn.with_(halting=never)([TASK]).transcripts
    assert (len(transcript.rounds), transcript.stop_reason) == (8, "rounds")
    (transcript,) = rnn.with_(halting=never, rounds=2)([TASK]).transcripts
    assert (len(transcript.rounds), transcript.stop_reason) == (2, "rounds")


def test_a_rating_of_one_method_decides(scripted, tmp_path):
    rnn, engine = scripted.build(3, write=lambda r: "word " * (2 + scripted.NAMES.index(r.agent)), rating=ByLength())
    (transcript,) = rnn([TASK]).transcripts
    assert not engine.rated
    assert transcript.rounds[0].winner == 2
    assert transcript.settings["rating"] == {"mode": "ByLength"}
    transcript.save(tmp_path / "t.json")
    assert Transcript.load(tmp_path / "t.json") == transcript
    expected = expected_deliberation(rnn, [TASK])
    assert expected.tokens > transcript.usage.tokens
    with pytest.raises(ValueError, match=r"^rating ByLength: expected one that has most_usage.*define it, or seat no"):
        rnn.with_(broker=BudgetBroker(Budget(tokens=9000)))([TASK])


BROKERS = [
    (lambda task, rounds: ["Oberon"], r"expected a Team of the next round, or None .*, got \['Oberon'\]: return Team"),
    (lambda task, rounds: Team((0, 7), (0,)), r"expected different proposers out of \[0, 1, 2\], .* got \[0, 7\]"),
    (lambda task, rounds: Team((0, 0), (1,)), r"expected different proposers .* got \[0, 0\]: correct the team"),
    (lambda task, rounds: Team((0, 1), (-1,)), r"expected different judges out of \[0, 1, 2\], .* got \[-1\]"),
]


@pytest.mark.parametrize(("broker", "line"), BROKERS)
def test_a_team_that_is_none_is_one_line(scripted, broker, line):
    rnn, _ = scripted.build(3, broker=broker)
    with pytest.raises(ValueError, match=f"^broker: {line}"):
        rnn([TASK])


def test_a_team_of_nobody_is_one_line(scripted):
    rnn, _ = scripted.build(3, broker=lambda task, rounds: Team((), (0,)))
    with pytest.raises(ValueError, match=r"^expected a team with at least one proposer, got none"):
        rnn([TASK])


REASONS = [None, "stop", [True], ["a", "b"]]


@pytest.mark.parametrize("given", REASONS)
def test_reasons_that_are_none_are_one_line(scripted, given):
    rule = type("Odd", (), {"reasons": lambda self, convictions: given})()
    line = (
        f"halting Odd: expected a list of 1 reasons, one text per task, empty where it goes on, got {given!r}: correct"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(line)}"):
        scripted.build(3, halting=rule)[0]([TASK])


REPLIES = [
    (lambda q: None, "expected a list of 3 JudgeReply, one a question, got None"),
    (lambda q: [JudgeReply((0.5, 0.5))], "expected a list of 3 JudgeReply, one a question, got 1 of them"),
    (lambda q: [JudgeReply((0.5,))] * len(q), r"expected a JudgeReply of 2 ratings in .*, got \(0.5,\): rate each"),
    (lambda q: [JudgeReply((0.5, 1.5))] * len(q), r"expected a JudgeReply of 2 ratings in .*, got \(0.5, 1.5\)"),
    (
        lambda q: [JudgeReply((0.5, float("nan")))] * len(q),
        r"expected a JudgeReply of 2 ratings in .* \(0.5, nan\)",
    ),
    (lambda q: [0.5] * len(q), "expected a JudgeReply of 2 ratings in .*, got 0.5: rate each candidate"),
]


@pytest.mark.parametrize(("answer", "line"), REPLIES)
def test_replies_that_cannot_be_counted_are_one_line(scripted, answer, line):
    rating = type("Odd", (), {"rate": lambda self, ensemble, prompts, questions, progress=None: answer(questions)})()
    rnn, _ = scripted.build(3, write=lambda r: f"{r.agent} says so", rating=rating)
    with pytest.raises(ValueError, match=f"^rating Odd: {line}"):
        rnn([TASK])


@pytest.mark.parametrize("wrong", ["verdict", Sure, 7])
def test_what_is_no_part_is_one_line(scripted, wrong):
    rnn, _ = scripted.build(3)
    for part, line in (("rating", "with rate"), ("halting", "with reasons"), ("broker", "with team")):
        with pytest.raises(ValueError, match=f"^{part}: expected an object {line}.*: pass one such as [A-Z]"):
            rnn.with_(**{part: wrong})


def test_cells_in_each_others_place_are_one_line(scripted):
    rnn, _ = scripted.build(3)
    with pytest.raises(
        ValueError, match=r"^cell: expected a MacroRNNCell, one round of a team, got ConsensusCell: build"
    ):
        MacroRNN(rnn.cell.consensus)
    with pytest.raises(ValueError, match=r"^cell: expected a ConsensusCell or a MacroRNNCell, got str: pass one of"):
        rnn.with_(cell="mine")
    with pytest.raises(ValueError, match=r"^protocol: expected a Protocol, got \{'unit': 'step'\}: pass Protocol"):
        rnn.with_(protocol={"unit": "step"})


def test_a_text_or_several_are_tasks(scripted):
    rnn, _ = scripted.build(3)
    one, several = rnn("17 or 71?"), rnn(["17 or 71?", Task("3 or 4?", "own"), "5 or 6?"])
    assert one.transcripts == rnn([Task("17 or 71?")]).transcripts
    assert one.answer == one.answers[0]
    assert [transcript.task.id for transcript in several.transcripts] == ["task-1", "own", "task-3"]
    with pytest.raises(ValueError, match=r"^answer: expected a deliberation on one task, got 3: read answers$"):
        several.answer  # noqa: B018
    for wrong in (7, [7], None):
        with pytest.raises(ValueError, match=r"^expected a text, a Task, or a list of these, got"):
            rnn(wrong)


def test_the_same_team_with_other_parts_shares_its_engines(scripted):
    rnn, engine = scripted.build(3, rounds=3, seed=5)
    other = rnn.with_(rounds=1, seed=6, halting=None)
    assert (other.rounds, other.cell.seed, rnn.rounds, rnn.cell.seed) == (1, 6, 3, 5)
    assert other.cell.ensemble is rnn.cell.ensemble
    consensus = type(rnn.cell.consensus)(HashedEncoder(16).dim, 3).double()
    swapped = rnn.with_(cell=consensus)
    assert swapped.cell.consensus is consensus
    assert (swapped.cell.seed, swapped.rounds, swapped.halting) == (5, 3, rnn.halting)
    assert rnn.with_(cell=swapped.cell, rounds=2).cell.consensus is consensus
    left_out = rnn.with_(without=[scripted.NAMES[0]])
    assert left_out([TASK]).transcripts[0].rounds[0].proposers == list(scripted.NAMES[1:3])
    assert left_out.with_(seed=1).without == left_out.without
    with pytest.raises(ValueError, match=r"^expected parts out of ensemble, .*, got gate: correct the names$"):
        rnn.with_(gate=None)
    with pytest.raises(ValueError, match=r"^rounds: expected at least 1 and at most 3, the rule's, got 5"):
        MacroRNN(rnn.cell, halting=rnn.halting, rounds=5)
    assert engine.generated
