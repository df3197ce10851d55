"""Features of recorded proposals, computed once and kept on disk."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from nsed_torch.core.encoder import Encoder
from nsed_torch.engines.weights import cache_folder
from nsed_torch.parts import features as extraction
from nsed_torch.parts.features import feature_names, meaningful, proposal_features
from nsed_torch.records.files import read_bytes, write_files
from nsed_torch.records.trace import Trace
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.recorded import RecordedAnswers


class CachedEncoder:
    """An encoder whose vectors are kept on disk, one file for all texts of a call."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.dim = encoder, encoder.dim

    def identity(self) -> Mapping[str, Any]:
        """The encoder's."""
        return self.encoder.identity()

    def embed(self, texts: Sequence[str]) -> Float[Tensor, "text dim"]:
        """One unit vector per text, on the CPU in float32."""
        key = repr((sorted(self.identity().items()), list(texts))).encode()
        return _kept("embeddings", key, (len(texts), self.dim), lambda: self.encoder.embed(texts), finite=True)


def featured(
    episodes: Episodes, recorded: RecordedAnswers, groups: Sequence[str], encoder: Encoder | None = None
) -> Episodes:
    """The same episodes with features of what was proposed, for `parts.reading`; they were made of these answers.

    Groups are out of `parts.features.GROUPS`; the encoder is for "meaning".
    """
    names = feature_names(groups)
    source = Path(extraction.__file__).read_bytes()
    embedded = sorted(encoder.identity().items()) if "meaning" in groups and encoder is not None else None
    shape = (len(recorded), len(recorded.agents), len(names))
    questions = [task.question for task in recorded.tasks]
    tables = []
    for number, held in enumerate((recorded, *recorded.later)):
        read: tuple[Any, ...] = (recorded.digest, recorded.agents, episodes.ids, tuple(groups), embedded)
        read = (*read, number) if number else read

        def computed(held: RecordedAnswers = held) -> Tensor:
            parts = list(zip(questions, held.outputs, held.answers, held.lengths.tolist(), strict=True))
            return torch.tensor(list(_rows(parts, groups, encoder))).reshape(shape)

        tables.append(_kept("proposals", repr(read).encode() + source, shape, computed))
    waves = episodes.round_mask.shape[1] if len(tables) == 1 else 1
    spread = torch.stack([table for table in tables for _ in range(waves)], 1)
    return dataclasses.replace(episodes, features=spread, feature_names=names)


def featured_traces(
    episodes: Episodes, traces: Sequence[Trace], groups: Sequence[str], encoder: Encoder | None = None
) -> Episodes:
    """The same for episodes that `load_traces` made of these traces."""
    names = feature_names(groups)
    table = torch.full((*episodes.authors.shape, len(names)), math.nan)
    places, parts = [], []
    for b, trace in enumerate(traces):
        for r, record in enumerate(trace.transcript.rounds):
            places.append((b, r))
            texts = [proposal.text for proposal in record.proposals]
            parts.append((trace.transcript.task.question, texts, trace.answers[r], None))
    for (b, r), rows in zip(places, _rows(parts, groups, encoder), strict=True):
        table[b, r, : len(rows)] = torch.tensor(rows)
    return dataclasses.replace(episodes, features=table.to(episodes.task.dtype), feature_names=names)


def _rows(
    parts: Sequence[tuple[str, Sequence[str], Sequence[str | None], Sequence[float] | None]],
    groups: Sequence[str],
    encoder: Encoder | None,
) -> Iterator[list[list[float]]]:
    """Features of what was said to a question, part by part; what the group "meaning" embeds is made in one call."""
    vectors: dict[str, Tensor] = {}
    if encoder is not None and "meaning" in groups:
        texts = list(dict.fromkeys(text for question, *_ in parts for text in meaningful(question)))
        vectors = dict(zip(texts, encoder.embed(texts), strict=True))

    def looked_up(wanted: Sequence[str]) -> Tensor:
        return torch.stack([vectors[text] for text in wanted])

    for question, said, answers, lengths in parts:
        yield proposal_features(question, said, answers, groups, None if encoder is None else looked_up, lengths)


def _kept(
    name: str, key: bytes, shape: tuple[int, ...], compute: Callable[[], Tensor], *, finite: bool = False
) -> Tensor:
    """What the cache holds under a hash of all that it depends on; computed where it is missing or damaged.

    Its sum stands beside it, and where all should be `finite`, it must be.
    """
    path = cache_folder() / "features" / f"{name}-{hashlib.sha256(key).hexdigest()[:32]}.safetensors"
    try:
        kept = safetensors.torch.load(read_bytes(path))
        values = kept["features"]
        whole = values.shape == shape and torch.equal(kept["sum"], _sum_of(values))
        if whole and (not finite or values.isfinite().all()):
            return values
    except (OSError, SafetensorError, KeyError):
        pass
    values = compute()
    values = values.contiguous()
    write_files({path: safetensors.torch.save({"features": values, "sum": _sum_of(values)})})
    return values


def _sum_of(values: Tensor) -> Tensor:
    return torch.tensor(list(hashlib.sha256(values.numpy().tobytes()).digest()), dtype=torch.uint8)
