"""Entrances are light: what of the package, and of heavy libraries, each of them loads."""

import subprocess
import sys
from functools import cache

import pytest

# Modules of ours at most, lines of ours at most, and what must not be loaded with it.
MODELS = {"transformers", "peft", "sentence_transformers", "accelerate", "bitsandbytes"}
ELSEWHERE = {"hydra", "omegaconf", "ray", "openai", "fastapi", "matplotlib", "pandas"}
ROOMS = {"nsed_torch.app", "nsed_torch.conductor", "nsed_torch.engines", "nsed_torch.evaluation.pages"}
ENTRANCES = {
    "import nsed_torch": (1, 150, MODELS | ELSEWHERE | {"torch"}),
    "from nsed_torch import ConsensusCell": (20, 2500, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import MacroRNN": (41, 6450, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import tasks": (30, 3200, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import collect": (56, 7900, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import fit": (71, 10020, MODELS | ELSEWHERE | ROOMS),
    "from nsed_torch import evaluate": (76, 10760, MODELS | ELSEWHERE | ROOMS),
}

CHILD = """
import sys
from pathlib import Path
exec(sys.argv[1])
print(*sys.modules)
ours = [module for name, module in sys.modules.items() if name.split(".")[0] == "nsed_torch"]
print(sum(len(Path(module.__file__).read_text().splitlines()) for module in ours))
"""


@cache
def loaded(statement):
    """Names of the modules that a statement loads in a new interpreter, and how many lines of ours."""
    command = [sys.executable, "-c", CHILD, statement]
    names, lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    return set(names.split()), int(lines)


@pytest.mark.parametrize("statement", ENTRANCES)
def test_what_an_entrance_loads(statement):
    modules, lines, banned = ENTRANCES[statement]
    names, loaded_lines = loaded(statement)
    assert sum(name.split(".")[0] == "nsed_torch" for name in names) <= modules
    assert loaded_lines <= lines
    assert names & banned == set()


def test_a_heavy_entrance_is_found():
    names, _ = loaded("import nsed_torch.app.door")
    assert names & (MODELS | ELSEWHERE | ROOMS) >= {"hydra", "omegaconf", "nsed_torch.app"}
