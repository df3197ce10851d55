"""Pools: who may be asked, and by which numbers."""

import re
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.conductor.pools import Pools
from nsed_torch.records.transcript import Task

NAMES = ("ant", "bee", "cat", "dog")
workers = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=7, unique=True)
tasks = st.integers(0, 99).map(lambda i: Task("Why?", f"t{i}"))
seeds = st.integers(0, 2**31)


@given(workers, tasks, seeds)
def test_fixed_pools_are_all_workers_in_their_order(names, task, seed):
    assert Pools()(names, task, seed) == tuple(names)


@given(workers, tasks, seeds, st.data())
def test_shuffled_pools_hold_every_worker_once_in_an_order_of_their_own(names, task, seed, data):
    whole = Pools("permuted")(names, task, seed)
    assert sorted(whole) == sorted(names)
    assert Pools("permuted")(data.draw(st.permutations(names)), task, seed) == whole
    size = data.draw(st.integers(1, len(names)))
    assert Pools("random", size)(names, task, seed) == whole[:size]
    drawn = Pools("random", size, up_to=len(names))(names, task, seed)
    assert size <= len(drawn) <= len(names)
    assert drawn == whole[: len(drawn)]


@given(workers.filter(lambda names: len(names) > 1), tasks, seeds, st.data())
def test_whoever_is_left_out_changes_nothing_about_the_others(names, task, seed, data):
    out = tuple(data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1)))
    for kind in ("fixed", "permuted"):
        whole, left = Pools(kind)(names, task, seed), Pools(kind, without=out)(names, task, seed)
        assert left == tuple(name for name in whole if name not in out)


def test_all_orders_are_equally_likely_and_differ_by_task_and_seed():
    drawn = [[Pools("random", 3)(NAMES, Task("Why?", f"t{i}"), seed) for i in range(1200)] for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    counts = Counter(drawn[0])
    assert set(counts) == set(permutations(NAMES, 3))
    assert min(counts.values()) >= 25  # 50 expected, standard deviation 7
    assert max(counts.values()) <= 75


def test_all_sizes_are_equally_likely():
    counts = Counter(len(Pools("random", 2, up_to=4)(NAMES, Task("Why?", f"t{i}"))) for i in range(1200))
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) >= 320  # 400 expected, standard deviation 16
    assert max(counts.values()) <= 480


@pytest.mark.parametrize(
    ("build", "line"),
    [
        (
            lambda: Pools("shuffled"),
            "expected pools of kind fixed, permuted, random, got 'shuffled': choose one of them",
        ),
        (lambda: Pools("random"), "expected a size of at least 1 for random pools, got None: correct size or kind"),
        (lambda: Pools("random", 0), "expected a size of at least 1 for random pools, got 0: correct size or kind"),
        (lambda: Pools("fixed", 2), "expected no size for fixed pools, got 2: correct size or kind"),
        (lambda: Pools("random", 3, up_to=2), "expected up_to beside a smaller size, got 2 and 3: correct or omit it"),
        (lambda: Pools("fixed", up_to=2), "expected up_to beside a smaller size, got 2 and None: correct or omit it"),
        (
            lambda: Pools("random", 2, up_to=5)(NAMES, Task("Why?")),
            "expected at least 5 workers for a pool, got 4: leave fewer out",
        ),
        (lambda: Pools(without="ant"), "expected a list of names to leave out, got 'ant': put it in brackets"),
        (
            lambda: Pools(without=["emu"])(NAMES, Task("Why?")),
            "expected to leave out workers out of ant, bee, cat, dog, got 'emu': correct the name",
        ),
        (
            lambda: Pools("random", 4, ["ant"])(NAMES, Task("Why?")),
            "expected at least 4 workers for a pool, got 3: leave fewer out",
        ),
        (
            lambda: Pools(without=NAMES)(NAMES, Task("Why?")),
            "expected at least 1 workers for a pool, got 0: leave fewer out",
        ),
    ],
)
def test_faults_are_one_line(build, line):
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        build()
