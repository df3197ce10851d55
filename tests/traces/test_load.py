"""Collected traces as tensors: unrolled, they decide again what the transcripts say."""

import dataclasses
import random
import re

import pytest
import torch

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.budget_broker import BudgetBroker
from nsed_torch.parts.halting_rules import EvidenceHalting
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.trace import TraceWriter, read_traces
from nsed_torch.records.transcript import ROLES, Task
from nsed_torch.traces.episodes import joined
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.rounds import unroll

RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"How much is {i} times 7?", f"q{i}", str(7 * i)) for i in range(7))
GRADED = GradedTasks(TASKS, AnswerGrader(RULE), {})
NAMES = ("ann", "bob", "cy", "dee")


def write(request):
    draw = random.Random(request.seed)
    number = int(re.search(r"How much is (\d)", request.messages[-1].content)[1])
    if draw.random() < 0.15:
        return draw.choice(["", "no idea"])
    return f"seed {request.seed}. Answer: {7 * number + draw.choice([0, 0, 1])}"


def judge(request, candidate):
    """Any float; one in six is missing, and some are tiny."""
    draw = random.Random(f"{request.seed} {candidate}")
    if draw.random() < 1 / 6:
        return None
    return draw.uniform(-1, 1) * draw.choice([1, 1e-4, 1e-8, 1e-10])


def team(budget=False, roles=(ROLES,) * 4, pooled=False):
    engine = ScriptedEngine(write, judge)
    members = [
        Agent(name, "scripted", decoding=Decoding(max_new_tokens=8 * (i + 1)), roles=roles[i])
        for i, name in enumerate(NAMES)
    ]
    encoder = HashedEncoder(8)
    consensus = ConsensusCell(8, agents=len(NAMES), slots=3).double()
    answers = GradersAnswers(GRADED.grader) if pooled else None
    cell = MacroRNNCell(Ensemble({"scripted": engine}, members), encoder, consensus, seed=3, answers=answers)
    broker = BudgetBroker(min_proposers=2, max_proposers=3, min_judges=2, max_judges=2) if budget else None
    return MacroRNN(cell, halting=EvidenceHalting(rounds=4, min_rounds=1, effort=0.2), broker=broker)


def collected(folder, **options):
    rnn = team(**options)
    writer = TraceWriter(folder)
    with torch.no_grad():
        writer.add(GRADED.traces(rnn(TASKS).transcripts))
    writer.finish(rnn.cell.encoder.embed)
    return list(read_traces(folder))


SOME = (("judge",), ("proposer",), ROLES, ("proposer",))


def test_a_judge_that_proposes_nothing_has_a_row_and_no_column(tmp_path):
    """Indices are the ensemble's; it answered nothing and was right nowhere."""
    collected(tmp_path, roles=SOME)
    episodes = load_traces(tmp_path)
    assert episodes.agents == NAMES
    assert {tuple(row) for row in episodes.authors[episodes.round_mask].tolist()} == {(1, 2, 3)}
    assert {tuple(row) for row in episodes.voters[episodes.round_mask].tolist()} == {(0, 2)}
    found = episodes.by_agent()
    assert not found.right[:, 0].any()
    assert found.answered.any(0).tolist() == [False, True, True, True]
    assert (found.classes[:, 0] == -1).all()
    assert (found.labels == -1).all()


@pytest.mark.parametrize("options", [{}, {"budget": True}, {"roles": SOME}])
def test_a_fresh_cell_decides_again_what_the_transcripts_say(tmp_path, options):
    traces = collected(tmp_path, **options)
    episodes = load_traces(tmp_path)
    lengths = {len(trace.transcript.rounds) for trace in traces}
    assert len(lengths) > 1
    output, _ = (
        ConsensusCell(8, agents=len(NAMES), slots=3)
        .double()
        .unroll(
            episodes.embeddings,
            episodes.ratings,
            episodes.vote_mask,
            episodes.task,
            voters=episodes.voters.clamp(min=0),
            authors=episodes.authors,
            proposal_mask=episodes.proposal_mask,
            voter_mask=episodes.voter_mask,
            round_mask=episodes.round_mask,
        )
    )
    for b, trace in enumerate(traces):
        for r, record in enumerate(trace.transcript.rounds):
            p = len(record.proposals)
            torch.testing.assert_close(
                output.support[b, r, :p].tolist(), record.support, rtol=0, atol=1e-9, msg=f"{b} {r}"
            )
            torch.testing.assert_close(output.consensus[b, r, :p].tolist(), record.consensus, rtol=0, atol=1e-9)
            assert output.winner[b, r] == (-1 if record.winner is None else record.winner)


