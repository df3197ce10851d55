import dataclasses
import re
import shutil

import pytest
import torch
from hydra import compose, initialize_config_dir

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.engine import Decoding, GenerateRequest, Message, RateRequest
from nsed_torch.engines.backbones import (
    QUANTIZATIONS,
    SPREADS,
    check_device,
    load_backbone,
    native_dtype,
    weights_bytes,
)
from nsed_torch.engines.weights import Weights
from nsed_torch.records import rendering


class At:
    """A thread that runs where it is started."""

    def __init__(self, target, daemon):
        self.start = target


@pytest.mark.parametrize("template", [None, "plain"])
def test_the_process_that_renders_templates_begins_while_the_model_is_read(tiny_folder, monkeypatch, template):
    begun = []
    monkeypatch.setattr(rendering, "rendered", lambda kind, **values: begun.append(kind))
    monkeypatch.setattr(rendering.threading, "Thread", At)

    def opened(*given):
        raise ValueError(f"begun: {begun}")

    monkeypatch.setattr("nsed_torch.engines.backbones._opened", opened)
    with pytest.raises(ValueError, match=re.escape(f"begun: {[] if template else ['chat']}")):
        load_backbone(Weights("tiny", path=str(tiny_folder)), chat_template=template)


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_quantized_weights_write_and_rate_close_to_the_full_ones(load_tiny, tiny, ask, judge, quantization):
    engine = load_tiny(quantization=quantization)
    kinds = {type(module).__name__ for module in engine.modules()}
    assert kinds & {"nf4": {"Linear4bit"}, "int8": {"Linear8bitLt"}}[quantization]
    assert engine.memory_bytes() < tiny.memory_bytes()
    request = ask("Why is that so?", temperature=0, max_new_tokens=8)
    (said,) = engine.generate([request])
    assert said == engine.generate([request])[0]
    assert 1 <= said.completion_tokens <= 8
    question = judge(["one", "another", "0"])
    got, full = engine.rate([question])[0], tiny.rate([question])[0]
    assert got.values == pytest.approx(full.values, abs=0.3)
    assert got.values != full.values


def test_four_bit_weights_keep_their_order_on_a_cpu_that_multiplies_in_bfloat16(load_tiny, monkeypatch):
    """There bitsandbytes packs them for a product without a gradient, which layers as narrow as these fail."""
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    engine = load_tiny(quantization="nf4")
    embedded = engine.model.get_input_embeddings()(torch.tensor([[3, 4, 5]])).requires_grad_()
    with torch.no_grad():
        engine.model(inputs_embeds=embedded)
    engine.model(inputs_embeds=embedded).logits.sum().backward()
    assert embedded.grad.abs().sum() > 0


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_adapters_sit_on_quantized_weights(load_tiny, adapter_folders, judge, quantization):
    engine = load_tiny(quantization=quantization, adapters=adapter_folders)
    bare, poet = engine.rate([judge(["x", "y"]), judge(["x", "y"], adapter="poet")])
    assert bare.values != pytest.approx(poet.values, abs=1e-3)


def test_adapters_of_a_batch_are_their_own(tiny, load_tiny, adapter_folders, judge):
    for name, folder in adapter_folders.items():
        alone = load_tiny(adapters={"only": folder}).rate([judge(["x", "y"], adapter="only")])[0]
        assert tiny.rate([judge(["x", "y"], adapter=name)])[0].values == pytest.approx(alone.values, abs=1e-5)
    assert tiny.rate([judge(["x"])])[0].values == pytest.approx(load_tiny().rate([judge(["x"])])[0].values, abs=1e-5)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_weights_have_the_dtype_asked_for_and_are_frozen(load_tiny, dtype, expected):
    engine = load_tiny(dtype=dtype)
    assert {weight.dtype for weight in engine.parameters()} == {expected}
    assert not any(weight.requires_grad for weight in engine.parameters())
    assert not engine.model.training
    assert engine.identity(None)["dtype"] == dtype


def test_auto_says_in_the_identity_what_it_chose(load_tiny):
    engine = load_tiny(dtype="auto")
    assert {weight.dtype for weight in engine.parameters()} == {native_dtype()}
    assert f"torch.{engine.identity(None)['dtype']}" == str(native_dtype())


