"""Logs: a file always, TensorBoard where it is installed."""

import importlib.util

import pytest

from nsed_torch.records.pace import time_left
from nsed_torch.training import logs
from nsed_torch.training.logs import FileLog, ToldLog, to_tensorboard


def test_resume_forgets_later_and_broken_lines(tmp_path):
    log = FileLog(tmp_path / "deep" / "log.jsonl")
    for step in (1, 2, 3):
        log.write(step, {"loss": 0.1 * step, "gradient": {"rounds": [1.0, 2.0]}})
    with log.path.open("a") as file:
        file.write('{"step": 4, "lo')
    log.resume(2)
    log.write(3, {"loss": 9})
    assert [line["loss"] for line in log.read()] == [0.1, 0.2, 9]


def test_nested_numbers_have_names():
    record = {"loss": 0.5, "gradient": {"rounds": [1.0, 2.0], "parts": {"gate": 3.0}}, "note": "words"}
    assert dict(logs._scalars(record)) == {
        "loss": 0.5, "gradient/rounds/1": 1.0, "gradient/rounds/2": 2.0, "gradient/parts/gate": 3.0,
    }  # fmt: skip


def test_tensorboard_gets_every_number_or_what_is_missing_is_said(tmp_path, monkeypatch):
    log = FileLog(tmp_path / "log.jsonl")
    log.write(3, {"loss": 0.5})
    if importlib.util.find_spec("tensorboard") is not None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        to_tensorboard(log)
        (path,) = (tmp_path / "tensorboard").glob("events*")
        (event,) = EventAccumulator(str(path)).Reload().Scalars("loss")
        assert (event.step, event.value) == (3, 0.5)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"no such package: pip install nsed_torch\[track\]"):
        to_tensorboard(log)


def test_a_long_training_says_how_far_it_is_and_how_long_the_rest_takes(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(logs, "perf_counter", lambda: next(clock))
    told = []
    log = ToldLog(tmp_path / "log.jsonl", 40, told.append)
    for step in range(11, 41):  # resumed behind step 10
        log.write(step, {"loss": 1.0})
    assert len(log.read()) == 30
    assert told[0] == "step 12 of 40, 14 min left"
    assert told[-1] == "step 40 of 40"
    assert len(told) == 15


@pytest.mark.parametrize(
    ("seconds", "done", "total", "text"),
    [(9.9, 1, 10, ", 89 s left"), (9, 1, 10, ", 81 s left"), (60, 1, 31, ", 30 min left"), (3600, 1, 6, ", 5.0 h left"),
     (9, 0, 10, ""), (9, 10, 10, "")],
)  # fmt: skip
def test_time_left_is_at_the_pace_so_far(seconds, done, total, text):
    assert time_left(seconds, done, total) == text