@pytest.mark.parametrize("options", [{}, {"budget": True}, {"roles": SOME}])
def test_a_team_that_pooled_its_answers_is_decided_again_by_its_own_classes(tmp_path, options):
    traces = collected(tmp_path, pooled=True, **options)
    # Another rule than the one that the team pooled by, under which no two answers are equal.
    episodes = load_traces(tmp_path, equality=Nothing(math_verify=False))
    cell = ConsensusCell(8, agents=len(NAMES), slots=3).double()
    output = unroll(cell, episodes)
    pooled = 0
    for b, trace in enumerate(traces):
        for r, record in enumerate(trace.transcript.rounds):
            p = len(record.proposals)
            assert from_zero(episodes.classes[b, r, :p].tolist()) == from_zero(record.classes)
            assert (episodes.classes[b, r, p:] == -1).all()
            for name in ("support", "consensus"):
                got = getattr(output, name)[b, r, :p].tolist()
                torch.testing.assert_close(got, getattr(record, name), rtol=0, atol=1e-9)
            assert output.conviction[b, r].item() == pytest.approx(record.conviction, abs=1e-6)
            assert output.decisiveness[b, r].item() == pytest.approx(record.decisiveness, abs=1e-9)
            assert output.winner[b, r] == (-1 if record.winner is None else record.winner)
            numbers = [number for number in record.classes if number >= 0]
            pooled += len(numbers) - len(set(numbers))
    assert pooled > 5


def from_zero(numbers):
    """The same classes, numbered in the order in which they come; -1 stays."""
    order = dict.fromkeys(number for number in numbers if number >= 0)
    return [-1 if number < 0 else list(order).index(number) for number in numbers]


class Nothing(Equality):
    """Every answer is its own."""

    def classes(self, answers):
        return torch.arange(len(answers[0])).expand(len(answers), -1).clone()


def test_a_team_that_did_not_pool_has_the_classes_of_its_final_answers(tmp_path):
    traces = collected(tmp_path)
    assert {number for trace in traces for record in trace.transcript.rounds for number in record.classes} == {-1}
    assert load_traces(tmp_path, equality=Nothing(math_verify=False)).classes.unique().tolist() == [*range(-1, 16)]
    found, same, known = load_traces(tmp_path, equality=RULE).classes, 0, {}
    for b, trace in enumerate(traces):
        for r, row in enumerate(trace.answers):
            numbers = found[b, r, : len(row)].tolist()
            assert from_zero(numbers) == from_zero(GRADED.grader.classes(trace.transcript.task, row))
            # An answer has its number in every round.
            assert all(known.setdefault((b, answer), n) == n for answer, n in zip(row, numbers, strict=True) if answer)
            same += len(row) - len(set(row))
    assert same > 5


def test_an_answer_costs_what_it_costs_alone_whoever_paid_for_a_shared_prompt(tmp_path):
    (trace, *_), costs = collected(tmp_path / "whole"), []
    record = trace.transcript.rounds[0]
    for payer in range(len(record.proposals)):
        usages = [
            dataclasses.replace(p.usage, computed_tokens=p.usage.billed if i == payer else p.usage.completion_tokens)
            for i, p in enumerate(record.proposals)
        ]
        proposals = [dataclasses.replace(p, usage=u) for p, u in zip(record.proposals, usages, strict=True)]
        saved = sum(u.billed - u.tokens for u in usages)
        whole = dataclasses.replace(record.usage, computed_tokens=record.usage.tokens - saved)
        rounds = [dataclasses.replace(record, proposals=proposals, usage=whole)]
        transcript = dataclasses.replace(trace.transcript, rounds=rounds)
        writer = TraceWriter(tmp_path / str(payer))
        writer.add(
            [dataclasses.replace(trace, transcript=transcript, grades=trace.grades[:1], answers=trace.answers[:1])]
        )
        writer.finish(HashedEncoder(8).embed)
        episodes = load_traces(tmp_path / str(payer), equality=RULE)
        costs.append((episodes.cost.tolist(), episodes.proposal_cost.tolist()))
    assert costs == [([[record.usage.tokens]], [[[p.usage.billed for p in record.proposals]]])] * len(record.proposals)


