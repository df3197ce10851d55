"""One step of a study: its costs add up over attempts, and nothing but success makes it done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nsed_lab.studies import step

SCRIPT = Path(step.__file__)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Runs steps of `nsed --version` in a folder; a word `sleep`, `eat` or `fail` makes one slow, large or fail."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'nsed_torch.app.cli' in sys.orig_argv:\n"
        "    if 'sleep' in sys.orig_argv: time.sleep(20)\n"
        "    if 'eat' in sys.orig_argv: bytearray(b'x') * 200_000_000\n"
        "    if 'fail' in sys.orig_argv: os._exit(3)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    env = {**os.environ, "PYTHONPATH": path}

    def start(*words, **more):
        command = [sys.executable, "-P", str(SCRIPT), "out", "nsed", "--version", *words]
        return subprocess.Popen(command, cwd=tmp_path, env=env | more, stdout=subprocess.DEVNULL)

    return start


def read(folder, name):
    path = folder / "out" / name
    return json.loads(path.read_text()) if path.exists() else None


def test_a_step_leaves_its_command_and_its_costs(site, tmp_path):
    assert site("eat").wait() == 0
    done = read(tmp_path, "step.json")
    assert done["command"] == ["nsed", "--version", "eat"]
    assert done["attempts"] == 1
    assert done["seconds"] > 0
    assert 190 < done["peak_memory_mib"] < 1000
    assert done["date"].startswith("20")


def test_costs_of_attempts_add_up_and_a_failed_one_is_not_done(site, tmp_path):
    (tmp_path / "out").mkdir()
    earlier = {"command": ["nsed", "--version"], "seconds": 3933.0, "peak_memory_mib": 5000, "date": "2026-01-01"}
    (tmp_path / "out/attempts.json").write_text(json.dumps([earlier, {**earlier, "command": ["nsed", "x"]}]))
    assert site().wait() == 0
    done = read(tmp_path, "step.json")
    assert (done["attempts"], done["peak_memory_mib"]) == (2, 5000)
    assert 3933.0 < done["seconds"] < 4000.0  # another command's costs are not counted
    assert site("fail").wait() == 3
    assert read(tmp_path, "step.json") is None
    assert len(read(tmp_path, "attempts.json")) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_killed_is_not_done_and_counts(site, tmp_path, number):
    process = site("sleep")
    for _ in range(600):
        if read(tmp_path, "attempts.json"):
            break
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    assert process.wait(timeout=60) != 0
    assert read(tmp_path, "step.json") is None
    (attempt,) = read(tmp_path, "attempts.json")
    if number == signal.SIGTERM:  # of a kill nobody hears; then the last minute is missing
        assert attempt["seconds"] > 0


@pytest.mark.parametrize(("flags", "threads"), [("", None), (" -j2 --jobserver-auth=3,4", 1), ("n", None)])
def test_jobs_share_the_cores(monkeypatch, flags, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MAKEFLAGS", flags)
    monkeypatch.setattr(step.os, "cpu_count", lambda: 2)
    assert step.environment().get("OMP_NUM_THREADS") == (str(threads) if threads else None)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert step.environment()["OMP_NUM_THREADS"] == "7"
