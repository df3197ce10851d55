"""A package of somebody else's adds constructors, configs and verbs to `nsed` once it is installed."""

import sys

import pytest

from nsed_torch.app import cli
from nsed_torch.app.config import paths
from nsed_torch.records.extras import install

TASKS = """
from nsed_torch.questions.graded import file_tasks

def five(size: int):
    return file_tasks("five.jsonl")
"""
VERB = """
from nsed_torch.app.verb import verb

@verb("greet")
def main(cfg, run):
    return f"hello {cfg.whom}"
"""
FILES = {
    "strange/__init__.py": "raise RuntimeError('a config imports nothing')\n",
    "strange/conf/tasks/strange.yaml": "_target_: strange_tasks.five\nsize: 5\n",
    "strange/conf/tasks/file.yaml": "_target_: os.system\n",
    "strange/conf/greet.yaml": "defaults: [base, _self_]\nwhom: nobody\noutput_dir: greeted\n",
    "strange_tasks.py": TASKS,
    "strange_verb.py": VERB,
    "strange-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n",
    "strange-1.0.dist-info/entry_points.txt": (
        "[nsed_torch.targets]\nfive = strange_tasks:five\n"
        "[nsed_torch.configs]\nstrange = strange.conf\n"
        "[nsed_torch.verbs]\ngreet = strange_verb\nevaluate = strange_verb\n"
    ),
}


@pytest.fixture
def installed(nsed, monkeypatch):
    """The package on the path, in a folder of its own."""
    for name, text in FILES.items():
        path = nsed.folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(nsed.folder / "site"))
    paths.added_dirs.cache_clear()
    yield
    paths.added_dirs.cache_clear()
    for name in ("strange", "strange_tasks", "strange_verb"):
        sys.modules.pop(name, None)


def test_a_verb_with_its_root_config(installed, nsed, capfd):
    assert nsed.ok("greet", "whom=you").strip() == "hello you"
    assert "unknown setting 'who'; did you mean 'whom'?" in nsed.fault("greet", "who=you")
    assert "greet            of strange" in nsed.ok()
    assert "whom=nobody" in nsed.ok("greet", "--help")


def test_it_takes_no_verb_and_no_file_of_ours(installed):
    assert cli._added().keys() >= {"greet"}
    assert "evaluate" not in cli._added()
    assert paths.conf_file("tasks/file") == paths.conf_dir() / "tasks/file.yaml"
    assert paths.conf_file("tasks/strange").is_file()


def test_its_configs_build_its_constructors_and_nothing_is_imported_to_read_them(installed, nsed):
    question = '{"id": "a", "question": "How much is 1 + 1?", "gold": "2"}\n'
    (nsed.folder / "five.jsonl").write_text(question)
    out = nsed.ok("collect", *nsed.tiny, "tasks=strange", "rounds=1", "output_dir=run")
    assert "1 of 1 tasks" in out
    assert "strange" not in sys.modules


def test_what_is_not_installed_is_named(nsed, monkeypatch):
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    paths.added_dirs.cache_clear()
    assert nsed.fault("collect", "tasks=nowhere").endswith(f"come with {install('lab')}")
