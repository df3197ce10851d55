"""The layout against its definition: every beginning once, and every sequence found again."""

from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.engines.packing.forest import READER, grouped, passes, plant, shared_with_last
from nsed_torch.records.ledger import common_prefix

tokens = st.lists(st.sampled_from([0, 1, 2, READER, READER + 1]), min_size=1, max_size=7)
places = st.sampled_from([(), (4,), (4, 9), (1, 2, 0)])


@st.composite
def plantings(draw):
    """Sequences that agree in what is kept of them and are longer than it."""
    kept = draw(st.lists(places, max_size=8))
    return [[place % 3 for place in own] + draw(tokens) for own in kept], kept


@given(plantings())
def test_every_sequence_is_found_again_and_every_beginning_is_read_once(planting):
    sequences, kept = planting
    forest = plant(sequences, kept)
    ended = {i: node for node in forest.nodes for i in node.ending}
    assert sum(len(node.ending) for node in forest.nodes) == len(ended) == len(sequences)
    for i, (sequence, own) in enumerate(zip(sequences, kept, strict=True)):
        found = ended[i].places
        assert ended[i].kept == own
        assert [forest.readings[p] for p in found] == sequence[len(own) :]
        assert [forest.positions[p] for p in found] == list(range(len(own), len(sequence)))
        assert forest.ends[i] == found[-1]
        start = (len(own) + len(sequence)) // 2
        assert forest.places([start] * len(sequences))[i] == found[start - len(own) :]
    beginnings = {
        (own, tuple(sequence[:n]))
        for sequence, own in zip(sequences, kept, strict=True)
        for n in range(len(own) + 1, len(sequence) + 1)
    }
    assert len(forest.readings) == len(forest.positions) == len(beginnings)


@given(plantings())
def test_nodes_lie_behind_each_other_and_below_their_ancestors(planting):
    forest = plant(*planting)
    assert [p for node in forest.nodes for p in range(node.start, node.stop)] == list(range(len(forest.readings)))
    for node in forest.nodes:
        assert len(node) > 0
        assert all(above in forest.nodes and above.stop <= node.start for above in node.ancestors)
        assert node.first == len(node.kept) + sum(map(len, node.ancestors))


@given(tokens, tokens)
def test_a_common_prefix_is_the_longest(first, second):
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    assert first[: length + 1] != second[: length + 1] or length == len(first) == len(second)
    assert all(common_prefix(first, second, known) == length for known in range(length + 1))


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 20))
def test_passes_are_full_and_none_holds_too_much(lengths, most):
    cut = passes(lengths, most)
    assert [i for few in cut for i in few] == list(range(len(lengths)))
    totals = [sum(lengths[i] for i in few) for few in cut]
    assert all(total <= most or len(few) == 1 for total, few in zip(totals, cut, strict=True))
    # What comes next would not have fitted.
    follows = zip(totals, cut[1:], strict=False)
    assert all(total + lengths[few.start] > most for total, few in follows)


@given(st.lists(st.text("ab", max_size=6), max_size=8), st.integers(1, 20))
def test_runs_hold_what_their_items_share_once(texts, most):
    texts = sorted(texts)
    shared = shared_with_last(texts)
    for i, count in enumerate(shared):
        if i:
            assert texts[i][:count] == texts[i - 1][:count]
            assert texts[i][count : count + 1] != texts[i - 1][count : count + 1] or count == len(texts[i])
        else:
            assert count == 0
    runs = passes([len(text) for text in texts], most, shared)
    assert [i for run in runs for i in run] == list(range(len(texts)))
    for run in runs:
        distinct = {texts[i][:n] for i in run for n in range(1, len(texts[i]) + 1)}
        assert len(distinct) <= most or len([i for i in run if texts[i]]) == 1


def test_what_items_share_lets_more_of_them_in():
    assert passes([5, 5, 5], 8) == [range(1), range(1, 2), range(2, 3)]
    assert passes([5, 5, 5], 8, [0, 4, 3]) == [range(3)]
    assert passes([5, 5, 5], 7, [0, 4, 3]) == [range(2), range(2, 3)]


@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=8), st.integers(1, 20), st.booleans())
def test_every_sequence_is_in_one_pass_beside_those_most_like_it(texts, most, own):
    found = grouped(texts, most, None if own else [2 * len(text) for text in texts])
    order = [i for few in found for i in few]
    assert sorted(order) == list(range(len(texts)))
    assert [texts[i] for i in order] == sorted(texts)
    for few in found:
        beginnings = {texts[i][:n] for i in few for n in range(1, len(texts[i]) + 1)}
        assert len(few) == 1 or len(beginnings) + (0 if own else sum(len(texts[i]) for i in few)) <= most
