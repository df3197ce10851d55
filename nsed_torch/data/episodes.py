"""Recorded deliberations as tensors, ready for `ConsensusCell.unroll`, whoever recorded them."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.agents import Encoder, unfence
from nsed_torch.data.equality import Equality, agreement, shared_labels
from nsed_torch.data.recorded import RecordedAnswers


class ByAgent(NamedTuple):
    """What every agent of a pool answered in the end.

    Args:
        right: which agents answered right.
        answered: which answered at all.
        classes: equal answers of a task, equal numbers; -1 where there is none.
        labels: as in `Episodes`; -1 where there is none.
    """

    right: Bool[Tensor, "batch agent"]
    answered: Bool[Tensor, "batch agent"]
    classes: Int[Tensor, "batch agent"]
    labels: Int[Tensor, "batch agent"]


@dataclass(frozen=True, eq=False)
class Episodes:
    """What was proposed and rated in every round of every task, with grades. Masked entries may hold anything.

    Args:
        ids: of the tasks.
        agents: names of the pool; voters and authors are indices into it.
        task: embeddings of the questions.
        embeddings: of the proposals.
        ratings: in [-1, 1].
        vote_mask: which ratings count.
        voters: who rates; -1 where there is nobody.
        authors: who proposed; -1 where there is nothing.
        proposal_mask: which proposals are answers.
        voter_mask: which voters are there.
        round_mask: which rounds a task held, one after the other from the first.
        correct: which proposals are right; False where masked.
        classes: equal answers of a round, equal numbers; -1 where masked.
        cost: of each round, in whatever the source counts; NaN where unknown.
        proposal_cost: what of it each proposal took, 0 where there is none; None where nobody knows.
        labels: number of each answer among labels that all tasks share (A is 0, B is 1), -1 for any other answer; None
            where there are no such labels.
        categories: of the tasks; () where nobody knows.
        features: of the proposals, in the order of `feature_names`; NaN where not known, None where nobody looked.
        feature_names: what they are.
        length: logarithm of the number of characters of each proposal, at least 0; None where nobody counted.
    """

    ids: tuple[str, ...]
    agents: tuple[str, ...]
    task: Float[Tensor, "batch dim"]
    embeddings: Float[Tensor, "batch round proposal dim"]
    ratings: Float[Tensor, "batch round voter proposal"]
    vote_mask: Bool[Tensor, "batch round voter proposal"]
    voters: Int[Tensor, "batch round voter"]
    authors: Int[Tensor, "batch round proposal"]
    proposal_mask: Bool[Tensor, "batch round proposal"]
    voter_mask: Bool[Tensor, "batch round voter"]
    round_mask: Bool[Tensor, "batch round"]
    correct: Bool[Tensor, "batch round proposal"]
    classes: Int[Tensor, "batch round proposal"]
    cost: Float[Tensor, "batch round"]
    proposal_cost: Float[Tensor, "batch round proposal"] | None = None
    labels: Int[Tensor, "batch round proposal"] | None = None
    categories: tuple[str, ...] = ()
    features: Float[Tensor, "batch round proposal feature"] | None = None
    feature_names: tuple[str, ...] = ()
    length: Float[Tensor, "batch round proposal"] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Width of the embeddings."""
        return self.task.shape[-1]

    def select(self, rows: Sequence[int] | Tensor) -> "Episodes":
        """Some of the tasks, by index, in the order given."""
        index = torch.as_tensor(rows, dtype=torch.long)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        chosen: dict[str, Any] = {name: value[index] for name, value in values.items() if isinstance(value, Tensor)}
        ids, categories = (
            tuple(names[i] for i in index.tolist()) if names else () for names in (self.ids, self.categories)
        )
        return dataclasses.replace(self, ids=ids, categories=categories, **chosen)

    @property
    def last(self) -> Int[Tensor, "batch"]:
        """Index of each task's last round."""
        return self.round_mask.sum(1) - 1

    def sorted_by(self, score: Float[Tensor, "agent"]) -> "Episodes":
        """The same with proposals and voters of every round in falling order of their agent's score, then by index.

        Ties of a vote go to the first proposal, so to the agent of the highest score.
        """

        def order(agents: Tensor) -> Tensor:
            key = torch.where(agents >= 0, score.to(agents.device)[agents.clamp(min=0)], -torch.inf)
            return key.argsort(dim=-1, descending=True, stable=True)

        columns, rows = order(self.authors), order(self.voters)

        def proposals(value: Tensor) -> Tensor:
            return value.gather(2, columns)

        def ballots(value: Tensor) -> Tensor:
            by_row = value.gather(2, rows[..., None].expand_as(value))
            return by_row.gather(3, columns[:, :, None].expand_as(by_row))

        return dataclasses.replace(
            self,
            embeddings=self.embeddings.gather(2, columns[..., None].expand_as(self.embeddings)),
            ratings=ballots(self.ratings),
            vote_mask=ballots(self.vote_mask),
            voters=self.voters.gather(2, rows),
            voter_mask=self.voter_mask.gather(2, rows),
            authors=proposals(self.authors),
            proposal_mask=proposals(self.proposal_mask),
            correct=proposals(self.correct),
            classes=proposals(self.classes),
            proposal_cost=None if self.proposal_cost is None else proposals(self.proposal_cost),
            labels=None if self.labels is None else proposals(self.labels),
            length=None if self.length is None else proposals(self.length),
            features=None
            if self.features is None
            else self.features.gather(2, columns[..., None].expand_as(self.features)),
        )

    def by_agent(self) -> ByAgent:
        """Each task's last round, a column an agent."""
        rows = torch.arange(len(self), device=self.task.device)
        authors, counts = (x[rows, self.last] for x in (self.authors, self.proposal_mask))
        where = counts & (authors >= 0)
        index = rows[:, None].expand_as(authors)[where], authors[where]

        def placed(value: Tensor, blank: bool | int) -> Tensor:
            table = value.new_full((len(self), len(self.agents)), blank)
            table[index] = value[rows, self.last][where]
            return table

        return ByAgent(
            right=placed(self.correct, False),
            answered=placed(self.proposal_mask, False),
            classes=placed(self.classes, -1),
            labels=placed(torch.full_like(self.classes, -1) if self.labels is None else self.labels, -1),
        )


