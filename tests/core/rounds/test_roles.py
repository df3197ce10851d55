"""Agents that may not do everything: who is seated, what is recorded, and which adapter speaks."""

import dataclasses
import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.app.build import consensus_cell
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import full_team
from nsed_torch.parts.budget_broker import Budget, BudgetBroker, round_costs
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.records.transcript import ROLES, Task, Transcript

TASK = Task("Which is larger, 17 or 71?")
PROPOSER, JUDGE = (ROLES[0],), (ROLES[1],)
SPECIALISTS = tuple(Agent(f"specialist {i}", "scripted", roles=PROPOSER, adapter=f"own {i}") for i in range(5))
VERIFIER = Agent("verifier", "scripted", roles=JUDGE, adapter="verifier")


def build(scripted, agents, *, broker=None, rounds=2, write=None, **cell):
    engine = scripted.Recorder(write or (lambda request: f"#{request.seed} is it"), scripted.judge)
    ensemble, encoder = Ensemble({"scripted": engine}, agents), HashedEncoder(16)
    consensus = consensus_cell(dim=encoder.dim, agents=len(agents))
    macro_cell = MacroRNNCell(ensemble, encoder, consensus, **cell)
    return MacroRNN(macro_cell, halting=FixedHalting(rounds), broker=broker), engine


def seats(transcript):
    return [(record.proposers, record.voters) for record in transcript.rounds]


@pytest.mark.parametrize("rating", [VerdictRating(), CritiqueRating()])
def test_specialists_propose_and_a_verifier_rates_all_of_them(scripted, rating):
    members = (VERIFIER, *SPECIALISTS)
    rnn, engine = build(scripted, members, rating=rating)
    assert full_team(rnn.cell.ensemble).proposers == (1, 2, 3, 4, 5)
    assert full_team(rnn.cell.ensemble).voters == (0,)
    (transcript,) = rnn([TASK]).transcripts
    names = [agent.name for agent in SPECIALISTS]
    assert seats(transcript) == [(names, ["verifier"])] * 2
    for record in transcript.rounds:
        assert [len(row) for row in record.ratings] == [5]
        assert sum(map(sum, record.vote_mask)) == sum(r is not None for r in record.ratings[0])
    written = [r for r in engine.generated if r.agent != "verifier"]
    assert len(written) == 10
    assert {(r.agent, r.adapter) for r in written} == {(agent.name, agent.adapter) for agent in SPECIALISTS}
    assert {(r.agent, r.adapter) for r in [*engine.rated, *engine.generated] if r not in written} == {
        ("verifier", "verifier")
    }


def test_the_record_says_who_may_do_what(scripted):
    rnn, _ = build(scripted, (*SPECIALISTS[:2], VERIFIER))
    (transcript,) = rnn([TASK]).transcripts
    assert [agent.roles for agent in transcript.agents] == [["proposer"], ["proposer"], ["judge"]]
    assert [agent.judge_identity for agent in transcript.agents] == [None] * 3
    assert Transcript.from_data(json.loads(transcript.to_json()), "here") == transcript


@pytest.mark.parametrize("rating", [VerdictRating(), CritiqueRating()])
def test_an_agent_may_rate_with_another_adapter(scripted, rating):
    """Whatever proposes keeps its own; the ratings' calls and the record name the other."""
    members = [Agent("a", "scripted", adapter="own", judge_adapter="other"), Agent("b", "scripted", adapter="own")]
    rnn, engine = build(scripted, members, rating=rating, rounds=1)
    (transcript,) = rnn([TASK]).transcripts
    template = rnn.cell.prompts.fingerprint("propose")
    proposed = [r for r in engine.generated if r.template == template]
    judged = [r for r in [*engine.rated, *engine.generated] if r.template != template]
    assert {(r.agent, r.adapter) for r in proposed} == {("a", "own"), ("b", "own")}
    assert {(r.agent, r.adapter) for r in judged} == {("a", "other"), ("b", "own")}
    assert all(isinstance(r, GenerateRequest) for r in judged) is isinstance(rating, CritiqueRating)
    first, second = transcript.agents
    assert (first.identity["adapter"], first.judge_identity["adapter"]) == ("own", "other")
    assert second.judge_identity is None


def test_a_transcript_from_before_roles_is_the_one_of_agents_that_may_do_everything(scripted):
    rnn, _ = build(scripted, [Agent("a", "scripted"), Agent("b", "scripted")])
    (transcript,) = rnn([TASK]).transcripts
    data = json.loads(transcript.to_json())
    for agent in data["agents"]:
        assert agent.pop("roles") == ["proposer", "judge"]
        assert agent.pop("judge_identity") is None
    assert Transcript.from_data(data, "here") == transcript


ROLE_SETS = st.lists(st.sampled_from([ROLES, PROPOSER, JUDGE]), min_size=2, max_size=5)


