"""What rounds do to the answer: accuracy and cost, the law behind them, flips, conformity, what was left unused."""

from dataclasses import dataclass

import numpy as np

from nsed_torch.evaluation.competence_law import ROUNDS_NEEDED, FatigueLaw, fit_fatigue_law
from nsed_torch.evaluation.insight.tables import Table, Tables
from nsed_torch.evaluation.insight.values import Column, Questions, Real
from nsed_torch.evaluation.statistics import Estimate


@dataclass(frozen=True)
class RoundInsight:
    """Where the team stands after a round.

    Args:
        round: from 1.
        deliberating: tasks that held it.
        accuracy: of the answer standing after it; a task that stopped earlier keeps its answer.
        tokens: read and written up to it, the mean over all tasks.
        oracle_gap: among tasks that held it, share where some proposal of the round is right and its winner is not.
    """

    round: int
    deliberating: int
    accuracy: Estimate
    tokens: float
    oracle_gap: Estimate


@dataclass(frozen=True)
class Law:
    """The efficiency-fatigue law fitted to accuracy by round.

    Args:
        fit: None where there is nothing to fit.
        notes: what the fit cannot bear, or why there is none.
    """

    fit: FatigueLaw | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Flips:
    """Answers of a round and what became of them in the next, counted over tasks that held both.

    Args:
        round: the first of the two.
        right_to_right: stayed right.
        right_to_wrong: was lost.
        wrong_to_right: was won.
        wrong_to_wrong: stayed wrong, the same or another.
    """

    round: int
    right_to_right: int
    right_to_wrong: int
    wrong_to_right: int
    wrong_to_wrong: int


@dataclass(frozen=True)
class Conformity:
    """How often an agent whose answer differed from the winner's gives the winner's in the next round.

    Args:
        pooled: over all such agents.
        winner_right: where the winner was right.
        winner_wrong: where it was not.
    """

    pooled: Estimate
    winner_right: Estimate
    winner_wrong: Estimate


@dataclass(frozen=True)
class Course:
    """What rounds do to the answer.

    Args:
        rounds: where the team stands after each.
        gain: accuracy after the last round minus after the first.
        law: fitted to the accuracies.
        flips: of the standing answer, an entry a transition.
        agent_flips: of every agent's own proposals.
        conformity: with the winner.
        oracle_gap: share of tasks where some proposal of some round is right and the final answer is not.
    """

    rounds: tuple[RoundInsight, ...]
    gain: Estimate
    law: Law
    flips: tuple[Flips, ...]
    agent_flips: dict[str, tuple[Flips, ...]]
    conformity: Conformity
    oracle_gap: Estimate


def course(tables: Tables, questions: Questions) -> Course:
    """Follow the answers through the rounds."""
    rounds, moves = tables.rounds, tables.moves
    question = rounds["question"][np.unique(rounds["task"], return_index=True)[1]]
    standing = _by_task(rounds, "standing")
    final = standing[:, -1]
    found = np.bincount(rounds["task"], rounds["any"]) > 0
    values = _rounds(rounds, question, standing, questions)
    kept = rounds["task"][1:] == rounds["task"][:-1]
    before, after = rounds[:-1][kept], rounds[1:][kept]
    return Course(
        rounds=values,
        gain=questions.mean(question, final - standing[:, 0]),
        law=_law([value.accuracy.mean or 0.0 for value in values], len(final)),
        flips=_flips(before["round"], before["standing"], after["standing"]),
        agent_flips={
            name: _flips(own["round"], own["before"], own["after"])
            for i, name in enumerate(tables.agents)
            if len(own := moves[moves["agent"] == i])
        },
        conformity=_conformity(moves, questions),
        oracle_gap=questions.share(question, found - final),
    )


def _by_task(rounds: Table, column: str) -> Real:
    """A column as [task round]; a task that stopped earlier keeps its last value."""
    held = np.bincount(rounds["task"])
    values = np.zeros((len(held), rounds["round"].max()))
    values[rounds["task"], rounds["round"] - 1] = rounds[column]
    last = np.minimum(np.arange(values.shape[1]), held[:, None] - 1)
    return np.take_along_axis(values, last, 1)


def _rounds(rounds: Table, question: Column, standing: Real, questions: Questions) -> tuple[RoundInsight, ...]:
    spent = np.bincount(rounds["round"] - 1, rounds["tokens"]).cumsum() / len(question)
    values = []
    for r, right in enumerate(standing.T):
        held = rounds[rounds["round"] == r + 1]
        gap = questions.share(held["question"], held["any"] & ~held["winner"])
        values.append(RoundInsight(r + 1, len(held), questions.share(question, right), float(spent[r]), gap))
    return tuple(values)


def _law(accuracy: list[float], tasks: int) -> Law:
    if len(accuracy) < ROUNDS_NEEDED:
        return Law(None, (f"a law needs at least {ROUNDS_NEEDED} rounds, got {len(accuracy)}: record more",))
    if len(set(accuracy)) == 1:
        return Law(None, ("accuracy is the same after every round: there is no curve to fit",))
    fit = fit_fatigue_law(accuracy, [tasks] * len(accuracy))
    return Law(fit, fit.notes)


def _flips(round_of: Column, before: Column, after: Column) -> tuple[Flips, ...]:
    """Count transitions, an entry for every first round there is."""
    counts = []
    for index in np.unique(round_of):
        here = round_of == index
        kinds = np.bincount(2 * ~before[here] + ~after[here], minlength=4)
        counts.append(Flips(int(index), *kinds.tolist()))
    return tuple(counts)


def _conformity(moves: Table, questions: Questions) -> Conformity:
    differed = moves[moves["follows"] >= 0]
    parts = (differed, differed[differed["led_right"]], differed[~differed["led_right"]])
    return Conformity(*(questions.share(part["question"], part["follows"]) for part in parts))
