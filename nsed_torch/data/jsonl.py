"""JSON Lines with ids, plain or gzipped, whose faults name the line."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def read_records(
    path: Path, digest: Any, fields: Sequence[str], *, unique: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read records one by one; ids come out as texts.

    Args:
        path: JSON Lines, compressed if its name ends in `.gz`; blank lines are passed over.
        digest: a hash object, updated with every record as it stands.
        fields: names every record must have; one of them is `id`.
        unique: whether an id that comes twice is a fault.

    Yields:
        Where the record stands (file:line), and the record.

    Raises:
        ValueError: in one line with file and line, for a file that cannot be read, a line that is no such record, or
            an id that comes twice.
    """
    seen = set()
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        digest.update(line.strip() + b"\n")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not valid JSON ({error}); mend or remove the line") from error
        if not isinstance(record, dict) or not set(fields) <= set(record):
            raise ValueError(f"{where}: expected an object with {', '.join(fields)}, got {str(record)[:60]}")
        if isinstance(record["id"], bool) or not isinstance(record["id"], str | int):
            raise ValueError(f"{where}: expected an id that is a text or a whole number, got {record['id']!r}")
        record["id"] = str(record["id"])
        if unique and record["id"] in seen:
            raise ValueError(f"{where}: expected every id once, got {record['id']!r} again: remove the line")
        seen.add(record["id"])
        yield where, record


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}); fetch it again") from error
