"""A text is embedded once for all runs with one call log, and only what the encoder made counts."""

import base64
import hashlib
import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from nsed_torch.core.encoder import Encoder, HashedEncoder, LoggedEncoder, SentenceEncoder, logged
from nsed_torch.records.call_log import CallLog

WORDS = ["red apples", "blue sky", "", "é ∑", "blue sky"]


@pytest.fixture
def asked(tiny_encoder, monkeypatch):
    """The texts that went through the tiny encoder, one by one."""
    encode, texts = tiny_encoder.model.encode, []
    monkeypatch.setattr(tiny_encoder.model, "encode", lambda text, **o: texts.append(text) or encode(text, **o))
    return texts


def keeping(encoder, log):
    return LoggedEncoder(encoder, lambda: log)


def test_each_text_is_embedded_once_for_all_runs_with_one_log(tiny_encoder, asked, tmp_path):
    expected = tiny_encoder.embed(WORDS)
    for made in (list(dict.fromkeys(WORDS)), []):
        asked.clear()
        with CallLog(tmp_path / "calls.sqlite") as log:
            encoder = keeping(tiny_encoder, log)
            for _ in range(2):
                vectors = encoder.embed(WORDS)
                assert torch.equal(vectors.view(torch.int32), expected.view(torch.int32))  # signs of zeros, too
                assert (vectors.dtype, vectors.device.type) == (torch.float32, "cpu")
                assert torch.equal(encoder.embed(WORDS[1:2]), expected[1:2])
        assert asked == made
    vectors[0, 0] = 2.0  # memory of one's own
    assert encoder.embed([]).shape == (0, 16)


def test_it_is_the_encoder_in_all_else(tiny_encoder):
    encoder = keeping(tiny_encoder, CallLog(None))
    assert isinstance(encoder, Encoder)
    assert (encoder.dim, encoder.identity()) == (16, tiny_encoder.identity())
    assert list(encoder.parameters()) == list(tiny_encoder.parameters())


def test_what_has_no_weights_is_faster_than_a_log():
    hashed = HashedEncoder(8)
    assert logged(hashed, lambda: CallLog(None)) is hashed


def test_the_log_is_the_one_that_is_open_now(tiny_encoder, asked):
    logs = [CallLog(None), CallLog(None)]
    encoder = logged(tiny_encoder, lambda: logs[-1])
    encoder.embed(["one"])
    logs.pop().close()
    encoder.embed(["one"])
    assert asked == ["one", "one"]
    assert len(logs[0]) == 1


@pytest.mark.parametrize("other", ["identity", "version", "device"])
def test_other_encoders_and_whatever_else_computes_embed_for_themselves(tiny_encoder, asked, monkeypatch, other):
    log = CallLog(None)
    keeping(tiny_encoder, log).embed(["one"])
    encoder = keeping(tiny_encoder, log)
    if other == "identity":
        encoder = keeping(SentenceEncoder(tiny_encoder.model, identity={"name": "tiny", "revision": "2"}), log)
    elif other == "version":
        monkeypatch.setattr("nsed_torch.core.encoder.version", lambda package: "2.0" * (package == "torch"))
        encoder = keeping(tiny_encoder, log)
    else:
        monkeypatch.setattr(type(tiny_encoder.model), "device", torch.device("meta"))
        monkeypatch.setattr(tiny_encoder.model, "encode", lambda text, **o: asked.append(text) or torch.eye(16)[0])
    encoder.embed(["one"])
    assert asked == ["one", "one"]
    assert len(log) == 2


def test_many_texts_are_committed_together_and_a_kill_loses_the_last_of_them(tiny_encoder, asked, monkeypatch):
    log, texts = CallLog(None), [f"text {i}" for i in range(150)]
    commits, put, encode = [], log.put, tiny_encoder.model.encode
    monkeypatch.setattr(log, "put", lambda items: commits.append(len(items)) or put(items))

    def killed(text, **options):
        if text == "text 140":
            raise KeyboardInterrupt
        return encode(text, **options)

    encoder = keeping(tiny_encoder, log)
    with monkeypatch.context() as patched:
        patched.setattr(tiny_encoder.model, "encode", killed)
        with pytest.raises(KeyboardInterrupt):
            encoder.embed(texts)
    assert commits == [64, 64]
    asked.clear()
    assert torch.equal(keeping(tiny_encoder, log).embed(texts), tiny_encoder.embed(texts))
    assert asked[:22] == texts[128:]
    assert commits == [64, 64, 22]


