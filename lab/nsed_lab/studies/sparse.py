"""What sparse judging loses: dense ratings thinned to k judges a proposal, accuracy against the share of ratings.

    python -m nsed_lab.studies.sparse [DATA ...] [--questions 3000]

Answers are drawn, or those of folders of recorded answers; ratings are planted in both.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import RoundInput
from nsed_torch.core.engine import call_seed
from nsed_torch.core.sparse import drawn
from nsed_torch.evaluation.statistics import mean_difference, mean_score, shown
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import load_recorded

AGENTS, SEED = 9, 7300
SKILLS = np.linspace(0.3, 0.7, AGENTS)
"""How likely each agent of a drawn team is right."""

JUDGES = {"weak": 0.5, "middling": 1.0, "strong": 2.0}
"""How far judges tell right from wrong: the mean logit of a rating, in standard deviations of what each sees alone."""


class Answers(NamedTuple):
    """What a team said: classes of equal answers, -1 for none, and whether each proposal is right."""

    classes: np.ndarray  # [batch proposal]
    right: np.ndarray  # [batch proposal]


def drawn_answers(questions: int) -> Answers:
    """Right answers are class 0; of five wrong ones a question's favourite is as likely as all others together."""
    rng = np.random.default_rng(SEED)
    right = rng.random((questions, AGENTS)) < SKILLS
    wrong = np.where(rng.random(right.shape) < 0.5, 1, rng.integers(2, 6, right.shape))
    return Answers(np.where(right, 0, wrong), right)


def recorded_answers(folder: Path) -> Answers:
    """Those of nine agents of a folder, evenly spaced from the best to the worst."""
    names = load_recorded(folder)
    order = names.correct.double().mean(0).argsort(descending=True)
    chosen = order[torch.linspace(0, len(order) - 1, AGENTS).round().long()]
    said = [[row[a] for a in chosen.tolist()] for row in names.answers]
    return Answers(Equality(math_verify=False).classes(said).numpy(), names.correct[:, chosen].numpy())


def planted(answers: Answers, sharp: float) -> torch.Tensor:
    """Ratings, [batch voter proposal]: what is right, what all judges see in an answer, what one sees in a proposal.

    A logit is `sharp` for right and `-sharp` for wrong, plus two normal deviates, one an answer, one a rating.
    """
    rng = np.random.default_rng(SEED + 1)
    batch, agents = answers.classes.shape
    common = np.take_along_axis(rng.normal(size=(batch, agents + 1)), answers.classes, 1)
    logits = sharp * (2 * answers.right - 1) + common
    noise = rng.normal(size=(batch, agents, agents))
    return torch.tensor(np.tanh((logits[:, None] + noise) / 2))


def asked(classes: np.ndarray, judges: int, once: bool = False) -> tuple[np.ndarray, int]:
    """Of each rating the proposal that is rated for it, -1 where none is asked for; and how many ratings that is."""
    source, count = np.full((*classes.shape, classes.shape[1]), -1), 0
    for place, row in enumerate(classes):
        said = [j for j, c in enumerate(row) if c >= 0]
        names = [int(row[j]) if once else j for j in said]
        groups = [[j for j, name in zip(said, names, strict=True) if name == head] for head in dict.fromkeys(names)]
        may = [[group != [i] for group in groups] for i in range(len(row))]
        pairs = drawn(may, [[False] * len(groups)] * len(row), call_seed(SEED, place), judges)
        count += sum(map(len, pairs))
        for i, rated in enumerate(pairs):
            for g in rated:
                others = [j for j in groups[g] if j != i]
                source[place, i, others] = others[0]
    return source, count


def outcome(answers: Answers, dense: torch.Tensor, source: np.ndarray) -> np.ndarray:
    """Whether each question's winner is right, by the published vote over answers."""
    place = torch.tensor(source)
    kept = dense.gather(2, place.clamp(min=0)).masked_fill(place < 0, torch.nan)
    batch, agents = answers.classes.shape
    said, who = torch.tensor(answers.classes >= 0), torch.arange(agents).expand(batch, agents)
    round_ = RoundInput(kept, place >= 0, who, who, torch.tensor(answers.classes), proposal_mask=said)
    winner = ConsensusCell(1, agents).double().elect(round_, torch.zeros(batch, 1, dtype=torch.double)).winner
    right = np.take_along_axis(answers.right, winner.clamp(min=0).numpy()[:, None], 1)[:, 0]
    return right & (winner >= 0).numpy()


def study(name: str, answers: Answers) -> Table:
    """A row a strength of judges and number of judges."""
    table = Table(title=f"{name}, {len(answers.right)} questions", title_justify="left")
    for column in ("judges are", "k", "equal once", "ratings", "accuracy", "less dense"):
        table.add_column(column)
    designs = {(k, once): asked(answers.classes, k, once) for once in (False, True) for k in range(1, AGENTS)}
    whole, all_of_them = designs[AGENTS - 1, False]
    for words, sharp in JUDGES.items():
        dense = planted(answers, sharp)
        base = outcome(answers, dense, whole).astype(float)
        for (k, once), (source, count) in designs.items():
            right = outcome(answers, dense, source).astype(float)
            told = shown(mean_score(right[:, None])), shown(mean_difference((right - base)[:, None]), "+")
            table.add_row(words, str(k), "yes" if once else "no", f"{count / all_of_them:.2f}", *told)
    return table


def main() -> None:
    """Print a table a set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--questions", type=int, default=3000)
    given = parser.parse_args()
    console = Console(width=120)
    console.print(study("drawn", drawn_answers(given.questions)))
    for folder in given.data:
        console.print(study(folder.name, recorded_answers(folder)))


if __name__ == "__main__":
    main()
