"""A text is embedded once for all runs with one call log, and only what the encoder made counts."""

import base64
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch

from nsed_torch.core.encoder import Encoder, HashedEncoder
from nsed_torch.engines.sentence_encoder import LoggedEncoder, SentenceEncoder, logged
from nsed_torch.records.call_log import CallLog

WORDS = ["red apples", "blue sky", "", "é ∑", "blue sky"]


@pytest.fixture
def asked(tiny_encoder, monkeypatch):
    """The different texts of every pass through the tiny encoder."""
    encode, passed = tiny_encoder.model.encode, []
    monkeypatch.setattr(
        tiny_encoder.model, "encode", lambda texts, **o: passed.extend(set(texts)) or encode(texts, **o)
    )
    return passed


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
        assert sorted(asked) == sorted(made)
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
        monkeypatch.setattr("nsed_torch.engines.sentence_encoder.version", lambda package: "2.0" * (package == "torch"))
        encoder = keeping(tiny_encoder, log)
    else:
        monkeypatch.setattr(type(tiny_encoder.model), "device", torch.device("meta"))
        monkeypatch.setattr(
            tiny_encoder.model, "encode", lambda texts, **o: asked.append(texts[0]) or torch.eye(16)[:1]
        )
    encoder.embed(["one"])
    assert asked == ["one", "one"]
    assert len(log) == 2


def test_many_texts_are_committed_together_and_a_kill_loses_the_last_of_them(tiny_encoder, asked, monkeypatch):
    monkeypatch.setattr("nsed_torch.engines.sentence_encoder._TOGETHER", 64)
    log, texts = CallLog(None), [f"text {i}" for i in range(150)]
    commits, put, encode = [], log.put, tiny_encoder.model.encode
    monkeypatch.setattr(log, "put", lambda items: commits.append(len(items)) or put(items))

    def killed(texts, **options):
        if "text 140" in texts:
            raise KeyboardInterrupt
        return encode(texts, **options)

    encoder = keeping(tiny_encoder, log)
    with monkeypatch.context() as patched:
        patched.setattr(tiny_encoder.model, "encode", killed)
        with pytest.raises(KeyboardInterrupt):
            encoder.embed(texts)
    assert commits == [64, 64]
    asked.clear()
    assert torch.equal(keeping(tiny_encoder, log).embed(texts), tiny_encoder.embed(texts))
    assert set(asked) == set(texts)  # those kept by the one, all of them by the other
    assert len(asked) == 22 + 150
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


def test_a_log_that_nobody_may_write_still_answers(tiny_encoder, asked, tmp_path):
    with CallLog(tmp_path / "calls.sqlite") as log:
        expected = keeping(tiny_encoder, log).embed(["one"])
        log._db.execute("PRAGMA query_only = ON")
        assert torch.equal(keeping(tiny_encoder, log).embed(["one", "two"])[:1], expected)
        assert asked == ["one", "two"]
        assert len(log) == 1


# --- what stands in a file is hostile until it is checked -----------------------------------------------------------


def packed(numbers, kind="<f4"):
    """A vector as the log keeps it."""
    return base64.b64encode(np.asarray(numbers).astype(kind).tobytes()).decode()


UNIT = np.eye(16)[3]
SPOILED = {
    "cut": lambda value: value[: len(value) // 2 // 4 * 4],
    "cut within a byte": lambda value: value[:-3],
    "longer": lambda value: value + "AAAA",
    "too short": lambda value: packed(UNIT[:8]),
    "too long": lambda value: packed([*UNIT, 0.0]),
    "float64": lambda value: packed(UNIT, "<f8"),
    "float16": lambda value: packed(UNIT, "<f2"),
    "whole numbers": lambda value: packed(UNIT, "<i4"),
    "NaN": lambda value: packed([*UNIT[:15], np.nan]),
    "infinity": lambda value: packed([*UNIT[:15], np.inf]),
    "twice as long": lambda value: packed(UNIT * 2),
    "a little longer": lambda value: packed(UNIT * 1.001),
    "zero": lambda value: packed(UNIT * 0),
    "nothing": lambda value: "",
    "no base64": lambda value: value[:-1] + "?",
    "no ASCII": lambda value: value[:-1] + "é",
    "null": lambda value: None,
    "a number": lambda value: 7,
    "a list": lambda value: [1.0] * 16,
    "an object": lambda value: {"vector": value},
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_kept_vector_that_is_none_is_made_anew(tiny_encoder, asked, spoil):
    log = CallLog(None)
    expected = keeping(tiny_encoder, log).embed(["one", "two"])
    key = next(iter(keys_of(log)))
    (value,) = log.get([key]).values()
    log.put({key: spoil(value)})
    asked.clear()
    for _ in range(2):
        assert torch.equal(keeping(tiny_encoder, log).embed(["one", "two"]), expected)
    assert len(asked) == 1
    assert log.get([key]) == {key: value}  # the sound one is in its place


def test_no_text_has_anothers_vector(tiny_encoder, asked):
    log, texts = CallLog(None), ["one", "two"]
    expected = keeping(tiny_encoder, log).embed(texts)
    one, two = keys_of(log)
    swap = "UPDATE calls SET value = (SELECT value FROM calls AS other WHERE other.key = ?) WHERE key = ?"
    log._db.execute(swap, [one, two])
    assert torch.equal(keeping(tiny_encoder, log).embed(texts), expected)
    assert (sorted(asked[:2]), asked[2:], log.refused) == (texts, ["two"], 1)


def test_a_kept_vector_is_written_so(tiny_encoder):
    log = CallLog(None)
    (vector,) = keeping(tiny_encoder, log).embed(["one"])
    assert list(log.get(keys_of(log)).values()) == [packed(vector.numpy())]


def keys_of(log):
    return [key for (key,) in log._db.execute("SELECT key FROM calls ORDER BY rowid")]
