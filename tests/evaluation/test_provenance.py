"""Where numbers come from: hashes that name settings, git's word, nobody's home."""

import json
import shutil
import subprocess

import pytest

from nsed_torch.evaluation import provenance as module
from nsed_torch.evaluation.provenance import git_state, provenance
from nsed_torch.records.portable import config_sha256, without_home

CONFIG = {"seed": 0, "rounds": 3, "ensemble": {"agents": ["a", "b"]}, "output_dir": "runs/x"}


def test_a_config_is_named_by_what_shapes_numbers():
    name = config_sha256(CONFIG)
    assert len(name) == 64
    assert name == config_sha256(dict(reversed(CONFIG.items())))
    assert name == config_sha256(CONFIG | {"output_dir": "elsewhere"})
    assert name == config_sha256({key: value for key, value in CONFIG.items() if key != "output_dir"})
    assert name != config_sha256(CONFIG | {"rounds": 4})
    assert name != config_sha256(CONFIG | {"ensemble": {"agents": ["b", "a"]}})
    assert name != config_sha256(CONFIG | {"ensemble": {"agents": ["a", "b"], "output_dir": "inner"}})


def test_nan_is_no_setting():
    with pytest.raises(ValueError, match="JSON"):
        config_sha256({"rate": float("nan")})


def test_a_home_is_nobodys_business(monkeypatch, tmp_path):
    home = str(tmp_path)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("USERPROFILE", home)
    given = {
        "a": [home, f"{home}/data", f"x={home}/y and {home}/z"],
        "n": 3,
        "none": None,
        "deep": {"b": (f"{home}/q",)},
    }
    assert without_home(given) == {"a": ["~", "~/data", "x=~/y and ~/z"], "n": 3, "none": None, "deep": {"b": ["~/q"]}}
    others = [f"{home}2/data", f"mnt{home}/x", "~/data", "plain"]
    assert without_home(others) == others
    assert config_sha256({"dir": f"{home}/data"}) == config_sha256({"dir": "~/data"})


def test_a_root_is_nobodys_home(monkeypatch):
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setenv("USERPROFILE", "/")
    assert without_home("/data/x") == "/data/x"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A function that runs git in a fresh checkout with one commit; skips where there is no git."""
    if not shutil.which("git"):
        pytest.skip("git is not installed here, and without it nothing can be said of a checkout")
    # Nothing of a repository around the tests, or of the one whose hook may run them.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()

    def git(*words):
        identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, "-C", str(folder), *words], capture_output=True, check=True, text=True)
        return done.stdout.strip()

    git("init")
    (folder / "kept").write_text("one")
    git("add", "kept")
    git("commit", "-m", "first")
    return folder, git


def test_git_tells_commit_and_changes(checkout):
    folder, git = checkout
    clean = {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert git_state(folder) == clean
    (folder / "results.json").write_text("{}")
    assert git_state(folder) == clean, "what a run writes is no change of the sources"
    (folder / "kept").write_text("two")
    assert git_state(folder) == clean | {"dirty": True}
    git("add", "kept")
    assert git_state(folder) == clean | {"dirty": True}
    inner = folder / "inner"
    inner.mkdir()
    assert git_state(inner) == clean | {"dirty": True}


def test_no_checkout_has_no_state(checkout, monkeypatch):
    folder, _ = checkout
    assert git_state(folder.parent) is None
    assert git_state(folder / "missing") is None
    monkeypatch.setenv("PATH", str(folder))
    assert git_state(folder) is None


def test_a_run_says_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    config = CONFIG | {"data_dir": str(tmp_path / "data")}
    found = provenance(config, {"run": 0})
    text = json.dumps(found, allow_nan=False)
    assert str(tmp_path) not in text
    assert json.loads(text) == found == provenance(config, {"run": 0})
    assert found["config"] == CONFIG | {"data_dir": "~/data"}
    assert found["config_sha256"] == config_sha256(config)
    assert (found["seeds"], found["git"]) == ({"run": 0}, None)
    wanted = {"python", "nsed_torch", "torch", "transformers", "peft", "bitsandbytes", "sentence-transformers"}
    assert set(found["versions"]) == wanted
    assert found["versions"]["torch"]
    assert found["hardware"]["threads"] >= 1


def test_a_package_that_is_not_there_has_no_version(monkeypatch):
    monkeypatch.setattr(module, "PACKAGES", ("torch", "no-such-package-anywhere"))
    found = module.versions()
    assert found["torch"]
    assert found["no-such-package-anywhere"] is None
