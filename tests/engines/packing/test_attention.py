"""Attention through a forest against a softmax written out, one sequence at a time."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nsed_torch.engines.packing import forest as forest_module
from nsed_torch.engines.packing.attention import (
    ForestPlan,
    Shape,
    StepPlan,
    attention,
    packed_attention,
    visible,
)
from nsed_torch.engines.packing.forest import READER, grouped_nodes, plant
from nsed_torch.engines.packing.prefixes import PrefixCache
from nsed_torch.engines.packing.slots import Slots

CPU = torch.device("cpu")
shapes = st.builds(
    Shape,
    scale=st.sampled_from([None, 0.7]),
    window=st.sampled_from([None, 1, 3, 6]),
    softcap=st.sampled_from([None, 1.5]),
)
prompts = st.lists(
    st.tuples(st.sampled_from([None, "a"]), st.lists(st.integers(0, 2), min_size=1, max_size=9)), min_size=1, max_size=5
)


class Vectors:
    """Queries, keys and values that depend on a token's prefix and adapter alone."""

    def __init__(self, heads, heads_kv):
        self.sizes = (heads, 4), (heads_kv, 4), (heads_kv, 3)
        self.known, self.generator = {}, torch.Generator().manual_seed(0)

    def of(self, adapter, prefix):
        key = adapter, tuple(prefix)
        if key not in self.known:
            self.known[key] = [torch.randn(s, generator=self.generator, dtype=torch.float64) for s in self.sizes]
        return self.known[key]

    def rows(self, pairs):
        return [torch.stack(part, dim=1)[None] for part in zip(*(self.of(*pair) for pair in pairs), strict=True)]

    def reference(self, adapter, tokens, shape):
        """What the last token of a sequence gets."""
        query, keys, values = self.rows([(adapter, tokens[: n + 1]) for n in range(len(tokens))])
        groups = query.shape[1] // keys.shape[1]
        seen = slice(max(0, len(tokens) - shape.window) if shape.window else 0, len(tokens))
        heads = []
        for head in range(query.shape[1]):
            scores = keys[0, head // groups, seen] @ query[0, head, -1] * (shape.scale or query.shape[-1] ** -0.5)
            scores = shape.softcap * (scores / shape.softcap).tanh() if shape.softcap else scores
            weights = scores.exp() / scores.exp().sum()
            heads.append(weights @ values[0, head // groups, seen])
        return torch.stack(heads)


def owners(forest, sequences, adapters):
    """Adapter and prefix of every token of a pass."""
    found = {}
    for node in forest.nodes:
        for i in node.ending:
            found.update({p: (adapters[i], sequences[i][: forest.positions[p] + 1]) for p in node.places})
    return [found[p] for p in range(len(forest.readings))]


@settings(max_examples=12)
@given(
    st.lists(prompts, min_size=1, max_size=3),
    shapes,
    st.sampled_from([(4, 2), (2, 2), (3, 1)]),
    st.sampled_from([0, 6, 99]),
)
def test_a_token_sees_its_own_sequence_alone(series, shape, heads, capacity):
    vectors = Vectors(*heads)
    # All tokens at once, or groups of nodes as calls cost nothing, something, or more than all else.
    caches = {way: PrefixCache(capacity) for way in ((True, 0), (False, 0), (False, 12), (False, 2000))}
    for prompts in series:
        adapters, sequences = zip(*prompts, strict=True)
        for (dense, call), cache in caches.items():
            readings = [[token + READER * (a is not None) for token in s] for a, s in prompts]
            forest = plant(readings, cache.match(readings))
            pairs = owners(forest, sequences, adapters)
            slots = Slots(len(sequences))
            options = {"kept": cache.keep(forest), "slots": slots, "rows": range(len(sequences)), "dense": dense}
            with mock.patch.object(forest_module, "CALL", call):
                plan = ForestPlan(forest, cache, CPU, **options)
            got = plan.attend(0, *vectors.rows(pairs), shape)[0]
            for place, pair in enumerate(pairs):
                assert_close(got[:, place], vectors.reference(*pair, shape))
            # The rows go on where the prompts end, whether their beginnings were kept or read.
            # What was guessed wrong there is written over.
            for guesses in ([[2] * (1 + row % 3) for row in range(len(prompts))], [[1]] * len(prompts)):
                longer = [
                    (a, [*s, *guess[: n + 1]])
                    for (a, s), guess in zip(prompts, guesses, strict=True)
                    for n in range(len(guess))
                ]
                step = StepPlan(slots, [len(s) for s in sequences], list(map(len, guesses)), CPU)
                got = step.attend(0, *vectors.rows(longer), shape)[0]
                for place, pair in enumerate(longer):
                    assert_close(got[:, place], vectors.reference(*pair, shape))


@pytest.mark.parametrize(("dense", "call"), [(False, 0), (False, 2000), (True, 0)])
@pytest.mark.parametrize("shape", [Shape(), Shape(0.5, 2), Shape(softcap=2.0), Shape(window=3, softcap=1.0)])
def test_gradients_through_a_forest_are_right(monkeypatch, dense, call, shape):
    monkeypatch.setattr(forest_module, "CALL", call)
    sequences = [[1, 2, 3], [1, 2, 4, 5], [1, 2], [6]]
    forest = plant(sequences, [()] * 4)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(1, heads, len(forest.readings), 2, dtype=torch.float64, generator=generator, requires_grad=True)
        for heads in (2, 1, 1)
    ]
    plan = ForestPlan(forest, PrefixCache(0), CPU, dense=dense)
    assert torch.autograd.gradcheck(lambda *parts: plan.attend(0, *parts, shape), inputs)


def test_short_branches_are_one_product_and_long_ones_are_not():
    def groups(question, answer, count):
        answers = [[*range(question), 1000 + i, *range(answer)] for i in range(count)]
        return grouped_nodes(plant(answers, [()] * count).nodes)

    assert groups(question=12, answer=8, count=5) == [range(6)]
    assert groups(question=300, answer=200, count=3) == [range(i, i + 1) for i in range(4)]


@given(prompts, st.sampled_from([0, 12, 2000]))
def test_groups_hold_every_node_once_and_only_what_stands_below(prompts, call):
    nodes = plant([tokens for _, tokens in prompts], [()] * len(prompts)).nodes
    with mock.patch.object(forest_module, "CALL", call):
        groups = grouped_nodes(nodes)
    assert [i for group in groups for i in group] == list(range(len(nodes)))
    assert all(nodes[group.start] in nodes[i].ancestors for group in groups for i in group[1:])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.sampled_from([None, 1, 4]))
def test_a_window_counts_the_token_itself(positions, window):
    seen = visible(torch.tensor(positions), 10, window)
    for row, position in zip(seen.tolist(), positions, strict=True):
        assert [c for c in range(10) if row[c]] == list(range(max(0, position + 1 - (window or 99)), position + 1))


def test_without_a_mask_it_is_causal_with_a_softcap_as_without():
    query, key, value = torch.randn(3, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    for softcap in (None, 1e6):
        assert_close(
            attention(query, key, value, None, Shape(softcap=softcap)),
            attention(query, key, value, mask, Shape()),
            atol=1e-5,
            rtol=1e-4,
        )


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"s_aux": torch.zeros(2)}, "s_aux"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"is_causal": False}, "what comes later"),
        ({"attention_mask": torch.ones(1, 1, 2, 2)}, "another mask"),
        ({"nsed_plan": None}, "an attention of its own"),
    ],
)
def test_what_a_plan_cannot_give_is_refused(options, found, fails):
    class Greedy(torch.nn.Module):
        layer_idx = 0

    whole = torch.zeros(1, 1, 2, 2)
    given = {"attention_mask": torch.ones(1, 1, 1, 1), "nsed_plan": object(), **options}
    with fails(f"expected a model of full or sliding attention layers, Greedy has {found}: choose another model"):
        packed_attention(Greedy(), whole, whole, whole, **given)
