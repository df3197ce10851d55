"""The studies' recipes: every command composes, every rule is on its study's list, nothing done runs again."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser

from nsed_lab.studies import step
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.settings import check_settings

MAKEFILE = Path(step.__file__).parents[2] / "Makefile"
STUDIES = ("demo", "experts", "recorded", "labels", "S=1")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments, cwd):
    done = subprocess.run(["make", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", "")


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Folder of a step -> the words of its command."""
    text = make("-n", "-f", str(MAKEFILE), *STUDIES, cwd=tmp_path_factory.mktemp("empty"))
    found = {}
    for line in text.splitlines():
        words = shlex.split(line)
        if words[1].endswith("step.py"):
            assert words[-1] == f"output_dir={words[2]}"
            found[words[2]] = words[4:]
    return found


def test_every_rule_is_on_its_study_s_list(commands):
    rules = set(re.findall(r"(\$[A-Z]/\w+)/step\.json(?= .*:|:)", MAKEFILE.read_text()))
    assert len(rules) == len(commands) > 40


def test_every_command_composes(commands):
    with composing():
        for verb, *words in commands.values():
            parsed = OverridesParser.create().parse_overrides([word for word in words if word != "-m"])
            sweeps = [override for override in parsed if override.is_sweep_override()]
            assert bool(sweeps) == ("-m" in words)
            first = [f"{o.get_key_element()}={next(o.sweep_string_iterator())}" for o in sweeps]
            name = verb.replace("-", "_")
            check_settings(compose(name, overrides=[o.input_line for o in parsed if o not in sweeps] + first), name)


def test_what_is_done_does_not_run_again_but_what_needs_it_does(tmp_path):
    steps = tmp_path / "runs/demo_study"
    for i, name in enumerate(("evaluate", "collect", "tune")):
        (steps / name).mkdir(parents=True)
        (steps / name / "step.json").write_text("{}")
        subprocess.run(["touch", "-d", f"2026-01-0{i + 1}", steps / name / "step.json"], check=True)
    assert "step.py" not in make("-n", "-f", str(MAKEFILE), "demo", cwd=tmp_path)
    (steps / "collect/step.json").touch()
    text = make("-n", "-f", str(MAKEFILE), "demo", cwd=tmp_path)
    assert re.findall(r"nsed (\w+)", text) == ["tune"]


def test_both_ways_of_calling_run_from_the_top():
    there, above = (make("-n", *words, cwd=MAKEFILE.parents[1]) for words in (["-C", "lab"], ["-f", "lab/Makefile"]))
    assert "sed -n" in there
    assert "sed -n" in above
    text = make("-C", "lab", "-n", "recorded.page", "DATA=x", "PYTHON=python3", cwd=MAKEFILE.parents[1])
    assert "python3 lab/nsed_lab/studies/page.py recorded runs/recorded lab/pages/recorded.md small trio" in text


def test_a_page_from_make(tmp_path):
    make("-f", str(MAKEFILE), "demo.page", f"PYTHON={sys.executable} -P", cwd=tmp_path)
    assert (tmp_path / "runs/demo_study/page.md").read_text().count("*not run:") >= 9
