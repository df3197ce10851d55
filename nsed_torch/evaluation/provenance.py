"""Where numbers come from: settings, seeds, versions, state of the sources, machine."""

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from nsed_torch.records.portable import config_sha256, without_home

PACKAGES = ("nsed_torch", "torch", "transformers", "peft", "bitsandbytes", "sentence-transformers")
"""Whose versions shape results."""

_SECONDS = 10.0


def provenance(config: Mapping[str, Any], seeds: Any) -> dict[str, Any]:
    """Everything that tells how a run's numbers came about, as JSON data.

    The same for the same command, sources and machine, whenever it runs. The composed config, interpolations resolved,
    has the user's home folder as ~.
    """
    return {
        "config": without_home(config),
        "config_sha256": config_sha256(config),
        "seeds": seeds,
        "versions": versions(),
        "git": git_state(Path.cwd()),
        "hardware": machine(),
    }


def machine() -> dict[str, Any]:
    """What this process computes on."""
    return {
        "machine": platform.machine(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str | None]:
    """Of Python and of the `PACKAGES`; None for one that is not installed."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that is checked out in a folder, and whether tracked files differ from it.

    Files that git does not track leave the state as it is: a run writes some itself. None where git is missing, does
    not answer, or the folder is no checkout.
    """
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else {"commit": commit.strip(), "dirty": bool(changes)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *words: str) -> str | None:
    """What git prints, without touching the checkout; None if it fails in any way."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS)  # noqa: S603 - our own words
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
