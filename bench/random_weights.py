"""Random weights in the shape of a published model: they compute as fast as the real ones, and say nothing."""

import json
from pathlib import Path
from typing import Any

import torch

from nsed_torch.engines.backbones import native_dtype
from nsed_torch.engines.transformers_engine import TransformersEngine
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
    "qwen2_5_7b": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
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
"""As Llama 3.1 8B (Meta, 2024), Qwen3 8B (Qwen team, 2025) and Qwen2.5 7B (Qwen team, 2024) publish theirs."""

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_random(
    shape: str,
    tokenizer: Weights | Path,
    folder: Path,
    *,
    dtype: str = "auto",
    seed: int = 0,
    device: torch.device | None = None,
) -> Weights:
    """Draw a model of a shape and save it as any other, so that it is loaded, and quantized, as any other.

    Args:
        shape: a name out of `SHAPES`, or a file such as a model's `config.json`.
        tokenizer: of which model, or the folder it lies in; its ids must fit into the shape's vocabulary.
        folder: where the model goes; one of 8 billion parameters in bfloat16 takes 16 GB of disk, and of memory while
            it is drawn.
        dtype: what it is saved in, as in `load_backbone`.
        seed: of the draw.
        device: where it is drawn; None is the accelerator where there is one.

    Raises:
        ValueError: if the shape is unknown, or smaller than the tokenizer's vocabulary.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - heavy

    known, file = SHAPES.get(shape), Path(shape).expanduser()
    if known is None and not file.is_file():
        raise ValueError(f"expected a shape out of {', '.join(SHAPES)}, or a config.json, got {shape!r}")
    options = dict(known or json.loads(file.read_text(encoding="utf-8")))
    place = tokenizer if isinstance(tokenizer, Path) else resolve(tokenizer).folder
    words = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    if options["vocab_size"] < len(words):
        raise ValueError(f"{shape}: expected a vocabulary of {len(words)} or more, got {options['vocab_size']}")
    options |= {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": None}
    config = AutoConfig.for_model(**options)
    torch_dtype = native_dtype() if dtype == "auto" else getattr(torch, dtype)
    device = device or torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    with torch.random.fork_rng(), device:
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch_dtype)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return Weights(f"random-{shape if known else file.stem}", path=str(folder))


def write_bytes_tokenizer(folder: Path) -> Path:
    """Save a tokenizer of one token a byte, where none of a real model is at hand; texts get 4 times as long."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - heavy
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(mark, special=True) for mark in ("<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")  # noqa: S106 - no password
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def speak_plainly(engine: TransformersEngine) -> None:
    """Let a random model write only printable tokens, of which each is read again as the one it is.

    Its vocabulary may be larger than its tokenizer's, and what it writes is judged: answers that vanish would be
    judged for nothing.
    """
    words = engine.chat.tokenizer
    texts = words.batch_decode([[i] for i in range(len(words))])
    read = words(texts, add_special_tokens=False)["input_ids"]
    known = (i for i, ids in enumerate(read) if ids == [i] and i not in words.all_special_ids)
    said = [i for i in known if texts[i].isprintable()]
    head = engine.model.get_output_embeddings()
    silent = torch.ones(head.out_features, dtype=torch.bool, device=engine.device)
    silent[said] = False

    def hush(_: Any, __: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits if torch.is_grad_enabled() else logits.masked_fill(silent, -torch.inf)

    head.register_forward_hook(hush)
