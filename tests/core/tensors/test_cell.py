import math

import pytest
import torch
from drawn_tensors import REAL, a_round, trained
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.functional.tally import POOLINGS
from nsed_torch.core.memory import MemoryState
from nsed_torch.parts.gates import OpenGate
from nsed_torch.parts.votes import TokenVote


class Oracle:
    """The published protocol with our recurrence, one task, in plain numbers."""

    def __init__(self, slots, leak=0.8):
        self.slots, self.leak, self.memory = slots, leak, []  # memory: (retention, embedding, support, age)

    def round(self, embeddings, ratings, mask):
        n = len(embeddings)
        support = [0.0] * n
        for row, counts in zip(ratings, mask, strict=True):
            total = sum(abs(r) for r, c in zip(row, counts, strict=True) if c)
            for j in range(n):
                if counts[j] and total > 0:
                    f = row[j] / total
                    support[j] += math.copysign(math.sqrt(abs(f)), f)
        odds = [math.exp(s) for s in support]
        p = [o / sum(odds) for o in odds]
        winner = max(range(n), key=lambda j: (support[j], -j))
        old = [(self.leak * r, e, s, a + 1) for r, e, s, a in self.memory]
        pool = old + [(p[j], embeddings[j], support[j], 0) for j in range(n)]
        self.memory = sorted(pool, key=lambda slot: -round(slot[0], 9))[: self.slots]
        weight = sum(slot[0] for slot in self.memory)
        hidden = [sum(s[0] * s[1][d] for s in self.memory) / weight for d in range(len(embeddings[0]))]
        total = sum(map(abs, support))
        return support, p, winner, support[winner] / total if total else 0.0, hidden


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(1, 5), st.integers(0, 2**31), st.sampled_from([torch.float32, REAL]))
def test_fresh_cell_is_the_published_protocol(agents, slots, seed, dtype):
    cell, state = ConsensusCell(4, agents, slots).to(dtype), None
    oracles = [Oracle(slots) for _ in range(2)]
    for r in range(3):
        e, ratings, mask, task = a_round(2, agents, agents, 4, seed + r)
        mask &= ~torch.eye(agents, dtype=torch.bool)
        e, ratings, task = e.to(dtype), ratings.to(dtype), task.to(dtype)
        out, state = cell(e, ratings, mask, task, state)
        for b, oracle in enumerate(oracles):
            support, p, winner, conviction, hidden = oracle.round(e[b].tolist(), ratings[b].tolist(), mask[b].tolist())
            atol = 1e-6 if dtype == REAL else 1e-5
            assert out.support[b].tolist() == pytest.approx(support, abs=atol)
            assert out.consensus[b].tolist() == pytest.approx(p, abs=atol)
            assert support[out.winner[b]] == pytest.approx(support[winner], abs=atol)
            assert out.conviction[b].item() == pytest.approx(conviction, abs=atol)
            kept = state.retention[b][state.mask[b]].tolist()
            assert kept == pytest.approx([slot[0] for slot in oracle.memory], abs=atol)
            if dtype == REAL:  # float32 may keep another of two slots that differ by less than 1e-5
                assert state.hidden()[b].tolist() == pytest.approx(hidden, abs=atol)
                assert state.support[b][state.mask[b]].tolist() == pytest.approx(
                    [s[2] for s in oracle.memory], abs=atol
                )
                assert state.age[b][state.mask[b]].tolist() == [s[3] for s in oracle.memory]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31), st.sampled_from(POOLINGS), st.booleans(), st.booleans()
)
def test_masking_equals_deleting(voters, proposals, seed, pooling, old_vote, pooled):
    """Whatever stands where nothing counts: NaN, no agent, a class that others have as well."""
    v, p = voters + 2, proposals + 2
    cell = trained(3, 9, seed, slots=3, vote=TokenVote() if old_vote else None, pooling=pooling)
    g = torch.Generator().manual_seed(seed)
    keep_v, keep_p = (torch.randperm(n, generator=g)[:m].sort().values for n, m in ((v, voters), (p, proposals)))
    voter_mask, proposal_mask = torch.zeros(2, v, dtype=torch.bool), torch.zeros(2, p, dtype=torch.bool)
    voter_mask[:, keep_v], proposal_mask[:, keep_p] = True, True
    masks = {"voter_mask": voter_mask, "proposal_mask": proposal_mask}
    state = short = None
    for r in range(3):
        e, ratings, mask, task = a_round(2, v, p, 3, seed + r)
        pool = torch.randperm(9, generator=g)[:v].expand(2, -1).clone()
        wrote = torch.randint(-1, 9, (2, p), generator=g)
        classes = torch.randint(-1, 2, (2, p), generator=g) if pooled else None
        deleted, short = cell(
            e[:, keep_p], ratings[:, keep_v][:, :, keep_p], mask[:, keep_v][:, :, keep_p], task, short,
            voters=pool[:, keep_v], authors=wrote[:, keep_p], classes=classes[:, keep_p] if pooled else None,
        )  # fmt: skip
        e = torch.where(proposal_mask[:, :, None], e, math.nan)
        ratings = torch.where(voter_mask[:, :, None] & proposal_mask[:, None, :], ratings, math.nan)
        pool[~voter_mask] = -1
        masked, state = cell(e, ratings, mask, task, state, voters=pool, authors=wrote, classes=classes, **masks)
        close = {"atol": 1e-12, "rtol": 0}
        torch.testing.assert_close(masked.ballots[:, keep_v][:, :, keep_p], deleted.ballots, **close)
        torch.testing.assert_close(masked.trust[:, keep_v], deleted.trust, **close)
        for name in ("support", "answer_support", "consensus", "controversy"):
            torch.testing.assert_close(getattr(masked, name)[:, keep_p], getattr(deleted, name), **close)
        for name in ("conviction", "decisiveness", "all_negative", "gate"):
            torch.testing.assert_close(getattr(masked, name), getattr(deleted, name), **close)
        assert not masked.answer_support[~proposal_mask].any()
        assert torch.equal(masked.shown_by[:, keep_p], keep_p[deleted.shown_by])
        assert (masked.shown_by[~proposal_mask] == -1).all()
        assert torch.equal(masked.winner, keep_p[deleted.winner])
        renamed = torch.cat([torch.arange(3), keep_p + 3, torch.tensor([-1])])[deleted.source]
        assert torch.equal(masked.source, renamed)
        for mine, other in zip(state, short, strict=True):
            torch.testing.assert_close(mine, other, **close)


