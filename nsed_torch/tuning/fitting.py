"""Fit a consensus cell to traces, and say with intervals what that was worth, from Python."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.tables import printed
from nsed_torch.parts.ties import Ties
from nsed_torch.records.trace import TRACES
from nsed_torch.traces.collecting import Traces
from nsed_torch.traces.episodes import Episodes, joined, recorded_episodes
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.rounds import winners_correct
from nsed_torch.traces.splits import Split, kept_together, place
from nsed_torch.tuning.memory_fit import informative, kept, several_rounds
from nsed_torch.tuning.trainer import ANSWER, MEMORY, MakeOptimizer, Refit, Schedule, fit_cell

if TYPE_CHECKING:
    from nsed_torch.tuning.answer_fit import Closings

LBFGS: MakeOptimizer = partial(torch.optim.LBFGS, lr=1.0, max_iter=5, history_size=20, line_search_fn="strong_wolfe")
CONSENSUS = "consensus"
WHAT = {
    CONSENSUS: "accuracy",
    MEMORY: "share of the last memory on notes that matter",
}
"""What tasks that were held out are scored by."""

FITTED, NO_GATE, UNTRAINED = "fitted", "no gate", "not fitted"


@dataclass(frozen=True)
class Fitted:
    """A cell that learned from all tasks, and what such cells came to on tasks they had not seen."""

    cell: ConsensusCell
    comparison: Comparison  # of the fitted cell against the same without a gate, and as it was before
    fits: tuple[Refit, ...]  # how training went, fold by fold

    def __str__(self) -> str:
        return printed(self.comparison)


def fit(
    cell: ConsensusCell | MacroRNNCell,
    traces: Traces | Episodes | str | Path | Sequence[Traces | str | Path],
    *,
    folds: int = 5,
    folds_by: str = "question",
    loss: str = "consensus",
    seed: int = 0,
    optimizer: MakeOptimizer | None = None,
    schedule: Schedule | None = None,
    team: MacroRNN | MacroRNNCell | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Fitted:
    """Fit gate, vote, trust and whatever else of a cell learns to graded deliberations.

    Each fold trains a copy on the other folds (one of which chooses, where there is something to choose) and is tested
    on its own tasks; so does the same cell without a gate (`gate="none"`). The cell that comes out learned from all.

    Args:
        cell: what is fitted, or a team's `MacroRNNCell`, of which its consensus cell is; it stays as it is.
        traces: what `collect` returned, or folders of it or of recorded answers, or episodes.
        folds: at least 3; each tests its share of the tasks.
        folds_by: `question`; or `category`, so that what is tested is of categories that no fold learned from.
        loss: `consensus`, surprise at the right answer; or `memory`, what the gate fails to keep of notes that matter,
            for traces of tasks that know which do; or `answer`, how unlikely targets are to models that are told
            what the gate retains, for folders of traces with inputs or several rounds: through the models where they
            hear notes as far as they are retained (`protocol.memory=weighted`), else by random memories.
        seed: deals the tasks out to the folds.
        optimizer: makes one of parameters; if None L-BFGS, which can converge, and for gradients through models Adam.
        schedule: how long and how; that of the loss if None. A gate that learns has a gradient from the consensus only
            through what trust reads of the state, which is trained too from three rounds on, and held to its start.
        team: whose models answer, with `loss="answer"`; they stay as they are.
        report: hears of every fold.

    Raises:
        ValueError: in one line, for fewer tasks than folds, agents that the cell was not built for, or embeddings of
            another width.
    """
    cell = getattr(cell, "consensus", cell)  # of a `MacroRNNCell`
    if not isinstance(cell, ConsensusCell):
        raise ValueError(f"fit: expected a consensus cell, such as team.cell.like(), got {type(cell).__name__}")
    wanted = schedule.loss if schedule else loss
    episodes = _episodes(traces, cell.dim, reading=wanted == MEMORY)
    closings = _closings(traces, team, schedule) if wanted == ANSWER else None
    episodes = episodes if closings is None else several_rounds(episodes)
    schedule = schedule or _schedule(loss, cell, episodes, closings)
    optimizer = optimizer or (LBFGS if closings is None or closings.draws else partial(torch.optim.Adam, lr=0.05))
    names = kept_together(folds_by, episodes.ids, episodes.categories)
    _check(cell, episodes, folds, len(set(names)), "task" if folds_by == "question" else "category")
    start = copy.deepcopy(cell).to(episodes.task.dtype)  # traces are double, recorded answers float
    start.agent_names = episodes.agents
    runs, fits, dealt = [], [], _folds(names, folds, seed)
    for number, parts in enumerate(dealt):
        train, validation, test = (episodes.select(rows) for rows in parts)
        rivals = {FITTED: copy.deepcopy(start), NO_GATE: start.like(gate="none")}
        for name, rival in rivals.items():
            # Without a gate there is nothing to learn of a memory.
            if name == FITTED or schedule.loss == CONSENSUS:
                how = fit_cell(rival, train, validation, optimizer=optimizer, schedule=schedule, closings=closings)
                fits += [how] * (name == FITTED)
        rivals[UNTRAINED] = start
        runs.append({name: _scores(rival, test, schedule.loss, closings) for name, rival in rivals.items()})
        report(f"fold {number + 1} of {folds}: {fits[-1]}")
    first, whole = dealt[0], copy.deepcopy(start)
    # Tasks that choose are no others than before; what follows learns from all, those of the first test too.
    learned, chooses = episodes.select(torch.cat([first.train, first.test])), episodes.select(first.validation)
    fit_cell(whole, learned, chooses, optimizer=optimizer, schedule=schedule, closings=closings)
    what = closings.what[0] if closings else WHAT[schedule.loss]
    table = Comparison.of(scored(runs), reference=FITTED, by_student=True, what=what, ties=None)
    return Fitted(whole, table, tuple(fits))


def _loaded(folder: Path, dim: int, *, reading: bool) -> Episodes:
    """Of traces, or of recorded answers with embeddings as wide as the cell's."""
    if (folder / "answers").is_dir() and not (folder / TRACES).is_file():
        return recorded_episodes(load_recorded(folder), HashedEncoder(dim))
    return load_traces(folder, reading=reading)


