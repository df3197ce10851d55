"""What an installed nsed_torch promises: a light import, one version, configs on board, pins for all."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
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
import nsed_torch, nsed_torch.functional, nsed_torch.nn, nsed_torch.agents, nsed_torch.deliberation
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@cache
def fresh_import() -> list[str]:
    """Modules that the library adds to `import torch`, in a child process."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, env=env, check=True)
    result: list[str] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("heavy", ["transformers", "sentence_transformers", "scipy.optimize", "hydra", "rich"])
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


def test_configs_ship_in_the_wheel() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["nsed_torch"]
    assert wheel["force-include"] == {"conf": "nsed_torch/conf"}


def test_adapters_ship_with_the_package() -> None:
    """hatch takes every file below a package that git does not ignore, and nothing is left out."""
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    assert "/nsed_torch" in targets["sdist"]["include"]
    assert all("exclude" not in target for target in (PROJECT["tool"]["hatch"]["build"], *targets.values()))
    if shutil.which("git") is None:
        pytest.skip("without git nothing says what it ignores")
    for name in ("adapter_config.json", "adapter_model.safetensors", "README.md"):
        path = f"nsed_torch/experts/sums/{name}"
        done = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", path], cwd=ROOT, check=False)
        assert done.returncode != 0, f"{path} would be left out: .gitignore names it"


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
