"""GGUF files become folders of safetensors, with the Hugging Face stack kept quiet."""

import logging
import warnings
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from nsed_torch.records.lookalikes import one_line


def first_line(error: Exception) -> str:
    """What a library's error says first."""
    return one_line(next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__))


def convert_gguf(file: Path, folder: Path) -> None:
    """Unpack a GGUF into a folder of safetensors, configuration and tokenizer.

    Each block-quantized weight becomes the number it stands for, rounded to bfloat16: the model answers as the GGUF
    does, and is then free to be quantized another way. A file that is no GGUF, is damaged, or has an architecture that
    transformers cannot read is a ValueError.
    """
    import transformers  # noqa: PLC0415 - heavy, and needed once a model

    quiet_libraries()
    source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    # Releases that can keep GGUF blocks packed must be told to unpack them; older ones always do.
    config = getattr(transformers, "GgufConfig", None)
    unpack = {} if config is None else {"quantization_config": config(dequantize=True)}
    # The GGUF reader draws its bar with plain tqdm, which only a redirected stream silences.
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        try:
            model: Any = transformers.AutoModelForCausalLM.from_pretrained(**source, **unpack, dtype="bfloat16")
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        except Exception as error:  # the readers underneath raise whatever a damaged file makes them stumble over
            raise ValueError(
                f"{file}: transformers cannot read this GGUF ({first_line(error)}): fetch it again"
            ) from error
        # What is left of the quantizer would make `save_pretrained` refuse.
        model.hf_quantizer = None
        model.is_quantized = False
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        # GGUFs carry no tokenizer limit; without one nothing warns of a text longer than the model's positions.
        tokenizer.model_max_length = model.config.max_position_embeddings
        # Some releases of transformers give the tokenizer another end of text than the file, and the model, have.
        if isinstance(end := model.config.eos_token_id, int):
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def quiet_libraries() -> None:
    """Keep progress bars and advice of the Hugging Face stack out of the user's terminal."""
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it asks for kernels that are not used here
