"""Weights that travel in wheels: downloaded without dependencies, checked, unzipped as data."""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

DATA_FILES = ("*.safetensors", "*.json", "*.txt", "*.jinja", "tokenizer.model")
"""All that is ever taken for a model folder: no pickles, no code."""


class ChecksumError(ValueError):
    """A download is not the file that was pinned."""


class DownloadError(RuntimeError):
    """A wheel could not be downloaded."""


@dataclass(frozen=True)
class Wheel:
    """A wheel and the only bytes it may have.

    Args:
        requirement: "name==version".
        sha256: of the wheel file, 64 hexadecimal digits.

    Raises:
        ValueError: if either has another form.
    """

    requirement: str
    sha256: str

    def __post_init__(self) -> None:
        # The pattern also keeps a requirement from being read as an option of pip.
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[\w.!+]+", self.requirement):
            raise ValueError(f"wheel: expected a requirement 'name==version', got {self.requirement!r}")
        _check_sum(self.requirement, self.sha256)


@dataclass(frozen=True)
class PackagedWeights:
    """Weights that travel in wheels.

    Args:
        wheels: where the members lie.
        members: one folder inside a wheel that is a ready model folder, or the files that, one after another, are
            one GGUF.
        sha256: of that GGUF; None where the wheels' own sums are enough.

    Raises:
        ValueError: if there is no wheel or no member, or the sum is malformed.
    """

    wheels: Sequence[Wheel]
    members: Sequence[str]
    sha256: str | None = None

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


def is_data(name: str) -> bool:
    """Whether a file of this name may become part of a model folder."""
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in DATA_FILES)


def fetch_wheel(wheel: Wheel, folder: Path) -> Path:
    """Download one wheel without its dependencies, with the user's own pip configuration, and check it.

    Args:
        wheel: which one.
        folder: an empty or new folder to put it in.

    Returns:
        The wheel file. Nothing of it was installed, imported or run.

    Raises:
        DownloadError: with pip's last line.
        ChecksumError: if it is another file than the pinned one.
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
        raise ChecksumError(
            f"{what}: expected sha256 {expected}, got {got}; nothing was kept: check your package index, or pin the "
            "new sum if you trust it"
        )


def unpack_wheels(package: PackagedWeights, files: Sequence[Path], folder: Path) -> Path | None:
    """Take the members out of wheels, as data.

    Args:
        package: what lies in the wheels.
        files: the wheels.
        folder: receives `model/`, or the GGUF.

    Returns:
        The GGUF if the members are one; None if they were a ready model folder.

    Raises:
        ValueError: if a member is missing, or would land outside its folder.
        ChecksumError: if the GGUF is another one than the pinned.
    """
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
    names = [name for name in where if name.startswith(prefix) and not name.endswith("/")]
    if not names:
        raise ValueError(f"expected folder {prefix} in the wheels, got none such: correct the members")
    for name in names:
        target = (folder / name.removeprefix(prefix)).resolve()
        if not target.is_relative_to(folder.resolve()):
            raise ValueError(f"expected members inside {prefix}, got {name}: do not use this wheel")
        if is_data(name):
            target.parent.mkdir(parents=True, exist_ok=True)
            with where[name].open(name) as source, target.open("wb") as opened:
                shutil.copyfileobj(source, opened)
