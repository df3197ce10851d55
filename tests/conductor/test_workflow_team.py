"""A workflow read as a team, and the deliberation that it holds."""

import re

import pytest
from scripted_conductor import GARBAGE, TASKS, WRITER, asked, text, writes
from scripted_workers import NAMES, Recorder, build, council, drawn

from nsed_torch.conductor.conductor_broker import ConductorBroker, workflow_team
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.policy import WritingAgent
from nsed_torch.conductor.pools import Pools
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.team import Team
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.transcript import Usage

ENGINE = ScriptedEngine(lambda request: "", lambda request, candidate: None)
ROLES = [("proposer", "judge"), ("proposer",), ("proposer", "judge"), ("judge",)]
TEAM = Ensemble({"one": ENGINE}, [Agent(name, "one", roles=roles) for name, roles in zip("abcd", ROLES, strict=True)])


@pytest.mark.parametrize(
    ("steps", "team"),
    [
        ([(0, "X.", ()), (2, "Y.", "all")], Team((0, 2), (2,))),
        ([(2, "X.", "all"), (0, "Y.", (0,)), (2, "Z.", ())], Team((0, 2), (2,))),
        ([(0, "X.", ()), (1, "Y.", "all")], Team((0, 1), (0,))),  # b never rates: whoever takes part and may
        ([(0, "X.", ()), (2, "Y.", (0,))], Team((0, 2), (0, 2))),
        ([(1, "X.", ())], Team((1,), (0, 2, 3))),
    ],
)
def test_who_proposes_and_who_rates(steps, team):
    assert workflow_team(parse(text(*steps), workers=3), "abc", TEAM) == team


def deliberate(*texts, tasks=TASKS, **options):
    executor, engine = build(writes(*texts))
    rnn = council(executor, broker=ConductorBroker(WRITER, **options))
    return rnn, rnn(tasks).transcripts, engine


def test_a_workflow_says_who_deliberates_in_every_round():
    rnn, transcripts, engine = deliberate(text((2, "X.", ()), (0, "Y.", "all")))
    assert isinstance(rnn, MacroRNN)
    for transcript in transcripts:
        for record in transcript.rounds:
            assert record.proposers == [NAMES[0], NAMES[2]]
            assert record.voters == [NAMES[0]]
        first, second = transcript.rounds
        assert first.notes[0] == f"team of the Conductor: proposers {NAMES[0]}, {NAMES[2]}; judges {NAMES[0]}"
        assert not any("Conductor" in note for note in second.notes)
        assert transcript.settings["conductor"] == str(WRITER)
    assert len(asked(engine)) == len(TASKS)


def test_all_workflows_of_a_run_are_written_together(monkeypatch):
    batches, generate = [], Recorder.generate

    def kept(engine, requests):
        batches.append([request.agent for request in requests])
        return generate(engine, requests)

    monkeypatch.setattr(Recorder, "generate", kept)
    deliberate(text((2, "X.", ()), (0, "Y.", "all")))
    assert batches[0] == [WRITER.name] * len(TASKS)
    assert not any(WRITER.name in batch for batch in batches[1:])


def test_a_plan_is_charged_to_the_first_round_once():
    written = text((2, "X.", ()), (0, "Y.", "all"))
    _, (transcript,), engine = deliberate(written, tasks=TASKS[:1])
    (request,) = asked(engine)
    read = sum(len(message.content.split()) for message in request.messages)
    cost = WRITER.usage(read, len(written.split()))
    executor, _ = build(drawn)
    bare = council(executor)

    class Fixed(ConductorBroker):
        """The same team, nobody asked."""

        def begin(self, tasks, cell):
            pass

        def team(self, task, rounds):
            return Team((0, 2), (0,))

        def heard(self, records):
            return records

    (without,) = MacroRNN(bare.cell, halting=bare.halting, broker=Fixed(Agent("c", "one")))(TASKS[:1]).transcripts
    assert transcript.rounds[0].usage == without.rounds[0].usage + cost
    assert transcript.rounds[1].usage == without.rounds[1].usage
    assert transcript.usage == Usage.sum(record.usage for record in transcript.rounds)


def test_what_cannot_be_read_seats_everybody():
    _, (transcript,), _ = deliberate(GARBAGE, tasks=TASKS[:1])
    assert transcript.rounds[0].proposers == transcript.rounds[0].voters == list(NAMES)
    assert transcript.rounds[0].notes[0].startswith("team of everybody (no_lists): proposers ")


def test_other_tasks_change_nothing_and_pools_renumber():
    written, pools = text((0, "X.", ()), (1, "Y.", "all")), Pools("permuted")
    _, together, _ = deliberate(written, pools=pools)
    for task, transcript in zip(TASKS, together, strict=True):
        first, second = pools(NAMES, task)[:2]
        assert set(transcript.rounds[0].proposers) == {first, second}
        assert transcript.rounds[0].voters == [second]
        assert deliberate(written, tasks=[task], pools=pools)[1] == (transcript,)


def test_a_conductor_without_an_engine_is_refused_when_the_network_is_built():
    executor, _ = build()
    line = "agent 'c': expected a backbone out of one, got 'two'"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        council(executor, broker=ConductorBroker(Agent("c", "two")))


def test_a_transcript_names_the_encoder_that_laid_out_the_pool():
    assert "encoder" not in ConductorBroker(WRITER).settings()
    writer = WritingAgent("conductor", "one", encoder=lambda: HashedEncoder(8))
    assert ConductorBroker(writer).settings()["encoder"] == {"name": "hashed", "dim": 8}