@pytest.mark.parametrize(("voters", "proposals"), [(3, 4), (1, 3), (3, 1)])
def test_gradcheck_through_two_rounds(voters, proposals):
    cell = trained(2, 3, slots=3)
    first, second = (a_round(2, voters, proposals, 2, seed) for seed in (1, 2))
    mask = torch.ones_like(first[2])
    mask[:, 0] = voters == 1
    names = [name for name, _ in cell.named_parameters()]
    ratings = [0.9 * r[1] + 0.1 * r[1].sign() + (r[1] == 0) * 0.3 for r in (first, second)]

    def run(e, ratings0, ratings1, task, *parameters):
        def call(*args):
            authors = {"authors": torch.arange(proposals).expand(2, -1)}
            return torch.func.functional_call(cell, dict(zip(names, parameters, strict=True)), args, authors)

        _, state = call(e, ratings0, mask, task)
        out, state = call(second[0], ratings1, mask, task, state)
        return out.consensus, state.hidden(), out.conviction, state.retention, out.trust

    inputs = [first[0], *ratings, first[3], *(p.detach() for p in cell.parameters())]
    assert gradcheck(run, [t.detach().clone().requires_grad_() for t in inputs], fast_mode=True)


def test_gradients_cross_rounds_and_reach_every_parameter():
    cell = trained(3, 4)
    e, ratings, mask, task = a_round(2, 4, 4, 3, 7)
    e.requires_grad_()
    mask[:] = ~torch.eye(4, dtype=torch.bool)
    authors = torch.arange(4).expand(2, -1)
    _, state = cell(e, ratings, mask, task, authors=authors)
    _, state = cell(a_round(2, 4, 4, 3, 8)[0], a_round(2, 4, 4, 3, 8)[1], mask, task, state, authors=authors)
    out, _ = cell(a_round(2, 4, 4, 3, 9)[0], a_round(2, 4, 4, 3, 9)[1], mask, task, state, authors=authors)
    out.consensus[:, 0].sum().backward()
    assert e.grad.abs().sum() > 0
    for name, parameter in cell.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("dtype", [torch.float32, REAL])
