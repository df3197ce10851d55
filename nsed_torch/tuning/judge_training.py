"""Judges that learn: the consensus loss, through the votes, into the adapters of the models that rate."""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nsed_torch.core.agent import Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import RoundInput
from nsed_torch.core.engine import call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import JudgeQuestion, VerdictRating
from nsed_torch.engines.adapters import adapter_parameters, add_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.pace import time_left
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.traces.rounds import in_order


class JudgeScores(NamedTuple):
    """How well judges rate, a row per task, so that intervals and paired differences can be taken over tasks."""

    # Share of a judge's (right, wrong) pairs in which it rates the right candidate higher; a tie is half.
    pairs: Float[Tensor, "batch voter"]
    # Share of a judge's ratings that are positive for a right candidate and negative for a wrong one.
    signs: Float[Tensor, "batch voter"]
    consensus: Float[Tensor, "batch"]  # 1 where the winner of the vote is right
    loss: Float[Tensor, "batch"]  # negative logarithm of the consensus on right candidates


def surprise(
    consensus: Float[Tensor, "batch proposal"], correct: Bool[Tensor, "batch proposal"]
) -> Float[Tensor, "batch"]:
    """`-log sum_j p_j` over the right candidates, of which every task has one or more; ours."""
    right = (consensus * correct).sum(-1)
    return -right.clamp(min=torch.finfo(right.dtype).tiny).log()


def verdict_loss(
    ratings: Float[Tensor, "batch voter proposal"], correct: Bool[Tensor, "batch proposal"]
) -> Float[Tensor, "batch"]:
    """`-log((1 + r) / 2)` for a right and `-log((1 - r) / 2)` for a wrong candidate, the mean over a task; ours.

    Ballots do not change when all of a judge's ratings grow alike, so a judge that cannot tell candidates apart yet
    lowers `surprise` by rating all of them 1, where its gradient vanishes. This loss leads back from there. Ratings lie
    in [-1, 1], NaN where there is none.
    """
    given = ~ratings.isnan()
    right = torch.where(given, 1 + torch.where(correct[:, None], ratings, -ratings), 2) / 2
    losses = -right.clamp(min=1e-12).log()
    return losses.sum((-1, -2)) / given.sum((-1, -2))


def judge_scores(
    ratings: Float[Tensor, "batch voter proposal"],
    consensus: Float[Tensor, "batch proposal"],
    winner: Int[Tensor, "batch"],
    correct: Bool[Tensor, "batch proposal"],
    answered: Bool[Tensor, "batch proposal"],
) -> JudgeScores:
    """Score judges on tasks that have right and wrong answers; ratings are NaN where there is none."""
    right, wrong = (correct & answered)[:, None], (~correct & answered)[:, None]
    signed = torch.where(right, ratings > 0, ratings < 0) & answered[:, None]
    return JudgeScores(
        pairs=in_order(ratings, right, wrong),
        signs=signed.sum(-1) / answered.sum(-1, keepdim=True),
        consensus=correct.gather(1, winner[:, None])[:, 0].double(),
        loss=surprise(consensus, correct),
    )


def contested(table: RecordedAnswers) -> RecordedAnswers:
    """The tasks that have both right and wrong answers: the others teach a judge nothing by their vote."""
    mixed = (table.correct & table.answered).any(1) & (~table.correct & table.answered).any(1)
    return table.select(mixed.nonzero()[:, 0])


def give_adapters(
    ensemble: Ensemble, *, rank: int = 8, alpha: float = 16.0, targets: Sequence[str], seed: int = 0
) -> Ensemble:
    """The same agents on the same engines, each judge with an adapter: its own, else a fresh one of its name."""
    given = {}
    for agent in ensemble.judges:
        engine = ensemble.engine(agent)
        if not isinstance(engine, TransformersEngine):
            raise ValueError(
                f"agent {agent.name!r}: expected a judge on a model in this process, got {type(engine).__name__}: "
                "choose an ensemble of Transformers backbones"
            )
        if agent.rating_adapter is None:
            own = call_seed(seed, agent.name, "adapter") % 2**32
            add_adapter(engine, agent.name, rank=rank, alpha=alpha, targets=targets, seed=own)
            given[agent.name] = replace(agent, adapter=agent.name)
    agents = [given.get(agent.name, agent) for agent in ensemble.agents]
    return Ensemble(ensemble.engines, agents, call_log=ensemble.call_log)


