"""What a `put` returned for survives anything; what is no call log is left alone."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nsed_torch.records import call_log
from nsed_torch.records.call_log import CallLog, CallLogError, call_key

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
FIELDS = st.dictionaries(st.text(min_size=1), SCALARS | st.lists(SCALARS, max_size=3), min_size=1, max_size=4)


def child(script, *args):
    """A Python process of its own, with this process's import path."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@given(fields=FIELDS, data=st.data())
def test_key_differs_when_any_field_differs(fields, data):
    name = data.draw(st.sampled_from(sorted(fields)))
    other = data.draw(SCALARS)
    assume(json.dumps(other) != json.dumps(fields[name]))
    changed = {**fields, name: other}
    removed = {key: value for key, value in fields.items() if key != name}
    assert len({call_key(**f) for f in (fields, changed, removed)}) == 3
    assert call_key(**dict(reversed(fields.items()))) == call_key(**fields)


def test_key_is_pinned_and_refuses_what_is_no_json():
    # The same call must be found by later versions of this package too.
    assert call_key(a=1, b=["x", None]) == "18c018603b12c4beed8593acb6ad65cdc9667cce853e8b6dffd035fe3a0fb4de"
    assert len({call_key(a=v) for v in (1, 1.0, "1", True, [1])}) == 5
    with pytest.raises(ValueError, match="not JSON compliant"):
        call_key(a=float("nan"))
    with pytest.raises(TypeError):
        call_key(a=object())


@settings(max_examples=25)
@given(items=st.dictionaries(st.text("0123456789abcdef", min_size=1), SCALARS, max_size=5))
def test_memory_log_is_a_dictionary(items):
    with CallLog(None) as log:
        log.put(items)
        assert log.get([*items, "never put"]) == items
        assert len(log) == len(items)


def test_any_number_of_keys_in_the_order_asked(tmp_path):
    items = {call_key(i=i): {"i": i} for i in range(2500)}
    with CallLog(tmp_path / "deep" / "calls.sqlite") as log:
        log.put(items)
        backwards = list(reversed(items))
        assert list(log.get(iter([*backwards, *backwards]))) == backwards
        assert log.get([]) == {}
        log.put({backwards[0]: "new"})
        assert log.get(backwards[:1]) == {backwards[0]: "new"}
        assert len(log) == 2500
    with CallLog(tmp_path / "deep" / "calls.sqlite") as log:
        assert len(log) == 2500


def test_put_is_all_or_nothing(tmp_path):
    path = tmp_path / "calls.sqlite"
    with CallLog(path) as log:
        with pytest.raises(ValueError, match="not JSON compliant"):
            log.put({"a": 1, "b": float("inf")})
        other = sqlite3.connect(path)
        other.execute("CREATE TRIGGER t BEFORE INSERT ON calls WHEN NEW.key = 'c' BEGIN SELECT RAISE(ABORT, 'no'); END")
        other.close()
        with pytest.raises(CallLogError, match="no"):
            log.put({"a": 1, "b": 2, "c": 3})
        assert len(log) == 0
        log.put({"a": 1, "b": 2})
        assert len(log) == 2


def test_use_after_close_is_no_fault_of_the_file():
    log = CallLog(None)
    log.close()
    log.close()
    with pytest.raises(sqlite3.ProgrammingError):
        log.get(["a"])


def test_sigkill_keeps_every_committed_put(tmp_path):
    path = tmp_path / "calls.sqlite"
    script = """
        import pathlib, sys
        from nsed_torch.records.call_log import CallLog
        log = CallLog(pathlib.Path(sys.argv[1]))
        for i in range(10**9):
            log.put({f"{i}-{part}": i for part in "ab"})
            print(i, flush=True)
    """
    for kill_after in (0, 3, 40):
        path.unlink(missing_ok=True)
        process = child(script, path)
        for _ in range(kill_after + 1):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        reported = process.communicate()[0].split()
        committed = int(reported[-1]) + 1 if reported else kill_after + 1
        with CallLog(path) as log:
            assert len(log) % 2 == 0  # both rows of a put, or neither
            assert len(log.get(f"{i}-{part}" for i in range(committed) for part in "ab")) == 2 * committed


