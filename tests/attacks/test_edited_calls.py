"""A call log that somebody edited: no edited row is believed, and what it held is made anew."""

import dataclasses
import json
import logging
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import (
    Decoding,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Ratings,
)
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records import call_log
from nsed_torch.records.call_log import CallLog, CallLogError

CHAT = (Message("user", "which?"),)
WRITE = GenerateRequest("a", CHAT, Decoding(8), 1)
RATE = RateRequest("a", CHAT, ("x", "yy"))
WEIGH = LikelihoodRequest("a", CHAT, ("x", "yy"))
FOUND = {
    "generate": (WRITE, Generation("4", 3, 2, "stop", ("a note",), 0.5, written=(7, 8))),
    "rate": (RATE, Ratings((0.25, None), (0.5, 0.5), 6)),
    "measure": (WEIGH, Likelihood((0.5, 0.25), 6, lengths=(2, 2))),
}
NO_COUNT = [-1, -1_000_000, 10**8, 1e30, 0.5, 3.0, True, "3", None, [3], {}]
NO_TEXT = [7, None, True, ["4"], {}, "\ud800"]
NO_TEXTS = ["a note", [7], [None], {}, None, [["a"]], ["\udfff"]]
NO_SECONDS = [-1, -0.5, True, "1", None, [], "@1e999", "@NaN", "@-Infinity"]
NO_VALUES = [[], [0.25], [0.25, None, 0.1], [2.0, 0.1], [-2, 0.1], [True, False], ["1", 0.1], [[0.1], 0.1], 0.25, None]
NO_VALUES += [{"0": 0.25}, "@[1e999, 0.1]", "@[NaN, 0.1]"]
IMPOSSIBLE = {
    "generate": {
        "text": [*NO_TEXT, "@gone", "@twice"],
        "prompt_tokens": [*NO_COUNT, "@gone"],
        "completion_tokens": [*NO_COUNT, 1, "@gone"],  # fewer than were written
        "finish_reason": NO_TEXT,
        "notes": NO_TEXTS,
        "seconds": NO_SECONDS,
        "failure": [*NO_TEXT, "the call failed"],
        "written": ["78", [7.0], [True], [-1], [1 << 40], [None], None, {}, [7, 8, 9]],
        "computed_tokens": [n for n in NO_COUNT if n != -1],
    },
    "rate": {
        "values": [*NO_VALUES, "@gone", "@twice"],
        "coverage": [[0.5], [0.5, 2.0], [-0.5, 0.5], [True, True], ["1", "1"], [None, None], 1, "@[NaN, 0.5]"],
        "prompt_tokens": NO_COUNT,
        "notes": NO_TEXTS,
        "seconds": NO_SECONDS,
        "failure": [*NO_TEXT, "gone"],
        "computed_tokens": [-2, *NO_COUNT[1:]],
    },
    "measure": {
        "values": [*NO_VALUES, [-0.5, 0.1], "@gone"],
        "prompt_tokens": NO_COUNT,
        "notes": NO_TEXTS,
        "seconds": NO_SECONDS,
        "failure": [*NO_TEXT, "gone"],
        "computed_tokens": [-2, *NO_COUNT[1:]],
        "lengths": [[2], [2, 2, 2], [-1, 2], [True, 2], [2.0, 2], "2", None],
    },
}
EDITS = [(kind, name, wrong) for kind, found in IMPOSSIBLE.items() for name, odd in found.items() for wrong in odd]
WHOLE = [None, 7, "text", [], {}, True, [1, 2], "@" + "[" * 5000, "@", "@{", '@{"text": 1, "text": "4"}', "@1e999"]
EDITS += [(kind, None, wrong) for kind in FOUND for wrong in WHOLE]


def edited(kind, name, wrong):
    """A row's JSON with one field changed, or with another value as a whole."""
    data = dataclasses.asdict(FOUND[kind][1])
    raw = isinstance(wrong, str) and wrong.startswith("@")
    if name is None:
        return wrong[1:] if raw else json.dumps(wrong)
    if wrong == "@twice":
        return json.dumps({name: data[name]})[:-1] + ", " + json.dumps(data)[1:]
    if wrong == "@gone":
        del data[name]
        return json.dumps(data)
    data[name] = "@here@" if raw else wrong
    return json.dumps(data).replace('"@here@"', wrong[1:] if raw else "")


class Engine(ScriptedEngine):
    """Gives what `FOUND` says, and counts how often it is asked."""

    asked = 0

    def __init__(self):
        super().__init__(lambda request: "", lambda request, text: 0.0)

    def _give(self, kind, requests):
        self.asked += len(requests)
        return [FOUND[kind][1] for _ in requests]

    def generate(self, requests):
        return self._give("generate", requests)

    def rate(self, requests):
        return self._give("rate", requests)

    def measure(self, requests):
        return self._give("measure", requests)


