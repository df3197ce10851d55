"""A LoRA adapter that peft saved, as the GGUF that llama.cpp reads."""

from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

from nsed_torch.engines.adapters import CONFIG, WEIGHTS
from nsed_torch.records.files import read_json

LLAMA = "llama"
"""The architecture whose queries and keys GGUF keeps in another order than transformers."""


def write_adapter_gguf(adapter: Path, backbone: Path, file: Path) -> None:
    """Convert an adapter's folder for a backbone in GGUF, whose architecture and heads it is written for.

    llama.cpp computes `W x + (alpha / rank) B A x` as peft does. In a Llama's GGUF the rows of W for queries and keys
    stand in rotary pairs, so those of B must as well; A reads what the layer reads and stays.

    Raises:
        ValueError: for an adapter with layers that the architecture lacks.
    """
    reader = gguf.GGUFReader(backbone)
    architecture = str(reader.fields["general.architecture"].contents())
    heads, key_heads, blocks = (
        int(reader.fields[f"{architecture}.{name}"].contents())
        for name in ("attention.head_count", "attention.head_count_kv", "block_count")
    )
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], blocks)
    rotary = {"q_proj": heads, "k_proj": key_heads} if architecture == LLAMA else {}
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(read_json(adapter / CONFIG)["lora_alpha"]))
    for key, weight in load_file(adapter / WEIGHTS).items():
        layer, part = key.removeprefix("base_model.model.").removesuffix(".weight").rsplit(".lora_", 1)
        name = names.get_name(layer)
        if name is None or part not in {"A", "B"}:
            raise ValueError(f"adapter {adapter}: expected linear layers of a {architecture}, got {key}")
        count = rotary.get(layer.rsplit(".", 1)[1]) if part == "B" else None
        rows = weight.astype(np.float32)
        writer.add_tensor(f"{name}.weight.lora_{part.lower()}", rotary_pairs(rows, count) if count else rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rotary_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of all heads, each head's first and second half by turns: what is rotated together stands together."""
    halves = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))
