"""What other packages bring, and what to install where one is missing, as a command that works here."""

import shlex
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
BESIDE = {"lab": "nsed-lab", "experts": "nsed-torch-experts"}
"""Distributions of a clone's folders."""
UNPINNED = {"vllm"}  # extras that pin otherwise than constraints.txt


def missing(package: str, purpose: str, extra: str, error: object = "no such package") -> str:
    """The line that says which package is missing, for what, and how it is installed."""
    return f"expected {package} for {purpose}, got {error}: {install(extra)}"


def install(extra: str) -> str:
    """The command that installs an extra, several with commas between them, or a distribution `BESIDE` this one."""
    if not ((ROOT / "pyproject.toml").is_file() and (ROOT / "constraints.txt").is_file()):
        return f"pip install {shlex.quote(BESIDE.get(extra, f'nsed_torch[{extra}]'))}"
    here = "." if Path.cwd() == ROOT else str(ROOT)
    if extra in BESIDE:
        return f"pip install {shlex.quote(f'{here}/{extra}')}"
    if extra in UNPINNED:
        return f"pip install -e {shlex.quote(f'{here}[{extra}]')}"
    limits = "constraints.txt" if here == "." else f"{here}/constraints.txt"
    return f"pip install -c {shlex.quote(limits)} -e {shlex.quote(f'{here}[{extra}]')}"


def offered(group: str, ours: Mapping[str, T]) -> dict[str, T]:
    """Ours by name, then what installed packages add: each entry point of the group names a mapping."""
    found = dict(ours)
    for entry in entry_points(group=group):
        found |= {name: one for name, one in entry.load().items() if name not in ours}
    return found
