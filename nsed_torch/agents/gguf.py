"""GGUF files, unpacked into folders that transformers loads."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch


def convert_gguf(gguf_file: str | Path, folder: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Unpack a GGUF into a folder of safetensors, configuration and tokenizer.

    Each block-quantized weight becomes the number it stands for, rounded to `dtype`: the model answers as the GGUF
    does, and is then free to be quantized another way. The folder is not written atomically; `resolve` sees to that.
    A file that is no GGUF, is damaged, or has an architecture that transformers cannot read is a ValueError.
    """
    file = Path(gguf_file)
    with file.open("rb") as opened:
        magic = opened.read(4)
    if magic != b"GGUF":
        raise ValueError(f"{file}: expected a GGUF file, got one that starts with {magic!r}: fetch it again")
    with _quiet():
        try:
            model, tokenizer = load_gguf(file, dtype=dtype)
        except Exception as error:  # the readers underneath raise whatever a damaged file makes them stumble over
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{file}: transformers cannot read this GGUF ({reason}): fetch it again") from error
        # GGUFs carry no tokenizer limit; without one nothing warns of a text longer than the model's positions.
        tokenizer.model_max_length = model.config.max_position_embeddings
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def load_gguf(gguf_file: Path, *, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load a GGUF's model, unpacked and rid of quantizer state so that it can be saved, and its tokenizer."""
    import transformers  # noqa: PLC0415 - heavy, and needed once a model

    source = {"pretrained_model_name_or_path": gguf_file.parent, "gguf_file": gguf_file.name}
    # Releases that can keep GGUF blocks packed must be told to unpack them; older ones always do.
    config = getattr(transformers, "GgufConfig", None)
    unpack = {} if config is None else {"quantization_config": config(dequantize=True)}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(**source, **unpack, dtype=dtype)
    # What is left of the quantizer would make `save_pretrained` refuse.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, transformers.AutoTokenizer.from_pretrained(**source)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and advice meant for other callers out of the user's terminal."""
    from transformers.utils import logging  # noqa: PLC0415

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # The GGUF reader draws its bar with plain tqdm, which only a redirected stream silences.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
