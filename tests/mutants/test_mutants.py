"""The table of mutants stays true: every text to be taken away is there, every test exists, the page has them all."""

import ast
from pathlib import Path

import pytest
from mutants import mutate

ENTRIES = mutate.mutants()


def test_enough_defences_are_taken_away() -> None:
    assert len({(entry.file, entry.old) for entry in ENTRIES}) == len(ENTRIES) >= 40


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.defence)
def test_mutant_is_one_and_its_test_exists(entry: mutate.Mutant) -> None:
    assert entry.mutated() != (mutate.ROOT / entry.file).read_text("utf-8")
    file, _, name = entry.test.partition("::")
    tree = ast.parse((mutate.ROOT / file).read_text("utf-8"))
    assert name.partition("[")[0].rpartition("::")[2] in {
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
    }


def test_page_has_them_all() -> None:
    assert mutate.PAGE.read_text("utf-8") == mutate.page(ENTRIES), "run python tests/mutants/mutate.py --page"


def test_text_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"once in a\.py, got it 0 times"):
        mutate.Mutant("p", "d", "a.py", "y", "", "t").mutated(tmp_path)
