"""A kept place must hold the keys of exactly the prefix it is found for: here a key is a code of its prefix."""

import copy
import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.engines.packing.forest import READER, plant
from nsed_torch.engines.packing.prefixes import PrefixCache

READERS = {None: 0, "a": READER, "b": 2 * READER}
prompts = st.tuples(st.sampled_from(list(READERS)), st.lists(st.integers(0, 2), min_size=1, max_size=8))
series = st.lists(st.lists(prompts, min_size=1, max_size=4), max_size=8)


def code(adapter, prefix):
    return float(zlib.crc32(repr((adapter, list(prefix))).encode()))


def readings(prompts):
    return [[token + READERS[adapter] for token in tokens] for adapter, tokens in prompts]


def read_pass(cache, prompts):
    """Read prompts as a model would, and return what was kept of each and how many tokens were read."""
    adapters, sequences = zip(*prompts, strict=True)
    found = cache.match(readings(prompts))
    forest = plant(readings(prompts), found)
    kept = cache.keep(forest)
    keys = torch.zeros(1, len(forest.readings), 1, dtype=torch.float64)
    for node in forest.nodes:
        for i in node.ending:
            for place in node.places:
                keys[0, place] = code(adapters[i], sequences[i][: forest.positions[place] + 1])
    for layer in range(2):
        cache.store(layer, kept, keys + layer, -keys)
    return found, len(forest.readings)


def reachable(cache, seen):
    """Every kept prefix, with its place; the cache itself stays as it is."""
    found = copy.deepcopy(cache).match(readings([(adapter, [*tokens, 9]) for adapter, tokens in seen]))
    return {
        (adapter, tuple(tokens[: depth + 1])): place
        for (adapter, tokens), kept in zip(seen, found, strict=True)
        for depth, place in enumerate(kept)
    }


@given(st.sampled_from([0, 1, 5, 12, 200]), series)
def test_what_is_found_belongs_to_exactly_this_prefix(capacity, series):
    cache, seen = PrefixCache(capacity), []
    for prompts in series:
        found, _ = read_pass(cache, prompts)
        seen += prompts
        for (_, tokens), kept in zip(prompts, found, strict=True):
            assert len(kept) < len(tokens)
        found = reachable(cache, seen)
        assert len(set(found.values())) == len(found) <= capacity
        # Nothing takes room that cannot be found.
        assert len(cache._places) == sum(link is not None for link in cache._links) == len(found)
        for (adapter, prefix), place in found.items():
            for layer in range(2):
                key, value = cache.read(layer, torch.tensor([place]))
                assert (key.item(), value.item()) == (code(adapter, prefix) + layer, -code(adapter, prefix))


@given(series)
def test_with_room_for_all_nothing_is_read_twice_but_last_tokens(series):
    cache, seen = PrefixCache(1000), []
    for prompts in series:
        before = reachable(cache, seen)
        found, _ = read_pass(cache, prompts)
        seen += prompts
        for (adapter, tokens), kept in zip(prompts, found, strict=True):
            known = [n for n in range(len(tokens)) if (adapter, tuple(tokens[:n])) in before]
            assert len(kept) == max(known, default=0)


def test_what_is_used_stays_and_what_is_deep_goes_first():
    cache = PrefixCache(6)
    for i in range(50):
        found, read = read_pass(cache, [(None, [7, 7, 7, 7, i, i + 100, i + 200])])
        assert len(found[0]) == (4 if i else 0)
        assert read == (3 if i else 7)
    for i in range(70):
        read_pass(cache, [("a", [5, i])])
    assert reachable(cache, [(None, [7] * 4)]) == {}


def test_a_last_token_that_is_read_again_counts_as_used():
    cache = PrefixCache(6)
    for prompt in [(None, [7, 7, 7]), ("a", [1, 1]), (None, [7, 7, 7]), ("b", [1, 2, 3])]:
        read_pass(cache, [prompt])
    assert len(reachable(cache, [(None, [7, 7, 7])])) == 3
    assert len(reachable(cache, [("a", [1, 1])])) == 0


def test_what_an_adapter_read_is_forgotten_alone():
    cache, bare = PrefixCache(100), [1, 2, 0]
    activated = [*bare, READER + 1, READER + 2]
    for sequence in (activated, [*bare, 2 * READER + 1, 5]):
        kept = cache.match([sequence])
        cache.keep(plant([sequence], kept))
    assert len(cache.match([[*activated, 9]])[0]) == 5
    cache.forget(1)
    assert len(cache.match([[*activated, 9]])[0]) == 3
    assert len(cache.match([[*bare, 2 * READER + 1, 9]])[0]) == 4


def test_memory_is_fixed_and_clearing_frees_it():
    cache = PrefixCache(10)
    for i in range(5):
        read_pass(cache, [("a", list(range(i, i + 20)))])
        assert {tuple(b.shape) for b in cache._buffers.values()} == {(1, 10, 1)}
    cache.clear()
    assert not cache._buffers
    assert reachable(cache, [("a", list(range(20)))]) == {}


def test_room_for_less_than_nothing_is_refused(fails):
    with fails("expected room for 0 or more prefix tokens, got -1"):
        PrefixCache(-1)


def test_a_prefix_that_was_never_stored_cannot_be_read():
    with pytest.raises(KeyError):
        PrefixCache(3).read(0, torch.tensor([0]))
