"""Recorded deliberations as tensors, ready for `ConsensusCell.unroll`, whoever recorded them."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.encoder import Encoder
from nsed_torch.core.prompts import unfence
from nsed_torch.traces.equality import Equality, agreement, shared_labels
from nsed_torch.traces.recorded import RecordedAnswers


class ByAgent(NamedTuple):
    """What every agent of a pool answered in the end; classes and labels are -1 where there is none."""

    right: Bool[Tensor, "batch agent"]
    answered: Bool[Tensor, "batch agent"]
    classes: Int[Tensor, "batch agent"]
    labels: Int[Tensor, "batch agent"]


@dataclass(frozen=True, eq=False)
class Episodes:
    """What was proposed and rated in every round of every task, with grades. Masked entries may hold anything.

    What is None or empty, nobody knows. Voters and authors are indices into the pool, -1 where there is nobody.
    """

    ids: tuple[str, ...]
    agents: tuple[str, ...]
    task: Float[Tensor, "batch dim"]
    embeddings: Float[Tensor, "batch round proposal dim"]
    ratings: Float[Tensor, "batch round voter proposal"]  # in [-1, 1]
    vote_mask: Bool[Tensor, "batch round voter proposal"]  # which ratings count
    voters: Int[Tensor, "batch round voter"]
    authors: Int[Tensor, "batch round proposal"]
    proposal_mask: Bool[Tensor, "batch round proposal"]  # which proposals are answers
    voter_mask: Bool[Tensor, "batch round voter"]
    round_mask: Bool[Tensor, "batch round"]  # rounds held, one after the other from the first
    correct: Bool[Tensor, "batch round proposal"]  # False where masked
    classes: Int[Tensor, "batch round proposal"]  # equal answers of a task, equal numbers; -1 where masked
    cost: Float[Tensor, "batch round"]  # in whatever the source counts; NaN where unknown
    proposal_cost: Float[Tensor, "batch round proposal"] | None = None  # part of it; 0 where there is no proposal
    labels: Int[Tensor, "batch round proposal"] | None = None  # shared by all tasks: A is 0, B is 1; -1 for others
    categories: tuple[str, ...] = ()  # of the tasks
    features: Float[Tensor, "batch round proposal feature"] | None = None  # of the proposals; NaN where not known
    feature_names: tuple[str, ...] = ()
    length: Float[Tensor, "batch round proposal"] | None = None  # logarithm of the number of characters, at least 0
    # Of notes: the last round, from 1, after which a memory should hold them; 0 for none.
    needed: Int[Tensor, "batch round proposal"] | None = None

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
        chosen: dict[str, Any] = {}
        for name in (*_OF_VOTERS, *_OF_PAIRS, *_OF_PROPOSALS):
            value = getattr(self, name)
            if value is not None:
                places = columns if name in _OF_PROPOSALS else rows
                places = places if value.ndim == places.ndim else places[..., None].expand_as(value)
                chosen[name] = value.gather(2, places)
        for name in _OF_PAIRS:
            chosen[name] = chosen[name].gather(3, columns[:, :, None].expand_as(chosen[name]))
        return dataclasses.replace(self, **chosen)

    def without(self, agents: Sequence[str]) -> "Episodes":
        """The same where some agents of the pool neither proposed nor rated."""
        if strangers := [name for name in agents if name not in self.agents]:
            raise ValueError(f"without: expected agents out of {', '.join(self.agents)}, got {strangers[0]}")
        gone = torch.tensor([name in agents for name in self.agents])

        def stays(seats: Tensor) -> Tensor:
            return ~(gone.to(seats.device)[seats.clamp(min=0)] & (seats >= 0))

        there = self.proposal_mask & stays(self.authors)
        return dataclasses.replace(
            self,
            proposal_mask=there,
            voter_mask=self.voter_mask & stays(self.voters),
            correct=self.correct & there,
            classes=torch.where(there, self.classes, -1),
        )

    def of_agents(self, value: Tensor, blank: float = 0) -> Tensor:
        """What `[batch, round, proposal, ...]` holds of each agent's proposal in the last round, blank where none."""
        rows = torch.arange(len(self), device=self.task.device)
        authors, counts, last = (x[rows, self.last] for x in (self.authors, self.proposal_mask, value))
        where = counts & (authors >= 0)
        table = value.new_full((len(self), len(self.agents), *value.shape[3:]), blank)
        table[rows[:, None].expand_as(authors)[where], authors[where]] = last[where]
        return table

    def oracle(self) -> Bool[Tensor, "batch"]:
        """Whether any proposal of any round is right: what whoever knows the grades would elect."""
        return self.correct.flatten(1).any(1)

    def by_agent(self) -> ByAgent:
        """Each task's last round, one column per agent."""
        classes = self.of_agents(self.classes, -1)
        labels = torch.full_like(classes, -1) if self.labels is None else self.of_agents(self.labels, -1)
        return ByAgent(self.of_agents(self.correct), self.of_agents(self.proposal_mask), classes, labels)


