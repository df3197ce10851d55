"""A vote over all rounds: an answer that was given early and kept is one voice, and an earlier answer may still win."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core.answer_classes import AnswerClasses
from nsed_torch.core.functional.floats import largest
from nsed_torch.core.halting import FixedHalting
from nsed_torch.parts.features import groups_of, letters_of, proposal_features
from nsed_torch.parts.saved_cells import ROUND_VOTE, located
from nsed_torch.records.files import to_json
from nsed_torch.records.saved import read_module, write_module
from nsed_torch.records.transcript import Round, Task

VOTES = ("first", "last", "between", "kept", "came", "leads")


class Stood(NamedTuple):
    """What a task's rounds come to."""

    answer: Int[Tensor, "batch"]  # the class that wins; -1 where nobody answered
    chance: Float[Tensor, "batch"]  # the vote's own probability of it
    reached: Int[Tensor, "batch"]  # rounds after which it stood


class RoundVote(nn.Module):
    """Weighs what agents said in all rounds. Ours.

    The support of an answer is linear in: the share of agents that gave it `first`; that of those who answered in the
    `last` round; the shares a round that gave it `between`; that `kept` it whenever they answered; that `came` to it
    from another; whether it `leads` the last round; and the mean features of the texts that gave it. So one who
    repeats an answer is one voice, of a weight of its own, and an answer that was talked away can still win.

    `caution` is added to the answer that led the first round. A deliberation may stop once the winner has a probability
    of `enough`. A task of one round is left to the plurality, ties to the first agent. A fresh vote elects the last
    round's.

    Args:
        features: names of what is read of texts, whole groups of `parts.features`.

    Examples:
        >>> vote = RoundVote()
        >>> said = torch.tensor([[[0, 1, 1], [1, 1, 1]]])  # the first of three agents goes over to the others
        >>> vote.decide(said, torch.ones(1, 2, dtype=torch.bool)).answer.tolist()
        [1]
    """

    mean: Tensor
    deviation: Tensor
    caution: Tensor
    enough: Tensor

    def __init__(self, features: Sequence[str] = ()) -> None:
        super().__init__()
        self.features = tuple(features)
        self.votes = nn.Parameter(torch.tensor([0.0] * 5 + [1.0]))
        self.texts = nn.Parameter(torch.zeros(len(self.features)))
        self.register_buffer("mean", torch.zeros(len(self.features)))
        self.register_buffer("deviation", torch.ones(len(self.features)))
        self.register_buffer("caution", torch.tensor(0.0))
        self.register_buffer("enough", torch.tensor(2.0))

    def read(
        self,
        said: Int[Tensor, "batch round agent"],
        held: Bool[Tensor, "batch round"],
        features: Float[Tensor, "batch round agent feature"] | None = None,
    ) -> tuple[Float[Tensor, "batch answer read"], Bool[Tensor, "batch answer"]]:
        """What the weights of votes and texts are for, and which answers somebody gave.

        `said` are classes that are equal for equal answers of all rounds, -1 for none; features are NaN where not
        known.
        """
        said = torch.where(held[:, :, None], said, -1)
        count = max(int(said.max()) + 1, 1) if said.numel() else 1
        each = said[..., None] == torch.arange(count)  # batch round agent answer
        rows, last, agents = torch.arange(len(said)), held.sum(1) - 1, said.shape[2]
        given = said >= 0
        opening = said.gather(1, given.int().argmax(1, keepdim=True))  # each agent's first answer
        closing = said.gather(1, said.shape[1] - 1 - given.flip(1).int().argmax(1, keepdim=True))
        steady = ((said == opening) | ~given).all(1) & (given.sum(1) > 1)
        whole = (opening[:, 0, :, None] == torch.arange(count), closing[:, 0, :, None] == torch.arange(count))
        ending = each[rows, last].sum(1)
        middle = each.sum(2)
        votes = [
            middle[:, 0] / agents,
            ending / given[rows, last].sum(1, keepdim=True).clamp(min=1),
            (middle.sum(1) - middle[:, 0] - ending) / agents,
            (whole[1] & steady[..., None]).sum(1) / agents,
            (whole[1] & (closing != opening)[:, 0, :, None]).sum(1) / agents,
            leader(said[rows, last], count),
        ]
        table = torch.stack([value.to(self.votes) for value in votes], -1) * (last > 0)[:, None, None]
        if self.features and features is not None:
            z = ((features.to(self.votes) - self.mean) / self.deviation).clamp(-3, 3).nan_to_num()
            weight = each.to(z)
            told = torch.einsum("brga,brgf->baf", weight, z) / weight.sum((1, 2))[..., None].clamp(min=1)
            table = torch.cat([table, told], -1)
        return table, each.any(2).any(1)

    def weigh(
        self, table: Float[Tensor, "batch answer read"], there: Bool[Tensor, "batch answer"]
    ) -> Float[Tensor, "batch answer"]:
        """Support of every answer; -inf where nobody gave it."""
        weights = torch.cat([self.votes, self.texts])[: table.shape[-1]]
        return (table @ weights).masked_fill(~there, -torch.inf)

    @torch.no_grad()
    def decide(
        self,
        said: Int[Tensor, "batch round agent"],
        held: Bool[Tensor, "batch round"],
        features: Float[Tensor, "batch round agent feature"] | None = None,
    ) -> Stood:
        """The answer that stands after the rounds that were held, or after the first that was `enough`.

        Arguments as of `read`.
        """
        batch = len(said)
        answer, chance = said.new_full((batch,), -1), self.votes.new_zeros(batch)
        reached = said.new_zeros(batch)
        open_ = torch.ones(batch, dtype=torch.bool)
        for r in range(said.shape[1]):
            open_ = open_ & held[:, r] & (chance < self.enough)
            now, sure = self._after(
                said[:, : r + 1], held[:, : r + 1], features if features is None else features[:, : r + 1]
            )
            answer, chance = torch.where(open_, now, answer), torch.where(open_, sure, chance)
            reached = torch.where(open_, r + 1, reached)
        return Stood(answer, chance, reached)

    def _after(self, said: Tensor, held: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        table, there = self.read(said, held, features)
        support = self.weigh(table, there)
        count, rows = support.shape[1], torch.arange(len(said))
        last = held.sum(1).clamp(min=1) - 1
        leads = leader(torch.where(held[rows, last, None], said[rows, last], -1), count)
        support = support + self.caution * leader(said[:, 0], count) * (last > 0)[:, None]
        # What led the last round wins where all is level, and alone decides a task of one round.
        plain = torch.where((last == 0)[:, None] & there, leads.to(support), support)
        best = largest(plain, there)
        answer = torch.where(best & leads, 2, best.int()).argmax(1)
        chance = support.softmax(1).nan_to_num()[rows, answer]
        return torch.where(there.any(1), answer, -1), chance

    def save_pretrained(self, folder: str | Path) -> None:
        """Write `rounds.safetensors`, whole or not at all."""
        write_module(
            Path(folder).expanduser() / ROUND_VOTE, self, {"format": "pt", "features": to_json(list(self.features))}
        )

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, revision: str | None = None) -> "RoundVote":
        """What `save_pretrained` wrote, on the CPU; arguments and errors as of `ConsensusCell.from_pretrained`."""

        def build(about: Mapping[str, str], _tensors: Mapping[str, Tensor]) -> RoundVote:
            vote = cls(json.loads(about["features"]))
            groups_of(vote.features)
            return vote.to(_tensors["votes"].dtype)

        return read_module(located(folder, revision) / ROUND_VOTE, "a vote over rounds", "fit it again", build)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"features={list(self.features)}, caution={self.caution:.3g}, enough={self.enough:.3g}"