def _episodes(given: Any, dim: int, *, reading: bool) -> Episodes:
    if isinstance(given, Episodes):
        return given
    episodes = joined([_loaded(folder, dim, reading=reading) for folder in _folders(given)])
    return episodes.select(informative(episodes).nonzero()[:, 0]) if reading else episodes


def _folders(given: Any) -> list[Path]:
    parts = list(given) if isinstance(given, list | tuple) else [given]
    if not parts or not all(isinstance(part, Traces | str | Path) for part in parts):
        raise ValueError(f"fit: expected traces that collect wrote, or their folders, got {given!r:.80}")
    return [part.folder if isinstance(part, Traces) else Path(part) for part in parts]


def _schedule(loss: str, cell: ConsensusCell, episodes: Episodes, closings: "Closings | None") -> Schedule:
    """Trust by question and state stays frozen, for few tasks teach it much, unless a gate learns through it."""
    gated = any(parameter.requires_grad for parameter in cell.gate.parameters())
    if closings is not None:
        return Schedule(loss) if closings.draws else Schedule(loss, epochs=4, batch=8)
    speaks = loss == CONSENSUS and gated and episodes.round_mask.shape[1] > 2
    return Schedule(loss, frozen=() if speaks else ("trust.weight",), firmness=(30.0,))


def _check(cell: ConsensusCell, episodes: Episodes, folds: int, most: int, each: str) -> None:
    if not 3 <= folds <= most:
        raise ValueError(f"fit: expected from 3 to {most} folds, one {each} each or more, got {folds}")
    for what, got, expected in (("dim", cell.dim, episodes.dim), ("agents", cell.agents, len(episodes.agents))):
        if got != expected:
            raise ValueError(f"fit: expected a cell of {what}={expected}, as the traces have, got {got}: build it so")


def _folds(names: Sequence[str], folds: int, seed: int) -> list[Split]:
    """Names dealt out by a hash: each fold tests the tasks of its own, the next one chooses, the rest train."""
    order = sorted(set(names), key=lambda name: place(name, seed))
    number = {name: i % folds for i, name in enumerate(order)}
    dealt = torch.tensor([number[name] for name in names])
    found = []
    for fold in range(folds):
        test, chooses = dealt == fold, dealt == (fold + 1) % folds
        found.append(Split(*(part.nonzero()[:, 0] for part in (~test & ~chooses, chooses, test))))
    return found


def _scores(cell: ConsensusCell, test: Episodes, loss: str, closings: "Closings | None") -> dict[str, float]:
    if closings is not None:
        right = closings.scores(cell, test)[0]
    else:
        right = kept(cell, test).share if loss == MEMORY else winners_correct(cell, test, Ties.FIRST)
    return dict(zip(test.ids, right.double().tolist(), strict=True))


def _closings(traces: Any, team: MacroRNN | MacroRNNCell | None, schedule: Schedule | None) -> "Closings":
    from nsed_torch.tuning.answer_fit import Closings  # noqa: PLC0415 - loaded where answers are asked for

    if team is None or isinstance(traces, Episodes):
        raise ValueError("fit: expected a team and folders of traces for loss='answer', got none: pass team=")
    cell: Any = getattr(team, "cell", team)
    schedule = schedule or Schedule(ANSWER)
    return Closings.of(cell, _folders(traces), schedule.draws, options=schedule.options)
