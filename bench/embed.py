"""Sentence embeddings of many short texts, against one text a pass."""

import random

import torch
from omegaconf import OmegaConf

from bench.timing import Measurement, compare
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.engines.sentence_encoder import SentenceEncoder

TEXTS, WORDS = 256, ("the", "quick", "brown", "fox", "because", "seven", "is", "prime", "and", "larger")


def embed_lines(repeats: int, device: str | None = None) -> list[Measurement]:
    """Seconds for 256 sentences of 3 to 12 words; the fact is how far vectors differ at most."""
    encoder = instantiate(OmegaConf.merge(OmegaConf.load(conf_dir() / "encoder/minilm.yaml"), {"device": device}))
    return compared(encoder, repeats)


def compared(encoder: SentenceEncoder, repeats: int) -> list[Measurement]:
    """The line of an encoder that is loaded."""
    draw = random.Random(0)  # noqa: S311 - texts of a benchmark
    texts = [f"{i} " + " ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for i in range(TEXTS)]

    def alone() -> torch.Tensor:
        return torch.cat([encoder.embed([text]) for text in texts])

    def library() -> torch.Tensor:
        options = {"convert_to_tensor": True, "normalize_embeddings": True, "show_progress_bar": False}
        return torch.stack([encoder.model.encode(text, **options).cpu() for text in texts])

    facts = {"furthest": float((encoder.embed(texts) - library()).abs().max())}
    facts |= {"furthest_alone": float((encoder.embed(texts) - alone()).abs().max())}
    ours = "passes of equal length", lambda: encoder.embed(texts)
    return compare("embed", ours=ours, others=[("one text a pass", library)], repeats=repeats, facts=facts)