def joined(parts: Sequence[Episodes]) -> Episodes:
    """Several records of the same pool as one, padded to the most rounds, voters and proposals of any of them."""
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
        raise ValueError(f"expected every task in one record, got {twice[0]!r:.60} in two: leave one of them out")
    known = all(part.categories or not len(part) for part in parts)
    categories = tuple(name for part in parts for name in part.categories) if known else ()
    tensors: dict[str, Any] = {}
    for field in dataclasses.fields(Episodes):
        values = [getattr(part, field.name) for part in parts]
        if all(isinstance(value, Tensor) for value in values):
            tensors[field.name] = padded(values, _BLANK.get(field.name))
    # What one part does not know, the whole does not.
    unknown: dict[str, Any] = dict.fromkeys(("proposal_cost", "labels", "features", "length", "needed"))
    return dataclasses.replace(first, ids=ids, categories=categories, **(unknown | tensors))


_OF_VOTERS = ("voters", "voter_mask")
_OF_PAIRS = ("ratings", "vote_mask")
_OF_PROPOSALS = (
    *("authors", "embeddings", "proposal_mask", "correct", "classes"),
    *("proposal_cost", "labels", "features", "length", "needed"),
)
_BLANK = dict.fromkeys(("voters", "authors", "classes", "labels"), -1) | dict.fromkeys(("cost", "features"), torch.nan)
"""What stands where there is nothing, if it is not 0."""


def padded(tensors: Sequence[Tensor], blank: float | None = None) -> Tensor:
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
    last round is the same for any number of them. Equal answers get equal vectors, those of the first of them.

    Answers that were recorded in several rounds make as many, with the ratings that were recorded; they join in no
    waves.
    """
    tasks, agents = len(recorded), len(recorded.agents)
    if not 1 <= rounds <= agents:
        raise ValueError(f"expected rounds from 1 to the number of agents, {agents}, got {rounds}")
    if recorded.later and rounds != 1:
        raise ValueError(
            f"expected no waves for answers of {1 + len(recorded.later)} rounds, got {rounds}: remove them"
        )
    parts = [recorded, *recorded.later]
    whole = [[answer for row in rows for answer in row] for rows in zip(*(part.answers for part in parts), strict=True)]
    classes = (equality or Equality()).classes(whole).reshape(tasks, len(parts), agents)
    held = [_round_episodes(part, classes[:, r], encoder, rounds) for r, part in enumerate(parts)]
    if len(held) == 1:
        return held[0]
    stacked: dict[str, Any] = {}
    for name, value in vars(held[0]).items():
        values = [getattr(part, name) for part in held]
        if name != "task" and isinstance(value, Tensor):
            stacked[name] = None if any(one is None for one in values) else torch.cat(values, 1)
    whole_length = torch.full((tasks,), len(parts))
    stacked["round_mask"] = (
        torch.arange(len(parts)) < (whole_length if recorded.held is None else recorded.held)[:, None]
    )
    return dataclasses.replace(held[0], **stacked)


def _round_episodes(
    recorded: RecordedAnswers, classes: Int[Tensor, "batch agent"], encoder: Encoder, rounds: int
) -> Episodes:
    """One recorded round, in waves."""
    tasks, agents = classes.shape
    labels = shared_labels(recorded.answers)
    ratings, mask = agreement(classes)
    if recorded.ratings is not None:
        rated = recorded.ratings.isfinite()
        told = rated.flatten(1).any(1)[:, None, None]
        ratings = torch.where(told, recorded.ratings.nan_to_num().to(ratings), ratings)
        mask = torch.where(told, rated & mask, mask)
    categories = tuple(task.category or "" for task in recorded.tasks)
    joined = _waves(recorded, rounds)
    everywhere = torch.arange(agents).expand(tasks, rounds, agents)
    there = joined & (classes >= 0)[:, None]
    spread = (-1, rounds, -1, -1)
    spent = _spent(recorded)
    new = joined & ~torch.cat([torch.zeros_like(joined[:, :1]), joined[:, :-1]], 1)
    cost = torch.where(joined, spent[:, None], 0).sum(-1)
    characters = torch.tensor([[len(unfence(text)) for text in row] for row in recorded.outputs], dtype=torch.float64)
    if recorded.characters is not None:
        characters = torch.where(recorded.characters.isfinite(), recorded.characters.double(), characters)
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
        categories=categories if all(categories) else (),
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
