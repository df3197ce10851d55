"""What tests of loaders share: files below a folder, and a Hub that offers what a test gives it."""

import gzip
import json
import sys
from types import SimpleNamespace

import pytest


class Table(list):
    """What loaders use of a `datasets.Dataset`."""

    @property
    def column_names(self):
        return list(self[0])

    def remove_columns(self, names):
        return Table({name: value for name, value in row.items() if name not in names} for row in self)


@pytest.fixture
def write(tmp_path):
    """A function that writes rows as JSON Lines below the folder it returns."""

    def put(file, rows):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if file.endswith(".gz") else data)
        return str(tmp_path)

    return put


@pytest.fixture
def hub(monkeypatch):
    """A function that puts rows, or an error, on a Hub; it returns the list of calls made to it."""

    def offer(rows):
        calls = []

        def load_dataset(*args, **kwargs):
            calls.append((args, kwargs))
            if isinstance(rows, Exception):
                raise rows
            return Table(rows)

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
        return calls

    return offer
