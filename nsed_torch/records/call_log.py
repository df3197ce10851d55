"""Every finished model call under its key: cache, crash recovery and replay in one mechanism."""

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from nsed_torch.records.files import parse_json

T = TypeVar("T")

SCHEMA_VERSION = 1
"""Raised by one when the table changes; stands in the file as SQLite's `user_version`."""

_APPLICATION_ID = 0x4E534544  # "NSED": tells our files from other SQLite files
_PATIENCE = 60.0  # seconds to wait for another process's write
_TABLE = "CREATE TABLE calls (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
_SCHEMA = [("index", "sqlite_autoindex_calls_1", "calls", None), ("table", "calls", "calls", _TABLE)]
_EMPTY: tuple[int, int, list[tuple[Any, ...]]] = (0, 0, [])
_LONGEST = 100_000_000  # bytes of a value
_SUM = 16  # hex digits of a value's sum, which stand before it


class CallLogError(ValueError):
    """A call log that cannot be used; one line that names the file and the remedy."""


def call_key(**fields: Any) -> str:
    """Name a call by everything that shapes its result: the sha256 of its canonical JSON, 64 hex digits.

    Fields are JSON values in any order. Tuples count as lists; 1, 1.0, "1" and True are four different values.
    """
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


class CallLog(AbstractContextManager["CallLog"]):
    """A dictionary of finished calls that outlives the process: one SQLite file in write-ahead mode.

    A value stands behind a sum of its key and text. A row that does not fit its sum, or that its reader refuses, counts
    as absent and is made anew; `refused` counts such rows, and a warning tells how many there were.

    A `put` that returned survives the process's death at any later moment. Several processes of one machine may share
    the file, which is made with its folders if missing; without a path the log stays in memory.

    Raises:
        CallLogError: if the file is no call log of this version, is damaged, or has anything beside the one table
            (a trigger, a view), here or in any later call.
        OSError: if its folder cannot be made.

    Example:
        >>> with CallLog(None) as log:
        ...     log.put({call_key(prompt="2 + 2?"): {"text": "4"}})
        ...     log.get([call_key(prompt="2 + 2?"), call_key(prompt="2 + 3?")]).values()
        dict_values([{'text': '4'}])
    """

    def __init__(self, path: str | Path | None) -> None:
        path = None if path is None else Path(path).expanduser()
        self.path, self.refused = path, 0
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._one_line_errors():
            self._db = sqlite3.connect(path or ":memory:", timeout=_PATIENCE, isolation_level="IMMEDIATE")
        try:
            with self._one_line_errors():
                self._open()
        except BaseException:
            self.close()
            raise

    def get(self, keys: Iterable[str], read: Callable[[str, Any], T] = lambda key, value: value) -> dict[str, T]:
        """The values of those keys that are in the log, in the order of `keys`, as `read` makes them of JSON values.

        What `read` refuses by a ValueError or TypeError is not in the log.
        """
        wanted = list(dict.fromkeys(keys))
        value = f"CASE WHEN length(value) <= {_LONGEST} THEN CAST(value AS BLOB) END"
        chosen = f"SELECT key, {value} FROM calls WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608 - ours
        found, before = {}, self.refused
        with self._one_line_errors():
            for key, row in self._db.execute(chosen, [json.dumps(wanted)]):
                try:
                    found[key] = read(key, _unsealed(key, row))
                except (TypeError, ValueError):
                    self.refused += 1
        if refused := self.refused - before:
            told = "%s: %d rows of the call log are not as they were written: these calls are made anew"
            logging.getLogger(__name__).warning(told, self.path, refused)
        return {key: found[key] for key in wanted if key in found}

    def put(self, items: Mapping[str, Any]) -> None:
        """Add calls in one transaction: all of them or, if it fails, none. A known key gets the new value.

        Values are JSON values, with the errors of `call_key`.
        """
        # As it is rather than escaped: a text that no file can hold is refused here and not on its way out.
        texts = {key: json.dumps(value, ensure_ascii=False, allow_nan=False) for key, value in items.items()}
        rows = [(key, _sum_of(key, text.encode()) + text) for key, text in texts.items()]
        with self._one_line_errors(), self._db:
            self._db.executemany("INSERT OR REPLACE INTO calls (key, value) VALUES (?, ?)", rows)

    def __len__(self) -> int:
        with self._one_line_errors():
            return int(self._db.execute("SELECT count(*) FROM calls").fetchone()[0])

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        self._db.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        """Check that the file is ours before anything is changed in it; lay an empty one out."""
        self._db.execute("PRAGMA trusted_schema = OFF")
        if self._marks() == _EMPTY:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                if self._marks() == _EMPTY:  # no other process was faster
                    self._db.execute(_TABLE)
                    self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        marks = self._marks()
        if marks != (_APPLICATION_ID, SCHEMA_VERSION, _SCHEMA):
            got = f"marks {marks[0]} and {marks[1]} with {', '.join(f'{m[0]} {m[1]}'[:40] for m in marks[2][:9])}"
            raise sqlite3.DatabaseError(f"expected a call log of version {SCHEMA_VERSION} alone, got {got!r}")
        self._write_ahead()
        # Commits survive the death of the process; a power cut may take the last ones but breaks nothing.
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _write_ahead(self) -> None:
        """Where two processes turn to it at once, SQLite refuses one of them without waiting, however patient it is."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def _marks(self) -> tuple[int, int, list[tuple[Any, ...]]]:
        """Application id, schema version and whatever the file defines."""
        application, version = (
            self._db.execute(f"PRAGMA {m}").fetchone()[0] for m in ("application_id", "user_version")
        )
        defined = self._db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type").fetchmany(9)
        return application, version, defined

    @contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turn what SQLite says into one line with the file and the remedy."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a closed log, a wrong thread: the caller's mistake, not the file's
        except sqlite3.OperationalError as error:
            remedy = "check that the folder is writable and has space and that no process holds the file"
            raise CallLogError(f"{self.path}: cannot use the call log ({error}); {remedy}") from error
        except sqlite3.DatabaseError as error:
            remedy = "remove this file, which loses only cached calls"
            raise CallLogError(f"{self.path}: not a readable call log ({error}); {remedy}") from error


def _sum_of(key: str, text: bytes) -> str:
    """Of the key as well, so that no call has another's value."""
    return hashlib.blake2b(key.encode() + b"\n" + text, digest_size=_SUM // 2).hexdigest()


def _unsealed(key: str, row: Any) -> Any:
    """The JSON value of a row, or a ValueError for one that does not fit its sum."""
    if not isinstance(row, bytes) or row[:_SUM] != _sum_of(key, row[_SUM:]).encode():
        raise ValueError("expected a value with its sum")
    return parse_json(row[_SUM:], key, "remove it")
