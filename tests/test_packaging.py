"""What an installed nsed_torch promises: a light import, one version, configs on board, pins for all."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DIRECT = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]

PROBE = """
import json, sys
import torch
before = set(sys.modules)
import nsed_torch, nsed_torch.core.functional, nsed_torch.core, nsed_torch.engines, nsed_torch.core
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@cache
def fresh_import() -> list[str]:
    """Modules that the library adds to `import torch`, in a child process."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, env=env, check=True)
    result: list[str] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("heavy", ["transformers", "sentence_transformers", "scipy.optimize", "hydra", "rich", "ray"])
def test_import_is_light(heavy: str) -> None:
    modules = fresh_import()
    assert "nsed_torch" in modules
    assert [name for name in modules if name == heavy or name.startswith(f"{heavy}.")] == []


def test_installed_version_is_the_projects() -> None:
    try:
        installed = importlib.metadata.version("nsed_torch")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nsed_torch is not installed here, only on the path")
    assert installed == PROJECT["project"]["version"]


def test_wheel_holds_configs_and_adapters_and_is_the_same_each_time(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path / folder), versions=["standard"]))
    (first,), (second,) = ((tmp_path / folder).glob("*.whl") for folder in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as wheel:
        names = set(wheel.namelist())
    for place in ("conf", "nsed_torch/experts"):
        files = [path for path in (ROOT / place).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files
        inside = {str(path.relative_to(ROOT)).replace("conf/", "nsed_torch/conf/", 1) for path in files}
        assert inside <= names


def test_every_config_loads() -> None:
    files = [path for path in sorted((ROOT / "conf").rglob("*")) if path.is_file()]
    assert files
    for path in files:
        assert path.suffix == ".yaml", f"{path.name}: conf/ holds .yaml files only, Hydra sees no others"
        OmegaConf.load(path)


def pins() -> dict[str, Version]:
    """What constraints.txt pins; a line that is no plain `name==version` fails."""
    lines = (line.strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines())
    matches = {line: re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line and line[0] != "#"}
    assert [line for line, match in matches.items() if match is None] == []
    return {canonicalize_name(match[1]): Version(match[2]) for match in matches.values() if match}


@pytest.mark.parametrize("line", DIRECT, ids=lambda line: Requirement(line).name)
def test_direct_dependency_is_pinned_within_its_range(line: str) -> None:
    requirement = Requirement(line)
    assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


def test_readme_and_licence_named_by_the_project_exist() -> None:
    project = PROJECT["project"]
    missing = [name for name in (project["readme"], *project["license-files"]) if not (ROOT / name).is_file()]
    assert missing == []


def test_what_is_cited_is_this_version() -> None:
    cited = OmegaConf.load(ROOT / "CITATION.cff")
    project = PROJECT["project"]
    assert (cited.title, cited.version, cited.license) == (project["name"], project["version"], project["license"])
    assert cited.abstract == project["description"]
    assert list(cited.keywords) == project["keywords"]


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_what_they_use_and_may_no_more_than_they_must(path: Path) -> None:
    text = path.read_text("utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert [one for one in used if not re.search(r"@(v\d+|release/v\d+|[0-9a-f]{40})$", one)] == []
    workflow: Any = OmegaConf.to_container(OmegaConf.create(text.replace("${{", "<<").replace("}}", ">>")))
    assert workflow["permissions"] == {"contents": "read"}
    trusted = [name for name, job in workflow["jobs"].items() if "id-token" in job.get("permissions", {})]
    assert trusted == (["publish"] if path.stem == "release" else [])
    for name in trusted:  # what PyPI trusts runs nothing of ours
        assert [step for step in workflow["jobs"][name]["steps"] if "uses" not in step] == []
        assert workflow["jobs"][name]["environment"] == "pypi"
