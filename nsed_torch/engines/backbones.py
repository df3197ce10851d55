"""Building engines and encoders from weights on disk."""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Decoding, Engine
from nsed_torch.engines.adapters import adapter_folder, fingerprint, load_adapters
from nsed_torch.engines.gguf_files import first_line, quiet_libraries
from nsed_torch.engines.sentence_encoder import SentenceEncoder
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import Report, Weights, resolve
from nsed_torch.records.files import read_json
from nsed_torch.records.rendering import render_ahead

QUANTIZATIONS = ("none", "nf4", "int8")
DTYPES = ("auto", "bfloat16", "float16", "float32")
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
"""How accelerate lays a model over all devices."""


def load_backbone(
    weights: Weights,
    *,
    quantization: str = "none",
    dtype: str = "auto",
    device: str | None = None,
    adapters: Mapping[str, str] | None = None,
    chat_template: str | None = None,
    template_options: Mapping[str, str | bool | int] | None = None,
    reasoning: Sequence[str] | None = None,
    context_window: int | None = None,
    max_batch: int = 32,
    pass_tokens: int = 1024,
    prefix_tokens: int = 2048,
    lookup_tokens: int = 8,
) -> TransformersEngine:
    """Load a causal language model, quantize it, put it on its devices and add its adapters.

    The quantization is "none", "nf4" (4-bit normal float) or "int8", by bitsandbytes. `dtype`, out of `DTYPES`, is that
    of what is not quantized and of the arithmetic; "auto" is bfloat16 where the hardware computes in it, else float32.
    The device is one that is there ("cpu", "cuda:1") or one of `SPREADS`; None is "auto" where there is an
    accelerator, else "cpu". `adapters` are folders of LoRA adapters saved by peft as safetensors, by name. The rest is
    as in `TransformersEngine`.

    Raises:
        ValueError: for an unknown quantization, dtype or device, and for files of the model or of an adapter that are
            damaged, incomplete or of another model.
    """
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"expected quantization to be one of {', '.join(QUANTIZATIONS)}, got {quantization!r}")
    if dtype not in DTYPES:
        raise ValueError(f"expected dtype to be one of {', '.join(DTYPES)}, got {dtype!r}")
    check_device(device, SPREADS)
    torch_dtype = native_dtype() if dtype == "auto" else getattr(torch, dtype)
    folders = {name: adapter_folder(name, path) for name, path in (adapters or {}).items()}
    place = resolve(weights)
    if chat_template != "plain":
        render_ahead("chat", template="", messages=[], options={})  # it takes a second to begin
    tokenizer, model = _opened(weights.name, place.folder, quantization, torch_dtype, device)
    identity = {
        "name": weights.name,
        "revision": place.revision,
        "quantization": quantization,
        "dtype": str(torch_dtype).removeprefix("torch."),
        "device": torch.device(model.device).type,
        # Numbers may change with the libraries that compute them.
        **{package: version(package) for package in ("torch", "transformers", "tokenizers", "bitsandbytes", "peft")},
    }
    return TransformersEngine(
        load_adapters(model, folders, torch_dtype),
        tokenizer,
        identity=identity,
        adapters={name: fingerprint(folder) for name, folder in folders.items()},
        chat_template=chat_template,
        template_options=template_options,
        reasoning=reasoning,
        context_window=context_window,
        max_batch=max_batch,
        pass_tokens=pass_tokens,
        prefix_tokens=prefix_tokens,
        lookup_tokens=lookup_tokens,
    )


