"""`-m nsed_lab.studies.families DATA_DIR OUT [SET...]`: what small models together reach, on what is unseen.

DATA_DIR holds the folders of recorded answers; OUT gets a table a set, for lab/data/small_models. The sets are those of
`SETS`. See lab/pages/small_models.md.
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from torch import Tensor

from nsed_lab.studies.vote_tables import ENDING, keep_table
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.parts.reading import Reading
from nsed_torch.parts.ties import Ties
from nsed_torch.traces.episodes import Episodes, joined, recorded_episodes
from nsed_torch.traces.featured import featured
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.rounds import winners_correct
from nsed_torch.traces.splits import divisions, kept_together
from nsed_torch.tuning.fitting import LBFGS
from nsed_torch.tuning.rules import accuracy, decide, known_rules
from nsed_torch.tuning.trainer import CellTrainer, Schedule, fit_cell

GYM = ("mistral-small-3.1-24b-instruct", "gemma-3-27b-it", "qwq-32b")
KOR = ("Qwen2.5-14B-Instruct", "gemma-2-9b-it", "Qwen2.5-7B-Instruct", "Meta-Llama-3.1-8B-Instruct")
LARGER = ("llama-4-maverick", "deepseek-r1")
FIELD = ("best_single", "best_by_category", "fallback", "knn_router", "logistic_router", "plurality", "log_odds")
FIELD += ("dawid_skene_graded", "logistic_vote", "mutual_information", "boosted_votes", "boosted_reading")


class Plan(NamedTuple):
    """A set of recorded answers and how it is divided."""

    folder: str
    agents: tuple[str, ...] | None  # None for all up to 13B
    larger: tuple[str, ...]
    folds_by: str
    groups: tuple[str, ...] = ("answer",)
    firmness: tuple[float, ...] = (100.0,)  # of what reads
    field: tuple[str, ...] = FIELD


SETS = {
    "hard_families": Plan("reasoning_gym/hard", GYM, LARGER, "category"),
    "easy_families": Plan("reasoning_gym/easy", GYM, LARGER, "category"),
    "hard_questions": Plan("reasoning_gym/hard", GYM, LARGER, "question"),
    "easy_questions": Plan("reasoning_gym/easy", GYM, LARGER, "question"),
    "kor": Plan(
        "kor", KOR, ("Meta-Llama-3.1-70B-Instruct", "Qwen2.5-72B-Instruct"), "question", firmness=(10.0, 100.0)
    ),
    "mmlu_pro": Plan(
        *("mmlu_pro", None, (), "question", ("text", "support", "letter"), (3.0,)),
        field=("plurality", "logistic_vote", "boosted_reading"),
    ),
}


def votes(plan: Plan, train: Episodes, chooses: Episodes, test: Episodes) -> Iterator[tuple[str, Tensor]]:
    """Our votes: alone, with a weight by category, and reading; of MMLU-Pro reading alone, and nothing is chosen."""
    bare = [dataclasses.replace(part, features=None, feature_names=()) for part in (train, chooses, test)]
    if plan.agents is None:
        cell = fresh(train, reads=True, by_category=True)
        schedule = Schedule(pull=0.01, firmness=plan.firmness, frozen=("trust.weight",))
        CellTrainer(cell, joined([train, chooses]), None, optimizer=LBFGS, schedule=schedule).fit()
        yield "deliberation", winners_correct(cell, test, Ties.FIRST)
        return
    for name, parts, firmness, by_category in (
        ("votes", bare, (30.0,), False),
        ("deliberation", bare, (30.0,), True),
        ("reads", [train, chooses, test], plan.firmness, True),
    ):
        cell = fresh(parts[0], reads=name == "reads", by_category=by_category)
        schedule = Schedule(firmness=firmness, frozen=("trust.weight",))
        fit_cell(cell, parts[0], parts[1], optimizer=LBFGS, schedule=schedule)
        yield name, winners_correct(cell, parts[2], Ties.FIRST)


def fresh(train: Episodes, *, reads: bool, by_category: bool) -> ConsensusCell:
    """The published vote in the size of a team, without a gate."""
    reading = None
    if reads or by_category:
        reading = Reading(len(train.agents), train.feature_names, sorted(set(train.categories)) if by_category else [])
    if reads and reading is not None and train.features is not None:
        reading.learn_habits(train.of_agents(train.features, float("nan")))
    return ConsensusCell(train.dim, len(train.agents), gate="none", reading=reading).to(train.task.dtype)


def ran(root: Path, plan: Plan) -> tuple[Episodes, dict[str, dict[str, bool]]]:
    """Method -> question -> whether it is right, each fold by what learned from the others."""
    most = None if plan.agents else 13.0
    answers = load_recorded(root / plan.folder, agents=plan.agents, max_parameters_b=most)
    encoder = HashedEncoder(64)
    episodes = featured(recorded_episodes(answers, encoder), answers, list(plan.groups), encoder)
    found: dict[str, dict[str, bool]] = {}
    for parts in divisions(kept_together(plan.folds_by, episodes.ids, episodes.categories), (0.6, 0.2, 0.2), 5):
        ranked = episodes.sorted_by(accuracy(episodes.select(parts.train)))
        train, chooses, test = (ranked.select(rows) for rows in parts)
        right = dict(votes(plan, train, chooses, test))
        right |= {name: decide(known_rules()[name], joined([train, chooses]), test) for name in plan.field}
        right |= {"any": test.oracle().double()} if plan.agents else {}
        for name, values in right.items():
            found.setdefault(name, {}).update(zip(test.ids, (values >= 0.5).tolist(), strict=True))
    if plan.larger:
        others = load_recorded(root / plan.folder, agents=plan.larger)
        row = {task.id: i for i, task in enumerate(others.tasks)}
        for column, name in enumerate(plan.larger):
            found[name] = {task: bool(others.correct[row[task], column]) for task in episodes.ids}
    return episodes, found


def of_whole_families(differences: np.ndarray, families: Sequence[str], draws: int = 10_000) -> str:
    """A 95% interval of a mean difference that draws whole families."""
    names = sorted(set(families))
    places = np.array([names.index(family) for family in families])
    sums, counts = np.bincount(places, differences), np.bincount(places)
    drawn = np.random.default_rng(0).integers(0, len(names), (draws, len(names)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), (0.025, 0.975))
    return f"[{low:.3f}, {high:.3f}]"


def main(root: Path, out: Path, names: Sequence[str]) -> None:
    """Run and store the sets of these names."""
    for name in names or SETS:
        began = process_time()
        episodes, found = ran(root, SETS[name])
        order = sorted(range(len(episodes)), key=lambda i: episodes.ids[i])
        ids, kinds = [episodes.ids[i] for i in order], [episodes.categories[i] for i in order]
        right = {method: [values[task] for task in ids] for method, values in found.items()}
        keep_table(out / f"{name}{ENDING}", right, kinds)
        print(f"{name}: {process_time() - began:.0f} s")
        ours = np.array(right["deliberation"], float)
        for method, values in right.items():
            apart = ours - np.array(values, float)
            whole = of_whole_families(apart, kinds) if SETS[name].folds_by == "category" else ""
            print(f"  {method:20} {np.mean(values):.4f}, ours less it {apart.mean():+.4f} {whole}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