def test_records_are_opened_without_torch():
    script = "import sys; from nsed_torch.records.call_log import CallLog; print('torch' in sys.modules)"
    assert child(script).communicate() == ("False\n", "")


def test_writers_share_a_fresh_file(tmp_path):
    script = """
        import pathlib, sys
        from nsed_torch.records.call_log import CallLog
        print("ready", flush=True)
        sys.stdin.readline()
        with CallLog(pathlib.Path(sys.argv[1])) as log:
            for i in range(100):
                log.put({f"{sys.argv[2]}-{i}": i, "shared": i})
    """
    processes = [child(script, tmp_path / "calls.sqlite", name) for name in "xyz"]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate()[1] == ""
        assert process.returncode == 0
    with CallLog(tmp_path / "calls.sqlite") as log:
        assert len(log) == 301


@pytest.mark.parametrize(
    ("code", "refusals", "patience", "opens"),
    [
        (sqlite3.SQLITE_BUSY, 3, 60.0, True),
        (sqlite3.SQLITE_BUSY, 1000, 0.05, False),
        (sqlite3.SQLITE_READONLY, 1, 60.0, False),  # waiting mends nothing
    ],
)
def test_who_turns_to_write_ahead_with_another_tries_again(tmp_path, monkeypatch, code, refusals, patience, opens):
    class Crowded(sqlite3.Connection):
        left = refusals

        def execute(self, sql, *parameters):
            if "journal_mode" in sql and Crowded.left:
                Crowded.left -= 1
                error = sqlite3.OperationalError("no")
                error.sqlite_errorcode = code
                raise error
            return super().execute(sql, *parameters)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *where, **how: connect(*where, factory=Crowded, **how))
    monkeypatch.setattr(call_log, "_PATIENCE", patience)
    if opens:
        with CallLog(tmp_path / "calls.sqlite") as log:
            log.put({"a": 1})
            assert len(log) == 1
    else:
        with pytest.raises(CallLogError, match=r"cannot use the call log \(no\)"):
            CallLog(tmp_path / "calls.sqlite")


def filled(path, rows=300):
    with CallLog(path) as log:
        log.put({call_key(i=i): "text " * 50 for i in range(rows)})
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"not a database at all, just words" * 100,
        lambda data: data[: len(data) // 2],
        lambda data: data[:50],
        lambda data: data[:5000] + os.urandom(len(data) - 5000),
    ],
    ids=["words", "half", "50 bytes", "noise"],
)
def test_damaged_file_is_one_line_and_nothing_else_is_touched(tmp_path, damage):
    path, neighbour = tmp_path / "calls.sqlite", tmp_path / "transcript.json"
    neighbour.write_text("mine")
    broken = damage(filled(path))
    path.write_bytes(broken)
    with pytest.raises(CallLogError) as error, CallLog(path) as log:
        log.get(call_key(i=i) for i in range(300))
    message = str(error.value)
    assert message.startswith(f"{path}: not a readable call log")
    assert "loses only cached calls" in message
    assert "\n" not in message
    assert path.read_bytes() == broken
    assert neighbour.read_text() == "mine"


def test_other_databases_are_refused_unchanged(tmp_path):
    foreign = tmp_path / "foreign.sqlite"
    database = sqlite3.connect(foreign)
    database.execute("CREATE TABLE calls (key TEXT, value TEXT)")
    database.close()
    before = foreign.read_bytes()
    with pytest.raises(CallLogError, match="expected a call log of version 1"):
        CallLog(foreign)
    assert foreign.read_bytes() == before

    ours = tmp_path / "calls.sqlite"
    filled(ours, rows=1)
    database = sqlite3.connect(ours)
    database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(CallLogError, match="expected a call log of version 1"):
        CallLog(ours)


def test_unusable_places_are_one_line(tmp_path):
    with pytest.raises(CallLogError, match="cannot use the call log"):
        CallLog(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        CallLog(tmp_path / "file" / "calls.sqlite")


def test_empty_file_is_a_new_log(tmp_path):
    # What a kill between creating the file and laying it out leaves.
    (tmp_path / "calls.sqlite").touch()
    with CallLog(tmp_path / "calls.sqlite") as log:
        assert len(log) == 0