def _opened(name: str, folder: Path, quantization: str, dtype: torch.dtype, device: str | None) -> tuple[Any, Any]:
    """The tokenizer and the frozen model of a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - imported where an engine is built

    quiet_libraries()
    with _one_line_errors(name, folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map=device or ("auto" if torch.accelerator.is_available() else "cpu"),
            quantization_config=_quantization_config(quantization, dtype),
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        if missing := sorted(found["missing_keys"]):  # they would be random numbers
            raise ValueError(f"{missing[0]} and {len(missing) - 1} other parameters are missing")
    model.requires_grad_(False)
    _keep_order(model)
    return tokenizer, model


def in_memory(model: Any, tokenizer: Any, **options: Any) -> TransformersEngine:
    """An engine around a causal language model that is in memory already, which is put into evaluation mode.

    Options are those of `TransformersEngine`; a tokenizer without a chat template gets the plain one. Which
    weights these are is told by a fingerprint of the beginning of each.

    Raises:
        ValueError: for a `PeftModel`, whose adapters only `load_backbone` names, and as `TransformersEngine`.
    """
    if hasattr(model, "peft_config"):  # peft's own, and what transformers' `load_adapter` leaves
        remedy = "call merge_and_unload() first, or give its folder to load_backbone(adapters={name: folder})"
        raise ValueError(f"expected a model without adapters, got {type(model).__name__} with some: {remedy}")
    _keep_order(model)
    identity = {
        "name": str(model.config.name_or_path or type(model).__name__),
        "revision": f"in memory, {_fingerprint(model)}",
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": torch.device(model.device).type,
    }
    plain = {} if tokenizer.chat_template else {"chat_template": "plain"}
    return TransformersEngine(model, tokenizer, identity=identity, **{**plain, **options})


@torch.no_grad()
def _fingerprint(model: Any) -> str:
    """Twelve hex digits for weights that nobody names: of the beginning of every parameter."""
    digest = hashlib.sha256()
    for name, value in model.named_parameters():
        start = value.detach().flatten()[:64].float().cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode() + start)
    return str(digest.hexdigest()[:12])


def ensemble_of(models: Any, personas: Mapping[str, str], decoding: Decoding) -> Ensemble:
    """Agents and engines of (model, tokenizer) by agent's name; who shares both shares an engine."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError(f"models: expected {{name: (model, tokenizer)}} of one agent or more, got {models!r:.60}")
    for name, pair in models.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not callable(getattr(pair[1], "decode", None)):
            got = type(pair).__name__ if not isinstance(pair, tuple | list) else [type(part).__name__ for part in pair]
            raise ValueError(
                f"models: expected (model, tokenizer) for {name!r}, got {got}: load both with transformers"
            )
    if unknown := personas.keys() - models.keys():
        raise ValueError(f"personas: expected names out of {', '.join(models)}, got {', '.join(sorted(unknown))}")
    numbers = {pair: i for i, pair in enumerate(dict.fromkeys((id(m), id(t)) for m, t in models.values()))}
    engines = {f"model{numbers[id(m), id(t)]}": (m, t) for m, t in models.values()}
    agents = [
        Agent(name, f"model{numbers[id(m), id(t)]}", persona=personas.get(name, ""), decoding=decoding)
        for name, (m, t) in models.items()
    ]
    return Ensemble({name: in_memory(*pair) for name, pair in engines.items()}, agents)