def test_finite_where_nobody_votes_or_answers_or_all_tie(dtype):
    cell = trained(3, 3).to(dtype)
    cell.backing.data.zero_()  # so that all tie
    e = torch.zeros(3, 3, 3, dtype=dtype, requires_grad=True)
    ratings = torch.zeros(3, 3, 3, dtype=dtype)
    ratings[2] = 1.0
    ratings[0, 1] = math.nan
    ratings.requires_grad_()
    mask = torch.ones(3, 3, 3, dtype=torch.bool)
    mask[0] = False
    answered = torch.tensor([[True] * 3, [False] * 3, [True] * 3])
    task, state = torch.zeros(3, 3, dtype=dtype), None
    for _ in range(3):
        authors = torch.arange(3).expand(3, -1)
        out, state = cell(e, ratings, mask, task, state, authors=authors, proposal_mask=answered)
    (out.consensus.sum() + state.hidden().sum() + out.conviction.sum() + state.retention.sum()).backward()
    assert out.winner.tolist() == [0, -1, 0]
    assert not state.mask[1].any()
    for tensor in (e, ratings, *cell.parameters()):
        assert tensor.grad.isfinite().all()


def test_parameters_and_state_dict():
    cell = ConsensusCell(3, 4)
    assert (cell.beta.item(), cell.backing.item()) == (1, 0)
    shapes = {name: tuple(p.shape) for name, p in cell.named_parameters()}
    assert shapes == {
        "log_beta": (), "backing": (), "gate.weight": (4,), "gate.bias": (),
        "trust.bias": (4,), "trust.weight": (4, 6),
    }  # fmt: skip
    other = ConsensusCell(3, 4)
    other.load_state_dict({**cell.state_dict(), "log_beta": torch.tensor(2.0).log()})
    assert other.beta.item() == pytest.approx(2)
    assert "agents=4" in repr(ConsensusCell(3, 4, gate=OpenGate()))


def test_backing_adds_what_the_author_would_have_said():
    cell = ConsensusCell(2, 5).double()
    e, ratings, mask, task = a_round(1, 3, 4, 2, 3)
    with torch.no_grad():
        cell.backing.fill_(0.5)
        cell.trust.bias.copy_(torch.tensor([0.3, 9.0, -1.0, 0.0, 0.7]))
    voters, authors = torch.tensor([[4, 0, 2]]), torch.tensor([[2, 3, -1, 4]])
    backed, _ = cell(e, ratings, mask, task, voters=voters, authors=authors)
    plain, _ = cell(e, ratings, mask, task, voters=voters)
    tau = plain.trust[0]
    added = (backed.support - plain.support)[0]
    torch.testing.assert_close(added, 0.5 * torch.stack([tau[2], tau[0] * 0, tau[0] * 0, tau[0]]))


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 1, got 3, 0 and 4"):
        ConsensusCell(3, 0)
    cell = ConsensusCell(3, 2).double()
    e, ratings, mask, task = a_round(1, 2, 2, 4, 0)
    with pytest.raises(ValueError, match="embeddings of width 3, got 4"):
        cell(e, ratings, mask, task)
    e, ratings, mask, task = a_round(1, 3, 2, 3, 0)
    with pytest.raises(ValueError, match="at most 2 voters, got 3: raise agents"):
        cell(e, ratings, mask, task)
    with pytest.raises(ValueError, match=r"\(1, 4\), got \(1, 2\): start from state=None"):
        cell(e, ratings[:, :2], mask[:, :2], task, MemoryState.empty(1, 2, 3, REAL))


COMPILE = """
import torch
from nsed_torch.core.cell import ConsensusCell
cell = ConsensusCell(4, 3)
fast = torch.compile(cell, fullgraph=True, backend="aot_eager")
torch.manual_seed(0)
state = plain = None
for _ in range(2):
    args = torch.randn(2, 3, 4), torch.rand(2, 3, 3), ~torch.eye(3, dtype=torch.bool).expand(2, 3, 3), torch.randn(2, 4)
    out, state = fast(*args, state)
    expected, plain = cell(*args, plain)
    torch.testing.assert_close(tuple(out), tuple(expected))
state.hidden().sum().backward()
assert cell.gate.bias.grad.isfinite()
"""


def test_compiles_as_one_graph(plain_python):
    # in a child process: the type checks that pytest hooks in cannot be traced
    done = plain_python(COMPILE, has=["torch._dynamo"])
    assert done.returncode == 0, done.err


def test_what_is_masked_has_no_support():
    """An author's backing would give it some."""
    cell = ConsensusCell(2, 3)
    with torch.no_grad():
        cell.trust.weight.fill_(1)
        cell.backing.fill_(1)
    embeddings, task = torch.ones(1, 3, 2), torch.ones(1, 2)
    ratings, mask, authors = torch.full((1, 3, 3), 0.5), ~torch.eye(3).bool()[None], torch.arange(3)[None]
    _, state = cell(embeddings, ratings, mask, task, authors=authors)
    there = torch.tensor([[True, False, True]])
    output, _ = cell(embeddings, ratings, mask, task, state, authors=authors, proposal_mask=there)
    assert (output.support != 0).tolist() == there.tolist()
