"""Sentence embeddings of many short texts, against one text a pass."""

import random
import time
from statistics import median

import torch
from omegaconf import OmegaConf
from torch import nn

from bench.timing import Measurement, compare
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.engines.sentence_encoder import SentenceEncoder

TEXTS, WORDS = 256, ("the", "quick", "brown", "fox", "because", "seven", "is", "prime", "and", "larger")


def embed_lines(repeats: int, device: str | None = None) -> list[Measurement]:
    """Seconds for 256 sentences of 3 to 12 words; facts are how far vectors differ at most, and `products`."""
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
    facts |= {"products": products(encoder, texts, repeats)}
    ours = "passes of equal length", lambda: encoder.embed(texts)
    return compare("embed", ours=ours, others=[("one text a pass", library)], repeats=repeats, facts=facts)


@torch.inference_mode()
def products(encoder: SentenceEncoder, texts: list[str], repeats: int) -> float:
    """Seconds of the linear layers alone, for all tokens of the texts in one product each: no way is faster."""
    tokens = sum(map(len, encoder.model.tokenizer(texts)["input_ids"]))
    layers = [m for m in encoder.model.modules() if isinstance(m, nn.Linear)]
    rows = {n: torch.randn(tokens, n, device=encoder.model.device) for n in {m.in_features for m in layers}}
    taken = []
    for _ in range(repeats + 1):  # the first one warms up
        start = time.perf_counter()
        for layer in layers:
            value = layer(rows[layer.in_features])
        value.sum().item()  # waits for an accelerator
        taken.append(time.perf_counter() - start)
    return median(taken[1:])
