"""LoRA adapters: fresh ones that learn, their parameters, the folders they are kept in."""

import copy
import hashlib
import importlib
import importlib.util
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from nsed_torch.engines.gguf_files import first_line
from nsed_torch.engines.packing.lora import adapts
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.extras import install
from nsed_torch.records.files import read_json, write_files

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""What peft keeps an adapter in."""

DTYPES = ("float32", "bfloat16", "float16")
"""What the weights of a saved adapter may be kept in."""

EXPERTS = Path(__file__).parents[1] / "experts"
"""Adapters of a clone, a folder each; those that ship are installed as `nsed-torch-experts`, which is data alone."""

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The attention's linear layers, as most families name them."""


def add_adapter(
    engine: TransformersEngine,
    name: str,
    *,
    rank: int = 8,
    alpha: float = 16.0,
    targets: Sequence[str] = ATTENTION,
    layers: Sequence[int] | None = None,
    invocation: Sequence[int] | None = None,
    seed: int = 0,
) -> None:
    """Give an engine a fresh LoRA adapter that can learn.

    `W x` becomes `W x + (alpha / rank) B A x` with `A` random and `B = 0`, so the adapter changes nothing at the
    start. Its parameters require gradients, in float32 where the model computes in half precision. `targets` are names
    of linear layers, in some `layers` or all, the seed is A's; other adapters stay as they are. With an `invocation`,
    token ids such as `Chat.ending` gives, it reads from their last place on, and what stands before is the bare
    model's, so that all adapters share it.

    Source: LoRA, Hu et al. 2021; activated LoRA, Greenewald et al. 2025, arXiv 2504.12397 (published).
    """
    if name in engine.adapters:
        raise ValueError(f"expected a new adapter, the backbone has one named {name!r}: choose another name")
    if "." in name or name in "lora_" or hasattr(nn.ModuleDict(), name):
        raise ValueError(f"expected an adapter name that can name a submodule, got {name!r}: rename the agent")
    if rank < 1 or not alpha > 0:
        raise ValueError(f"expected an adapter's rank of at least 1 and alpha above 0, got {rank} and {alpha}")
    config = _peft().LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=list(targets),
        layers_to_transform=None if layers is None else list(layers),
        alora_invocation_tokens=list(invocation) if invocation else None,
        task_type="CAUSAL_LM",
    )
    learning = [p for p in engine.parameters() if p.requires_grad]
    engine.model = _wrapped(engine.model, name, config, seed).eval()
    engine.adapters[name] = lambda: _digest(adapter_files(engine, name).values())
    for config in engine.model.peft_config.values():  # of a name, trainers' checkpoints would ask the Hub every time
        config.base_model_name_or_path = ""
    # peft lets the adapter that was named last learn, and no other.
    engine.requires_grad_(False)
    for parameter in (*learning, *adapter_parameters(engine, name).values()):
        parameter.requires_grad_(True)


def copy_adapter(engine: TransformersEngine, name: str, path: str) -> None:
    """Give an engine an adapter that can learn, as `add_adapter`, and that begins as the one saved in a folder.

    `path` is as `adapter_folder` takes it; one that fits another model is a ValueError.
    """
    from safetensors.torch import load_file  # noqa: PLC0415

    folder = adapter_folder(name, path)
    saved = read_json(folder / CONFIG)
    add_adapter(
        engine,
        name,
        rank=saved["r"],
        alpha=saved["lora_alpha"],
        targets=sorted(saved["target_modules"]),
        layers=saved.get("layers_to_transform"),
        invocation=saved.get("alora_invocation_tokens"),
    )
    with _quiet():
        try:
            loaded = _peft().set_peft_model_state_dict(engine.model, load_file(folder / WEIGHTS), adapter_name=name)
        except RuntimeError as error:
            raise ValueError(f"expected an adapter of this model in {folder}, got one of other shapes") from error
    if loaded.unexpected_keys:
        raise ValueError(
            f"expected an adapter of this model in {folder}, got layers {loaded.unexpected_keys[0]} and others"
        )


def adapter_parameters(engine: TransformersEngine, name: str) -> dict[str, nn.Parameter]:
    """The parameters of one adapter, by their names in the engine."""
    engine.check_adapter(name)
    named = engine.named_parameters()
    return {key: value for key, value in named if "lora_" in key and f".{name}." in key.split("lora_")[1]}


