"""Every command of README and docs is one: verbs compose with their settings, targets, extras and modules are there."""

import functools
import importlib.util
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from pages import PAGES, ROOT, commands, files

from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.overrides import exact, quote, refuse_former, with_question
from nsed_torch.app.config.settings import check_settings

COMMANDS = sorted({command for page in PAGES for command in commands(page)})
VERBS = [command for command in COMMANDS if command[0] in {"nsed", "torchrun", "accelerate"}]
OTHERS = [command for command in COMMANDS if command not in VERBS]

PROJECTS = [ROOT / place / "pyproject.toml" for place in (".", "experts", "lab")]

WITHOUT_VALUE = {"hydra/sweeper", "hydra.sweeper.direction", "hydra.sweeper.n_trials"}
"""Settings of Hydra's plugin for Optuna, which tests do without: they are not composed."""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The folder that pages work in, with the files that they show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NSED_TARGETS", "mine.Gate,mine.Vote,rules.Widening")
    for name in ("mine", "rules"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for page in PAGES:
        for name, text in files(page).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def taken(command, folder):
    """The verb of a command, and its settings as Hydra's `compose` takes them: of a sweep the first of each choice."""
    words = list(command[next(i for i, word in enumerate(command) if re.fullmatch(r"(.*/)?nsed(\.py)?", word)) + 1 :])
    verb, settings = words.pop(0).replace("-", "_"), []
    sweeps = "-m" in words
    while words:
        word = words.pop(0)
        if word in {"-cd", "--config-dir"}:
            settings.append(f"hydra.searchpath=[file://{folder / words.pop(0)}]")
        elif word not in {"-m", "&"} and not (word == "..." and verb not in {"deliberate", "conduct"}):
            settings.append(word)
    if verb in {"deliberate", "conduct"}:
        settings = with_question(settings, verb)
    settings = [f"baseline={quote(word[9:])}" if word.startswith("baseline=") else word for word in settings]
    return verb, [first(word) if sweeps else word for word in settings if word.split("=")[0] not in WITHOUT_VALUE]


def first(setting):
    """The first value of a setting that is swept."""
    override = OverridesParser.create().parse_override(setting)
    if not override.is_sweep_override():
        return setting
    if override.is_interval_sweep():
        return f"{override.get_key_element()}={override.value().start}"
    return f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"


def targets(node):
    """Every node that is built, at any depth."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    here = [node] if isinstance(node, dict) and "_target_" in node else []
    return here + [inner for child in children for inner in targets(child)]


@pytest.mark.parametrize("command", VERBS, ids=" ".join)
def test_a_verb_takes_its_settings(command, own):
    verb, settings = taken(command, own)
    refuse_former((word for word in settings if not word.startswith("question=")), verb)
    with composing():
        config = compose(verb, overrides=list(map(exact, settings)))  # as the command line does
        check_settings(config, verb)
        nodes = targets(OmegaConf.to_container(config, resolve=True))
    for node in nodes:
        if node["_target_"].endswith("EngineReplicas"):
            continue  # what a team says of its backbone stands beside it until it is built
        named = {"learned", "telemetry"}  # names of files; what is built within it is looked at by itself
        arguments = {k: v for k, v in node.items() if k not in named and not (isinstance(v, dict) and "_target_" in v)}
        assert isinstance(instantiate({**arguments, "_partial_": True}), functools.partial)


@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_any_other_command_names_what_is_there(command):
    program, *words = command
    {"make": made, "pip": installed, "python": run_as_module, "source": sourced, "export": exported, "ray": started,
     "curl": asked}[program](words)  # fmt: skip


def made(words):
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def installed(words):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for word in words for extra in re.findall(r"[\w-]+", word.partition("[")[2])} <= set(extras)
    assert all((ROOT / word).is_dir() for word in words if word.startswith("./"))
    wheels = {re.sub(r"\W", "_", tomllib.loads(file.read_text())["project"]["name"]) for file in PROJECTS}
    assert {word[5:-6] for word in words if word.startswith("dist/")} <= wheels


def run_as_module(words):
    assert words[0] == "-m"
    assert importlib.util.find_spec(words[1])


def sourced(words):
    venv = re.search(r"^VENV := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert words == [f"{venv}/bin/activate"]


def exported(words):
    for name in (word.split("=")[0] for word in words):
        read = [path for path in (ROOT / "nsed_torch").rglob("*.py") if name in path.read_text("utf-8")]
        assert name == "PYTHONPATH" or read or name in ray_s_own()


def ray_s_own():
    """Words of those of Ray's files that read who may speak to it; nothing of it is imported."""
    (place,) = importlib.util.find_spec("ray").submodule_search_locations
    return "".join(path.read_text("utf-8") for path in Path(place).glob("_private/authentication/*.py"))


def started(words):
    scripts = pytest.importorskip("ray.scripts.scripts")
    command = scripts.cli.commands[words[0]]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options


def asked(words):
    wire = pytest.importorskip("nsed_torch.app.serve.wire")
    assert words[0].endswith("/v1/chat/completions")
    assert wire.ChatRequest.model_validate_json(words[words.index("-d") + 1]).stream


@pytest.mark.parametrize("page", [page for page in PAGES if files(page)], ids=lambda page: page.stem)
def test_a_file_that_a_page_shows_is_used_there(page):
    text = page.read_text("utf-8")
    for name in files(page):
        stem = name.rpartition("/")[2].partition(".")[0]
        assert re.search(rf"(=|from ){stem}\b", text), name


def test_a_setting_that_is_none_is_found(own):
    with pytest.raises(Exception, match="Could not override 'gates'"):
        test_a_verb_takes_its_settings(("nsed", "tune", "data_dir=DIR", "gates=none"), own)
    with pytest.raises(ValueError, match="benchmark: is tasks now"):
        test_a_verb_takes_its_settings(("nsed", "evaluate", "benchmark=gsm8k"), own)


def test_the_script_that_tries_the_readme_has_every_command():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "scripts/readme.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.commands((ROOT / "README.md").read_text("utf-8"))
    assert [tuple(shlex.split(command)) for command in found] == commands(ROOT / "README.md")
