"""Proposals that say the same are one answer: it is voted on, and remembered, once."""

import math

import pytest
import torch
from drawn_tensors import REAL, trained
from drawn_tensors import a_round as drawn_round
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import RoundInput
from nsed_torch.core.functional.tally import POOLINGS

POOLED = st.sampled_from(POOLINGS)


def a_round(batch, voters, proposals, dim, seed):
    g = torch.Generator().manual_seed(seed)
    return *drawn_round(batch, voters, proposals, dim, seed), torch.randint(-1, 2, (batch, proposals), generator=g)


def close(mine, other):
    torch.testing.assert_close(mine, other, atol=1e-12, rtol=0)


def test_two_that_say_the_same_win_or_lose_by_their_mean():
    """Judges split over two wordings of one answer; a third answer stands between the two."""
    # Everybody rates two others, so that r = sqrt(1/2) of every ballot goes to each.
    ratings = torch.tensor([[[0.0, 0.5, -0.5, 0.5], [0.5, 0.0, -0.5, 0.5]]], dtype=REAL)
    mask = torch.tensor([[[False, True, True, False], [True, False, False, True]]])
    cell, task, e = ConsensusCell(3, 2).double(), torch.zeros(1, 3, dtype=REAL), torch.randn(1, 4, 3, dtype=REAL)
    r = math.sqrt(0.5)
    alone, _ = cell(e, ratings, mask, task)
    close(alone.support, torch.tensor([[r, r, -r, r]], dtype=REAL))
    assert alone.winner.item() == 0
    # The first now shares the fate of the third, which is rejected; the next answer wins.
    out, state = cell(e, ratings, mask, task, classes=torch.tensor([[7, -1, 7, -1]]))
    close(out.support, alone.support)
    close(out.answer_support, torch.tensor([[0, r, 0, r]], dtype=REAL))
    assert out.shown_by.tolist() == [[0, 1, 0, 3]]
    assert out.answer_mask.tolist() == [[True, True, False, True]]
    assert out.winner.item() == 1
    odds = 1 + 2 * math.exp(r)
    close(out.consensus, torch.tensor([[1 / odds, math.exp(r) / odds, 0, math.exp(r) / odds]], dtype=REAL))
    assert out.conviction.item() == pytest.approx(1 / 2)
    assert out.decisiveness.item() == pytest.approx(2 * r)
    assert not out.all_negative
    assert state.support[0].tolist() == pytest.approx([r, r, 0, 0])


def test_an_answer_may_be_negative_though_its_best_proposal_is_not():
    ratings = torch.tensor([[[0.2, -0.9]]], dtype=REAL)
    cell = ConsensusCell(2, 1).double()
    args = torch.ones(1, 2, 2, dtype=REAL), ratings, torch.ones(1, 1, 2, dtype=torch.bool), torch.zeros(1, 2).double()
    assert not cell(*args)[0].all_negative
    out, _ = cell(*args, classes=torch.zeros(1, 2, dtype=torch.long))
    assert out.all_negative
    assert out.winner.item() == 0
    assert out.conviction.item() == -1
    assert out.consensus.tolist() == [[1, 0]]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), POOLED, st.booleans())
def test_classes_of_one_are_no_classes(seed, pooling, numbered):
    cell, state, plain = trained(3, 4, seed, pooling=pooling), None, None
    for r in range(2):
        e, ratings, mask, task, _ = a_round(2, 4, 5, 3, seed + r)
        classes = torch.tensor([[3, 0, 4, 1, 2]] * 2) if numbered else torch.full((2, 5), -1)
        out, state = cell(e, ratings, mask, task, state, classes=classes)
        expected, plain = cell(e, ratings, mask, task, plain)
        for name, value in expected._asdict().items():
            close(getattr(out, name), value)
        assert out.shown_by.tolist() == [[0, 1, 2, 3, 4]] * 2
        for mine, other in zip(state, plain, strict=True):
            close(mine, other)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), POOLED)
def test_the_order_of_agents_and_of_proposals_changes_nothing(seed, pooling):
    cell = trained(3, 5, seed, pooling=pooling)
    g = torch.Generator().manual_seed(seed)
    e, ratings, mask, task, classes = a_round(2, 4, 5, 3, seed)
    _, before = cell(*a_round(2, 4, 5, 3, seed + 1)[:3], task)  # with a state, no supports are equal
    voters, authors = torch.tensor([[4, 0, 2, 1]] * 2), torch.tensor([[0, 1, 2, -1, 4]] * 2)
    here, kept = cell(e, ratings, mask, task, before, voters=voters, authors=authors, classes=classes)
    rows, columns = torch.randperm(4, generator=g), torch.randperm(5, generator=g)
    there, other = cell(
        e[:, columns], ratings[:, rows][..., columns], mask[:, rows][..., columns], task, before,
        voters=voters[:, rows], authors=authors[:, columns], classes=classes[:, columns],
    )  # fmt: skip
    close(there.ballots, here.ballots[:, rows][..., columns])
    close(there.trust, here.trust[:, rows])
    for name in ("support", "answer_support", "consensus", "controversy"):
        close(getattr(there, name), getattr(here, name)[:, columns])
    assert torch.equal(columns[there.shown_by], here.shown_by[:, columns])
    assert torch.equal(columns[there.winner], here.winner)
    for name in ("all_negative", "conviction", "decisiveness", "gate"):
        close(getattr(there, name), getattr(here, name))
    for mine, others in zip(kept, other, strict=True):
        close(mine, others)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), POOLED)