def joined(parts: Sequence[Episodes]) -> Episodes:
    """Several records of the same pool as one, padded to the most rounds, voters and proposals of any of them.

    Args:
        parts: at least one; of the same agents in the same order, and of different tasks.

    Raises:
        ValueError: for other agents, embeddings of another width, or a task in two parts.
    """
    first = parts[0]
    for part in parts[1:]:
        for what, mine, other in (
            ("agents", first.agents, part.agents),
            ("dimensions", first.dim, part.dim),
            ("features", first.feature_names, part.feature_names),
        ):
            if mine != other:
                raise ValueError(
                    f"expected records of the same {what}, {mine}, got {other}: join what belongs together"
                )
    ids = tuple(name for part in parts for name in part.ids)
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        raise ValueError(f"expected every task in one record, got {twice[0]!r} in two: leave one of them out")
    categories = tuple(name for part in parts for name in part.categories) if all(p.categories for p in parts) else ()
    tensors: dict[str, Any] = {}
    for field in dataclasses.fields(Episodes):
        values = [getattr(part, field.name) for part in parts]
        if all(isinstance(value, Tensor) for value in values):
            tensors[field.name] = _stacked(values, _BLANK.get(field.name))
    # What one part does not know, the whole does not.
    unknown: dict[str, Any] = {"proposal_cost": None, "labels": None, "features": None, "length": None}
    return dataclasses.replace(first, ids=ids, categories=categories, **(unknown | tensors))


_BLANK: dict[str, float] = {
    "voters": -1,
    "authors": -1,
    "classes": -1,
    "labels": -1,
    "cost": torch.nan,
    "features": torch.nan,
}
"""What stands where there is nothing, if it is not 0."""