def team(log):
    engine = Engine()
    return Ensemble({"one": engine}, [Agent("a", "one"), Agent("b", "one")], call_log=log), engine


def write(log, text, summed):
    """Put a text in the place of the one row's value, with the sum that belongs to it or the one that was there."""
    ((key, value),) = log._db.execute("SELECT key, value FROM calls").fetchall()
    seal = call_log._sum_of(key, text.encode()) if summed else value[: call_log._SUM]
    with log._db:
        log._db.execute("UPDATE calls SET value = ?", [seal + text])


def test_there_are_200_edits_and_more():
    assert len(EDITS) >= 200


@pytest.mark.parametrize("kind", FOUND)
def test_no_impossible_row_is_believed_though_its_sum_fits(kind, caplog):
    request, expected = FOUND[kind]
    log = CallLog(None)
    ensemble, engine = team(log)
    getattr(ensemble, kind)([request])
    caplog.set_level(logging.WARNING)
    believed = []
    for edit in (edit for edit in EDITS if edit[0] == kind):
        engine.asked, log.refused = 0, 0
        caplog.clear()
        write(log, edited(*edit), summed=True)
        assert getattr(ensemble, kind)([request]) == [expected]
        if (engine.asked, log.refused, "1 rows of the call log" in caplog.text) != (1, 1, True):
            believed.append(edit)
        assert getattr(ensemble, kind)([request]) == [expected]
        assert engine.asked == 1  # the sound one is in its place again
    assert believed == []


@given(st.sampled_from(sorted(FOUND)), st.data())
def test_no_other_text_is_believed_under_the_old_sum(kind, data):
    log = CallLog(None)
    ensemble, engine = team(log)
    request, expected = FOUND[kind]
    getattr(ensemble, kind)([request])
    text = json.dumps(dataclasses.asdict(expected), ensure_ascii=False)
    place = data.draw(st.integers(0, len(text) - 1))
    other = (
        text[:place] + data.draw(st.text("0123456789x, ", max_size=3)) + text[place + data.draw(st.integers(1, 3)) :]
    )
    write(log, other, summed=False)
    assert getattr(ensemble, kind)([request]) == [expected]
    assert engine.asked == (1 if other == text else 2)


@pytest.mark.parametrize("value", [7, 1.5, b"\xff\xfe", b"", "", "short"])
def test_what_is_no_text_with_a_sum_is_absent(value):
    log = CallLog(None)
    log.put({"a": 1, "b": 2})
    with log._db:
        log._db.execute("UPDATE calls SET value = ? WHERE key = 'a'", [value])
    assert (log.get(["a", "b"]), log.refused) == ({"b": 2}, 1)


def test_a_value_of_any_length_is_not_read(monkeypatch):
    log = CallLog(None)
    log.put({"a": "long " * 100, "b": 2})
    monkeypatch.setattr(call_log, "_LONGEST", 100)
    assert (log.get(["a", "b"]), log.refused) == ({"b": 2}, 1)


def test_no_call_has_anothers_value():
    log = CallLog(None)
    log.put({"a": 1, "b": 2})
    with log._db:
        log._db.execute("UPDATE calls SET value = (SELECT value FROM calls WHERE key = 'b')")
    assert log.get(["a", "b"]) == {"b": 2}


ADDED = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON calls BEGIN UPDATE calls SET value = 'x'; END",
    "view": "CREATE VIEW v AS SELECT 1",
    "index": "CREATE INDEX i ON calls (value)",
    "table": "CREATE TABLE other (a)",
    "view in its place": "DROP TABLE calls; CREATE VIEW calls AS SELECT 'a' AS key, '1' AS value",
    "another table": "DROP TABLE calls; CREATE TABLE calls (key TEXT NOT NULL PRIMARY KEY, value INT NOT NULL)",
    "a check that runs": "DROP TABLE calls; CREATE TABLE calls (key TEXT, value TEXT CHECK (length(value)))",
    "no table": "DROP TABLE calls",
}


@pytest.mark.parametrize("statement", ADDED.values(), ids=ADDED)
def test_a_file_that_defines_anything_else_is_refused_unchanged(tmp_path, statement):
    path = tmp_path / "calls.sqlite"
    with CallLog(path) as log:
        log.put({"a": 1})
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(statement)
        database.execute("PRAGMA journal_mode = DELETE")
    before = path.read_bytes()
    with pytest.raises(
        CallLogError, match=r"expected a call log of version 1 alone, got .*; remove this file"
    ) as error:
        CallLog(path)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


def test_what_a_schema_calls_is_not_trusted():
    assert CallLog(None)._db.execute("PRAGMA trusted_schema").fetchone() == (0,)
