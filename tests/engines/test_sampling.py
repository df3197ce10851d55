import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nsed_torch.core.engine import Decoding
from nsed_torch.engines.decode_loop import NUCLEUS_GUESS, Draft, Twins, draw, penalize, sample

DRAWS = 20_000


def drawn_at(logits, temperature, top_p, uniforms):
    """One token a uniform number, all from the same logits."""
    uniform = torch.as_tensor(uniforms)
    rows = torch.zeros(len(uniform), dtype=torch.long)
    return sample(logits[None], torch.tensor([temperature]), torch.tensor([top_p]), uniform, rows)


def drawn_each(logits, temperature, top_p, uniform):
    """One token of every row."""
    return sample(logits, temperature, top_p, uniform, torch.arange(len(logits)))


def nucleus(logits, temperature, top_p):
    """The distribution to be drawn from, written as it is told: keep the likeliest until their mass reaches top_p."""
    weights = [math.exp(value / temperature) for value in logits.double().tolist()]
    total, mass, kept = sum(weights), 0.0, {}
    for token in sorted(range(len(weights)), key=lambda t: -weights[t]):
        if mass >= top_p:
            break
        kept[token] = weights[token] / total
        mass += kept[token]
    return torch.tensor([kept.get(t, 0.0) / mass for t in range(len(weights))])


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.8), (1.0, 0.5), (0.3, 0.95)])
def test_frequencies_follow_the_truncated_softmax(temperature, top_p):
    logits = torch.tensor([1.0, -0.5, 2.0, 0.3, -3.0, 1.9, 0.0])
    expected = nucleus(logits, temperature, top_p)
    # Evenly spread numbers integrate the inverse distribution: each share is off by at most one draw.
    even = drawn_at(logits, temperature, top_p, (torch.arange(DRAWS) + 0.5) / DRAWS)
    assert_close(torch.bincount(even, minlength=7) / DRAWS, expected, atol=2 / DRAWS, rtol=0)
    random = drawn_at(logits, temperature, top_p, torch.rand(DRAWS, generator=torch.Generator().manual_seed(0)))
    seen = torch.bincount(random, minlength=7) / DRAWS
    assert not seen[expected == 0].any()
    assert (seen - expected).abs().sum() / 2 < 0.02


@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=12),
    st.floats(0.1, 3),
    st.floats(0.05, 1),
    st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=2, max_size=20),
)
@settings(max_examples=30)
def test_larger_numbers_draw_less_likely_tokens(values, temperature, top_p, uniforms):
    logits = torch.tensor(values) / 8  # apart enough that unequal logits have unequal probabilities
    drawn = drawn_at(logits, temperature, top_p, sorted(uniforms))
    assert (logits[drawn].diff() <= 0).all()
    assert drawn_at(logits, temperature, top_p, [0.0]).item() in logits.eq(logits.max()).nonzero()


def test_a_nucleus_beyond_the_guess_is_cut_from_the_whole_vocabulary():
    logits = torch.linspace(0, 1, 4 * NUCLEUS_GUESS)
    for top_p in (0.9, 1.0):
        expected = nucleus(logits, 1.0, top_p)
        assert expected.count_nonzero() > NUCLEUS_GUESS
        uniforms = (torch.arange(200) + 0.5) / 200
        # Logits rise with the index, so the mass above a token is its cumulative probability.
        mass = expected.double().flip(0).cumsum(0)
        right = len(logits) - 1 - torch.searchsorted(mass, uniforms.double(), right=True)
        assert (drawn_at(logits, 1.0, top_p, uniforms) - right).abs().max() <= 1


def test_a_row_that_needs_the_whole_vocabulary_leaves_its_neighbours_as_they_are():
    # Models in bfloat16 give many equal logits, and two ways to sort may order equals differently.
    generator = torch.Generator().manual_seed(0)
    peaked = (torch.randn(6, 4 * NUCLEUS_GUESS, generator=generator) * 4).bfloat16().float()
    flat = torch.zeros(1, 4 * NUCLEUS_GUESS)
    for step in range(20):
        uniform = torch.rand(7, generator=torch.Generator().manual_seed(step))
        settings_ = torch.ones(7), torch.tensor([0.9] * 6 + [1.0])
        together = drawn_each(torch.cat([peaked, flat]), *settings_, uniform)
        alone = drawn_each(peaked, settings_[0][:6], settings_[1][:6], uniform[:6])
        assert torch.equal(together[:6], alone)


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0, 1, exclude_max=True, width=32))
@settings(max_examples=30)
def test_rows_are_independent(seed, rows, uniform):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, 1000, generator=generator).mul(3).bfloat16().float()
    temperature = torch.randint(0, 3, (rows,), generator=generator) / 2
    top_p = torch.rand(rows, generator=generator) * 0.9 + 0.1
    uniforms = torch.full((rows,), uniform)
    together = drawn_each(logits, temperature, top_p, uniforms)
    for i in range(rows):
        one = slice(i, i + 1)
        assert torch.equal(together[one], drawn_each(logits[one], temperature[one], top_p[one], uniforms[one]))


