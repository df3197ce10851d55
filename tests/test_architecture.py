"""The house keeps its floors: who imports whom, what files never contain.

Each rule is a pure function from sources `{dotted module name: text}` to a list of violations. It runs twice:
on the package, where the list must be empty, and on planted violations, which it must find.
"""

import ast
import functools
import graphlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "nsed_torch"
FLOORS = {
    "records": 1,
    "core": 2,
    "parts": 3,
    "engines": 3,
    "traces": 4,
    "questions": 5,
    "tuning": 8,
    "evaluation": 7,
    "conductor": 6,
    "app": 9,
    "__main__": 10,
}
# Engines are imported when one is built: the way from models in memory to a team.
# What is not the published protocol is imported where somebody names it.
WHEN_BUILT = {
    ("nsed_torch.core.rnn", "nsed_torch.engines.backbones"),
    ("nsed_torch.core.agent", "nsed_torch.parts.forms"),
    ("nsed_torch.core.kinds.steps", "nsed_torch.parts.forms"),
    ("nsed_torch.core.pretrained", "nsed_torch.parts.saved_cells"),
}
ROOF = 10  # the package's own __init__ may show anything; nobody imports from it, save its version

TEXT_LIBRARIES = {
    "accelerate",
    "bitsandbytes",
    "gguf",
    "huggingface_hub",
    "jinja2",
    "openai",
    "peft",
    "sentence_transformers",
    "tokenizers",
    "transformers",
    "trl",
}
CONFIG_LIBRARIES = {"hydra", "omegaconf"}
TENSORS = tuple(
    f"{PACKAGE}.core.{name}"
    for name in ("functional", "cell", "election", "gate", "halting", "memory", "pretrained", "trust", "vote")
)
# Saved cells may lie on the Hub: files are fetched by name, and no language model comes with them.
HUB_READERS = {(f"nsed_torch.core.{name}", "huggingface_hub") for name in ("gate", "pretrained")}

BESIDE = {"bench", "nsed_lab", "tests"}

Sources = dict[str, str]

parsed = functools.cache(ast.parse)  # every rule reads the same files


def package_sources() -> Sources:
    """Every module of the package; `__init__` stays in the keys, so that relative imports resolve."""
    paths = sorted((ROOT / PACKAGE).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def dotted(module: str) -> str:
    """The name a module is imported by."""
    return module.removesuffix(".__init__")


def part(name: str) -> str:
    """`nsed_torch.core.cell` -> `nn`; the package itself -> ``."""
    return [*name.split("."), ""][1]


def imports(module: str, text: str, known: set[str]) -> Iterator[str]:
    """Dotted names a module imports, be it at the top, in a function or under TYPE_CHECKING."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*home, *filter(None, [node.module])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                if name != f"{PACKAGE}.__version__":
                    yield name if name in known else base


def graph(sources: Sources) -> dict[str, set[str]]:
    """What each module imports, foreign packages included."""
    known = {dotted(module) for module in sources}
    return {dotted(module): set(imports(module, text, known)) for module, text in sources.items()}


def own_edges(sources: Sources) -> list[tuple[str, str]]:
    """Imports from one module of the package to another."""
    edges = [(a, b) for a, targets in graph(sources).items() for b in targets]
    return sorted((a, b) for a, b in edges if b.split(".")[0] == PACKAGE)


def floor_of(name: str) -> int:
    return FLOORS.get(part(name), ROOF)


def homeless(sources: Sources) -> list[str]:
    """Modules that stand on no floor of the design."""
    names = (dotted(module) for module in sources)
    return [f"{name} stands on no floor" for name in names if part(name) and part(name) not in FLOORS]


def upward(sources: Sources) -> list[str]:
    """Imports that do not point down: to a higher floor, or to a neighbour on the same one."""
    return [
        f"{a} imports {b}"
        for a, b in own_edges(sources)
        if part(a) != part(b) and floor_of(a) <= floor_of(b) and (a, b) not in WHEN_BUILT
    ]


def cycles(sources: Sources) -> list[str]:
    """One cycle of modules that import each other, if there is any."""
    try:
        graphlib.TopologicalSorter(graph(sources)).prepare()
    except graphlib.CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def misplaced_libraries(sources: Sources) -> list[str]:
    """Language-model libraries where only tensors belong, and Hydra below the config's floor."""
    found = []
    for name, targets in graph(sources).items():
        roots = {target.split(".")[0] for target in targets}
        banned = TEXT_LIBRARIES if name.startswith(TENSORS) else set()
        banned = banned | (CONFIG_LIBRARIES if not part(name) or floor_of(name) < FLOORS["app"] else set())
        found += [f"{name} imports {lib}" for lib in sorted(roots & banned) if (name, lib) not in HUB_READERS]
    return found


def catch_alls(sources: Sources) -> list[str]:
    return [module for module in sources if re.search(r"\.utils?(\.|$)", module)]


def asserts(sources: Sources) -> list[str]:
    """`python -O` drops asserts, so none may guard anything."""
    trees = ((module, parsed(text)) for module, text in sources.items())
    return [f"{m}:{node.lineno}" for m, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Assert)]


