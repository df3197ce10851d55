"""What judges said about a round's proposals, put back into the order of the proposals."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nsed_torch.core.ratings import JudgeReply
from nsed_torch.records.transcript import Critique, Usage

DIGITS = 9
"""Decimal digits kept, of ratings before they are voted on: far coarser than float64's noise across batch sizes, far
finer than anything that matters."""


@dataclass(frozen=True)
class Hearing:
    """What a team's judges said about its proposals; rows are voters, columns proposals, None where nothing counts."""

    ratings: list[list[float | None]]
    critiques: list[Critique]
    usage: Usage
    notes: list[str]

    @classmethod
    def of(cls, replies: Sequence[tuple[list[int], JudgeReply]], proposals: int) -> "Hearing":
        """From a reply per voter, each with the indices of the proposals in the order that the voter saw."""
        ratings: list[list[float | None]] = [[None] * proposals for _ in replies]
        critiques = []
        for i, (order, reply) in enumerate(replies):
            for j, rating in zip(order, reply.ratings, strict=True):
                # What is recorded is what is voted on, so that a trace votes again as the team did.
                ratings[i][j] = None if rating is None else round(rating, DIGITS)
            written = zip(order, reply.critiques, strict=bool(reply.critiques))
            critiques += [Critique(i, j, text) for j, text in written if text]
        notes = [note for _, reply in replies for note in reply.notes]
        return cls(ratings, critiques, Usage.sum(reply.usage for _, reply in replies), notes)

    def dealt_anew(self, seeds: Sequence[int]) -> "Hearing":
        """Each judge's ratings dealt out by chance among the proposals that it rated; a seed a judge."""
        rows = []
        for row, seed in zip(self.ratings, seeds, strict=True):
            rated = [j for j, rating in enumerate(row) if rating is not None]
            drawn = random.Random(seed).sample(rated, len(rated))  # noqa: S311 - a control, not secrecy
            dealt = {j: row[k] for j, k in zip(rated, drawn, strict=True)}
            rows.append([dealt.get(j) for j in range(len(row))])
        return replace(self, ratings=rows)

    def received(
        self, voters: Sequence[str], authors: Sequence[str], before: Mapping[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Author -> what others wrote about its proposal, behind what they wrote `before` about one that stands."""
        received: dict[str, tuple[str, ...]] = defaultdict(tuple, before)
        for critique in self.critiques:
            if (author := authors[critique.proposal]) != voters[critique.voter]:
                received[author] += (critique.text,)
        return dict(received)