def test_every_entry_is_the_transcripts(tmp_path):
    traces = collected(tmp_path, budget=True)
    episodes = load_traces(tmp_path, equality=RULE)
    assert episodes.ids == tuple(task.id for task in TASKS)
    assert episodes.agents == NAMES
    assert (episodes.embeddings.dtype, episodes.dim) == (torch.float64, 8)
    encoder = HashedEncoder(8)
    torch.testing.assert_close(episodes.task, encoder.embed([task.question for task in TASKS]).double())
    for b, trace in enumerate(traces):
        rounds = trace.transcript.rounds
        assert episodes.round_mask[b].tolist() == [r < len(rounds) for r in range(episodes.round_mask.shape[1])]
        assert episodes.last[b] == len(rounds) - 1
        assert episodes.cost[b, : len(rounds)].tolist() == [float(record.usage.tokens) for record in rounds]
        assert episodes.cost[b, len(rounds) :].isnan().all()
        for r, record in enumerate(rounds):
            v, p = len(record.voters), len(record.proposals)
            texts = [proposal.text for proposal in record.proposals]
            assert episodes.embeddings[b, r, :p].float().equal(encoder.embed(texts))
            assert episodes.vote_mask[b, r, :v, :p].tolist() == record.vote_mask
            given = [[x or 0.0 for x in row] for row in record.ratings]
            assert episodes.ratings[b, r, :v, :p].tolist() == given
            assert [NAMES[i] for i in episodes.voters[b, r, :v].tolist()] == record.voters
            assert [NAMES[i] for i in episodes.authors[b, r, :p].tolist()] == record.proposers
            assert episodes.voter_mask[b, r].sum() == v
            assert episodes.proposal_mask[b, r].sum() == sum(map(bool, texts))
            assert episodes.correct[b, r, :p].tolist() == trace.grades[r]
            answers, classes = trace.answers[r], episodes.classes[b, r, :p].tolist()
            assert [c < 0 for c in classes] == [answer is None for answer in answers]
            assert [[x == y for x in classes] for y in classes] == [[x == y for x in answers] for y in answers]
        assert not episodes.vote_mask[b, len(rounds) :].any()
        assert (episodes.classes[b, len(rounds) :] == -1).all()
    assert any(answer is None for trace in traces for row in trace.answers for answer in row)
    assert episodes.correct.any()
    assert not episodes.correct[~episodes.proposal_mask].any()


def test_traces_and_embeddings_that_do_not_belong_together_are_named(tmp_path):
    traces = collected(tmp_path)
    writer = TraceWriter(tmp_path)
    writer.add(traces)
    with (tmp_path / "traces.jsonl").open("a", encoding="utf-8") as file:
        file.write(traces[0].to_line().replace('"id": "q0"', '"id": "new"'))
    with pytest.raises(ValueError, match=r"trace 8: expected embeddings of task 'new' of shapes .*, got \[\]; rerun"):
        load_traces(tmp_path)
    lines = (tmp_path / "traces.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "traces.jsonl").write_text(lines[0] + lines[1].replace("ann", "zoe"), encoding="utf-8")
    with pytest.raises(ValueError, match="trace 2: expected the agents ann, bob, cy, dee, as in the first trace"):
        load_traces(tmp_path)


def test_an_unfinished_folder_says_how_to_go_on(tmp_path):
    traces = collected(tmp_path / "whole")
    TraceWriter(tmp_path / "part").add(traces[:3])
    with pytest.raises(ValueError, match="run the same nsed collect again, which goes on where it was"):
        load_traces(tmp_path / "part")


def test_joined_records_decide_as_each_did(tmp_path):
    """A whole deliberation of three rounds and the first rounds of others, padded to one size."""
    collected(tmp_path / "all", budget=True)
    everything = load_traces(tmp_path / "all")
    short = {name: getattr(everything, name)[:, :1] for name in ("embeddings", "ratings", "vote_mask", "voters")}
    short |= {
        name: getattr(everything, name)[:, :1] for name in ("authors", "proposal_mask", "voter_mask", "round_mask")
    }
    short |= {name: getattr(everything, name)[:, :1] for name in ("correct", "classes", "cost", "proposal_cost")}
    parts = [everything.select([0, 3]), dataclasses.replace(everything, **short).select([1, 2, 4])]
    whole = joined(parts)
    assert whole.ids == parts[0].ids + parts[1].ids
    cell = team().cell.consensus
    rows = 0
    for part in parts:
        mine, own = unroll(cell, whole.select(range(rows, rows + len(part)))), unroll(cell, part)
        at = torch.arange(len(part))
        assert torch.equal(mine.winner[at, part.last], own.winner[at, part.last])
        torch.testing.assert_close(mine.support[at, part.last][:, : own.support.shape[2]], own.support[at, part.last])
        rows += len(part)
    assert whole.cost[2:, 1:].isnan().all()
    assert (whole.authors[2:, 1:] == -1).all()


def test_what_does_not_belong_together_is_not_joined(tmp_path):
    collected(tmp_path / "all")
    part = load_traces(tmp_path / "all")
    with pytest.raises(ValueError, match="expected every task in one record, got 'q2' in two"):
        joined([part.select([1, 2]), part.select([2, 3])])
    other = dataclasses.replace(part.select([2, 3]), agents=("ann", "bob", "cy", "eve"))
    with pytest.raises(ValueError, match="expected records of the same agents"):
        joined([part.select([1]), other])
    unpriced = dataclasses.replace(part.select([3]), proposal_cost=None)
    assert joined([part.select([1]), unpriced]).proposal_cost is None
