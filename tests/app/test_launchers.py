"""Hydra's launchers for other processes and clusters run a sweep of a verb as it runs in one process."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEAM = """
engines:
  scripted: {_target_: replicated_engine.Noting, file: notes.txt}
agents:
  ant: {backbone: scripted}
  bee: {backbone: scripted, persona: Be careful.}
"""


def transcripts(folder):
    """What a sweep wrote, by the folder of each run."""
    return {file.parent.name: file.read_bytes() for file in folder.glob("*/transcript.json")}


@pytest.fixture
def _no_worker_stays():
    """Those that joblib keeps for whatever comes next."""
    yield
    if loky := sys.modules.get("joblib.externals.loky"):
        loky.get_reusable_executor(max_workers=2).shutdown()


@pytest.mark.usefixtures("_no_worker_stays")
@pytest.mark.parametrize(("launcher", "seeds"), [("joblib", "1,2"), ("submitit_local", "1")])
def test_a_launcher_runs_a_sweep(nsed, monkeypatch, launcher, seeds):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    (nsed.folder / "mine/ensemble").mkdir(parents=True)
    (nsed.folder / "mine/ensemble/scripted.yaml").write_text(TEAM)
    monkeypatch.setenv("NSED_TARGETS", "replicated_engine.Noting")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    words = ["deliberate", "-m", "question=Why?", "--config-dir", "mine", "ensemble=scripted", "encoder=hashed"]
    words += ["rounds=1", f"seed={seeds}"]
    nsed.ok(*words, "output_dir=here")
    expected = transcripts(nsed.folder / "here")
    assert len(set(expected.values())) == len(seeds.split(","))
    nsed.ok(*words, f"hydra/launcher={launcher}", "output_dir=there")
    assert transcripts(nsed.folder / "there") == expected
