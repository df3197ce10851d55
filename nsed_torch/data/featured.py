"""Features of recorded proposals, computed once and kept on disk."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from nsed_torch.agents import Encoder
from nsed_torch.agents import features as extraction
from nsed_torch.agents.features import Embed, feature_names, letters_of, meaningful, proposal_features
from nsed_torch.agents.weights import cache_folder
from nsed_torch.data.episodes import Episodes
from nsed_torch.data.recorded import RecordedAnswers
from nsed_torch.records import Trace, write_files


class CachedEncoder:
    """An encoder whose vectors are kept on disk, one file for all texts of a call."""

    def __init__(self, encoder: Encoder, cache: Path | None = None) -> None:
        self.encoder, self.cache, self.dim = encoder, cache, encoder.dim

    def identity(self) -> Mapping[str, Any]:
        """The encoder's."""
        return self.encoder.identity()

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32."""
        key = repr((sorted(self.identity().items()), list(texts))).encode()
        return _kept(self.cache, "embeddings", key, (len(texts), self.dim), lambda: self.encoder.embed(texts))


def featured(
    episodes: Episodes,
    recorded: RecordedAnswers,
    groups: Sequence[str],
    encoder: Encoder | None = None,
    cache: Path | None = None,
) -> Episodes:
    """The same episodes with features of what was proposed, for `nn.Reading`.

    They were made of these recorded answers. Groups are out of `agents.features.GROUPS`; the encoder is for "meaning".
    The cache is the library's own if None.
    """
    names = feature_names(groups)
    source = Path(extraction.__file__).read_bytes()
    embedded = sorted(encoder.identity().items()) if "meaning" in groups and encoder is not None else None
    read = (recorded.digest, recorded.agents, episodes.ids, tuple(groups), embedded)
    shape = (len(recorded), len(recorded.agents), len(names))

    def computed() -> Tensor:
        embed = _lookup(groups, [task.question for task in recorded.tasks], encoder)
        parts = zip(recorded.tasks, recorded.outputs, recorded.answers, strict=True)
        rows = [proposal_features(t.question, texts, letters_of(given), groups, embed) for t, texts, given in parts]
        return torch.tensor(rows).reshape(shape)

    table = _kept(cache, "proposals", repr(read).encode() + source, shape, computed)
    spread = table[:, None].expand(-1, episodes.round_mask.shape[1], -1, -1)
    return dataclasses.replace(episodes, features=spread, feature_names=names)


def featured_traces(
    episodes: Episodes, traces: Sequence[Trace], groups: Sequence[str], encoder: Encoder | None = None
) -> Episodes:
    """The same for episodes that `load_traces` made of these traces."""
    names = feature_names(groups)
    embed = _lookup(groups, [trace.transcript.task.question for trace in traces], encoder)
    table = torch.full((*episodes.authors.shape, len(names)), math.nan)
    for b, trace in enumerate(traces):
        question = trace.transcript.task.question
        for r, record in enumerate(trace.transcript.rounds):
            texts = [proposal.text for proposal in record.proposals]
            rows = proposal_features(question, texts, letters_of(trace.answers[r]), groups, embed)
            table[b, r, : len(rows)] = torch.tensor(rows)
    return dataclasses.replace(episodes, features=table.to(episodes.task.dtype), feature_names=names)


def _lookup(groups: Sequence[str], questions: Sequence[str], encoder: Encoder | None) -> Embed | None:
    """Vectors of all that the group "meaning" embeds, made in one call; None without such a group or an encoder."""
    if encoder is None or "meaning" not in groups:
        return None
    texts = list(dict.fromkeys(text for question in questions for text in meaningful(question)))
    vectors = dict(zip(texts, encoder.embed(texts), strict=True))
    return lambda wanted: torch.stack([vectors[text] for text in wanted])


def _kept(cache: Path | None, name: str, key: bytes, shape: tuple[int, ...], compute: Callable[[], Tensor]) -> Tensor:
    """What the cache holds under a hash of all that it depends on; computed where it is missing or damaged."""
    folder = (cache_folder() if cache is None else cache) / "features"
    path = folder / f"{name}-{hashlib.sha256(key).hexdigest()[:32]}.safetensors"
    try:
        values = safetensors.torch.load(path.read_bytes())["features"]
        if values.shape == shape:
            return values
    except (OSError, SafetensorError, KeyError):
        pass
    values = compute()
    write_files({path: safetensors.torch.save({"features": values.contiguous()})})
    return values
