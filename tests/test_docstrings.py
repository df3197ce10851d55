"""Examples in docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "nsed_torch"
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8"))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_run(path):
    name = ".".join(("nsed_torch", *path.relative_to(PACKAGE).with_suffix("").parts))
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
