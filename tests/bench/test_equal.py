"""Proposals and ratings at one precision: the same weights for everybody, and what their answers share."""

import shutil
import sys
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from tiny_gguf import tiny_llama, write_gguf

from bench import __main__ as bench
from bench import equal, llama, llama_server
from bench.requests import give_adapters, propose_requests, rate_requests
from nsed_torch.core.engine import Decoding
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights

ROUNDED = {"float32": 0.0, "bfloat16": 2**-8}

APART = 0.02
"""How far two ratings from -1 to 1 may be apart."""


@pytest.mark.parametrize("dtype", equal.TYPES)
def test_a_gguf_of_another_precision_has_the_same_values(tmp_path, dtype):
    source = tmp_path / "tiny.gguf"
    write_gguf(source, tiny_llama(initializer_range=0.3), gguf.GGMLQuantizationType.Q8_0)
    first, second = (
        gguf.GGUFReader(file) for file in (source, equal.same_precision(source, tmp_path / "new" / "tiny.gguf", dtype))
    )
    told = {name: one.contents() for name, one in first.fields.items() if not name.startswith(("GGUF", "general.file"))}
    assert {name: second.fields[name].contents() for name in told} == told
    tables = {tensor.name: tensor for tensor in second.tensors}
    assert len(tables) == len(first.tensors)
    for tensor in first.tensors:
        other = tables[tensor.name]
        assert other.tensor_type == equal.TYPES[dtype if len(tensor.shape) > 1 else "float32"]
        before, after = (gguf.dequantize(one.data, one.tensor_type) for one in (tensor, other))
        np.testing.assert_allclose(after, before, rtol=ROUNDED[dtype])


def test_shares_and_distances_leave_out_what_nobody_said():
    assert equal.alike(["a", "b"], ["a", "c"]) == 0.5
    assert equal.farthest([[0.5, None], [1.0]], [[0.25, 0.0], [None]]) == 0.25
    assert np.isnan(equal.farthest([[None]], [[1.0]]))


def test_answers_of_vllm_never_end_while_open_and_ratings_do():
    made = []
    there = SimpleNamespace(_sampling=lambda **given: made.append(given), stop_ids=[2])
    kept = there._sampling
    with equal.never_ending(there):
        assert there.stop_ids == []
        there._sampling(max_tokens=3)
        there._sampling(max_tokens=1, logprobs=2)
    assert [one["ignore_eos"] for one in made] == [True, False]
    assert (there._sampling, there.stop_ids) == (kept, [2])


def test_without_vllm_and_a_server_there_is_no_line_but_notes(tmp_path, monkeypatch, capsys):
    write_gguf(tmp_path / "tiny.gguf", tiny_llama(), gguf.GGMLQuantizationType.F32)
    monkeypatch.setattr(equal, "find_server", lambda: None)
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert list(equal.measured(Weights("tiny", path=str(tmp_path)), "float32", [1], 1, ["propose"])) == []
    said = capsys.readouterr().out
    assert "vLLM: left out: " in said
    assert "llama.cpp's server: left out: " in said


@pytest.mark.skipif(shutil.which(llama_server.BINARY) is None, reason="llama-server is not installed")
@pytest.mark.weights
def test_the_server_rates_as_the_engine_does(tmp_path):
    settings = bench.backbone_settings("smollm2_135m_instruct")
    engine = load_backbone(settings["weights"], dtype="float32", device="cpu")
    names = give_adapters(engine, 2)
    writes = propose_requests(1, names, Decoding(max_new_tokens=3, temperature=0.0))
    rates = rate_requests(engine, 1, 2, names, equal.SCALE)
    source = llama.find_gguf(settings["weights"], tmp_path)
    file = equal.same_precision(source, tmp_path / "equal" / source.name, "float32")
    files = llama_server.converted(engine, writes, file, tmp_path)
    size = max(llama_server.room(engine, writes)[0], equal.rate_room(engine, rates))
    with llama_server.serving(llama_server.find_server(), file, files, size, 2) as server:
        (line,) = equal.rate_lines(engine, None, server, rates, 1)
    assert line.facts["prompts"] == 4
    # The server keeps keys and values in half precision.
    assert line.facts["most apart, llama.cpp"] < APART