@settings(max_examples=12)
@given(ROLE_SETS, st.floats(0.05, 2), st.integers(1, 2), st.integers(0, 2), st.data())
def test_the_broker_seats_nobody_in_a_role_it_does_not_have(scripted, roles, share, least, judges, data):
    roles = roles if any("proposer" in own for own in roles) else [PROPOSER, *roles]
    members = [Agent(f"agent {i}", "scripted", roles=own) for i, own in enumerate(roles)]
    have = [sum(role in own for own in roles) for role in ROLES]
    benched = data.draw(st.lists(st.sampled_from([agent.name for agent in members]), unique=True))
    telemetry = Telemetry([agent.name for agent in members], clock=lambda: 1.0)
    for name in benched:
        telemetry.failure(name)
    rnn, _ = build(scripted, members)
    tokens = share * float(round_costs(TASK, rnn.cell, proposers=have[0])[:, :, 1].sum())
    least, judges = min(least, have[0]), min(judges, have[1])
    broker = BudgetBroker(Budget(tokens=tokens), min_proposers=least, min_judges=judges, telemetry=telemetry)
    rnn, _ = build(scripted, members, broker=broker, rounds=1)
    try:
        (record,) = rnn([TASK]).transcripts[0].rounds
    except InfeasibleBudgetError:
        assert share < 1
        return
    may = {role: {agent.name for agent in members if role in agent.roles} for role in ROLES}
    assert set(record.proposers) <= may["proposer"]
    assert set(record.voters) <= may["judge"]
    assert len(record.proposers) >= least
    assert len(record.voters) >= judges
    assert record.usage.tokens <= tokens
    if not benched and share >= 1:
        assert (set(record.proposers), set(record.voters)) == (may["proposer"], may["judge"])


def test_the_only_judge_is_called_back_from_the_bench(scripted):
    """One who is back later does not keep the role empty; whoever cannot fill it stays out."""
    members = [Agent("p", "scripted", roles=PROPOSER), Agent("q", "scripted", roles=PROPOSER), Agent("v", "scripted")]
    now = [0.0]
    telemetry = Telemetry(["p", "q", "v"], clock=lambda: now[0])
    telemetry.failure("p")
    now[0] += 10
    telemetry.failure("v")
    broker = BudgetBroker(min_proposers=1, min_judges=1, telemetry=telemetry)
    (record,) = build(scripted, members, broker=broker, rounds=1)[0]([TASK]).transcripts[0].rounds
    assert (record.proposers, record.voters) == (["p", "q", "v"], ["v"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "broker: expected min_judges of at most 1, the ensemble's, got 2"),
        ({"min_proposers": 6, "min_judges": 1}, "broker: expected min_proposers of at most 5, the ensemble's, got 6"),
    ],
)
def test_numbers_that_the_roles_cannot_fill_are_refused(scripted, options, line):
    rnn, _ = build(scripted, (*SPECIALISTS, VERIFIER), broker=BudgetBroker(**options))
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        rnn([TASK])


def test_what_a_round_costs_counts_those_who_can_take_part(scripted):
    """A verifier with a long name, a long allowance and critiques of its own makes no answer longer."""
    long = dataclasses.replace(VERIFIER, decoding=dataclasses.replace(VERIFIER.decoding, max_new_tokens=500))
    rating = CritiqueRating()
    rnn, _ = build(scripted, (*SPECIALISTS, long), rating=rating)
    costs = round_costs(TASK, rnn.cell, proposers=5)[:, :, 1]
    everybody = [dataclasses.replace(agent, roles=ROLES) for agent in (*SPECIALISTS, long)]
    more = round_costs(TASK, build(scripted, everybody, rating=rating)[0].cell, proposers=5)[:, :, 1]
    # One critic in place of five, and answers of 128 words in place of 500.
    assert (more[0, 0] - costs[0, 0]) >= 4 * rating.decoding.max_new_tokens
    assert (more[5, 1] - costs[5, 1]) >= 5 * (500 - SPECIALISTS[0].decoding.max_new_tokens)
    (transcript,) = rnn([TASK]).transcripts
    for record in transcript.rounds:
        for proposal, most in zip(record.proposals, costs[:5, 0].tolist(), strict=True):
            assert proposal.usage.tokens <= most


def test_a_team_of_one_backbone_that_only_judges_share_is_charged_for_it(scripted):
    class Heavy(scripted.Recorder):
        def memory_bytes(self):
            return 2**30

    def write(request):
        return f"#{request.seed}"

    engines = {"p": Heavy(write, scripted.judge), "j": Heavy(write, scripted.judge)}
    members = [Agent("a", "p", roles=PROPOSER), Agent("b", "p", roles=PROPOSER), Agent("v", "j", roles=JUDGE)]

    def team(memory, judges):
        broker = BudgetBroker(Budget(memory=memory), min_judges=judges)
        cell = MacroRNNCell(Ensemble(engines, members), HashedEncoder(8), consensus_cell(dim=8, agents=3))
        with torch.no_grad():
            return seats(MacroRNN(cell, halting=FixedHalting(1), broker=broker)([TASK]).transcripts[0])

    assert team(2, 1) == [(["a", "b"], ["v"])]
    assert team(1, 0) == [(["a", "b"], [])]
    with pytest.raises(InfeasibleBudgetError, match="expected memory of at least 2"):
        team(1, 1)
