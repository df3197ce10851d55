"""What to install where a package of an extra is missing, as a command that works from where this one came."""

import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
BESIDE = {"lab": "nsed-lab", "experts": "nsed-torch-experts"}
"""Distributions of a clone's folders."""


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
    limits = "constraints.txt" if here == "." else f"{here}/constraints.txt"
    return f"pip install -c {shlex.quote(limits)} -e {shlex.quote(f'{here}[{extra}]')}"