def test_temperature_zero_takes_the_likeliest_in_mixed_batches_too():
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    for temperature in (torch.zeros(4), torch.tensor([0.0, 1.0, 0.0, 1.0])):
        drawn = drawn_each(logits, temperature, torch.ones(4), torch.full((4,), 0.999))
        assert torch.equal(drawn[::2], logits.argmax(dim=-1)[::2])
    assert not torch.equal(drawn, logits.argmax(dim=-1))


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-44])
def test_temperatures_near_zero_do_not_overflow(temperature):
    assert drawn_at(torch.tensor([80.0, 100.0, -100.0]), temperature, 0.9, [0.0, 0.5, 0.99]).tolist() == [1, 1, 1]


def test_forbidden_tokens_are_never_drawn():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0])
    assert set(drawn_at(logits, 1.0, 1.0, torch.arange(100) / 100).tolist()) == {1, 3}


@given(
    st.lists(st.floats(-4, 4, width=32), min_size=6, max_size=6),
    st.lists(st.integers(0, 5), max_size=8),
    st.floats(0.5, 2),
)
@settings(max_examples=30)
def test_the_penalty_divides_positive_and_multiplies_negative_logits(values, written, penalty):
    got = penalize(torch.tensor([values]), torch.tensor([written], dtype=torch.long), torch.tensor([penalty]))[0]
    for token, value in enumerate(values):
        expected = (value / penalty if value > 0 else value * penalty) if token in written else value
        assert float(got[token]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_penalty_of_one_leaves_its_row_exactly():
    logits = torch.randn(2, 9)
    got = penalize(logits, torch.tensor([[1, 2], [1, 2]]), torch.tensor([1.0, 1.7]))
    assert torch.equal(got[0], logits[0])
    assert not torch.equal(got[1], logits[1])


def row(decoding, seed=0):
    return Draft(0, [], None, decoding, seed, 100)


def drawn(logits, rows):
    """The tokens that one step writes."""
    draw(logits, [Twins([row]) for row in rows], [()] * len(rows), time.perf_counter(), lambda _: False)
    return [row.written[-1] for row in rows]


def steps(rows, logits, count):
    return torch.tensor([drawn(logits, rows) for _ in range(count)])


def test_a_row_remembers_what_it_wrote_and_nothing_else_is_penalized():
    rows = [row(Decoding(temperature=0, repetition_penalty=10.0)) for _ in range(2)]
    logits = torch.tensor([[1.0, 3.0, 2.0], [3.0, 1.0, 2.0]])
    before = logits.clone()
    assert steps(rows, logits, 4).T.tolist() == [[1, 2, 0, 1], [0, 2, 1, 0]]
    assert rows[0].written == [1, 2, 0, 1]
    assert torch.equal(logits, before)


def test_rows_of_different_lengths_are_penalized_each_for_its_own_tokens():
    old, new = (row(Decoding(temperature=0, repetition_penalty=10.0)) for _ in range(2))
    free = row(Decoding(temperature=0))
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    for expected in (1, 2):
        assert drawn(logits, [old]) == [expected]
    assert drawn(logits.expand(3, -1), [old, new, free]) == [0, 1, 1]
    assert drawn(logits.expand(3, -1), [old, new, free]) == [1, 2, 1]


def test_every_row_draws_a_new_number_each_step_from_its_own_stream():
    def rows(*seeds):
        return [row(Decoding(temperature=1.0, top_p=1.0), seed) for seed in seeds]

    together = steps(rows(7, 8, 7), torch.zeros(3, 400), 8)
    assert torch.equal(together[:, 0], together[:, 2])
    assert not torch.equal(together[:, 0], together[:, 1])
    assert len(together[:, 0].unique()) > 4
    assert torch.equal(together[:, 1:2], steps(rows(8), torch.zeros(1, 400), 8))


def test_rows_take_half_precision_and_large_seeds():
    (token,) = drawn(torch.randn(1, 30).bfloat16(), [row(Decoding(), 2**63 - 1)])
    assert 0 <= token < 30
