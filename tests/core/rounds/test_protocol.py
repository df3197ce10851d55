"""One description of how rounds are held: its checks, and that all of it reaches a transcript and every copy."""

import dataclasses

import pytest

from nsed_torch.core.protocol import Protocol
from nsed_torch.records.transcript import Task

OTHERS = {
    "unit": "step",
    "memory": "weighted",
    "memory_tokens": 77,
    "diagonal_mask": False,
    "anonymous": False,
    "shuffled": False,
    "ahead": 2.0,
    "shown_from": 0.5,
    "verbatim": True,
    "control": "ratings",
    "judges": 2,
    "candidates": 1,
    "equal_once": True,
}


def test_every_switch_is_told_by_its_name_and_shared_by_copies(scripted):
    assert set(OTHERS) == {field.name for field in dataclasses.fields(Protocol)}
    rnn, _ = scripted.build(3, write=lambda r: "Answer: 7", judge=lambda r, c: 0.5, **OTHERS)
    assert rnn.settings().items() >= OTHERS.items()
    assert rnn([Task("?")]).transcripts[0].settings.items() >= OTHERS.items()
    assert rnn.with_(seed=3).cell.protocol == rnn.cell.with_(seed=3).protocol == Protocol(**OTHERS)


def test_what_is_seldom_set_is_told_only_then(scripted):
    settings = scripted.build(3)[0].settings()
    rare = {"memory", "shown_from", "verbatim", "control", "judges", "candidates", "equal_once", "without", "forms"}
    assert not rare & set(settings)
    assert settings.items() >= {"unit": "answer", "ahead": None, "memory_tokens": 256}.items()


@pytest.mark.parametrize(
    "options",
    [
        {"memory_tokens": -1},
        {"control": "votes"},
        {"shown_from": 2},
        {"unit": 3},
        {"memory": "half"},
        {"judges": 0},
        {"candidates": -1},
    ],
)
def test_values_out_of_range_are_one_line(options):
    with pytest.raises(ValueError, match=r"^protocol: expected .*, got .*: correct (it|them)$"):
        Protocol(**options)
