"""Splits by hash of the id."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.traces.splits import divisions, split

IDS = [f"task-{i}" for i in range(2000)]


def parts(ids, *args, **kwargs):
    """id -> its part."""
    return {ids[i]: name for name, part in split(ids, *args, **kwargs)._asdict().items() for i in part.tolist()}


@settings(max_examples=25)
@given(st.permutations(IDS[:60]), st.sampled_from([0.0, 0.2, 0.7]))
def test_every_task_is_in_the_part_its_id_says(ids, turn):
    assert parts(ids, turn=turn) == parts(IDS[:60], turn=turn)
    assert parts(ids[::2], (1, 0, 0)) == dict.fromkeys(ids[::2], "train")


def test_company_does_not_matter():
    everyone = parts(IDS)
    assert parts(IDS[500:900]) == {name: everyone[name] for name in IDS[500:900]}


def test_parts_have_the_asked_sizes_and_turns_test_other_tasks():
    train, validation, test = split(IDS, (0.5, 0.2, 0.3))
    assert sorted(torch.cat([train, validation, test]).tolist()) == list(range(len(IDS)))
    for part, share in zip((train, validation, test), (0.5, 0.2, 0.3), strict=True):
        assert abs(len(part) / len(IDS) - share) < 0.05
    tested = [i for split_ in divisions(IDS, (0.5, 0.3, 0.2), 5) for i in split_.test.tolist()]
    assert sorted(tested) == list(range(len(IDS)))


def test_the_division_is_pinned():
    assert split([f"q{i}" for i in range(30)]).test.tolist() == [14, 21, 22, 29]


def test_parts_grow_by_what_they_are_given():
    smaller, larger = split(IDS, (0.3, 0.3, 0.4)).train.tolist(), split(IDS, (0.5, 0.1, 0.4)).train.tolist()
    assert set(smaller) < set(larger)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.9, 0.2, -0.1), (0.5, 0.2, 0.2)])
def test_fractions_that_are_none_are_refused(fractions):
    with pytest.raises(ValueError, match="three fractions of at least 0 that sum to 1"):
        split(IDS, fractions)


def test_an_empty_part_is_refused():
    with pytest.raises(ValueError, match="expected tasks for every part, got none of 1 for"):
        split(["alone"])