class JudgeTrainer:
    """Trains the adapters of an ensemble's agents as judges of recorded answers.

    A judge's rating is its expected value under its own logits (formula 16), asked as in a deliberation: the same
    prompt, authors unnamed, candidates in an order of its own. Ratings go into a fresh `ConsensusCell`, and the loss
    is `surprise` plus `verdict_weight` times `verdict_loss`. Nothing but the adapters learns, those of agents that may
    judge (see `give_adapters`). The seed is that of orders, fences and batches.

    Raises:
        ValueError: if nobody may judge, or a judge has no adapter or runs on another kind of engine.
    """

    def __init__(
        self, ensemble: Ensemble, *, rating: VerdictRating, prompts: Prompts, verdict_weight: float = 0.5, seed: int = 0
    ) -> None:
        self.ensemble, self.rating, self.prompts, self.seed = ensemble, rating, prompts, seed
        self.verdict_weight = verdict_weight
        self.engines = {k: e for k, e in ensemble.engines.items() if isinstance(e, TransformersEngine)}
        self.parameters: dict[str, list[nn.Parameter]] = {}
        if not ensemble.judges:
            raise ValueError("expected an agent that may judge, got none: give one the role judge")
        for agent in ensemble.judges:
            if agent.rating_adapter is None or agent.backbone not in self.engines:
                raise ValueError(f"agent {agent.name!r}: expected a judge with an adapter; see give_adapters")
            own = adapter_parameters(self.engines[agent.backbone], agent.rating_adapter)
            self.parameters[agent.name] = list(own.values())
        # One dimension, always 0: a fresh cell does not look at texts.
        self.cell = ConsensusCell(1, len(ensemble.judges), slots=1).double().requires_grad_(False)

    def ratings(self, table: RecordedAnswers, *, index: int = 1) -> Float[Tensor, "batch voter proposal"]:
        """What every judge thinks of every recorded answer; differentiable, NaN where there is no answer.

        `index` is the round that it would be in a deliberation; with another index come other orders and fences.
        """
        places, asked = [], []
        for i, task in enumerate(table.tasks):
            answers = table.answered[i].nonzero()[:, 0].tolist()
            for v, judge in enumerate(self.ensemble.judges):
                seed = call_seed(self.seed, task.id, index, judge.name, "rate")
                order = random.Random(seed).sample(answers, len(answers))  # noqa: S311 - fairness, not secrecy
                places.append([(i, v, j) for j in order])
                asked.append(JudgeQuestion(judge, task.question, tuple(table.outputs[i][j] for j in order), seed))
        requests = self.rating.requests(self.prompts, asked)
        shape = len(table), len(self.ensemble.judges), len(table.agents)
        ratings = torch.full(shape, math.nan, dtype=torch.float64)
        for name, engine in self.engines.items():
            mine = [k for k, q in enumerate(asked) if q.judge.backbone == name and q.candidates]
            if mine:
                values = engine.expected_ratings([requests[k] for k in mine])
                where = torch.tensor([place for k in mine for place in places[k]])
                ratings = ratings.index_put(tuple(where.T), values.to("cpu", torch.float64))
        return ratings

    def vote(
        self, ratings: Float[Tensor, "batch voter proposal"], table: RecordedAnswers
    ) -> tuple[Float[Tensor, "batch proposal"], Tensor]:
        """Consensus and winner of a fresh cell."""
        classes = Equality().classes(table.answers)
        inputs = RoundInput(ratings, ~ratings.isnan(), classes=classes, proposal_mask=table.answered)
        election = self.cell.elect(inputs, torch.zeros(len(ratings), 1, dtype=torch.float64))
        return election.consensus, election.winner

    def loss(self, table: RecordedAnswers, *, index: int = 1) -> Float[Tensor, ""]:
        """Mean over some tasks of `surprise` and its share of `verdict_loss`."""
        ratings = self.ratings(table, index=index)
        consensus, _ = self.vote(ratings, table)
        own = verdict_loss(ratings, table.correct)
        return (surprise(consensus, table.correct) + self.verdict_weight * own).mean()

    @torch.no_grad()
    def evaluate(self, table: RecordedAnswers, *, batch: int = 8) -> JudgeScores:
        """Score every task of a table of contested ones, so many at once."""
        parts = [table.select(range(i, min(i + batch, len(table)))) for i in range(0, len(table), batch)]
        scores = []
        for part in parts:
            ratings = self.ratings(part)
            scores.append(judge_scores(ratings, *self.vote(ratings, part), part.correct, part.answered))
        return JudgeScores(*(torch.cat(field) for field in zip(*scores, strict=True)))

    def fit(
        self,
        train: RecordedAnswers,
        validation: RecordedAnswers,
        *,
        optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        steps: int,
        batch: int = 4,
        every: int = 20,
        patience: int = 5,
        max_norm: float = 1.0,
        log: Callable[[int, dict[str, Any]], None] = lambda step, record: None,
        report: Callable[[str], None] = lambda text: None,
    ) -> int:
        """Train on contested tasks for at most so many steps; return the step whose adapters were kept.

        Kept are those of the lowest validation loss, those of the start (0) among them. It is looked at every so many
        steps; training ends after `patience` looks without a better one. Gradients of a norm above `max_norm` are
        scaled to it. The log takes the loss and every judge's gradient norm of a step, and each validation.

        Raises:
            ValueError: if there is no task to train on or to choose by.
        """
        if not len(train) or not len(validation):
            raise ValueError(f"expected contested tasks, got {len(train)} to train on, {len(validation)} to choose by")
        learning = list({id(p): p for own in self.parameters.values() for p in own}.values())
        for parameter in learning:
            # Steps are too small for half precision.
            parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
            parameter.requires_grad_(True)
        descent = optimizer(learning)
        best, kept, waited, began = math.inf, 0, 0, time.perf_counter()
        snapshot = [p.detach().clone() for p in learning]
        order = _order(len(train), self.seed)
        for step in range(steps + 1):
            if step:
                log(step, self._step(train.select([next(order) for _ in range(batch)]), descent, step, max_norm))
            if step % every == 0 or step == steps:
                scores = self.evaluate(validation, batch=batch)
                loss, pairs = float(scores.loss.mean()), float(scores.pairs.mean())
                log(step, {"validation_loss": loss, "validation_pairs": pairs})
                rest = time_left(time.perf_counter() - began, step, steps)
                report(f"step {step}: validation loss {loss:.4f}, pairs {pairs:.3f}{rest}")
                waited += 1
                if loss < best:
                    best, kept, waited = loss, step, 0
                    snapshot = [p.detach().clone() for p in learning]
                if waited >= patience:
                    break
        with torch.no_grad():
            for parameter, value in zip(learning, snapshot, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        return kept

    def _step(
        self, table: RecordedAnswers, descent: torch.optim.Optimizer, step: int, max_norm: float
    ) -> dict[str, Any]:
        start = time.perf_counter()
        descent.zero_grad()
        loss = self.loss(table, index=step)
        loss.backward()
        gradients = {name: [p.grad for p in own if p.grad is not None] for name, own in self.parameters.items()}
        norms = {name: nn.utils.get_total_norm(own).item() for name, own in gradients.items()}
        nn.utils.clip_grad_norm_([p for group in descent.param_groups for p in group["params"]], max_norm)
        descent.step()
        return {"loss": loss.item(), "gradient": norms, "seconds": time.perf_counter() - start}


def _order(tasks: int, seed: int) -> Iterator[int]:
    """Task after task, every task once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(tasks, generator=generator).tolist()
