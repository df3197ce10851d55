"""JSON that anybody may have written, read against types: every fault is one line with its place and the remedy."""

import dataclasses
import functools
import json
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Self

from nsed_torch.records.files import parse_json, read_json, regular, to_json, write_text
from nsed_torch.records.lookalikes import one_line

SPARSE = {"inputs", "needed", "start", "goal", "inner"}
"""Fields that JSON leaves out where they are empty, so that records without them stay what they were."""


class Record:
    """A frozen dataclass of plain data that is kept as JSON; what cannot be read is a ValueError of one line.

    A class that names a `VERSION` has a field `schema_version`, raised by one when a field changes its meaning or goes
    away. Reading passes over unknown keys, and fills in the defaults of fields that a file does not have.
    """

    WHAT: ClassVar[str]
    VERSION: ClassVar[int | None] = None
    REMEDY: ClassVar[str] = "rerun the command that wrote it"

    def to_json(self) -> str:
        """As readable JSON."""
        return to_json(plain_data(self))

    def to_line(self) -> str:
        """As JSON in one line."""
        return json_line(plain_data(self))

    def save(self, path: str | Path) -> None:
        """Write as JSON, whole or not at all."""
        write_text(Path(path).expanduser(), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote."""
        return cls.from_data(read_json(Path(path).expanduser()), str(path))

    @classmethod
    def from_line(cls, line: str | bytes, where: str) -> Self:
        """Read what `to_line` wrote; `where` is its file and line, for errors."""
        return cls.from_data(parse_json(line, where, cls.REMEDY), where)

    @classmethod
    def read_lines(cls, path: Path) -> Iterator[Self]:
        """Read a file of such lines, one after the other; a file that cannot be opened is a ValueError as well."""
        try:
            regular(path)
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    yield cls.from_line(line, f"{path}:{number}")
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror}); {cls.REMEDY}") from error

    @classmethod
    def from_data(cls, data: Any, where: str) -> Self:
        """Rebuild a record from JSON data."""
        try:
            record: Self = rebuild(cls, data)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: not {cls.WHAT} ({one_line(error)}); {cls.REMEDY}") from error
        return record


def plain_data(record: Any) -> dict[str, Any]:
    """What JSON keeps of a dataclass tree."""
    return dataclasses.asdict(
        record, dict_factory=lambda pairs: {name: value for name, value in pairs if value or name not in SPARSE}
    )


def json_line(data: Any) -> str:
    """JSON data in one line."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def rebuild(kind: Any, value: Any) -> Any:
    """Rebuild a dataclass tree from what JSON kept of it; drops unknown keys, refuses wrong types."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and types.NoneType in args):
        return value
    if origin is types.UnionType:
        kinds = [a for a in args if a is not types.NoneType]
        return rebuild(next((a for a in kinds if type(value) is (typing.get_origin(a) or a)), kinds[0]), value)
    if kind is float and type(value) in {int, float}:
        # JSON has numbers such as 1e999 and 10^400, which are none here.
        if not abs(value) <= sys.float_info.max:
            raise ValueError(f"expected a finite number, got {str(value)[:40]}")
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    expected: Any = dict if dataclasses.is_dataclass(kind) else list if origin is tuple else origin or kind
    if type(value) is not expected:
        raise TypeError(f"expected {expected.__name__}, got {str(value)[:40]!r}")
    if dataclasses.is_dataclass(kind):
        return _rebuild_dataclass(kind, value)
    return origin(rebuild(args[0], item) for item in value) if origin in {list, tuple} else value


def _rebuild_dataclass(kind: Any, value: dict[str, Any]) -> Any:
    if issubclass(kind, Record) and kind.VERSION is not None and value.get("schema_version") != kind.VERSION:
        got = str(value.get("schema_version"))[:40]
        raise ValueError(f"expected {kind.WHAT} of schema version {kind.VERSION}, got {got}")
    hints = _hints(kind)
    fields = {}
    for name in (f.name for f in dataclasses.fields(kind) if f.name in value):
        try:
            fields[name] = rebuild(hints[name], value[name])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from error
    return kind(**fields)


_hints = functools.cache(typing.get_type_hints)