def adapter_shape(engine: TransformersEngine, name: str) -> dict[str, Any]:
    """Rank, alpha and targets of an adapter, the layers if they are not all, and the invocation if it has one."""
    engine.check_adapter(name)
    config = engine.model.peft_config[name]
    parts = {"layers": config.layers_to_transform, "invocation": config.alora_invocation_tokens}
    shape = {"rank": config.r, "alpha": config.lora_alpha, "targets": sorted(config.target_modules)}
    return {**shape, **{part: value for part, value in parts.items() if value}}


def save_adapter(engine: TransformersEngine, name: str, folder: str | Path, *, dtype: str | None = None) -> None:
    """Write an adapter as the folder that `load_backbone(adapters={name: folder})` reads.

    Loaded from there, it has the same fingerprint and, in float32, gives the same ratings. In half precision it takes
    half the room and is another adapter, with a fingerprint of its own: parameters are rounded once. Files
    of an older adapter in the folder are replaced.
    """
    engine.check_adapter(name)
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"expected an adapter's dtype out of {', '.join(DTYPES)}, got {dtype!r}")
    files = adapter_files(engine, name, None if dtype is None else getattr(torch, dtype))
    write_files({Path(folder).expanduser() / file: data for file, data in files.items()})


def adapter_files(engine: TransformersEngine, name: str, dtype: torch.dtype | None = None) -> dict[str, bytes]:
    """What a saved adapter consists of: peft's configuration and the weights as safetensors."""
    from safetensors.torch import save  # noqa: PLC0415

    with _quiet():
        weights = _peft().get_peft_model_state_dict(engine.model, adapter_name=name, save_embedding_layers=False)
    base = engine.identity(None).get("name")
    config = {**engine.model.peft_config[name].to_dict(), "inference_mode": True, "base_model_name_or_path": base}
    return {
        # peft keeps sets, whose order changes from process to process.
        CONFIG: json.dumps(config, indent=2, sort_keys=True, default=sorted).encode(),
        WEIGHTS: save({k: v.detach().to("cpu", dtype).contiguous() for k, v in weights.items()}, {"format": "pt"}),
    }


def load_adapters(model: nn.Module, folders: Mapping[str, Path], dtype: torch.dtype) -> nn.Module:
    """A model with the adapters of some folders beside each other, frozen, in the dtype that it computes in.

    peft walks the whole model for each of them, a third of a second for 30 layers; one that is of the kind of an
    earlier one is put beside that one without.
    """
    if not folders:
        return model
    wrapped: Any = None
    kinds: dict[str, str] = {}  # what an adapter is but for rank and weights -> the first such one
    with _quiet():
        warnings.filterwarnings("error", "Found missing adapter keys")  # peft would leave them at zero
        for name, folder in folders.items():
            try:
                config = read_json(folder / CONFIG)
                kind = json.dumps({**config, "r": 0, "lora_alpha": 0}, sort_keys=True)
                if wrapped is None:
                    wrapped = _peft().PeftModel.from_pretrained(
                        model, folder, adapter_name=name, autocast_adapter_dtype=False
                    )
                elif kind not in kinds or not _put_beside(wrapped, kinds[kind], name, folder):
                    _walk(wrapped, name, folder)
                kinds.setdefault(kind, name)
            except Exception as error:  # peft raises whatever a hostile or foreign adapter makes it stumble over
                raise ValueError(
                    f"adapter {name!r}: expected one of this model in {folder}, got ({first_line(error)}): name another"
                ) from error
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(dtype)
    return wrapped  # type: ignore[no-any-return]


def _walk(model: Any, name: str, folder: Path) -> None:
    """Have peft load one more adapter; one that lacks weights is a ValueError."""
    found = model.load_adapter(folder, adapter_name=name, autocast_adapter_dtype=False)
    own = (key for key in found.missing_keys if name in key.split("lora_")[-1].split("."))
    if missing := next(own, None):
        raise ValueError(f"no weights of {missing}")