def test_a_log_from_before_keeps_what_it_has_and_gets_embeddings(tiny_encoder, asked, tmp_path):
    file = tmp_path / "calls.sqlite"
    with CallLog(file) as log:
        log.put({"call": {"text": "4"}})
    for _ in range(2):
        with CallLog(file) as log:
            keeping(tiny_encoder, log).embed(["one"])
            assert log.get(["call"]) == {"call": {"text": "4"}}
    assert asked == ["one"]
    with closing(sqlite3.connect(file)) as database:  # a reader from before finds the one table that it knows
        assert [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")] == ["calls"]
        assert all(json.loads(value) for (value,) in database.execute("SELECT value FROM calls"))


def test_a_log_that_nobody_may_write_still_answers(tiny_encoder, asked, tmp_path):
    with CallLog(tmp_path / "calls.sqlite") as log:
        expected = keeping(tiny_encoder, log).embed(["one"])
        log._db.execute("PRAGMA query_only = ON")
        assert torch.equal(keeping(tiny_encoder, log).embed(["one", "two"])[:1], expected)
        assert asked == ["one", "two"]
        assert len(log) == 1


# --- what stands in a file is hostile until it is checked -----------------------------------------------------------


def summed(key, numbers, kind="<f4"):
    """A vector as the log keeps it, with the sum that belongs to it."""
    data = np.asarray(numbers).astype(kind).tobytes()
    return base64.b64encode(hashlib.blake2b(key.encode() + data, digest_size=8).digest() + data).decode()


def flipped(value, place=30):
    data = bytearray(base64.b64decode(value))
    data[place] ^= 1
    return base64.b64encode(data).decode()


UNIT = np.eye(16)[3]
SPOILED = {
    "cut": lambda key, value: value[: len(value) // 2 // 4 * 4],
    "cut within a byte": lambda key, value: value[:-3],
    "longer": lambda key, value: value + "AAAA",
    "one bit": lambda key, value: flipped(value, 8),
    "the sum": lambda key, value: flipped(value, 0),
    "no sum": lambda key, value: base64.b64encode(base64.b64decode(value)[8:]).decode(),
    "too short": lambda key, value: summed(key, UNIT[:8]),
    "too long": lambda key, value: summed(key, [*UNIT, 0.0]),
    "float64": lambda key, value: summed(key, UNIT, "<f8"),
    "float16": lambda key, value: summed(key, UNIT, "<f2"),
    "whole numbers": lambda key, value: summed(key, UNIT, "<i4"),
    "NaN": lambda key, value: summed(key, [*UNIT[:15], np.nan]),
    "infinity": lambda key, value: summed(key, [*UNIT[:15], np.inf]),
    "twice as long": lambda key, value: summed(key, UNIT * 2),
    "a little longer": lambda key, value: summed(key, UNIT * 1.001),
    "zero": lambda key, value: summed(key, UNIT * 0),
    "nothing": lambda key, value: "",
    "no base64": lambda key, value: value[:-1] + "?",
    "no ASCII": lambda key, value: value[:-1] + "é",
    "null": lambda key, value: None,
    "a number": lambda key, value: 7,
    "a list": lambda key, value: [1.0] * 16,
    "an object": lambda key, value: {"vector": value},
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_kept_vector_that_is_none_is_made_anew(tiny_encoder, asked, tmp_path, spoil):
    file = tmp_path / "calls.sqlite"
    with CallLog(file) as log:
        expected = keeping(tiny_encoder, log).embed(["one", "two"])
    with closing(sqlite3.connect(file)) as database, database:
        key, value = database.execute("SELECT key, value FROM calls").fetchone()
        database.execute("UPDATE calls SET value = ? WHERE key = ?", [json.dumps(spoil(key, json.loads(value))), key])
    asked.clear()
    for _ in range(2):
        with CallLog(file) as log:
            assert torch.equal(keeping(tiny_encoder, log).embed(["one", "two"]), expected)
    assert len(asked) == 1
    with closing(sqlite3.connect(file)) as database:  # the sound one is in its place
        assert database.execute("SELECT value FROM calls WHERE key = ?", [key]).fetchone() == (value,)


def test_no_text_has_anothers_vector(tiny_encoder, asked):
    log, texts = CallLog(None), ["one", "two"]
    expected = keeping(tiny_encoder, log).embed(texts)
    (one, first), (two, second) = log._db.execute("SELECT key, value FROM calls").fetchall()
    log.put({one: json.loads(second), two: json.loads(first)})
    assert torch.equal(keeping(tiny_encoder, log).embed(texts), expected)
    assert asked == texts * 2


def test_a_kept_vector_is_written_so(tiny_encoder, tmp_path):
    with CallLog(None) as log:
        (vector,) = keeping(tiny_encoder, log).embed(["one"])
        ((key, value),) = log._db.execute("SELECT key, value FROM calls")
    assert json.loads(value) == summed(key, vector.numpy())