def leader(said: Int[Tensor, "batch agent"], count: int) -> Bool[Tensor, "batch answer"]:
    """The commonest answer, of several the one of the first agent among them; none where nobody answered."""
    each = said[..., None] == torch.arange(count)
    votes = each.sum(1)
    top = (votes == votes.amax(1, keepdim=True)) & (votes > 0)
    mine = (each & top[:, None]).any(-1)  # agents whose answer is among the commonest
    first = each[torch.arange(len(said)), mine.int().argmax(1)]
    return first & top & mine.any(1, keepdim=True)


class RoundVoteHalting(FixedHalting):
    """Stops once a vote over all rounds is sure enough, at the latest after `rounds`; the answer is what it elects.

    That may be an answer of an earlier round, so that a right one is not talked away.

    Args:
        vote: fitted, such as `RoundVote.from_pretrained(folder)`, or the folder.
        rounds: the most there are.
    """

    def __init__(self, vote: Any, rounds: int = 3) -> None:
        super().__init__(rounds)
        self.vote: Any = vote if hasattr(vote, "decide") else RoundVote.from_pretrained(vote)

    def stands(
        self, task: Task, rounds: Sequence[Round], answers: AnswerClasses | None
    ) -> tuple[int, int, bool] | None:
        """Round and proposal of the answer that stands, both from 0, and whether that is sure enough to stop.

        None where nobody answered, or nothing tells which texts say the same.
        """
        places = [(r, p) for r, record in enumerate(rounds) for p, one in enumerate(record.proposals) if one.text]
        if not places or answers is None:
            return None
        texts = [rounds[r].proposals[p].text for r, p in places]
        numbers = answers.classes(task, texts)
        fresh = len(texts)
        names = list(dict.fromkeys(one.agent for record in rounds for one in record.proposals))
        said = torch.full((1, len(rounds), len(names)), -1)
        features = self._features(task, rounds, answers, names)
        by_class: dict[int, tuple[int, int]] = {}
        for i, ((r, p), number) in enumerate(zip(places, numbers, strict=True)):
            one = number if number >= 0 else fresh + i
            said[0, r, names.index(rounds[r].proposals[p].agent)] = one
            by_class[one] = (r, p)  # the latest text that gives it
        held = torch.ones(1, len(rounds), dtype=torch.bool)
        found = self.vote.decide(said, held, features)
        if int(found.answer) < 0:
            return None
        return *by_class[int(found.answer)], bool(found.chance >= self.vote.enough)

    def _features(
        self, task: Task, rounds: Sequence[Round], answers: AnswerClasses, names: Sequence[str]
    ) -> Tensor | None:
        if not self.vote.features:
            return None
        groups = groups_of(self.vote.features)
        table = torch.full((1, len(rounds), len(names), len(self.vote.features)), torch.nan)
        for r, record in enumerate(rounds):
            texts = [one.text for one in record.proposals]
            rows = proposal_features(task.question, texts, letters_of(answers.finals(task, texts)), groups)
            for one, row in zip(record.proposals, rows, strict=True):
                table[0, r, names.index(one.agent)] = torch.tensor(row)
        return table
