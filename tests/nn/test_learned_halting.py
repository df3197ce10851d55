import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.func import functional_call

from nsed_torch.nn import FixedHalting
from nsed_torch.nn.learned_halting import LearnedHalting, expected_value, stop_probability

REAL = torch.float64


def randn(*shape, seed=0, grad=False):
    return torch.randn(shape, dtype=REAL, generator=torch.Generator().manual_seed(seed), requires_grad=grad)


def chances_by_hand(logits, mask):
    """In plain Python, one task."""
    held = [r for r, there in enumerate(mask) if there]
    left, chances = 1.0, [0.0] * len(logits)
    for r in held:
        stop = 1.0 if r == held[-1] else 1 / (1 + math.exp(-logits[r]))
        chances[r] = left * stop
        left *= 1 - stop
    return chances


ROUNDS = st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=7)


@settings(max_examples=30)
@given(ROUNDS)
def test_stop_probability_against_plain_python(rounds):
    logits, mask = (list(column) for column in zip(*rounds, strict=True))
    shown = [value if there else math.nan for value, there in rounds]
    got = stop_probability(torch.tensor([shown], dtype=REAL), torch.tensor([mask]))
    torch.testing.assert_close(got, torch.tensor([chances_by_hand(logits, mask)], dtype=REAL), atol=1e-12, rtol=0)
    assert got.sum().item() == pytest.approx(float(any(mask)), abs=1e-12)
    kept = torch.tensor([[value for value, there in rounds if there]], dtype=REAL).reshape(1, -1)
    if any(mask):  # masking equals deleting
        torch.testing.assert_close(got[torch.tensor([mask])][None], stop_probability(kept))


@settings(max_examples=30)
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=6), st.floats(0, 2), st.integers(0, 2**31))
def test_expected_value_is_a_mean_over_rounds(logits, price, seed):
    chances = stop_probability(torch.tensor([logits], dtype=REAL))
    correct, cost = randn(1, len(logits), seed=seed).sigmoid(), randn(1, len(logits), seed=seed + 1).abs().cumsum(-1)
    got = expected_value(chances, correct, cost, price).item()
    terms = zip(chances[0].tolist(), correct[0].tolist(), cost[0].tolist(), strict=True)
    assert got == pytest.approx(sum(q * (a - price * c) for q, a, c in terms), abs=1e-12)
    values = (correct - price * cost)[0].tolist()
    assert min(values) - 1e-12 <= got <= max(values) + 1e-12


def test_gradcheck():
    logits, mask = randn(3, 4, grad=True), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    assert gradcheck(stop_probability, (logits,))
    assert gradcheck(stop_probability, (logits, mask))
    chances, correct, cost = (randn(3, 4, seed=s, grad=True) for s in (1, 2, 3))
    assert gradcheck(expected_value, (chances, correct, cost, torch.tensor(0.3, dtype=REAL, requires_grad=True)))
    assert gradcheck(expected_value, (chances, correct, cost, randn(3, 1, grad=True), mask))
    for extreme in (-800.0, 0.0, 800.0):
        far = torch.full((1, 4), extreme, dtype=REAL, requires_grad=True)
        expected_value(stop_probability(far), *torch.ones(2, 1, 4, dtype=REAL), 0.1).sum().backward()
        assert far.grad.isfinite().all()


def test_gradcheck_of_the_loss_through_head_and_states():
    halting = LearnedHalting(3, rounds=5).double()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)

    def loss(weight, bias, convictions, hidden, correct, cost, price):
        settings = {"price": price, "round_mask": mask}
        return functional_call(
            halting, {"weight": weight, "bias": bias}, (convictions, hidden, correct, cost, settings)
        )

    halting.forward = lambda c, h, a, x, settings: LearnedHalting.loss(halting, c, h, a, x, **settings)
    inputs = [randn(*shape, seed=s, grad=True) for s, shape in enumerate([(5,), (), (2, 4), (2, 4, 3), (2, 4), (2, 4)])]
    assert gradcheck(loss, (*inputs, torch.tensor(0.2, dtype=REAL, requires_grad=True)))


def test_masked_rounds_reach_nothing():
    halting = LearnedHalting(2, rounds=4).double()
    torch.nn.init.normal_(halting.weight, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, False]])
    full = [randn(1, 3, seed=1), randn(1, 3, 2, seed=2), randn(1, 3, seed=3), randn(1, 3, seed=4)]
    holes = [x.masked_fill(~mask.reshape(1, 3, *[1] * (x.ndim - 2)), math.nan) for x in full]
    loss = halting.loss(*holes, price=0.1, round_mask=mask)
    loss.backward()
    torch.testing.assert_close(loss, halting.loss(*(x[:, :2] for x in full), price=0.1))
    assert halting.weight.grad.isfinite().all()


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_a_fresh_rule_is_the_fixed_one(dim, rounds, seed):
    fresh, fixed = LearnedHalting(dim, rounds), FixedHalting(rounds)
    convictions, hidden = randn(3, rounds, seed=seed).tanh(), 100 * randn(3, rounds, dim, seed=seed + 1)
    for r in range(rounds + 1):
        assert torch.equal(fresh(convictions[:, :r], hidden[:, :r]), fixed(convictions[:, :r]))
        assert fresh.reasons(convictions[:, :r], hidden[:, :r]) == fixed.reasons(convictions[:, :r])


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_the_rule_in_plain_python_and_never_taken_back(seed):
    halting = LearnedHalting(2, rounds=6).double()
    with torch.no_grad():
        halting.weight.copy_(randn(4, seed=seed) * 2)
        halting.bias.copy_(randn(1, seed=seed + 1)[0] - 2)
    convictions, hidden = randn(4, 6, seed=seed + 2), randn(4, 6, 2, seed=seed + 3)
    w, b = halting.weight.tolist(), halting.bias.item()
    stopped = [False] * 4
    for r in range(1, 7):
        for i in range(4):
            x = [*hidden[i, r - 1].tolist(), convictions[i, r - 1].item(), r / 6]
            stopped[i] = stopped[i] or b + sum(map(math.prod, zip(w, x, strict=True))) > 0
        got = halting.reasons(convictions[:, :r], hidden[:, :r])
        assert got == ["learned" if stop else "rounds" if r == 6 else "" for stop in stopped]
        assert halting(convictions[:, :r], hidden[:, :r]).tolist() == [reason != "" for reason in got]


