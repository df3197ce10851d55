"""Files that are whole or absent: atomic writes, and reads whose errors say what to do."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file, whole or not at all; missing folders are made.

    The text goes to a temporary file beside the target, which then takes the target's name in one step, so a
    reader or a crash sees the old file or the new one and nothing between.

    Args:
        path: the file to write; an existing one is replaced.
        text: its content; line breaks stay as they are.

    Raises:
        OSError: if it cannot be written; names `path`. The old file, if any, is untouched.
        ValueError: if the text has no UTF-8 form (lone surrogates).
    """
    data = text.encode()
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        # The system's own error names the temporary file or a folder above; the user asked for `path`.
        raise OSError(error.errno, f"cannot write this file: {error.strerror}", str(path)) from error
    finally:
        _remove(temporary)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, whole or not at all.

    Args:
        path: the file to write.
        value: JSON data: dicts with text keys, lists, texts, finite numbers, booleans, None.

    Raises:
        OSError: if it cannot be written; names `path`.
        ValueError: if the value holds NaN or infinity, which JSON cannot say.
    """
    write_text(path, to_json(value) + "\n")


def to_json(value: Any) -> str:
    """The text that `write_json` writes, without the last line break."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: if the file is missing, unreadable, not UTF-8, or not JSON (NaN and infinity are not);
            names the file, what is wrong and the remedy.
    """
    try:
        return json.loads(path.read_bytes().decode(), parse_constant=_refuse_constant)
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such file; check the path or run what writes it") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error}); remove it and rerun what wrote it") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _remove(temporary: Path) -> None:
    """Delete what a failed write left; after a good one there is nothing."""
    # Where the folder above is a file, nothing was written either.
    with contextlib.suppress(NotADirectoryError):
        temporary.unlink(missing_ok=True)