class TokenCounter(Engine):
    """A tokenizer in the place of its model, for estimates ahead of a run: it counts, and answers nothing.

    Without a tokenizer four characters count as a token.
    """

    max_batch = 1
    shares_prefixes = True

    def __init__(
        self, name: str, tokenizer: Any = None, adapters: Collection[str] = (), context_window: int | None = None
    ) -> None:
        self.name, self.tokenizer, self.adapters, self.context_window = name, tokenizer, tuple(adapters), context_window

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """The model's name and the adapter's, which must be one of its own."""
        if adapter not in {None, *self.adapters}:
            raise ValueError(
                f"expected an adapter out of {', '.join(self.adapters) or 'none'}, got {adapter!r}: add it"
            )
        return {"name": self.name, "adapter": adapter}

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens."""
        if self.tokenizer is None:
            return super().count_tokens(text)
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def load_counter(
    weights: Weights,
    adapters: Collection[str] = (),
    context_window: int | None = None,
    *,
    report: Report = lambda text: None,
) -> TokenCounter:
    """Count by the tokenizer of weights that are on this machine; nothing is fetched, and no weights are read.

    The window is the smaller one of the model's, where its configuration is here, and of what is given.
    """
    folder = None if weights.path is None else Path(weights.path).expanduser()
    if folder is None:
        with suppress(ValueError):
            folder = resolve(weights, offline=True).folder
    elif not folder.is_dir():
        raise ValueError(f"weights {weights.name!r}: no folder {folder}: correct the weights' path or leave it out")
    if folder is None or not any(folder.glob("tokenizer*")):
        report(f"weights {weights.name} are not here: four characters count as a token")
        return TokenCounter(weights.name, None, adapters, context_window)

    from transformers import AutoConfig, AutoTokenizer  # noqa: PLC0415 - imported where an engine is built

    quiet_libraries()
    with _one_line_errors(weights.name, folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False).get_text_config()
    known = [size for size in (context_window, getattr(config, "max_position_embeddings", None)) if size]
    return TokenCounter(weights.name, tokenizer, adapters, min(known, default=None))


def weights_bytes(weights: Weights, quantization: str = "none", dtype: str = "auto") -> int | None:
    """Bytes of a model once it is loaded, without adapters and kept keys and values; None where nobody knows.

    Parameters are counted in the headers of safetensors that are on this machine, else they are `parameters_b`. NF4
    takes half a byte a parameter and a scale a block of 64, int8 a byte; embeddings and head keep their `dtype`.
    """
    sizes = _sizes(weights)
    if sizes is None:
        return None
    plain = (native_dtype() if dtype == "auto" else getattr(torch, dtype)).itemsize
    # As `_quantization_config` has it: scales are float32, or 8 bits with one float32 a 256 of them.
    scales = (1 + 4 / 256) / 64 if torch.accelerator.is_available() else 4 / 64
    packed = {"none": plain, "int8": 1, "nf4": 0.5 + scales}[quantization]
    return round(sizes[0] * packed + sizes[1] * plain)


def _sizes(weights: Weights) -> tuple[float, float] | None:
    """How many parameters of a model quantization packs, and how many it leaves; None where nobody knows."""
    folder = Path(weights.path).expanduser() if weights.path else None
    if folder is None:
        with suppress(ValueError):
            folder = resolve(weights, offline=True).folder
    packed = left = 0
    for file in sorted(folder.glob("*.safetensors")) if folder else ():
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                shape = opened.get_slice(name).get_shape()
                kept = len(shape) < 2 or any(part in name for part in ("embed", "wte", "wpe", "lm_head"))
                packed, left = packed + math.prod(shape) * (not kept), left + math.prod(shape) * kept
    if packed + left:
        return packed, left
    if weights.parameters_b is None or weights.path:  # a folder of one's own may hold any model
        return None
    return 1e9 * (weights.parameters_b - weights.embeddings_b), 1e9 * weights.embeddings_b


def load_encoder(weights: Weights, *, device: str | None = None) -> SentenceEncoder:
    """A sentence-transformers model in float32, on a device that the library chooses if None is given.

    Its files are checked at once. The library takes a second to import, so the model is loaded when a text is first
    embedded, or now where the files do not say how long its vectors are.
    """
    check_device(device)
    place = resolve(weights)
    with _one_line_errors(weights.name, place.folder):
        # Before its release 6.0 the library ran the code of any local folder, trusted or not.
        modules = read_json(listed) if (listed := place.folder / "modules.json").is_file() else []
        if foreign := [kind for kind in (m["type"] for m in modules) if not kind.startswith("sentence_transformers.")]:
            raise ValueError(f"modules.json: expected modules of sentence_transformers, got {foreign[0]}")
        for file in place.folder.glob("*.json"):
            json.loads(file.read_bytes())  # others read them, so they need be no more than JSON
        for file in place.folder.glob("*.safetensors"):
            with safe_open(file, "pt"):  # reads the header and checks it against the file's length
                pass
        kinds = [module["type"].rpartition(".")[2] for module in modules[1:]]
        known = kinds in (["Pooling"], ["Pooling", "Normalize"])
        dim = _pooled_length(read_json(place.folder / modules[1]["path"] / "config.json")) if known else None

    def load() -> Any:
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - imported where a text is embedded

        quiet_libraries()
        options = {"trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}
        with _one_line_errors(weights.name, place.folder):
            return SentenceTransformer(str(place.folder), device=device, **options)

    identity = {"name": weights.name, "revision": place.revision}
    return SentenceEncoder(load if dim else load(), identity=identity, dim=dim)


def _pooled_length(pooling: Mapping[str, Any]) -> int | None:
    """Numbers of a vector that is pooled in one way; None for several, which stand side by side."""
    ways = [name for name, chosen in pooling.items() if name.startswith("pooling_mode") and chosen]
    length = pooling.get("embedding_dimension", pooling.get("word_embedding_dimension"))
    return length if len(ways) == 1 and isinstance(pooling[ways[0]], str | bool) and isinstance(length, int) else None


def check_device(device: str | None, spreads: Sequence[str] = ()) -> None:
    """Refuse, by a ValueError, a device that this machine lacks; None leaves the choice to whoever loads."""
    there = ["cpu"]
    if accelerator := torch.accelerator.current_accelerator(check_available=True):
        there += [accelerator.type, *(f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count()))]
    if device is not None and device not in {*there, "cpu:0", *spreads}:
        raise ValueError(
            f"expected a device out of {', '.join([*there, *spreads])}, got {device!r}: take another, or null"
        )


def native_dtype() -> torch.dtype:
    """Bfloat16 where the hardware multiplies matrices in it, else float32, which is then several times faster."""
    if torch.accelerator.is_available():
        return torch.bfloat16
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


@contextmanager
def _one_line_errors(name: str, folder: Path) -> Iterator[None]:
    """Turn whatever the libraries stumble over in damaged files into one line."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"weights {name!r}: {folder} cannot be loaded ({first_line(error)}): fetch or save the model again"
        ) from error


def _keep_order(model: Any) -> None:
    """Keep 4-bit weights as they were loaded.

    On CPUs that multiply in bfloat16 bitsandbytes puts them into another order when they are first used; then no
    gradient passes through them, and layers narrower than a block of weights fail.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _quantization_config(quantization: str, dtype: torch.dtype) -> Any:
    if quantization == "none":
        return None
    from transformers import BitsAndBytesConfig  # noqa: PLC0415

    if quantization == "int8":
        # With a threshold, outlier columns are chosen over the whole batch, and a row would depend on its neighbours.
        return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        # Quantizing the scales as well saves 0.4 bits a weight; on the CPU undoing it costs over ten times the product.
        bnb_4bit_use_double_quant=torch.accelerator.is_available(),
        bnb_4bit_compute_dtype=dtype,
    )
