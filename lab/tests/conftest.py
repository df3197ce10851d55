"""What the laboratory's tests share with the library's: its command line, its tiny models and its scripted teams."""

import importlib.metadata
import importlib.util
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2] / "tests"


def _fixtures(folder):
    """The names of a conftest of the library's tests."""
    path = TESTS / folder / "conftest.py"
    spec = importlib.util.spec_from_file_location("_".join(("library", *path.parent.parts[-2:])), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


nsed, tiny_model = (_fixtures("app")[name] for name in ("nsed", "tiny_model"))
model_folder, toy = (_fixtures("tuning")[name] for name in ("model_folder", "toy"))
hub = _fixtures("questions")["hub"]
team, fails = (_fixtures("evaluation/methods")[name] for name in ("team", "fails"))


def pytest_sessionstart():
    """Whoever has not installed the laboratory as it stands is told so once, not by a hundred failures."""
    wanted = tomllib.loads((TESTS.parent / "lab" / "pyproject.toml").read_text())["project"]["entry-points"]
    for group, names in wanted.items():
        if names.keys() - importlib.metadata.entry_points(group=group).names:
            raise pytest.UsageError("expected the laboratory, got none or an older one installed: pip install -e lab")