def _put_beside(model: Any, first: str, name: str, folder: Path) -> bool:
    """Give a model one more adapter that differs from its `first` in rank, alpha and weights alone; or leave it: False.

    Whatever a layer of peft's holds under the first's name it then holds under this name too.
    """
    from safetensors.torch import load_file  # noqa: PLC0415

    weights, config = load_file(folder / WEIGHTS), _peft().PeftConfig.from_pretrained(folder)
    layers = [(path, module) for path, module in model.named_modules() if adapts(module) and hasattr(module, "lora_A")]
    layers = [(path, layer) for path, layer in layers if first in layer.lora_A]
    shapes = {}
    for path, layer in layers:
        down, up = layer.lora_A[first].weight, layer.lora_B[first].weight
        shapes[f"{path}.lora_A.weight"] = (config.r, down.shape[1])
        shapes[f"{path}.lora_B.weight"] = (up.shape[0], config.r)
    others = (config.rank_pattern, config.alpha_pattern, config.use_rslora, config.modules_to_save)
    if any(others) or {key: tuple(weight.shape) for key, weight in weights.items()} != shapes:
        return False
    for path, layer in layers:
        for kind, held in (*vars(layer).items(), *layer.named_children()):
            if isinstance(held, dict | nn.ModuleDict) and first in held and not kind.startswith("_"):
                held[name] = copy.deepcopy(held[first])
        layer.r[name], layer.lora_alpha[name] = config.r, config.lora_alpha
        layer.scaling[name] = config.lora_alpha / config.r
        down, up = layer.lora_A[name], layer.lora_B[name]
        down.out_features = up.in_features = config.r
        for part, place in ((down, "lora_A"), (up, "lora_B")):
            values = weights[f"{path}.{place}.weight"]
            part.weight = nn.Parameter(values.to(part.weight.device), requires_grad=False)
    config.inference_mode = True
    model.peft_config[name] = config
    return True


def adapter_folder(name: str, path: str) -> Path:
    """The folder of a saved adapter: `path`, or `experts:NAME` for one of a clone or of `nsed-torch-experts`."""
    shipped = path.removeprefix("experts:")
    folder = Path(path).expanduser() if shipped == path else _shipped(name, shipped)
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"adapter {name!r}: expected {WEIGHTS} in {folder}: save it with safetensors")
    config = read_json(folder / CONFIG)
    given = config if isinstance(config, dict) else {}
    kinds = {"r": int, "lora_alpha": int | float, "target_modules": list | str}
    if given.get("peft_type") != "LORA" or not all(isinstance(given.get(name), kind) for name, kind in kinds.items()):
        raise ValueError(f"adapter {name!r}: expected a LoRA adapter's {CONFIG} in {folder}: save it with peft")
    try:
        with safe_open(folder / WEIGHTS, "pt"):  # reads the header and checks it against the file's length
            return folder
    except SafetensorError as error:
        raise ValueError(
            f"adapter {name!r}: {folder / WEIGHTS} is damaged ({first_line(error)}): save it anew"
        ) from error


def _shipped(name: str, shipped: str) -> Path:
    """The folder of an adapter that ships: a clone's, or the installed one's; nothing is imported to find it."""
    spec = importlib.util.find_spec("nsed_torch_experts")
    installed = (spec and spec.submodule_search_locations) or ()
    folders = [Path(place) / shipped for place in (EXPERTS, *installed)]
    for folder in folders:
        if (folder / WEIGHTS).is_file():
            return folder
    raise ValueError(
        f"adapter {name!r}: expected experts:{shipped} in a clone of nsed_torch or among installed adapters, got "
        f"neither: {install('experts')} for those that ship, clone for those of studies"
    )


def fingerprint(folder: Path) -> str:
    """What tells a saved adapter from another."""
    return _digest((folder / file).read_bytes() for file in (CONFIG, WEIGHTS))


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _wrapped(model: Any, name: str, config: Any, seed: int) -> Any:
    """The model with one more adapter, whose A is drawn from the seed alone."""
    linear = {key.split(".")[-1] for key, module in model.named_modules() if not isinstance(module, nn.Embedding)}
    missing = sorted(config.target_modules - linear)
    if missing or not config.target_modules:
        raise ValueError(f"expected names of the model's linear layers as targets, got {missing or 'none'}")
    with torch.random.fork_rng(), _quiet():
        torch.manual_seed(seed)
        if not isinstance(model, _peft().PeftModel):
            return _peft().get_peft_model(model, config, adapter_name=name)
        model.add_adapter(name, config)
        return model


def _peft() -> Any:
    """The library, imported where there are adapters.

    It brings bitsandbytes, which has torch compile its fallbacks of 4-bit layers and optimizers. Left as they are, they
    give the same, and torch's compiler, a second of imports, stays away.
    """
    compiles = "TORCHDYNAMO_DISABLE" not in os.environ
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    try:
        return importlib.import_module("peft")
    finally:
        if compiles:
            del os.environ["TORCHDYNAMO_DISABLE"]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without peft's warnings of what transformers will rename."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
