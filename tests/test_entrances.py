"""Entrances are light: what of the package, and of heavy libraries, each of them loads."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Modules of ours at most, lines of ours at most, and what must not be loaded with it.
MODELS = {"transformers", "peft", "sentence_transformers", "accelerate", "bitsandbytes"}
ELSEWHERE = {"hydra", "omegaconf", "ray", "openai", "fastapi", "matplotlib", "pandas"}
ROOMS = {"nsed_torch.app", "nsed_torch.conductor", "nsed_torch.engines", "nsed_torch.evaluation.pages"}
ENTRANCES = {
    "import nsed_torch": (1, 150, MODELS | ELSEWHERE | {"torch"}),
    "from nsed_torch import ConsensusCell": (20, 2500, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import MacroRNN": (40, 6450, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import tasks": (37, 4900, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import collect": (56, 7900, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import fit": (75, 10800, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import evaluate": (84, 11900, MODELS | ELSEWHERE | ROOMS),
}

PARENT = """
import json, os, sys
from pathlib import Path
for number, statement in enumerate(sys.argv[1:]):
    if number:
        import torch  # once, for all that load it anyway; the first says whether it does
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0, statement
        continue
    exec(statement)
    ours = [module for name, module in sys.modules.items() if name.split(".")[0] == "nsed_torch"]
    lines = sum(len(Path(module.__file__).read_text().splitlines()) for module in ours)
    print(json.dumps([statement, [*sys.modules], lines]), flush=True)
    os._exit(0)
"""
HEAVY = "import nsed_torch.app.door"
ADAPTERS = "from nsed_torch.engines.adapters import _peft; _peft()"


@cache
def loaded():
    """For each statement: names of the modules that it loads in a new interpreter, and how many lines of ours."""
    command = [sys.executable, "-c", PARENT, *ENTRANCES, HEAVY, ADAPTERS]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.splitlines()
    return {statement: (set(names), lines) for statement, names, lines in map(json.loads, told)}


@pytest.mark.parametrize("statement", ENTRANCES)
def test_what_an_entrance_loads(statement):
    modules, lines, banned = ENTRANCES[statement]
    names, loaded_lines = loaded()[statement]
    assert sum(name.split(".")[0] == "nsed_torch" for name in names) <= modules
    assert loaded_lines <= lines
    assert names & banned == set()


def test_a_heavy_entrance_is_found():
    names, _ = loaded()[HEAVY]
    assert names & (MODELS | ELSEWHERE | ROOMS) >= {"hydra", "omegaconf", "nsed_torch.app"}


def test_adapters_come_without_torchs_compiler():
    names, _ = loaded()[ADAPTERS]
    assert names >= {"peft", "bitsandbytes"}
    assert names & {"torch._inductor.compile_fx", "torch._inductor.lowering"} == set()


def test_the_command_line_tells_its_verbs_where_nothing_else_is_installed():
    bare = "import sys; sys.modules |= dict.fromkeys(('yaml', 'torch', 'hydra', 'jinja2', 'rich'))"
    done = subprocess.run(
        [sys.executable, "-c", f"{bare}; from nsed_torch.app.cli import main; sys.exit(main(['--help']))"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "deliberate" in done.stdout