def recorded(tasks, seed):
    """Sure tasks are right from round 1; unsure ones, which h alone tells apart, only from round 3, or never."""
    draw = torch.Generator().manual_seed(seed)
    sure = torch.rand(tasks, generator=draw) < 0.4
    hopeless = ~sure & (torch.rand(tasks, generator=draw) < 0.4)
    late = torch.arange(1, 6) >= 3
    convictions = torch.where(sure[:, None], 0.8, 0.3) + 0.05 * torch.randn(tasks, 5, generator=draw)
    hidden = torch.where(hopeless[:, None, None], 1.0, -1.0) + 0.2 * torch.randn(tasks, 5, 2, generator=draw)
    correct = (sure[:, None] | (late & ~hopeless[:, None])).to(torch.float32)
    return convictions, hidden, correct, torch.arange(1.0, 6.0).expand(tasks, -1)


def value_of(halting, convictions, hidden, correct, cost, price):
    """What the rule earns when it is run round by round."""
    total = 0.0
    for i in range(len(correct)):
        r = next(r for r in range(1, 6) if halting.reasons(convictions[i : i + 1, :r], hidden[i : i + 1, :r])[0])
        total += (correct[i, r - 1] - price * cost[i, r - 1]).item()
    return total / len(correct)


def trained(price):
    halting, data = LearnedHalting(2, rounds=5), recorded(400, seed=0)
    optimizer = torch.optim.Adam(halting.parameters(), lr=0.1)
    for _ in range(250):
        optimizer.zero_grad()
        halting.loss(*data, price=price).backward()
        optimizer.step()
    return halting


def test_it_learns_when_to_stop():
    price, fresh = 0.04, recorded(150, seed=1)
    correct, cost = fresh[2], fresh[3]
    fixed = (correct - price * cost).mean(0).max().item()
    oracle = (correct - price * cost).max(1).values.mean().item()
    got = value_of(trained(price), *fresh, price)
    assert value_of(LearnedHalting(2, rounds=5), *fresh, price) == pytest.approx(
        (correct - price * cost)[:, -1].mean().item(), abs=1e-5
    )
    assert fixed + 0.02 < got <= oracle + 1e-6


def test_a_price_beyond_any_gain_stops_at_once():
    assert set(trained(5.0).reasons(*(x[:, :1] for x in recorded(50, seed=2)[:2]))) == {"learned"}


def test_states_of_another_dtype_and_no_rounds():
    halting = LearnedHalting(2, rounds=3)
    assert halting.logits(torch.zeros(1, 2), torch.zeros(1, 2, 2, dtype=REAL)).dtype == REAL
    assert halting.reasons(torch.zeros(2, 0), torch.zeros(2, 0, 2)) == ["", ""]


def test_bad_arguments():
    with pytest.raises(ValueError, match="halting: expected dim and rounds of at least 1, got dim=0 and rounds=3"):
        LearnedHalting(0, 3)
    halting = LearnedHalting(4, 3)
    assert repr(halting) == "LearnedHalting(dim=4, rounds=3)"
    with pytest.raises(ValueError, match="expected at most 3 rounds of hidden states 4 wide, got 2 of width 5: build"):
        halting(torch.zeros(1, 2), torch.zeros(1, 2, 5))
    with pytest.raises(ValueError, match="expected at most 3 rounds of hidden states 4 wide, got 4 of width 4: build"):
        halting(torch.zeros(1, 4), torch.zeros(1, 4, 4))


CHILD = """
import torch
from nsed_torch.nn.learned_halting import LearnedHalting
halting, data = LearnedHalting(3, 5), (*torch.rand(1, 2, 4), torch.rand(2, 4, 3), *torch.rand(2, 2, 4))
mask = torch.tensor([[True] * 4, [True, True, False, False]])
expected = halting.loss(*data, price=0.1, round_mask=mask)
got = torch.compile(halting.loss, fullgraph=True, backend="eager")(*data, price=0.1, round_mask=mask)
torch.testing.assert_close(got, expected)
print("one graph")
"""


def test_the_loss_compiles_as_one_graph():
    # in a child process: the type checks that pytest hooks in cannot be traced
    done = subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=300, capture_output=True, text=True)
    assert done.stdout.strip() == "one graph"
