"""The runner of a study: what runs, what does not run again, and what a kill or a failure leaves.

Steps here are the cheapest real commands of `nsed`: `--version` succeeds at once, an unknown verb fails.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from nsed_torch import __version__
from nsed_torch.experiments import runner as module
from nsed_torch.experiments.runner import Runner
from nsed_torch.experiments.steps import Step


def step(name, *overrides, verb="--version", needs=()):
    return Step(name, verb, overrides, needs)


CHAIN = [step("a"), step("b", "x={a}/file", needs=("a",)), step("c")]


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Runs steps in one folder; returns the names of those that ran now."""
    monkeypatch.chdir(tmp_path)

    def run(steps, names=None, jobs=1):
        said = []
        runner = Runner(steps, module.Path("out"), said.append, jobs=jobs)
        runner.run(names or [s.name for s in steps])
        return [re.match(r"step \d of \d, (\w+)", line)[1] for line in said if "complete already" not in line]

    return run


def record(tmp_path, name):
    return json.loads((tmp_path / f"out/{name}/step.json").read_text())


def test_each_step_leaves_its_record_and_its_log(study, tmp_path, capfd):
    assert study(CHAIN) == ["a", "b", "c"]
    found = record(tmp_path, "b")
    assert found["command"] == ["nsed", "--version", "x=out/a/file", "output_dir=out/b"]
    assert found["version"] == __version__
    assert 0 < found["seconds"] < 60
    assert 1 < found["peak_memory_mib"] < 10_000
    said = f"nsed_torch {__version__}\n"
    assert (tmp_path / "out/b/step.log").read_text() == f"$ nsed --version x=out/a/file output_dir=out/b\n{said}"
    assert capfd.readouterr().out == 3 * said


def test_complete_steps_do_not_run_again(study, tmp_path):
    study(CHAIN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("step.*")}
    assert len(before) == 6
    assert study(CHAIN) == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("step.*")} == before


def test_a_changed_command_runs_again_with_all_that_needs_it(study):
    study(CHAIN)
    assert study([step("a", "x=1"), *CHAIN[1:]]) == ["a", "b"]
    assert study([step("a", "x=1"), CHAIN[1], step("c", "x=1")]) == ["c"]
    assert study([step("a", "x=1"), step("b", "y={a}", needs=("a",)), step("c", "x=1")]) == ["b"]


def test_what_follows_a_step_that_ran_again_runs_again(study, tmp_path, monkeypatch):
    study(CHAIN)
    (tmp_path / "out/a/step.json").unlink()
    assert Runner(CHAIN, module.Path("out")).state("b") == "outdated"
    assert study(CHAIN) == ["a", "b"]
    monkeypatch.setattr(module, "__version__", "another")
    assert study(CHAIN) == ["a", "b", "c"]


def test_a_moved_study_is_still_complete(study, tmp_path):
    study(CHAIN)
    (tmp_path / "out").rename(tmp_path / "moved")
    runner = Runner(CHAIN, tmp_path / "moved")
    assert [runner.state(name) for name in "abc"] == ["complete"] * 3


def test_single_steps_run_if_what_they_need_is_complete(study):
    with pytest.raises(ValueError, match=r"^step b: expected a to be complete, got not run; name it among steps"):
        study(CHAIN, ["b"])
    assert study(CHAIN, ["b", "a"]) == ["a", "b"]
    changed = [step("a", "x=1"), *CHAIN[1:]]
    with pytest.raises(ValueError, match=r"^step b: expected a to be complete, got outdated"):
        study(changed, ["b"])


def test_a_failing_step_stops_the_study_in_one_line(study, tmp_path):
    steps = [step("a"), step("b", verb="colect"), step("c")]
    with pytest.raises(ValueError, match=r"^step b failed with exit code 2: nsed: unknown verb 'colect'; ") as fault:
        study(steps)
    assert str(fault.value).endswith("; its log is out/b/step.log")
    assert "\n" not in str(fault.value)
    assert "unknown verb 'colect'" in (tmp_path / "out/b/step.log").read_text()
    assert [Runner(steps, module.Path("out")).state(name) for name in "abc"] == ["complete", "not run", "not run"]
    assert study([step("a"), step("b"), step("c")]) == ["b", "c"]


def test_a_step_that_fails_is_not_complete_for_its_old_command_either(study):
    study([step("a")])
    with pytest.raises(ValueError, match="step a failed"):
        study([step("a", verb="colect")])
    assert Runner([step("a")], module.Path("out")).state("a") == "not run"


def test_a_killed_step_is_named_with_its_signal(study, tmp_path, monkeypatch):
    site = "import os, signal, sys\nif 'x=1' in sys.orig_argv:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (tmp_path / "sitecustomize.py").write_text(site)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^step a was killed by signal 9 \(SIGKILL\); its log is out/a/step.log$"):
        study([step("a", "x=1")])