def test_wrong_names_are_one_line_before_any_weights_are_looked_for(fails):
    nowhere = Weights(name="none", path="/nonexistent")
    with fails("expected quantization to be one of none, nf4, int8, got 'int4'"):
        load_backbone(nowhere, quantization="int4")
    with fails("expected dtype to be one of auto, bfloat16, float16, float32, got 'half'"):
        load_backbone(nowhere, dtype="half")
    assert QUANTIZATIONS == ("none", "nf4", "int8")


def test_an_adapter_without_safetensors_is_refused(load_tiny, adapter_folders, tmp_path, fails):
    folder = tmp_path / "pickled"
    shutil.copytree(adapter_folders["poet"], folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    for path in (folder, tmp_path / "absent"):
        with fails(f"adapter 'poet': expected adapter_model.safetensors in {path}: save it with safetensors"):
            load_tiny(adapters={"poet": str(path)})


def test_settings_reach_the_engine(load_tiny):
    engine = load_tiny(max_batch=3, context_window=100, chat_template="plain")
    assert (engine.max_batch, engine.context_window, engine.chat.stop) == (3, 100, "\n###")


@pytest.fixture(scope="module")
def smollm2():
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        node = compose("backbone/smollm2_135m_instruct").backbone
    return instantiate({**node, "quantization": "none", "dtype": "float32"})


QUESTIONS = ("Which is larger, 17 or 71?", "Name a colour.", "What is the capital of France? Answer in one word.")


@pytest.mark.weights
def test_real_weights_answer_in_a_batch_as_alone(smollm2):
    batch = [
        GenerateRequest("a", (Message("user", text),), Decoding(max_new_tokens=4 + 6 * i, temperature=0), seed=i)
        for i, text in enumerate(QUESTIONS)
    ]
    together = smollm2.generate(batch)
    assert together == [smollm2.generate([request])[0] for request in batch]
    assert "Paris" in together[2].text


@pytest.mark.weights
def test_real_weights_rate_in_a_batch_as_alone(smollm2):
    batch = [
        RateRequest(
            "a", (Message("user", text),), ("\n\nAnswer: 71\n\nGrade it from 0 to 9.", "\n\nGrade 17, 0 to 9.")[i:]
        )
        for i, text in enumerate(QUESTIONS[:2])
    ]
    for request, rating in zip(batch, smollm2.rate(batch), strict=True):
        alone = smollm2.rate([request])[0]
        assert rating.values == pytest.approx(alone.values, abs=1e-4)
        assert dataclasses.replace(rating, values=(), coverage=()) == dataclasses.replace(alone, values=(), coverage=())
        assert all(share > 0 for share in rating.coverage)


def test_a_device_is_one_of_this_machine(monkeypatch):
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)
    for device in (None, "cpu", "cuda", "cuda:0", "cuda:1", *SPREADS):
        check_device(device, SPREADS)
    for device in ("cuda:2", "mps", "meta", "disk", ""):
        with pytest.raises(
            ValueError, match=f"out of cpu, cuda, cuda:0, cuda:1, auto, .*, got '{device}': take another"
        ):
            check_device(device, SPREADS)
    with pytest.raises(ValueError, match="got 'auto'"):
        check_device("auto")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_ahead_of_loading_is_counted_in_the_files(load_tiny, tiny_folder, dtype):
    ahead = weights_bytes(Weights("tiny", path=str(tiny_folder), parameters_b=99), "none", dtype)
    held = load_tiny(dtype=dtype).memory_bytes()
    assert 0 <= held - ahead < 200  # the buffers of rotary positions


def test_quantization_leaves_embeddings_and_head_and_packs_the_rest(load_tiny, tiny_folder):
    weights = Weights("tiny", path=str(tiny_folder))
    full, nf4 = (weights_bytes(weights, quantization, "float32") for quantization in ("none", "nf4"))
    layers = [m for m in load_tiny().model.model.layers.modules() if isinstance(m, torch.nn.Linear)]
    packed = sum(layer.weight.numel() for layer in layers)
    assert full - nf4 == pytest.approx(packed * (4 - 0.5 - 4 / 64), abs=1)


def test_without_files_the_config_says_how_large_a_model_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    place = {"repo": "no/body", "revision": "main"}
    known = Weights("absent", **place, parameters_b=8.0, embeddings_b=1.0)
    assert weights_bytes(known, "none", "bfloat16") == 16e9
    assert weights_bytes(known, "int8", "bfloat16") == 9e9
    assert weights_bytes(Weights("absent", **place)) is None
    # A folder of one's own may hold any model: what the config says of another is not told of it.
    assert weights_bytes(Weights("mine", path=str(tmp_path), parameters_b=8.0)) is None