def _stacked(tensors: Sequence[Tensor], blank: float | None) -> Tensor:
    """Along the first axis, after all others were padded at their ends."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    rows = []
    for tensor in tensors:
        row = tensor.new_full((len(tensor), *shape), blank or 0)
        row[tuple(slice(size) for size in tensor.shape)] = tensor
        rows.append(row)
    return torch.cat(rows)


def recorded_episodes(
    recorded: RecordedAnswers, encoder: Encoder, *, equality: Equality | None = None, rounds: int = 1
) -> Episodes:
    """Recorded answers as deliberations: everybody rates everybody else's answer by agreement. Ours.

    With more than one round, agents join in as many waves, those that cost least (parameters x length; length alone
    where parameters are unknown) first: in each round all that have joined propose their answer and rate the others.
    Memory then holds what earlier waves agreed on, so that the gate and the hidden state have something to say. The
    last round is the same for any number of them.

    Args:
        recorded: the answers.
        encoder: embeds questions and answers; equal answers get equal vectors, those of the first of them.
        equality: when answers are equal; by default the rule of `Equality()`.
        rounds: how many waves.

    Raises:
        ValueError: for fewer agents than waves, or no waves.
    """
    tasks, agents = len(recorded), len(recorded.agents)
    if not 1 <= rounds <= agents:
        raise ValueError(f"expected rounds from 1 to the number of agents, {agents}, got {rounds}")
    classes = (equality or Equality()).classes(recorded.answers)
    labels = shared_labels(recorded.answers)
    ratings, mask = agreement(classes)
    joined = _waves(recorded, rounds)
    everywhere = torch.arange(agents).expand(tasks, rounds, agents)
    there = joined & (classes >= 0)[:, None]
    spread = (-1, rounds, -1, -1)
    spent = _spent(recorded)
    new = joined & ~torch.cat([torch.zeros_like(joined[:, :1]), joined[:, :-1]], 1)
    cost = torch.where(joined, spent[:, None], 0).sum(-1)
    characters = torch.tensor([[len(unfence(text)) for text in row] for row in recorded.outputs], dtype=torch.float64)
    return Episodes(
        ids=tuple(task.id for task in recorded.tasks),
        agents=recorded.agents,
        task=encoder.embed([task.question for task in recorded.tasks]).float(),
        embeddings=_answer_vectors(recorded, classes, encoder)[:, None].expand(*spread),
        ratings=ratings[:, None].expand(*spread),
        vote_mask=mask[:, None] & there[:, :, :, None] & there[:, :, None, :],
        voters=everywhere,
        authors=everywhere,
        proposal_mask=there,
        voter_mask=there,
        round_mask=torch.ones(tasks, rounds, dtype=torch.bool),
        correct=recorded.correct[:, None] & there,
        classes=torch.where(there, classes[:, None], -1),
        labels=None if labels is None else torch.where(there, labels[:, None], -1),
        categories=tuple(task.category or "" for task in recorded.tasks)
        if all(t.category for t in recorded.tasks)
        else (),
        cost=cost.diff(dim=1, prepend=torch.zeros(tasks, 1, dtype=cost.dtype)),
        proposal_cost=torch.where(new, spent[:, None], 0),
        length=characters.clamp(min=1).log()[:, None].expand(-1, rounds, -1),
    )


def _spent(recorded: RecordedAnswers) -> Float[Tensor, "batch agent"]:
    return recorded.cost if recorded.parameters.isfinite().all() else recorded.tokens.to(recorded.parameters)


def _waves(recorded: RecordedAnswers, rounds: int) -> Bool[Tensor, "batch round agent"]:
    """Who has joined by each round."""
    place = _spent(recorded).mean(0).argsort(stable=True).argsort()
    wave = place * rounds // len(recorded.agents)
    return (wave <= torch.arange(rounds)[:, None]).expand(len(recorded), -1, -1)


def _answer_vectors(
    recorded: RecordedAnswers, classes: Int[Tensor, "batch agent"], encoder: Encoder
) -> Float[Tensor, "batch agent dim"]:
    heads = []
    for answers, numbers in zip(recorded.answers, classes.tolist(), strict=True):
        first: dict[int, str] = {}
        for number, answer in zip(numbers, answers, strict=True):
            if answer is not None:
                first.setdefault(number, answer)
        heads.append([first.get(number, "") for number in numbers])
    unique = list(dict.fromkeys(text for row in heads for text in row))
    vectors = encoder.embed(unique).float()
    index = {text: i for i, text in enumerate(unique)}
    return vectors[torch.tensor([[index[text] for text in row] for row in heads])]
