import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.engine import Decoding, Engine, Generation, Ratings, RatingScale, call_seed


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("max_new_tokens", 0, "decoding.max_new_tokens: expected a value at least 1, got 0"),
        ("temperature", -0.1, "decoding.temperature: expected a value at least 0, got -0.1"),
        ("temperature", float("nan"), "decoding.temperature: expected a value at least 0, got nan"),
        ("top_p", 0.0, "decoding.top_p: expected a value in (0, 1], got 0.0"),
        ("top_p", 1.01, "decoding.top_p: expected a value in (0, 1], got 1.01"),
        ("repetition_penalty", 0.0, "decoding.repetition_penalty: expected a value above 0, got 0.0"),
    ],
)
def test_decoding_names_what_is_out_of_range(name, value, text, fails):
    with fails(text):
        Decoding(**{name: value})


def test_the_default_scale_is_symmetric_and_even():
    scale = RatingScale()
    assert scale.labels == tuple("0123456789")
    assert scale.values == pytest.approx([-v for v in reversed(scale.values)])
    assert (scale.values[0], scale.values[-1]) == (-1, 1)
    assert [b - a for a, b in zip(scale.values, scale.values[1:], strict=False)] == pytest.approx([2 / 9] * 9)


def test_a_scale_from_lists_equals_one_from_tuples():
    scale = RatingScale(["no", "yes"], [-1.0, 1.0])
    assert scale == RatingScale(("no", "yes"), (-1.0, 1.0))
    assert hash(scale) == hash(RatingScale(("no", "yes"), (-1.0, 1.0)))


@pytest.mark.parametrize(
    ("labels", "values", "text"),
    [
        (("a",), (1.0,), "expected two or more labels with a value each, got ('a',) and (1.0,)"),
        (("a", "b"), (1.0,), "expected two or more labels with a value each, got ('a', 'b') and (1.0,)"),
        (("a", "b"), (0.0, 1.5), "expected rating values in [-1, 1], got (0.0, 1.5)"),
        (("a", "b"), (0.0, float("nan")), "expected rating values in [-1, 1], got (0.0, nan)"),
    ],
)
def test_a_scale_says_what_is_wrong(labels, values, text, fails):
    with fails(text):
        RatingScale(labels, values)


def test_the_clock_takes_no_part_in_comparisons():
    assert Generation("a", 1, 1, seconds=1.0) == Generation("a", 1, 1, seconds=2.0)
    assert Ratings((0.5,), seconds=1.0) == Ratings((0.5,), seconds=2.0)
    assert Ratings((0.5,)) != Ratings((None,))


class Streaming(Engine):
    """Hands its answers out one by one, the last one first."""

    max_batch = 2

    def generations(self, requests):
        yield from ({i: Generation(requests[i], 1, 1)} for i in reversed(range(len(requests))))


class Batching(Engine):
    """Answers a batch at once."""

    max_batch = 2

    def generate(self, requests):
        assert len(requests) <= 2
        return [Generation(request, 1, 1) for request in requests]


@pytest.mark.parametrize("kind", [Streaming, Batching])
def test_an_engine_that_batches_also_streams_and_the_other_way_round(kind):
    engine = kind()
    assert [answer.text for answer in engine.generate(["a", "b"])] == ["a", "b"]
    streamed = [{i: answer.text for i, answer in part.items()} for part in engine.generations(["a", "b", "c"])]
    assert streamed == ([{2: "c"}, {1: "b"}, {0: "a"}] if kind is Streaming else [{0: "a", 1: "b"}, {2: "c"}])
    assert list(engine.generations([])) == engine.generate([]) == []
    assert (engine.memory_bytes(), engine.count_tokens("12345")) == (0, 2)


parts = st.lists(st.integers(0, 2**63) | st.text("abc01", max_size=3), min_size=1, max_size=5)


@given(parts)
def test_a_seed_fits_torch_and_repeats(names):
    assert 0 <= call_seed(*names) < 2**63
    assert call_seed(*names) == call_seed(*names)


@given(parts, parts)
def test_other_names_give_other_seeds(first, second):
    if [str(part) for part in first] != [str(part) for part in second]:
        assert call_seed(*first) != call_seed(*second)


def test_the_value_is_fixed_for_good():
    # Run folders are resumed by their calls' keys, and those hold seeds.
    assert call_seed(0, "task", 1, "solver", "propose") == 0x18EB2B5C355D531E >> 1  # coreutils' sha256sum
