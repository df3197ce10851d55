"""Which answers a judge sees, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.ratings import judging_order

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]
answers = st.lists(st.booleans(), min_size=6, max_size=6)
seeds = st.integers(0, 2**63 - 1)


@given(seeds, st.sampled_from([*NAMES, "nobody"]), answers, st.booleans())
def test_every_answer_but_ones_own_stands_there_once(seed, voter, answered, shuffled):
    order = judging_order(seed, voter, NAMES, answered, shuffled=shuffled)
    assert sorted(order) == [j for j in range(6) if answered[j] and NAMES[j] != voter]
    own = judging_order(seed, voter, NAMES, answered, shuffled=shuffled, own=True)
    assert sorted(own) == [j for j in range(6) if answered[j]]


@given(seeds, seeds, st.sampled_from(NAMES), answers, st.booleans())
def test_unshuffled_it_is_the_ensembles_for_every_seed(first, second, voter, answered, own):
    order = judging_order(first, voter, NAMES, answered, shuffled=False, own=own)
    assert order == sorted(order) == judging_order(second, voter, NAMES, answered, shuffled=False, own=own)


def test_it_follows_the_seed_as_it_always_has():
    """Recorded runs are read by finding their orders again."""
    assert judging_order(3, "ant", NAMES, [True] * 6) == [1, 3, 4, 5, 2]
    assert judging_order(4, "ant", NAMES, [True] * 6) == [4, 5, 1, 3, 2]