def undocumented(sources: Sources) -> list[str]:
    """Public modules without a docstring; a file with nothing in it has nothing to explain."""
    public = {m: t for m, t in sources.items() if t.strip() and not re.search(r"\._(?!_init__)", m)}
    return [module for module, text in public.items() if not ast.get_docstring(parsed(text))]


def twice(sources: Sources) -> list[str]:
    """Public classes and files whose name another one has: a name says which of the ideas is meant."""
    homes: dict[str, list[str]] = {}
    for module, text in sources.items():
        file = module.split(".")[-1]
        # A formula and the module that is made of it share a name.
        if file not in {"__init__", "__main__"} and ".functional." not in module:
            homes.setdefault(f"{file}.py", []).append(module)
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(f"class {node.name}", []).append(module)
    return [f"{name} is in {', '.join(modules)}" for name, modules in homes.items() if len(modules) > 1]


PARTS = ("Gate", "Vote", "Trust", "Calibration", "Broker", "Halting", "Rating")


def asked_by_class(sources: Sources) -> list[str]:
    """Parts that are told apart by their class: a stranger's would be treated as none."""
    found = []
    for module, text in sources.items():
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                kinds = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                if any(kind.endswith(PARTS) for kind in kinds):
                    found.append(f"{module}:{node.lineno}")
    return found


def beside_the_package(sources: Sources) -> list[str]:
    """Imports of what stands beside the package and is in no wheel."""
    targets = ((name, target) for name, found in graph(sources).items() for target in sorted(found))
    return [f"{name} imports {target}" for name, target in targets if target.split(".")[0] in BESIDE]