def test_the_numbers_of_classes_mean_nothing(seed, pooling):
    cell = trained(3, 4, seed, pooling=pooling)
    e, ratings, mask, task, classes = a_round(2, 4, 5, 3, seed)
    renamed = torch.where(classes < 0, -1, 9 - 4 * classes)
    (mine, _), (other, _) = (cell(e, ratings, mask, task, classes=c) for c in (classes, renamed))
    for one, same in zip(mine, other, strict=True):
        assert torch.equal(one, same)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradcheck_through_two_rounds(pooling):
    cell = trained(2, 3, slots=3, pooling=pooling)
    first, second = (a_round(2, 3, 5, 2, seed) for seed in (1, 2))
    counts = torch.tensor([[True] * 5, [True, True, False, True, True]])
    names = [name for name, _ in cell.named_parameters()]
    ratings = [0.9 * r[1] + 0.1 * r[1].sign() + (r[1] == 0) * 0.3 for r in (first, second)]

    def run(e, ratings0, ratings1, task, *parameters):
        def call(classes, *args):
            options = {"authors": torch.arange(5).expand(2, -1), "classes": classes, "proposal_mask": counts}
            return torch.func.functional_call(cell, dict(zip(names, parameters, strict=True)), args, options)

        _, state = call(torch.tensor([[0, 1, 0, -1, 1], [0, 0, 0, 0, 0]]), e, ratings0, first[2], task)
        out, state = call(torch.tensor([[-1, 2, 2, 2, -1]] * 2), second[0], ratings1, second[2], task, state)
        return out.consensus, out.answer_support, state.hidden(), out.conviction, out.decisiveness, state.retention

    inputs = [first[0], *ratings, first[3], *(p.detach() for p in cell.parameters())]
    assert gradcheck(run, [t.detach().clone().requires_grad_() for t in inputs], fast_mode=True)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_finite_where_all_say_the_same_or_nobody_anything(pooling):
    cell = trained(3, 3, pooling=pooling)
    e, ratings, mask, task, _ = a_round(3, 3, 3, 3, 0)
    ratings.requires_grad_()
    mask[2] = False
    answered, state = torch.tensor([[True] * 3, [False] * 3, [True] * 3]), None
    for _ in range(2):
        out, state = cell(
            e, ratings, mask, task, state, classes=torch.zeros(3, 3, dtype=torch.long), proposal_mask=answered
        )
    assert out.winner[1] == -1
    assert out.consensus.sum(1).tolist() == pytest.approx([1, 0, 1])
    (out.consensus.sum() + out.conviction.sum() + state.hidden().sum() + out.answer_support.sum()).backward()
    for tensor in (ratings, *(p for p in cell.parameters() if p.grad is not None)):
        assert tensor.grad.isfinite().all()


def test_memory_holds_each_answer_once():
    cell = ConsensusCell(2, 3, slots=6).double()
    e, ratings, mask, task, _ = a_round(1, 3, 5, 2, 3)
    classes = torch.tensor([[4, 0, 4, -1, 0]])
    out, state = cell(e, ratings, torch.ones_like(mask), task, classes=classes)
    shown = out.answer_mask[0].nonzero()[:, 0]
    assert sorted(classes[0, shown].tolist()) == [-1, 0, 4]
    for j in range(5):
        mates = [i for i in range(5) if i == j or classes[0, i] == classes[0, j] >= 0]
        assert out.shown_by[0, j] == max(mates, key=lambda i: out.support[0, i])
    assert state.mask[0].tolist() == [True] * 3 + [False] * 3
    order = out.source[0, :3] - 6  # proposals stand behind six old slots
    assert sorted(order.tolist()) == shown.tolist()
    assert order[0] == out.winner[0]
    close(state.embeddings[0, :3], e[0, order])
    close(state.retention[0, :3], out.consensus[0, order])
    close(state.support[0, :3], out.answer_support[0, order])
    close(state.hidden()[0], out.consensus[0] @ e[0])


def test_unroll_and_elect_pool_as_forward_does():
    cell = trained(3, 4, slots=3)
    rounds = [a_round(2, 4, 5, 3, seed) for seed in range(3)]
    e, ratings, mask, _, classes = (torch.stack(parts, 1) for parts in zip(*rounds, strict=True))
    task, authors = rounds[0][3], torch.arange(5).expand(2, 3, -1)
    outputs, last = cell.unroll(e, ratings, mask, task, authors=authors, classes=classes)
    state = None
    for r in range(3):
        options = {"authors": authors[:, r], "classes": classes[:, r]}
        hidden = None if state is None else state.hidden()
        inputs = RoundInput(ratings[:, r], mask[:, r], **options)
        found = cell.elect(inputs, task, hidden)
        known = cell.elect(inputs, task, hidden, prepared=cell.prepare(inputs))
        out, state = cell(e[:, r], ratings[:, r], mask[:, r], task, state, **options)
        for name, value in out._asdict().items():
            assert torch.equal(getattr(outputs, name)[:, r], value), name
        assert found.gate.shape == found.source.shape == (2, 0)
        for name, value in found._replace(gate=out.gate, source=out.source)._asdict().items():
            assert torch.equal(getattr(out, name), value), name
        for name, value in found._asdict().items():
            assert torch.equal(getattr(known, name), value), name
        assert torch.equal(outputs.answer_mask[:, r], found.answer_mask)
    for mine, other in zip(last, state, strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(outputs.answer_mask, torch.ones_like(outputs.answer_mask))
    # A round that was not held shows no answer.
    held = torch.tensor([[True, False, True]] * 2)
    assert not cell.unroll(e, ratings, mask, task, classes=classes, round_mask=held)[0].answer_mask[:, 1].any()


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match="expected pooling to be mean, sum or logsumexp, got 'median'"):
        ConsensusCell(3, 2, pooling="median")
    assert "pooling='sum'" in repr(ConsensusCell(3, 2, pooling="sum"))
