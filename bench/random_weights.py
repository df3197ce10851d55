"""Random weights in the shape of a published model: they compute as fast as the real ones, and say nothing."""

import json
from pathlib import Path
from typing import Any

import torch

from nsed_torch.engines.backbones import native_dtype
from nsed_torch.engines.weights import Weights, resolve

SHAPES: dict[str, dict[str, Any]] = {
    "llama3_1_8b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
    },
    "qwen3_8b": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": False,
    },
}
"""As Llama 3.1 8B (Meta, 2024) and Qwen3 8B (Qwen team, 2025) publish theirs."""


def write_random(shape: str, tokenizer: Weights, folder: Path, *, dtype: str = "auto", seed: int = 0) -> Weights:
    """Draw a model of a shape and save it as any other, so that it is loaded, and quantized, as any other.

    Args:
        shape: a name out of `SHAPES`, or a file such as a model's `config.json`.
        tokenizer: of which model; its ids must fit into the shape's vocabulary.
        folder: where the model goes; one of 8 billion parameters in bfloat16 takes 16 GB of disk, and of memory while
            it is drawn.
        dtype: what it is saved in, as in `load_backbone`.
        seed: of the draw.

    Raises:
        ValueError: if the shape is unknown, or smaller than the tokenizer's vocabulary.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - heavy

    known, file = SHAPES.get(shape), Path(shape).expanduser()
    if known is None and not file.is_file():
        raise ValueError(f"expected a shape out of {', '.join(SHAPES)}, or a config.json, got {shape!r}")
    options = dict(known or json.loads(file.read_text(encoding="utf-8")))
    words = AutoTokenizer.from_pretrained(resolve(tokenizer).folder, trust_remote_code=False)
    if options["vocab_size"] < len(words):
        raise ValueError(f"{shape}: expected a vocabulary of {len(words)} or more, got {options['vocab_size']}")
    options |= {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": None}
    config = AutoConfig.for_model(**options)
    torch_dtype = native_dtype() if dtype == "auto" else getattr(torch, dtype)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    with torch.random.fork_rng(), device:
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return Weights(f"random-{shape if known else file.stem}", path=str(folder))
