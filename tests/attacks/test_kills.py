"""Killed at any moment, or out of disk space, a verb run again ends as a straight run; a full disk is one line."""

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nsed_torch.records.trace import TraceWriter
from nsed_torch.tuning.fine_tuning import checkpoints_in
from nsed_torch.tuning.logs import FileLog

pytest.importorskip("openai", reason="the extra `endpoint` is not installed")

from endpoint_server import endpoint
from golden import materials, runs
from sandboxed import skipped
from served_team import Client, until

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")

PAGES = 32 << 20
"""Bytes of the file system on which runs find no room."""


def play(tmp_path, act, count, *verbs, seed=1):
    """What came of runs in a process of their own; for full disks in a small file system of their own."""
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    whole = ["bwrap", "--dev-bind", "/", "/"]
    small = [*whole, "--size", str(PAGES), "--tmpfs", str(home)] if act == "disks" else []
    small = [*whole, "--cap-drop", "ALL"] if act == "locks" else small  # the superuser writes where nobody may
    script = Path(__file__).with_name("killed_runs.py")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "TMPDIR": str(data)}
    command = [*small, sys.executable, script, act, home, data, str(seed), str(count), *verbs]
    child = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads((data / "found.json").read_text())


GROUPS = {
    "deliberate evaluate demo": 8,
    "collect conduct report": 14,
    "tune fit-broker fit-asking members": 10,
    "train-judges specialize train-conductor": 9,
}
"""Verbs that share a process, and how often each is killed: 133 kills in all."""


@pytest.mark.attack
@forks
@pytest.mark.parametrize("verbs", GROUPS)
def test_every_verb_killed_anywhere_ends_as_a_straight_one(tmp_path, verbs):
    found = play(tmp_path, "kills", GROUPS[verbs], *verbs.split())
    assert {verb: one["wrong"] for verb, one in found.items() if one["wrong"]} == {}
    assert all(one["kills"] >= GROUPS[verbs] for one in found.values())


@pytest.mark.attack
@forks
@pytest.mark.parametrize("verbs", GROUPS)
def test_every_verb_stopped_anywhere_tells_the_command_that_goes_on(tmp_path, verbs):
    found = play(tmp_path, "stops", 4, *verbs.split())
    assert {verb: one["wrong"] for verb, one in found.items() if one["wrong"]} == {}
    assert all(one["codes"].get("130") for one in found.values())


@pytest.mark.attack
@forks
@pytest.mark.skipif(skipped("" if shutil.which("bwrap") else "none"), reason="needs bubblewrap")
@pytest.mark.parametrize("verbs", GROUPS)
def test_a_folder_that_nothing_is_written_to_is_one_line_and_the_next_run_goes_on(tmp_path, verbs):
    found = play(tmp_path, "locks", 3, *verbs.split())
    assert {verb: one["wrong"] for verb, one in found.items() if one["wrong"]} == {}
    assert all(any("; give access to it" in line for line in one["lines"]) for one in found.values())


@pytest.mark.attack
@forks
@pytest.mark.skipif(skipped("" if shutil.which("bwrap") else "none"), reason="needs bubblewrap")
@pytest.mark.parametrize(
    "verbs",
    [
        "collect deliberate conduct report demo tune fit-broker fit-asking members",
        "evaluate specialize train-judges train-conductor",
    ],
)
def test_a_full_disk_is_one_line_and_the_next_run_goes_on(tmp_path, verbs):
    found = play(tmp_path, "disks", 3, *verbs.split())
    assert {verb: one["wrong"] for verb, one in found.items() if one["wrong"]} == {}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_a_log_names_it(tmp_path):
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"cannot write this file: No space left on device: .*log.jsonl"):
        FileLog(tmp_path / "log.jsonl").write(1, {"loss": 1.0})


def test_a_full_disk_under_traces_names_them(tmp_path, monkeypatch):
    class Line:
        def to_line(self):
            return "{}\n"

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = TraceWriter(tmp_path)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"cannot write this file: No space left on device: .*traces.jsonl"):
        writer.add([Line()])
    monkeypatch.undo()
    writer.add([Line()])
    assert (tmp_path / "traces.jsonl").read_text() == "{}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_a_checkpoint_is_told_as_such(tmp_path):
    with pytest.raises(OSError, match=r"checkpoints: cannot write a checkpoint \(.*make space"), torch_saves(tmp_path):
        torch.save(torch.zeros(100_000), "/dev/full")
    with pytest.raises(RuntimeError, match="of another kind"), torch_saves(tmp_path):
        raise RuntimeError("of another kind")


def torch_saves(folder):
    """As a training does."""
    return checkpoints_in(folder / "checkpoints")


def test_a_training_of_judges_run_again_logs_anew(tmp_path):
    for _ in range(2):
        runs.tune_judges(tmp_path)
    steps = [json.loads(line)["step"] for line in (tmp_path / "out/judges.jsonl").read_text().splitlines()]
    assert steps.count(0) == 1


@contextlib.contextmanager
def serves(url, calls):
    """`nsed serve` of the scripted team behind a server, and a client of it."""
    engine = "ensemble.engines.smollm2"
    team = {"ensemble": "demo", f"backbone@{engine}": "endpoint", f"{engine}.model": "m", f"{engine}.url": f"'{url}'"}
    team |= {f"{engine}.max_batch": 4, "encoder": "hashed", "rating": "verdict", "rounds": 2}
    team |= {f"+ensemble.agents.{name}.adapter": name for name in materials.TEAM}
    model = "+models.team={" + ", ".join(f"{key}: {value}" for key, value in team.items()) + "}"
    words = ["serve", "~models.experts", "~models.demo", model, "port=0", f"calls={calls}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nsed_torch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        try:
            port = next(int(found[1]) for line in child.stdout if (found := re.search(r"127.0.0.1:(\d+);", line)))
            client = Client(port)
            until(lambda: reachable(client))
            yield child, client
        finally:
            child.kill()


def reachable(client):
    with contextlib.suppress(OSError):
        return client.get("/health")[0] == 200
    return False


@pytest.mark.attack
@forks
def test_a_server_killed_while_it_deliberates_pays_nothing_twice(tmp_path, monkeypatch):
    number = 5
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked = {"model": "nsed/team", "messages": [{"role": "user", "content": materials.question(4)}]}
    said, made = [], []
    with endpoint() as team:
        team.script = materials.speak
        with serves(team.url, tmp_path / "straight") as (_, client):
            said.append(client.chat(asked)[1]["choices"])
        made.append(len(team.bodies))
        team.bodies.clear()
        with serves(team.url, tmp_path / "killed") as (child, client):
            team.script = lambda body: (len(team.bodies) >= number and child.kill()) or materials.speak(body)
            with pytest.raises(ConnectionError):
                client.chat(asked)
        team.script = materials.speak
        with serves(team.url, tmp_path / "killed") as (_, client):
            said.append(client.chat(asked)[1]["choices"])
        made.append(len(team.bodies))
    assert said[0] == said[1]
    assert number <= made[0] <= made[1] <= made[0] + 4
