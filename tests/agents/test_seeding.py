from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.agents import call_seed

parts = st.lists(st.integers(0, 2**63) | st.text("abc01", max_size=3), min_size=1, max_size=5)


@given(parts)
def test_a_seed_fits_torch_and_repeats(names):
    assert 0 <= call_seed(*names) < 2**63
    assert call_seed(*names) == call_seed(*names)


@given(parts, parts)
def test_other_names_give_other_seeds(first, second):
    if [str(part) for part in first] != [str(part) for part in second]:
        assert call_seed(*first) != call_seed(*second)


def test_order_and_borders_of_the_parts_count():
    assert len({call_seed(0, "t", 1, "a"), call_seed(0, "t", "a", 1), call_seed(0, "t1", "a"), call_seed("0t1a")}) == 4


def test_the_value_is_fixed_for_good():
    # Run folders are resumed by their calls' keys, and those hold seeds.
    assert call_seed(0, "task", 1, "solver", "propose") == 0x18EB2B5C355D531E >> 1  # coreutils' sha256sum
