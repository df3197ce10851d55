"""Notes in a prompt that are heard in part: attention to a note's tokens from behind it gets `+ log retention`.

Ours. A retention of 1 is the plain prompt, 0 hides the note. A note's own tokens see each other unweighted.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.engines.packing.forest import NOTE, Link

TAGS = 1 << 18
"""Pairs of a note's place and a retention that are told apart at most."""


class Span(NamedTuple):
    """Tokens of a sequence that are a note."""

    start: int  # its first token
    stop: int  # behind its last token
    retention: float | Tensor = 1.0  # in (0, 1]; a scalar tensor has a gradient


class Tags:
    """What marks the readings of notes: readings with equal marks behind equal beginnings are the same computation.

    A tag stands for a note's place among those of its sequence and for its retention. Retentions with a gradient have
    tags of their own, which hold until `clear_live`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, float, bool], int] = {}
        self._logs: list[float] = [0.0]  # tag 0 is no note
        self._beside: list[bool] = [False]
        self._live: dict[int, tuple[Tensor, bool]] = {}  # with tags from TAGS on

    @property
    def crowded(self) -> bool:
        """Whether half of the tags are taken."""
        return len(self._logs) > TAGS // 2

    def clear(self) -> None:
        """Forget all."""
        self.__init__()  # type: ignore[misc]

    def clear_live(self) -> None:
        """Let go of retentions with a gradient."""
        self._live.clear()

    def learns(self, reading: int) -> bool:
        """Whether a reading's note has a retention with a gradient."""
        return reading // NOTE in self._live

    def mark(self, readings: Sequence[int], spans: Sequence[Span], beside: bool) -> list[int]:
        """The readings of a sequence with those of its notes marked.

        Args:
            readings: a sequence.
            spans: its notes, in order.
            beside: whether notes stand side by side: each sees itself and what stands before the first.
        """
        marked = list(readings)
        for number, span in enumerate(spans):
            tag = self._tag(number, span.retention, beside)
            marked[span.start : span.stop] = [r + tag * NOTE for r in marked[span.start : span.stop]]
        return marked

    def _tag(self, number: int, retention: float | Tensor, beside: bool) -> int:
        value = float(retention.detach() if isinstance(retention, Tensor) else retention)
        if not 0 < value <= 1:
            raise ValueError(f"expected a note's retention above 0 and up to 1, got {value:g}: leave the note out")
        if isinstance(retention, Tensor) and _learns(retention):
            live = TAGS + len(self._live)
            self._live[live] = retention, beside
            return live
        if value == 1 and not beside:
            return 0
        known = self._known.setdefault((number, value, beside), len(self._logs))
        if known == len(self._logs):
            if known == TAGS:
                raise ValueError(f"expected up to {TAGS} retentions of notes, got more: round them, or call forget()")
            self._logs.append(math.log(value))
            self._beside.append(beside)
        return known

    def _is_beside(self, tag: int) -> bool:
        return self._live[tag][1] if tag in self._live else self._beside[tag]

    def links(self, sequence: Sequence[int]) -> list[Link] | None:
        """What each token of a sequence stands behind, up to where notes side by side end; None without such."""
        tags = [self.beside(reading) for reading in sequence]
        if not any(tags):
            return None
        head = next(i for i, tag in enumerate(tags) if tag)
        found: list[Link] = []
        for i, (tag, reading) in enumerate(zip(tags, sequence, strict=True)):
            if i >= head and not tag:
                break
            begins = bool(tag) and tag != tags[i - 1]
            found.append((head - 1 if begins else i - 1, reading % NOTE if tag else reading))
        return found

    def beside(self, reading: int) -> int:
        """The tag of a reading of a note that stands beside others; 0 of all else."""
        tag = reading // NOTE
        return tag if tag and self._is_beside(tag) else 0

    def heard(self, columns: Sequence[int], device: torch.device) -> "HeardColumns | None":
        """How columns, given as readings, are heard; None where none of them is a note's."""
        tags = [reading // NOTE for reading in columns]
        if not any(tags):
            return None
        known, order = torch.tensor(tags).unique(return_inverse=True)
        apart = torch.tensor([self._is_beside(t) for t in known.tolist()])
        precise = torch.float32 if device.type == "mps" else torch.float64
        logs = [
            self._live[t][0].to(device, precise).log()
            if t in self._live
            else torch.tensor(self._logs[t], dtype=precise, device=device)
            for t in known.tolist()
        ]
        weights = torch.stack(logs)
        return HeardColumns(torch.tensor(tags, device=device), weights[order.to(device)], apart[order].to(device))


def _learns(retention: float | Tensor) -> bool:
    return isinstance(retention, Tensor) and retention.requires_grad and torch.is_grad_enabled()


class HeardColumns(NamedTuple):
    """How each column of a pass is heard."""

    tags: Int[Tensor, " column"]  # 0 is no note
    logs: Float[Tensor, " column"]  # of its note's retention, 0 of no note
    beside: Bool[Tensor, " column"]  # whether its note stands side by side with others

    def mask(
        self,
        queries: Int[Tensor, " token"],
        columns: Int[Tensor, " seen"],
        seen: Bool[Tensor, "token seen"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "token seen"]:
        """What is added to the attention of some columns to others; -inf hides one.

        Args:
            queries: columns that see.
            columns: what they see.
            seen: as far as the plan lets them.
            dtype: of the queries.
        """
        own, other = self.tags[queries][:, None], self.tags[columns][None]
        weights = torch.where(own == other, 0, self.logs[columns][None])
        return weights.to(dtype).masked_fill(~self.seen(queries, columns, seen), -torch.inf)

    def seen(
        self, queries: Int[Tensor, " token"], columns: Int[Tensor, " seen"], seen: Bool[Tensor, "token seen"]
    ) -> Bool[Tensor, "token seen"]:
        """What of it columns see: a note beside others sees what is no note, and itself."""
        own, other = self.tags[queries][:, None], self.tags[columns][None]
        return seen & ~(self.beside[queries][:, None] & (other != 0) & (own != other))

    def factors(
        self, queries: Int[Tensor, " token"], columns: Int[Tensor, " seen"], scale: float, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "token note"], Float[Tensor, "seen note"]]:
        """Numbers behind queries and keys whose product, times the scale, is what `mask` adds."""
        notes = self.tags[columns].unique()
        notes = notes[notes != 0]
        tells = (self.tags[columns][:, None] == notes) * (self.logs[columns] / scale)[:, None]
        return (self.tags[queries][:, None] != notes).to(dtype), tells.to(dtype)


def positions(sequence: Sequence[int], tags: Tags) -> list[int]:
    """Positions of a sequence's tokens: notes side by side all begin where the first does, the rest behind the longest.

    Elsewhere a token's position is its place.
    """
    if not any(tags.beside(reading) for reading in (sequence if max(sequence, default=0) >= NOTE else ())):
        return list(range(len(sequence)))
    found: list[int] = []
    head, last, furthest = 0, 0, 0
    for reading in sequence:
        tag = tags.beside(reading)
        if tag and not head:
            head = len(found)
        begins = tag and tag != last
        place = head if begins else (furthest if last and not tag else (found[-1] + 1 if found else 0))
        found.append(place)
        furthest, last = max(furthest, place + 1), tag
    return found
