"""Local clones of public repositories: what is read of one, and what a hostile file in it is refused for."""

import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nsed_torch.records.lookalikes import one_line

MOST_BYTES = 2**28
"""Of a file of a clone, and of what is packed in it."""

MOST_FILES = 20_000


class RecordedLine(NamedTuple):
    """What an agent answered to a question in a round."""

    id: str
    question: str
    target: str
    category: str
    output: str
    answer: str | None
    correct: bool
    characters: int = 0  # of the whole output
    round: int = 0
    agent: str = ""  # where a file has those of several; "" for the one whose file it is


class Clone:
    """A local clone, whose files anybody may have written; of what was read it knows the sums."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder).expanduser().resolve()
        if not self.root.is_dir():
            raise ValueError(f"clone: expected a folder, got {str(folder)!r:.80}: git clone it and pass clone=DIR")
        self.read: dict[str, dict[str, Any]] = {}

    def files(self, pattern: str) -> list[Path]:
        """Those of a pattern, by name; hidden ones are left out."""
        found = sorted(path for path in self.root.glob(pattern) if not path.name.startswith("."))
        if len(found) > MOST_FILES:
            raise ValueError(f"{self.root}: expected at most {MOST_FILES} files {pattern}, got more: check clone")
        return found

    def content(self, path: Path, most: int | None = None) -> bytes:
        """What a file holds; a ValueError for what is no file of the clone itself, or too large."""
        try:
            most = MOST_BYTES if most is None else most
            about = path.lstat()
            inside = path.resolve().is_relative_to(self.root)
            if not stat.S_ISREG(about.st_mode) or not inside:
                raise ValueError(f"{path}: expected a file of the clone itself, got a link or device: remove it")
            if about.st_size > most:
                raise ValueError(f"{path}: expected at most {most} bytes, got {about.st_size}: remove it")
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror}); check the clone") from error
        name = str(path.relative_to(self.root))
        self.read[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return data

    def commit(self) -> str | None:
        """What is checked out, by the clone's own files; None where they do not say."""
        git, before = self.root / ".git", dict(self.read)
        try:
            told = self.content(git / "HEAD", 1000).decode("ascii", "replace").strip()
            if named := re.fullmatch(r"ref: (refs/[\w./-]+)", told):
                packed = git / "packed-refs"
                loose = git / named[1]
                lines = self.content(loose if loose.exists() else packed, 2**24).decode("ascii", "replace")
                wanted = r"^([0-9a-f]{40,64})" + ("$" if loose.exists() else f" {re.escape(named[1])}$")
                found = re.search(wanted, lines, re.MULTILINE)
                told = found[1] if found else ""
        except ValueError:
            return None
        finally:
            self.read = before
        return told if re.fullmatch(r"[0-9a-f]{40,64}", told) else None

    def licence(self) -> bytes | None:
        """The text of its licence."""
        path = next(iter(self.files("LICENSE*")), None)
        return None if path is None else self.content(path, 2**20)


class Source(NamedTuple):
    """A repository of recorded answers, and how its files are read."""

    repository: str
    license: str
    files: Callable[[Clone], Mapping[str, list[Path]]]  # agent -> its files
    lines: Callable[[Clone, Path], Iterator[RecordedLine]]


def fields(entry: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry that are wanted, each of its kinds; None stands for one that is not there."""
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object, got {one_line(entry, 60)!r}: remove it or fetch the file again")
    for name, kind in kinds.items():
        value = entry.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            got = f"{name}={one_line(value, 60)!r}"
            raise ValueError(f"{where}: expected {', '.join(kinds)}, got {got}: remove it or fetch the file again")
    return {name: whole(entry.get(name)) for name in kinds}


def whole(value: Any) -> Any:
    """A text without halves of characters."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def unpacked(data: bytes, path: Path) -> bytes:
    """The one JSON file of an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if name.endswith(".json") and "__MACOSX" not in name]
            if len(names) != 1:
                raise ValueError(f"{path}: expected one JSON file inside, got {len(names)}: fetch it again")
            with archive.open(names[0]) as file:
                inside = file.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise ValueError(f"{path}: cannot be unpacked ({one_line(error, 80)}); fetch it again") from error
    if len(inside) > MOST_BYTES:
        raise ValueError(f"{path}: expected at most {MOST_BYTES} bytes inside, got more: remove it")
    return inside
