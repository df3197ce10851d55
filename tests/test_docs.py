"""What users read is true: Python of README and docs runs, numbers and names are there, every link leads somewhere."""

import contextlib
import io
import json
import pydoc
import re
import sys
import tomllib
import warnings
from functools import partial
from pathlib import Path

import pytest
from pages import PAGES, ROOT, blocks, files, sentences
from test_first_script import a_model
from tiny_models import save_tiny_encoder
from transformers import AutoModelForCausalLM, AutoTokenizer

from nsed_torch import Decoding
from nsed_torch.tuning.trainer import Schedule

ALL = sorted({*PAGES, *ROOT.glob("C[HO]*.md"), *(ROOT / "lab/pages").rglob("*.md")})
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))

NEEDS_WEIGHTS = {"serve.md"}
"""Pages whose Python asks the experts that ship."""

CODE = {"python", "sh", "yaml", "toml"}
"""Languages of blocks that tests run or compose; `text` is what something looks like."""

FORMER = "foretold", "a row an agent", "whom it never met", "a line an epoch", "thereof"
"""Words that readers stopped at."""


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def missing(page, text):
    """Links and pictures of a page that lead to no file beside it, or to no heading there."""
    plain, lost = re.sub(r"```.*?```", "", text, flags=re.DOTALL), []
    for target in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, part = target.partition("#")
        place = page.parent / name if name else page
        headings = re.findall(r"^#+ (.*)", place.read_text("utf-8"), re.MULTILINE) if part and place.exists() else []
        if not place.exists() or (part and part not in map(slug, headings)):
            lost.append(target)
    return lost


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two tiny models with their tokenizers, in memory and on disk, an adapter and an encoder."""
    from peft import LoraConfig, get_peft_model

    folder = tmp_path_factory.mktemp("models")
    pairs = {"qwen": a_model("qwen3", head_dim=8), "llama": a_model("llama")}
    for part in pairs["qwen"]:
        part.save_pretrained(folder / "models/mine")
    (folder / "encoder").mkdir()
    save_tiny_encoder(folder / "encoder").rename(folder / "models/all-MiniLM-L6-v2")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        adapter = get_peft_model(a_model("qwen3", head_dim=8)[0], LoraConfig(r=2, target_modules=["q_proj"]))
    adapter.save_pretrained(folder / "adapters/poet")
    return folder, pairs


@pytest.fixture
def desk(models, tmp_path, monkeypatch):
    """The folder that pages work in, where transformers loads the tiny models in place of any other."""
    folder, pairs = models
    for name in ("models", "adapters"):
        (tmp_path / name).symlink_to(folder / name)
    rows = [{"id": f"q{i}", "question": f"What is {i} + {i + 3}?", "target": str(2 * i + 3)} for i in range(8)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for page in PAGES:
        for name, text in files(page).items():
            if name.endswith(".py"):
                (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine", "rules"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def named(place, load):
        """What stands for a model of the Hub; folders are loaded as ever."""

        def loaded(name, *args, **options):
            if Path(name).is_dir():
                return load(name, *args, **options)
            return pairs["qwen" if "Qwen" in name else "llama"][place]

        return loaded

    # Random models never end an answer, and there is nothing to learn of them; four tokens are as good as 256.
    monkeypatch.setattr("nsed_torch.tuning.fitting.Schedule", partial(Schedule, epochs=1))
    monkeypatch.setattr("nsed_torch.core.rnn.Decoding", lambda most, *others: Decoding(min(most, 4), *others))
    for place, kind in enumerate((AutoModelForCausalLM, AutoTokenizer)):
        monkeypatch.setattr(kind, "from_pretrained", named(place, kind.from_pretrained))
    (qwen, tok), (llama, tok2) = pairs.values()
    return {"qwen": qwen, "tok": tok, "llama": llama, "tok2": tok2}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=[pytest.mark.weights] if p.name in NEEDS_WEIGHTS else [], id=p.stem)
        for p in PAGES
        if blocks(p, "python") and p.name != "README.md"
    ],
)
def test_its_python_runs(page, desk, capsys):
    space = {"__name__": "page", **desk}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), space)  # our own words
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_of_code_is_left_to_itself(page):
    """Python is run here; commands are tried, and files that pages show are read, by `test_page_commands`."""
    assert unknown_blocks(page.read_text("utf-8")) == []


def unknown_blocks(text):
    """Blocks in no language that tests run, YAML that names no file, TOML that no package could have."""
    found = []
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        named = language != "yaml" or re.match(r"# [\w./]+\.yaml\n", block)
        entries = tomllib.loads(block)["project"]["entry-points"] if language == "toml" else {}
        ours = entries.keys() <= {"nsed_torch.targets", "nsed_torch.configs", "nsed_torch.verbs"}
        found += [block] if language not in {*CODE, "text"} or not named or not ours else []
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sentences_are_short(page):
    lengths = sorted(len(sentence.split()) for sentence in sentences(page)) or [0]
    assert lengths[int(0.9 * len(lengths))] <= 25
    assert [word for word in FORMER if word in page.read_text("utf-8").lower()] == []


def test_a_long_sentence_is_counted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nOne `two three` $f(x)$ [four](there.md). Five\nsix.\n\n"
        "| seven |\n\n```sh\neight\n```\n\n- Nine ten.\n"
    )
    assert [len(sentence.split()) for sentence in sentences(page)] == [4, 2, 2]


def test_the_readme_loads_models_for_the_script_word_for_word(desk):
    """Which `test_first_script` runs."""
    loads, script = blocks(ROOT / "README.md", "python")
    assert script == (ROOT / "tests/first_script.py").read_text()
    space = {}
    exec(loads, space)  # our own words
    assert all(space[name] is model for name, model in desk.items())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_prints_what_it_shows(path):
    space = {}
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code)
    for cell in code:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), path.name, "exec"), space)  # our own words
        assert out.getvalue() == "".join("".join(output["text"]) for output in cell["outputs"])
    told = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert missing(path, told) == []


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert missing(page, page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_and_pages_that_it_tells_of_are_there(page):
    text = page.read_text("utf-8")
    offered = re.sub(r"nsed_torch\.(targets|configs|verbs)\b", "", text)  # entry points
    for name in re.findall(r"\bnsed_(?:torch|lab)(?:\.\w+)+", offered):
        assert pydoc.locate(name) is not None, name
    for place in re.findall(r"`((?:lab|docs|conf|nsed_torch|tests|experts)/[\w./-]+)`", text):
        assert (ROOT / place).exists(), place


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r": (\w+\.(?:md|ipynb))$", text.partition("\nnav:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in [*PAGES[1:], *NOTEBOOKS])


def test_promises_name_tests_that_are_there():
    pages = [(ROOT / name).read_text("utf-8") for name in ("docs/promises.md", "lab/pages/defences.md")]
    names = re.findall(r"`((?:lab/tests/)?[\w/]*(?:test_\w+\.py|/))`", "\n".join(pages))
    assert len(names) > 60
    tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    tests |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "lab/tests").rglob("test_*.py")}
    known = tests | {path.rpartition("/")[2] for path in tests} | {f"{path.rpartition('/')[0]}/" for path in tests}
    known |= {"tests/", "tests/mutants/"}
    assert [name for name in names if name not in known] == []


def test_what_is_wrong_is_found():
    text = "[here](README.md) [there](docs/nowhere.md#part) [part](#nothing) [out](https://example.org) ```[code](x)```"
    assert unknown_blocks("```sh\nls\n```\n```bash\nls\n```\n```yaml\na: 1\n```\n") == ["ls\n", "a: 1\n"]
    assert missing(ROOT / "README.md", text) == ["docs/nowhere.md#part", "#nothing"]