def test_the_child_s_package_is_this_one(study, tmp_path):
    """Whatever lies in the current folder."""
    (tmp_path / "nsed_torch").mkdir()
    (tmp_path / "nsed_torch/cli.py").write_text("raise SystemExit(7)")
    assert study([step("a")]) == ["a"]


def test_a_folder_that_hydra_would_not_read_as_one_text_is_refused():
    with pytest.raises(ValueError, match=r"expected an output_dir of letters, .* got 'runs/a,b'"):
        Runner(CHAIN, module.Path("runs/a,b"))


# A step with meet=MINE,OTHER leaves a mark and waits for the other's, so that only steps that run together succeed.
MEETING = """
import pathlib, sys, time
for word in sys.orig_argv:
    if word.startswith("meet="):
        mine, other = word.removeprefix("meet=").split(",")
        pathlib.Path(mine).touch()
        last = time.monotonic() + 60
        while not pathlib.Path(other).exists() and time.monotonic() < last:
            time.sleep(0.01)
        if not pathlib.Path(other).exists():
            sys.exit("nobody came")
"""


@pytest.fixture
def meeting(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(MEETING)
    monkeypatch.syspath_prepend(tmp_path)


def test_steps_that_do_not_need_each_other_run_together(study, meeting, tmp_path, capfd):
    steps = [step("a", "meet=a,b"), step("after", "x={a}", needs=("a",)), step("b", "meet=b,a")]
    assert study(steps, jobs=2) == ["a", "b", "after"]
    said = f"nsed_torch {__version__}\n"
    assert sorted(capfd.readouterr().out.splitlines(keepends=True)) == [f"a: {said}", f"after: {said}", f"b: {said}"]
    assert (tmp_path / "out/b/step.log").read_text() == f"$ nsed --version meet=b,a output_dir=out/b\n{said}"
    assert study(steps, jobs=2) == []


def test_what_is_complete_takes_no_place_beside_those_that_run(study, meeting):
    first, meet = step("first"), [step("a", "meet=a,b"), step("b", "meet=b,a", needs=("first",))]
    study([first])
    assert study([first, *meet], jobs=2) == ["a", "b"]


def test_what_runs_beside_a_failing_step_ends_and_nothing_begins(study, meeting, tmp_path, monkeypatch):
    ending = module._ending

    def failed(*args):
        (tmp_path / "failed").touch()
        return ending(*args)

    monkeypatch.setattr(module, "_ending", failed)
    steps = [step("a", verb="colect"), step("b", "meet=b,failed"), step("c")]
    with pytest.raises(ValueError, match=r"^step a failed with exit code 2: nsed: unknown verb 'colect'; "):
        study(steps, jobs=2)
    assert [Runner(steps, module.Path("out")).state(name) for name in "abc"] == ["not run", "complete", "not run"]


def test_no_job_is_no_study():
    with pytest.raises(ValueError, match=r"^expected jobs of at least 1, got 0$"):
        Runner(CHAIN, module.Path("out"), jobs=0)


# The second step of the first run waits for a file, in a process that the runner's death does not end.
WAITING = """
import os, pathlib, sys, time
if "x=out/a" in sys.orig_argv:
    pathlib.Path("out/b/pid").write_text(str(os.getpid()))
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

from nsed_torch.experiments.runner import Runner
from nsed_torch.experiments.steps import Step

STEPS = [Step(name, "--version", words, needs) for name, words, needs in
         (("a", (), ()), ("b", ("x={a}",), ("a",)), ("c", (), ()))]


def run(report):
    Runner(STEPS, Path("out"), report).run(["a", "b", "c"])


def say(text):
    print(text, flush=True)
    if "waiting" in text:  # the orphan may end now
        Path("go").touch()


if (pid := os.fork()) == 0:
    run(lambda text: None)
    os._exit(0)
while not Path("out/b/pid").exists():
    time.sleep(0.005)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print(*(Path(f"out/{name}/step.json").exists() for name in "abc"), flush=True)
run(say)
print(*(Path(f"out/{name}/step.json").exists() for name in "abc"))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_killed_study_goes_on_once_its_last_process_has_ended(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WAITING)
    (tmp_path / "runs.py").write_text(SCRIPT)
    child = subprocess.run(
        [sys.executable, tmp_path / "runs.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    lines = [line for line in child.stdout.splitlines() if not line.startswith("nsed_torch ")]
    assert lines == [
        "True False False",
        "out: another process is at work here; waiting until it ends",
        "step 1 of 3, a: complete already",
        "step 2 of 3, b: nsed --version x=out/a output_dir=out/b",
        "step 3 of 3, c: nsed --version output_dir=out/c",
        "True True True",
    ]
