"""Two ways of doing the same work, side by side."""

import json

import pytest

from nsed_torch.evaluation import measurement
from nsed_torch.evaluation.measurement import Measurement, compare, hardware, seconds


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless told to go on."""
    now = [0.0]
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: now[0])

    def work(name, takes, done):
        def run():
            done.append(name)
            now[0] += takes

        return name, run

    return work


def test_ratios_are_taken_repeat_by_repeat():
    line = Measurement("work", "fast", "slow", (1.0, 2.0, 4.0), (3.0, 20.0, 16.0), facts={"n": 1})
    assert line.ratios == [3.0, 10.0, 4.0]
    assert line.ratio == 4.0
    read = json.loads(json.dumps(line.as_json()))
    assert (read["ratio"], read["least"], read["most"]) == (4.0, 3.0, 10.0)
    assert (read["name"], read["ours"], read["other"], read["unit"]) == ("work", "fast", "slow", "s")
    assert (read["ours_values"], read["other_values"]) == ([1.0, 2.0, 4.0], [3.0, 20.0, 16.0])
    assert read["facts"] == {"n": 1}


def test_all_ways_take_turns_and_parts_are_scaled(clock):
    done = []
    ours, whole, part = clock("ours", 2.0, done), clock("whole", 6.0, done), clock("part", 1.0, done)
    first, second = compare("work", ours=ours, others=[whole, part], repeats=3, scales=[1.0, 8.0])
    assert done == ["ours", "whole", "part"] * 3
    assert (first.other, first.other_values, first.ratio) == ("whole", (6.0,) * 3, 3.0)
    assert (second.other, second.other_values, second.ratio) == ("part", (8.0,) * 3, 4.0)
    assert first.ours_values == second.ours_values == (2.0,) * 3
    assert first.facts == {}


def test_no_repeats_are_refused(clock):
    done = []
    with pytest.raises(ValueError, match=r"^expected at least 1 repeat, got 0$"):
        compare("work", ours=clock("ours", 1.0, done), others=[], repeats=0)
    assert done == []


def test_time_is_that_of_the_work(clock):
    assert seconds(clock("work", 1.5, [])[1]) == 1.5


def test_the_machine_can_be_written_down():
    found = json.loads(json.dumps(hardware()))
    assert found["threads"] >= 1
    assert {"machine", "accelerator", "python", "nsed_torch", "torch", "transformers"} <= set(found)
