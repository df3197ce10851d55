"""Files that are whole or absent: atomic writes, and reads whose errors say what to do."""

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nsed_torch.records.lookalikes import one_line

MOST_LEVELS = 100
"""Objects and lists of JSON within each other: deeper ones are read, and then end whoever copies or prints them."""


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file as `write_files` does; line breaks stay as they are. Lone surrogates are a ValueError."""
    write_files({path: text.encode()})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files by path, each whole, and none unless there is room for all; missing folders are made.

    Everything goes to temporary files beside the targets, which then take the targets' names in the order given,
    each in one step: a reader or a crash sees an old file or a new one and nothing between.
    """
    staged = {path: path.parent / f".{secrets.token_hex(8)}.tmp" for path in files}
    try:
        for path, temporary in staged.items():
            with naming(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("xb") as file:
                    file.write(files[path])
                    file.flush()
                    os.fsync(file.fileno())
        for path, temporary in staged.items():
            with naming(path):
                temporary.replace(path)
    finally:
        for temporary in staged.values():
            # A failed write leaves it, and is what is told; a folder that lets nothing be removed keeps it until swept.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, as `write_files` does; NaN and infinity are a ValueError."""
    write_text(path, to_json(value) + "\n")


def to_json(value: Any) -> str:
    """The text that `write_json` writes, without the last line break."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def read_bytes(path: Path) -> bytes:
    """What a file holds; a device or a queue, which may never end, is an OSError as a missing file is."""
    regular(path)
    return path.read_bytes()


def regular(path: Path) -> None:
    """Refuse, by an OSError, to open what is there and is no file."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a file", str(path))


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such file; check the path or run what writes it") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    return parse_json(data, str(path), "remove it and rerun what wrote it")


def parse_json(data: str | bytes, where: str, remedy: str, *, halves: bool = False) -> Any:
    """Parse JSON that anybody may have written; `halves` says that the caller mends halves of characters."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
        if text.count("[") + text.count("{") > MOST_LEVELS:
            _check_levels(value)
        # Escapes may be halves of characters, which nothing can print, send or write.
        if not halves and "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON ({one_line(error)}); {remedy}") from error
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _check_levels(value: Any) -> None:
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        inner = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
        level = [item for items in inner for item in items]
    if level:
        raise ValueError(f"expected at most {MOST_LEVELS} objects and lists within each other, got more")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice in an object")
    return found


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """The system's own error names the temporary file or a folder above; the user asked for `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot write this file: {error.strerror}", str(path)) from error
