"""Features of recorded proposals, computed once and kept on disk."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
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
from nsed_torch.records import Trace
from nsed_torch.records.files import write_bytes


class CachedEncoder:
    """An encoder whose vectors are kept on disk, one file for all texts of a call.

    Args:
        encoder: asked for what is not there yet.
        cache: folder; the library's own if None.
    """

    def __init__(self, encoder: Encoder, cache: Path | None = None) -> None:
        self.encoder, self.cache, self.dim = encoder, cache, encoder.dim

    def identity(self) -> Mapping[str, Any]:
        """The encoder's."""
        return self.encoder.identity()

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector a text, on the CPU in float32.

        Raises:
            OSError: if the cache cannot be written.
        """
        key = hashlib.sha256(repr((sorted(self.identity().items()), list(texts))).encode()).hexdigest()[:32]
        path = _folder(self.cache) / f"embeddings-{key}.safetensors"
        vectors = _read(path, (len(texts), self.dim))
        if vectors is None:
            vectors = self.encoder.embed(texts)
            write_bytes(path, safetensors.torch.save({"features": vectors.contiguous()}))
        return vectors


def featured(
    episodes: Episodes,
    recorded: RecordedAnswers,
    groups: Sequence[str],
    encoder: Encoder | None = None,
    cache: Path | None = None,
) -> Episodes:
    """The same episodes with features of what was proposed, for `nn.Reading`.

    Args:
        episodes: made of the recorded answers, agents in the same order.
        recorded: with the texts.
        groups: of features, out of `agents.features.GROUPS`.
        encoder: for the group "meaning".
        cache: folder for what was computed, under a name of everything that it depends on; the library's own if None.

    Raises:
        ValueError: for an unknown group.
        OSError: if the cache cannot be written.
    """
    names = feature_names(groups)
    source = Path(extraction.__file__).read_bytes()
    embedded = sorted(encoder.identity().items()) if "meaning" in groups and encoder is not None else None
    read = (recorded.digest, recorded.agents, episodes.ids, tuple(groups), embedded)
    key = hashlib.sha256(repr(read).encode() + source)
    path = _folder(cache) / f"proposals-{key.hexdigest()[:32]}.safetensors"
    shape = (len(recorded), len(recorded.agents), len(names))
    table = _read(path, shape)
    if table is None:
        rows = []
        embed = _lookup(groups, [task.question for task in recorded.tasks], encoder)
        for task, texts, answers in zip(recorded.tasks, recorded.outputs, recorded.answers, strict=True):
            rows.append(proposal_features(task.question, texts, letters_of(answers), groups, embed))
        table = torch.tensor(rows).reshape(shape)
        write_bytes(path, safetensors.torch.save({"features": table.contiguous()}))
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


def _folder(cache: Path | None) -> Path:
    return (cache_folder() if cache is None else cache) / "features"


def _read(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """What the cache holds, unless it is damaged."""
    try:
        found = safetensors.torch.load(path.read_bytes())["features"]
    except (OSError, SafetensorError, KeyError):
        return None
    return found if found.shape == shape else None
