"""Run folders: one process at a time, no other run's results, nothing left of a kill."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nsed_torch.app.opening import ABOUT_RUN, differences, identity_of, opened
from nsed_torch.records.files import read_json

MADE = ("traces.jsonl", "plots", "seed_*")


def run(folder, identity, made=MADE, *, goes_on=False):
    """Open a folder and leave what a run leaves."""
    with opened(folder, identity, made, goes_on=goes_on):
        (folder / "plots").mkdir(exist_ok=True)
        for name in ("traces.jsonl", "plots/rounds.png", "calls.sqlite", "notes.txt"):
            (folder / name).touch()


def test_a_second_process_is_told_who_holds_the_folder(tmp_path):
    identity = identity_of("collect", {"seed": 0})
    with opened(tmp_path, identity, MADE, goes_on=False):
        line = rf"in use by process {os.getpid()} on \S+ since [0-9: -]+: wait for it, or choose another output_dir"
        with pytest.raises(ValueError, match=line), opened(tmp_path, identity, MADE, goes_on=False):
            pytest.fail("two held it")
    run(tmp_path, identity)


def test_the_lock_of_a_dead_process_holds_nobody_up(tmp_path):
    text = (
        "import os, pathlib, sys; from nsed_torch.app.opening import opened\n"
        "with opened(pathlib.Path(sys.argv[1]), {'verb': 'a', 'version': '', 'files': {}}, (), goes_on=False):\n"
        "    os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).resolve().parents[2]
    env = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=False, env=env)
    assert done.returncode == -9
    run(tmp_path, identity_of("collect", {"seed": 0}))


def test_a_folder_that_lets_nothing_be_removed_hides_no_failure(tmp_path):
    identity = identity_of("collect", {"seed": 0})

    def fail():
        (tmp_path / ".holder").unlink()
        (tmp_path / ".holder").mkdir()
        raise OSError("what went wrong")

    with pytest.raises(OSError, match="what went wrong"), opened(tmp_path, identity, MADE, goes_on=False):
        fail()
    (tmp_path / ".holder").rmdir()
    run(tmp_path, identity)  # nor does it stay locked


def test_what_another_run_made_goes_and_calls_stay(tmp_path):
    run(tmp_path, identity_of("evaluate", {"methods": ["single"], "seed": 0}))
    (tmp_path / "seed_1").mkdir()
    with opened(tmp_path, identity_of("evaluate", {"methods": ["debate"], "seed": 0}), MADE, goes_on=False):
        there = {path.name for path in tmp_path.iterdir()} - {".lock", ".holder"}
        assert there == {ABOUT_RUN, "calls.sqlite", "notes.txt"}


def test_what_the_same_run_made_stays(tmp_path):
    identity = identity_of("evaluate", {"avoid": {7: 1}, "seed": 0})
    run(tmp_path, identity, goes_on=True)
    with opened(tmp_path, identity, MADE, goes_on=True):
        assert (tmp_path / "plots/rounds.png").is_file()


@pytest.mark.parametrize(
    ("old", "new", "phrase"),
    [
        ({"training": {"lr": 0.1}}, {"training": {"lr": 0.2}}, "training.lr 0.1 is now 0.2"),
        ({"backbone": {"weights": "a"}}, {"backbone": {"weights": "b"}}, "backbone.weights 'a' is now 'b'"),
        ({"seed": 0}, {"seed": 0, "rank": 8}, "rank None is now 8"),
    ],
)
def test_nothing_goes_on_from_another_run(tmp_path, old, new, phrase):
    run(tmp_path, identity_of("specialize", old), goes_on=True)
    with pytest.raises(ValueError, match=f"got another's \\({phrase}\\): choose another output_dir, or remove"):
        run(tmp_path, identity_of("specialize", new), goes_on=True)
    assert (tmp_path / "traces.jsonl").is_file()
    assert read_json(tmp_path / ABOUT_RUN)["settings"] == old


def test_another_verb_or_version_or_an_unknown_run_is_another(tmp_path, monkeypatch):
    run(tmp_path, identity_of("tune", {}))
    with pytest.raises(ValueError, match="verb tune is now specialize"):
        run(tmp_path, identity_of("specialize", {}), goes_on=True)
    monkeypatch.setattr("nsed_torch.app.opening.__version__", "99")
    with pytest.raises(ValueError, match=r"version .* is now 99"):
        run(tmp_path, identity_of("tune", {}), goes_on=True)
    (tmp_path / ABOUT_RUN).unlink()
    with pytest.raises(ValueError, match=r"nothing says who made traces\.jsonl"):
        run(tmp_path, identity_of("tune", {}), goes_on=True)


def test_nothing_is_removed_that_another_verb_or_somebody_else_made(tmp_path):
    (tmp_path / "plots").mkdir()
    with pytest.raises(ValueError, match="nothing says who made plots"):
        run(tmp_path, identity_of("evaluate", {}))
    (tmp_path / ABOUT_RUN).write_text('["no run"]')
    with pytest.raises(ValueError, match="nothing says who made plots"):
        run(tmp_path, identity_of("evaluate", {}))
    run(tmp_path / "collected", identity_of("collect", {}))
    with pytest.raises(ValueError, match="verb collect is now evaluate"):
        run(tmp_path / "collected", identity_of("evaluate", {}))
    assert (tmp_path / "plots").is_dir()
    assert (tmp_path / "collected/traces.jsonl").is_file()


@pytest.mark.parametrize("change", ["content", "new file", "template"])
def test_other_data_under_the_same_name_is_another_run(tmp_path, change):
    data, templates = tmp_path / "data", tmp_path / "templates"
    for folder in (data, templates):
        folder.mkdir()
    (data / "questions.jsonl").write_text("1")
    (templates / "propose.jinja").write_text("a")
    settings = {"data_dir": [str(data)], "prompts": {"folder": str(templates)}, "name": "data", "none": {}}
    before = identity_of("tune", settings)
    assert set(before["files"]) == {"data_dir[0]", "prompts.folder"}
    (data / ".holder").write_text("of another verb")
    assert identity_of("tune", settings) == before
    changed = {
        "content": data / "questions.jsonl",
        "new file": data / "agents.json",
        "template": templates / "propose.jinja",
    }
    changed[change].write_text("2")
    (phrase,) = differences(before, identity_of("tune", settings))
    assert phrase.endswith("names has changed")


def test_what_a_kill_left_half_written_is_swept(tmp_path):
    (tmp_path / "deeper").mkdir()
    left = [tmp_path / ".0123456789abcdef.tmp", tmp_path / "deeper/.fedcba9876543210.tmp"]
    others = [tmp_path / ".mine.tmp", tmp_path / "0123456789abcdef.tmp"]
    for path in (*left, *others):
        path.touch()
    run(tmp_path, identity_of("collect", {}))
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_links_are_removed_and_not_followed(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (outside / "kept").touch()
    run(folder, identity_of("evaluate", {"seed": 0}))
    (folder / "seed_0").symlink_to(outside)
    run(folder, identity_of("evaluate", {"seed": 1}))
    assert not (folder / "seed_0").exists()
    assert (outside / "kept").exists()
