"""Hydra's launchers for other processes and clusters run a sweep of a verb as it runs in one process."""

import os
import subprocess
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


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_launcher_runs_a_sweep(nsed, monkeypatch, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.removesuffix('_local')}_launcher")
    (nsed.folder / "mine/ensemble").mkdir(parents=True)
    (nsed.folder / "mine/ensemble/scripted.yaml").write_text(TEAM)
    monkeypatch.setenv("NSED_TARGETS", "replicated_engine.Noting")
    words = ["deliberate", "-m", "question=Why?", "--config-dir", "mine", "ensemble=scripted", "encoder=hashed"]
    words += ["rounds=1", "seed=1,2"]
    nsed.ok(*words, "output_dir=here")
    expected = transcripts(nsed.folder / "here")
    assert len(set(expected.values())) == 2
    done = subprocess.run(
        [sys.executable, "-P", "-m", "nsed_torch", *words, f"hydra/launcher={launcher}", "output_dir=there"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert transcripts(nsed.folder / "there") == expected