RULES: dict[Callable[[Sources], list[str]], list[Sources]] = {
    homeless: [{"nsed_torch.misc": ""}, {"nsed_torch.extra.__init__": ""}],
    upward: [
        {"nsed_torch.records.log": "import nsed_torch.engines.hub"},
        {"nsed_torch.core.functional": "from nsed_torch.parts import telemetry"},
        {"nsed_torch.core.cell": "from nsed_torch.engines.weights import Weights"},
        {"nsed_torch.engines.hub": "def f():\n    from nsed_torch.parts import telemetry"},
        {"nsed_torch.core.gate": "if TYPE_CHECKING:\n    from ..tuning import loss"},
        {"nsed_torch.traces.__init__": "from ..app import tune"},
        {"nsed_torch.conductor.executor": "from nsed_torch.evaluation import methods"},
        {"nsed_torch.core.rnn": "from nsed_torch import Task"},
    ],
    cycles: [
        {"nsed_torch.core.a": "from . import b", "nsed_torch.core.b": "from nsed_torch.core.a import x"},
        {
            "nsed_torch.core.__init__": "from .a import x",
            "nsed_torch.core.a": "def f():\n    import nsed_torch.core",
        },
    ],
    misplaced_libraries: [
        {"nsed_torch.core.cell": "from transformers.cache_utils import Cache"},
        {"nsed_torch.core.functional": "import jinja2"},
        {"nsed_torch.core.cell": "def f():\n    import huggingface_hub"},
        {"nsed_torch.core.rnn": "def f():\n    from omegaconf import OmegaConf"},
        {"nsed_torch.__init__": "import hydra"},
    ],
    catch_alls: [{"nsed_torch.core.utils": ""}, {"nsed_torch.utils.text": ""}],
    asserts: [{"nsed_torch.core.cell": "def f(x):\n    assert x"}],
    undocumented: [
        {"nsed_torch.core.cell": "x = 1"},
        {"nsed_torch.core.__init__": "from nsed_torch.core.cell import x"},
    ],
    twice: [
        {"nsed_torch.core.cell": "", "nsed_torch.engines.cell": ""},
        {"nsed_torch.core.a": "class Cell: ...", "nsed_torch.engines.b": "def f():\n    class Cell: ..."},
        {"nsed_torch.core.a": "class Cell: ...\nclass Cell: ..."},
    ],
    asked_by_class: [
        {"nsed_torch.core.cell": "def f(gate):\n    return isinstance(gate, NoteGate)"},
        {"nsed_torch.core.rnn": "def f(x):\n    return isinstance(x, int | FixedHalting)"},
    ],
    beside_the_package: [
        {"nsed_torch.core.cell": "def f():\n    import bench.core"},
        {"nsed_torch.core.cell": "from nsed_lab import stepwise"},
    ],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_keeps_the_rule(rule: Callable[[Sources], list[str]]) -> None:
    sources = package_sources()
    assert "nsed_torch.records.transcript" in sources
    assert rule(sources) == []


@pytest.mark.parametrize(
    ("rule", "planted"), [pytest.param(r, p, id=r.__name__) for r, ps in RULES.items() for p in ps]
)
def test_rule_finds_a_planted_violation(rule: Callable[[Sources], list[str]], planted: Sources) -> None:
    assert rule(planted)


def test_what_is_allowed_passes_every_rule() -> None:
    sources = {
        "nsed_torch.__init__": '"""Face."""\nfrom nsed_torch.core.cell import Cell\n',
        "nsed_torch.core.__init__": '"""Cells."""\n',
        "nsed_torch.core.cell": '"""A cell."""\nimport torch\nfrom nsed_torch import __version__\n',
        "nsed_torch.core.memory": '"""A module."""\nfrom nsed_torch.core.functional import memory\n',
        "nsed_torch.core.functional.memory": '"""Its formulas."""\nimport torch\n',
        "nsed_torch.engines.hub": '"""Hub."""\ndef f():\n    import transformers\n',
        "nsed_torch.app.tune": '"""Tune."""\nimport hydra\nfrom nsed_torch.traces import load\n',
    }
    assert {rule.__name__: rule(sources) for rule in RULES} == {rule.__name__: [] for rule in RULES}


# Paths of one person's machine mean nothing on another; the words around them keep web addresses out.
MACHINE_PATHS = re.compile(r"(?<![\w.:/~-])/(?:home|root|work|Users)/\w|\.\./shared")


def machine_paths(texts: dict[str, str]) -> list[str]:
    """Lines that name a folder of somebody's machine."""
    lines = ((name, n, line) for name, text in texts.items() for n, line in enumerate(text.splitlines(), 1))
    return [f"{name}:{n}: {line.strip()}" for name, n, line in lines if MACHINE_PATHS.search(line)]


def project_texts() -> dict[str, str]:
    """Every text file that git tracks or would track; none outside a checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    texts = {}
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts[name] = content.decode("utf-8")
    return texts


def test_no_file_names_folders_of_one_machine() -> None:
    texts = project_texts()
    if not texts:
        pytest.skip("not a git checkout, so nothing says which files belong to the project")
    assert machine_paths(texts) == []


@pytest.mark.parametrize("text", ["cd /" + "home/me/nsed", "x\n'/" + "work/main'", "see .." + "/shared/notes.md"])
def test_machine_paths_are_found(text: str) -> None:
    assert machine_paths({"a.md": text})


def test_web_addresses_are_no_machine_paths() -> None:
    assert machine_paths({"a.md": "https://example.org/" + "home/page and runs/" + "work/x"}) == []
