"""The layout against its definition: every beginning once, and every sequence found again."""

from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.agents.packing.forest import Root, common_prefix, grouped, passes, plant, shared_with_last

tokens = st.lists(st.integers(0, 2), min_size=1, max_size=7)
roots = st.sampled_from([Root(), Root("a"), Root("a", (4,)), Root("a", (4, 9)), Root("b", (1, 2, 0))])


@st.composite
def plantings(draw):
    """Sequences that agree in what their root keeps and are longer than it."""
    kept = {root: [ord(c) % 3 for c in repr(root)] for root in (Root(), Root("a"), Root("b"))}
    chosen = draw(st.lists(roots, max_size=8))
    sequences = [kept[Root(root.adapter)][: len(root.kept)] + draw(tokens) for root in chosen]
    return sequences, chosen


@given(plantings())
def test_every_sequence_is_found_again_and_every_beginning_is_read_once(planting):
    sequences, chosen = planting
    forest = plant(sequences, chosen)
    ended = {i: node for node in forest.nodes for i in node.ending}
    assert sum(len(node.ending) for node in forest.nodes) == len(ended) == len(sequences)
    for i, (sequence, root) in enumerate(zip(sequences, chosen, strict=True)):
        places = ended[i].places
        assert ended[i].root == root
        assert [forest.tokens[p] for p in places] == sequence[len(root.kept) :]
        assert [forest.positions[p] for p in places] == list(range(len(root.kept), len(sequence)))
        assert {forest.adapters[p] for p in places} == {root.adapter}
        assert forest.ends[i] == places[-1]
        start = (len(root.kept) + len(sequence)) // 2
        assert forest.places([start] * len(sequences))[i] == places[start - len(root.kept) :]
    beginnings = {
        (root, tuple(sequence[:n]))
        for sequence, root in zip(sequences, chosen, strict=True)
        for n in range(len(root.kept) + 1, len(sequence) + 1)
    }
    assert len(forest.tokens) == len(forest.positions) == len(forest.adapters) == len(beginnings)


@given(plantings())
def test_nodes_lie_behind_each_other_and_below_their_ancestors(planting):
    forest = plant(*planting)
    assert [p for node in forest.nodes for p in range(node.start, node.stop)] == list(range(len(forest.tokens)))
    for node in forest.nodes:
        assert len(node) > 0
        assert all(above in forest.nodes and above.stop <= node.start for above in node.ancestors)
        assert node.first == len(node.root.kept) + sum(map(len, node.ancestors))


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


@given(st.lists(st.tuples(st.text("ab", max_size=6), st.sampled_from([None, "x"])), max_size=8), st.integers(1, 20))
def test_runs_hold_what_their_items_share_once(items, most):
    items = sorted(items, key=lambda item: (item[1] or "", item[0]))
    texts, adapters = [text for text, _ in items], [adapter for _, adapter in items]
    shared = shared_with_last(texts, adapters)
    for i, count in enumerate(shared):
        if i and adapters[i] == adapters[i - 1]:
            assert texts[i][:count] == texts[i - 1][:count]
            assert texts[i][count : count + 1] != texts[i - 1][count : count + 1] or count == len(texts[i])
        else:
            assert count == 0
    runs = passes([len(text) for text in texts], most, shared)
    assert [i for run in runs for i in run] == list(range(len(items)))
    for run in runs:
        distinct = {(adapters[i], texts[i][:n]) for i in run for n in range(1, len(texts[i]) + 1)}
        assert len(distinct) <= most or len([i for i in run if texts[i]]) == 1


def test_what_items_share_lets_more_of_them_in():
    assert passes([5, 5, 5], 8) == [range(1), range(1, 2), range(2, 3)]
    assert passes([5, 5, 5], 8, [0, 4, 3]) == [range(3)]
    assert passes([5, 5, 5], 7, [0, 4, 3]) == [range(2), range(2, 3)]


@given(
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=6), st.sampled_from([None, "x"])), max_size=8),
    st.integers(1, 20),
    st.booleans(),
)
def test_every_sequence_is_in_one_pass_beside_those_most_like_it(items, most, own):
    texts, adapters = [text for text, _ in items], [adapter for _, adapter in items]
    found = grouped(texts, adapters, most, None if own else [2 * len(text) for text in texts])
    order = [i for few in found for i in few]
    assert sorted(order) == list(range(len(items)))
    assert [(adapters[i] or "", texts[i]) for i in order] == sorted((adapter or "", text) for text, adapter in items)
    for few in found:
        beginnings = {(adapters[i], texts[i][:n]) for i in few for n in range(1, len(texts[i]) + 1)}
        assert len(few) == 1 or len(beginnings) + (0 if own else sum(len(texts[i]) for i in few)) <= most
