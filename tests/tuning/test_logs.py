"""Logs: a file always, and trackers where they are installed."""

import importlib
import sys

import pytest

from nsed_torch.records.pace import time_left
from nsed_torch.tuning import logs
from nsed_torch.tuning.logs import FileLog, ToldLog, check_tracker


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


def test_tensorboard_gets_every_number(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    FileLog(tmp_path / "log.jsonl").write(2, {"loss": 0.75})  # by what was killed
    log = FileLog(tmp_path / "log.jsonl", "tensorboard")
    log.write(3, {"loss": 0.5})
    (path,) = (tmp_path / "tensorboard").glob("events*")
    events = EventAccumulator(str(path)).Reload().Scalars("loss")  # while it trains
    assert [(event.step, event.value) for event in events] == [(2, 0.75), (3, 0.5)]
    log.close()


ELSEWHERE = """
told = []
class Run:
    def log(self, values, step): told.append((step, values))
    def finish(self): told.append("end")
def init(project, name): told.append((project, name)); return Run()
def search_experiments(filter_string): return []
def create_experiment(name, **_): told.append(name)
def start_run(run_name, **_): told.append(("nsed_torch", run_name)); return Run()
def log_metrics(values, step): told.append((step, values))
def end_run(): told.append("end")
"""


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_accelerate_s_trackers_get_every_number_as_a_run_named_by_its_folder(tmp_path, monkeypatch, name):
    (tmp_path / f"{name}.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    log = FileLog(tmp_path / "log.jsonl", name)
    log.write(3, {"loss": 0.5, "gradient": {"gate": 1}})
    log.write(4, {"loss": 0.25})
    told = importlib.import_module(name).told
    steps = (3, {"step": 3.0, "loss": 0.5, "gradient/gate": 1.0}), (4, {"step": 4.0, "loss": 0.25})
    said = [("nsed_torch", str(tmp_path)), *steps]
    assert [line for line in told if line != "nsed_torch"] == said
    log.close()
    assert [line for line in told if line != "nsed_torch"] == [*said, "end"]
    del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("tensorboard", r"got no such package: pip install .*\[track\]'$"),
        ("mlflow", "expected mlflow for logger=mlflow, got no such package: pip install mlflow$"),
        ("paper", "expected one of file, tensorboard, wandb, trackio, mlflow, got 'paper'"),
    ],
)
def test_a_tracker_that_is_not_there_is_one_line(monkeypatch, name, line):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=line):
        check_tracker(name)


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
