"""What an installed nsed_torch promises: a light import, one version, configs on board, pins for all."""

import importlib.metadata
import json
import os
import re
import shutil
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

from nsed_torch.engines import adapters

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LAB, EXPERTS = (tomllib.loads((ROOT / place / "pyproject.toml").read_text("utf-8")) for place in ("lab", "experts"))
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


def built(project: Path, folder: Path) -> Path:
    """A project's wheel."""
    next(WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"]))
    (wheel,) = folder.glob("*.whl")
    return wheel


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def test_wheel_holds_configs_and_no_adapter_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = (built(ROOT, tmp_path / folder) for folder in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size <= 3 * 10**6
    names = names_in(first)
    files = [path for path in (ROOT / "conf").rglob("*") if path.is_file()]
    assert files
    assert {f"nsed_torch/{path.relative_to(ROOT)}" for path in files} <= names
    assert [name for name in names if name.startswith(("nsed_torch/experts", "nsed_lab", "lab"))] == []


def test_the_adapters_that_ship_are_a_wheel_of_data_alone(tmp_path: Path) -> None:
    wheel = built(ROOT / "experts", tmp_path)
    assert wheel.stat().st_size <= 60 * 10**6
    found = {Path(name) for name in names_in(wheel) if name.startswith("nsed_torch_experts/")}
    shipped = {str(name.parent.relative_to("nsed_torch_experts")) for name in found}
    workers = {f"workers/{name}" for name in ("sums", "siblings", "words", "relations", "generalist")}
    alone = {"sums", "siblings", "words", "relations", "generalist", "conductor_words", "reader"}
    assert shipped == workers | alone | {f"towers_{name}" for name in "bcfg"}
    assert {name.suffix or name.name for name in found} == {".json", ".md", ".safetensors", "LICENSE"}
    assert {name.parent for name in found if name.name == "LICENSE"} == {name.parent for name in found}


def test_installed_adapters_are_found_and_a_clone_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone, site = tmp_path / "clone", tmp_path / "site"
    for place, names in ((clone, ("sums",)), (site / "nsed_torch_experts", ("sums", "words"))):
        for name in names:
            shutil.copytree(ROOT / "nsed_torch/experts/words", place / name)
    monkeypatch.setattr(adapters, "EXPERTS", clone)
    monkeypatch.syspath_prepend(str(site))
    assert adapters.adapter_folder("a", "experts:sums") == clone / "sums"
    assert adapters.adapter_folder("a", "experts:words") == site / "nsed_torch_experts/words"
    with pytest.raises(ValueError, match=r"got neither: pip install .*experts"):
        adapters.adapter_folder("a", "experts:nf4/sums")


def test_all_distributions_have_one_version() -> None:
    assert {project["project"]["version"] for project in (PROJECT, LAB, EXPERTS)} == {PROJECT["project"]["version"]}


def test_every_config_loads() -> None:
    folders = ROOT / "conf", ROOT / "lab/nsed_lab/conf"
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
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
