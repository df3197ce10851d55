"""What users read is true: the README's code and the notebooks run, its size is kept, every link leads somewhere."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ROOT / "docs", ROOT / "lab/pages"
PAGES = sorted([*ROOT.glob("[RC][EO]*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
MOST_BYTES = 10_000


def links(text):
    """Targets of Markdown links and pictures that are files beside the page."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", plain)
    return [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]


def missing(page, text):
    return [target for target in links(text) if not (page.parent / target).exists()]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= MOST_BYTES


def test_the_code_of_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})  # our own words
    assert "tensor" in capsys.readouterr().out


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_prints_what_it_shows(path):
    space = {}
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in cells)
    for cell in cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), path.name, "exec"), space)  # our own words
        assert out.getvalue() == "".join("".join(output["text"]) for output in cell["outputs"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert missing(page, page.read_text("utf-8")) == []


def test_promises_name_tests_that_are_there():
    page = (ROOT / "docs/promises.md").read_text("utf-8")
    names = re.findall(r"`((?:(?:lab/)?tests/)?[\w/]*(?:test_\w+\.py|/))`", page)
    assert len(names) > 40
    folders = ROOT / "tests", ROOT / "lab/tests"
    tests = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("test_*.py")}
    known = tests | {Path(path).name for path in tests} | {f"{Path(path).parent.as_posix()}/" for path in tests}
    assert [name for name in names if name not in known] == []


def test_a_broken_link_is_found():
    text = "[here](README.md) [there](docs/nowhere.md#part) [out](https://example.org) ```[code](x)```"
    assert missing(ROOT / "README.md", text) == ["docs/nowhere.md"]
