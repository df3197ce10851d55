"""Small fixed runs of every verb come to what is stored here.

NSED_GOLDEN=write stores what they come to now; NSED_GOLDEN=exact, for the machine that wrote them, also holds fits in
float32 to the digit.
"""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("openai", reason="the extra `endpoint` is not installed")

from golden import materials, runs, tuning

HERE = Path(__file__).parent
NEEDS = {
    "tune_votes": ("sklearn", "crowdkit"),
    "tune_cost": ("matplotlib",),
    "tune_utility": ("matplotlib",),
    "conduct_train": ("trl",),
}
SWITCH = os.environ.get("NSED_GOLDEN", "")
REAL = ("gsm8k", "math_l5")


def same(found, kept, where="", rough=0.0):
    """Paths at which two trees differ: floats by more than 1e-4 of their size, or roughly; anything else at all."""
    if isinstance(kept, dict) and isinstance(found, dict):
        loose = dict.fromkeys([tuning.ROUGH], 0.0 if SWITCH == "exact" else 0.05)
        keys = {**kept, **found}
        return [d for k in keys for d in same(found.get(k), kept.get(k), f"{where}/{k}", loose.get(k, rough))]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        pairs = enumerate(zip(found, kept, strict=True))
        return [d for i, (a, b) in pairs for d in same(a, b, f"{where}/{i}", rough)]
    if type(kept) is type(found) and (found == kept or close(found, kept, rough)):
        return []
    return [f"{where}: expected {kept!r}, got {found!r}"]


def close(found, kept, rough):
    """Whether two floats differ by rounding; those around 1e-9 count as zero."""
    return isinstance(kept, float) and found == pytest.approx(kept, rel=max(rough, 1e-4), abs=max(rough, 1e-9))


def pretty(value, indent=""):
    """JSON with a key a line, so that a change is a line."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    rows = [f"{indent} {json.dumps(key)}: {pretty(entry, indent + ' ')}" for key, entry in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def check(name, found):
    """Compare with the stored file, or store."""
    path, found = HERE / f"{name}.json", json.loads(json.dumps(materials.rounded(found)))
    if SWITCH == "write":
        path.write_text(pretty(found) + "\n")
    assert same(found, json.loads(path.read_text())) == []


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))
    # Clients of endpoints would read all of the system's certificates, again and again, for servers without any.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    for plot in ("evaluate.draw_plots", "fit_broker.plot_curves", "train_conductor.plot_learning"):
        monkeypatch.setattr(f"nsed_torch.app.verbs.{plot}", lambda *_, **__: None)


@pytest.mark.parametrize("name", runs.RUNS)
def test_a_run_comes_to_what_it_came_to(name, home):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    folder = home / name
    folder.mkdir()
    check(name, runs.RUNS[name](folder))


@pytest.mark.skipif("NSED_RECORDED_DATA" not in os.environ, reason="NSED_RECORDED_DATA names no folder")
def test_real_recorded_answers_come_to_what_they_came_to(tmp_path):
    pytest.importorskip("sklearn")
    folder = Path(os.environ["NSED_RECORDED_DATA"]).resolve()
    check("recorded", {name: runs.real(tmp_path, folder / name) for name in REAL})


def test_differences_are_found():
    kept = {"a": [1, 1.0, "x", True], "b": None}
    assert same(kept, kept) == []
    assert same({"a": [1, 1.00009, "x", True], "b": None}, kept) == []
    for wrong in ([1, 1.0002, "x", True], [2, 1.0, "x", True], [1, 1.0, "y", True], [1, 1.0, "x", 1], [1, 1.0, "x"]):
        assert len(same({"a": wrong, "b": None}, kept)) == 1
    assert same({"a": kept["a"]}, {**kept, "b": 0}) != []


def test_fits_in_float32_are_compared_roughly(monkeypatch):
    monkeypatch.setitem(same.__globals__, "SWITCH", "")
    assert same({tuning.ROUGH: {"a": [1.03]}}, {tuning.ROUGH: {"a": [1.0]}}) == []
    assert same({tuning.ROUGH: {"a": [1.1]}}, {tuning.ROUGH: {"a": [1.0]}}) != []
    monkeypatch.setitem(same.__globals__, "SWITCH", "exact")
    assert same({tuning.ROUGH: {"a": [1.03]}}, {tuning.ROUGH: {"a": [1.0]}}) != []
