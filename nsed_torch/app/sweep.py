"""The end of `nsed tune -m ...` and `nsed evaluate -m ...`: all combinations in one table, each against one of them."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nsed_torch.app.config.paths import check_yaml
from nsed_torch.app.verb import console
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.run_folder import OUTCOMES, RESULTS
from nsed_torch.evaluation.statistics import plain, shown
from nsed_torch.evaluation.tables import csv, markdown, markdown_table, show, terminal_table
from nsed_torch.parts.ties import Ties
from nsed_torch.records.files import read_json, to_json, write_files
from nsed_torch.records.outcome import Outcome, read_outcomes

METRICS = "metrics.json"


class Combination(NamedTuple):
    """A finished run of a sweep."""

    settings: str  # the overrides that not all share
    comparison: Comparison  # of its methods
    outcomes: list[Outcome]  # of its reference
    recorded: bool  # whether these are votes on recorded answers, of `nsed tune`


class SweepTable(Callback):
    """Puts what the runs of a sweep wrote side by side, and each run's reference beside a method; Hydra calls it."""

    def __init__(self, against: str = "") -> None:
        self._against = against
        self._began = 0.0

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note the time: numbered folders that are older belong to another sweep into the same folder."""
        self._began = time.time()

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table and write `sweep.md`, `sweep.csv` and `sweep.json` beside the runs' folders."""
        folder = Path(config.hydra.sweep.dir)
        runs = read_runs(folder, self._began)
        if len(runs) < 2:
            return
        rules = {run.comparison.ties for run in runs}
        ties = Ties.LOT if Ties.LOT in rules else runs[0].comparison.ties
        # Each run counts by its own rule: what none of its ties was drawn by is no tie here.
        outcomes = [
            replace(
                one, method=run.settings, by_lot=one.by_lot if len(rules) == 1 or run.comparison.ties is ties else None
            )
            for run in runs
            for one in run.outcomes
        ]
        reference, what = baseline([run.settings for run in runs], config.get("baseline")), runs[0].comparison.what
        comparison = Comparison.of(outcomes, reference=reference, by_student=runs[0].recorded, what=what, ties=ties)
        rows = [["settings", f"its {runs[0].comparison.reference} minus {self._against}"]]
        pairs = {run.settings: run.comparison.paired.get(self._against) for run in runs}
        rows += [[settings, shown(pair.difference, "+")] for settings, pair in pairs.items() if pair]
        text = markdown(comparison)
        show(console(), comparison)
        if len(rows) > 1:
            text += "\n" + markdown_table(rows) + "\n"
            console().print(terminal_table(rows))
        data = {**comparison.to_json(), "against": {settings: plain(pair) for settings, pair in pairs.items() if pair}}
        write_files(
            {
                folder / "sweep.md": text.encode(),
                folder / "sweep.csv": csv(comparison).encode(),
                folder / "sweep.json": (to_json(data) + "\n").encode(),
            }
        )
        print(folder / "sweep.md")  # noqa: T201 - the result


def read_runs(folder: Path, since: float = 0.0) -> list[Combination]:
    """The finished runs in a sweep's folder; numbered ones that finished before a wall time in seconds are left out.

    Those of `nsed tune` come in the order of their numbers; those of `nsed evaluate`, whose folders are named by a hash
    of their settings, in the order of these, numbers in them as numbers.
    """
    tuned = [path for path in folder.glob(f"*/{METRICS}") if path.stat().st_mtime >= since]
    paths = [*sorted(tuned, key=lambda path: _natural(path.parent.name)), *sorted(folder.glob(f"*/{RESULTS}"))]
    overrides = [_overrides(path.parent / ".hydra" / "overrides.yaml") for path in paths]
    shared = set.intersection(*map(set, overrides)) if paths else set()
    names = [" ".join(o for o in words if o not in shared and not o.startswith("baseline=")) for words in overrides]
    runs = {name: _read(name, path) for name, path in zip(names, paths, strict=True)}
    return list(runs.values()) if tuned else sorted(runs.values(), key=lambda run: _natural(run.settings))


def _overrides(path: Path) -> list[str]:
    check_yaml(path)
    return list(map(str, OmegaConf.load(path)))


def baseline(combinations: Sequence[str], wanted: str | None) -> str:
    """The first combination with all the wanted settings; where there is none, the first, and a line that says so."""
    if found := [one for one in combinations if set((wanted or "").split()) <= set(one.split())]:
        return found[0]
    line = f"baseline: expected settings of {'; '.join(combinations)}, got {wanted}: all are compared with the first"
    console().print(line, markup=False, soft_wrap=True)
    return combinations[0]


def _read(settings: str, path: Path) -> Combination:
    folder, recorded, what, data = path.parent, path.name == METRICS, "accuracy", read_json(path)
    if recorded:
        try:
            seeds = [folder / f"seed_{seed['seed']}" / "result.json" for seed in data["seeds"]]
            reference = data["reference"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: not what nsed tune writes ({error!r}); rerun the one that wrote it") from error
        outcomes, what = scored([read_json(seed)["scores"] for seed in seeds]), data.get("what", what)
    else:
        outcomes, reference = read_outcomes(folder / OUTCOMES), None
    rule = data.get("ties") if isinstance(data, dict) else None
    ties = None if rule is None else Ties.named(rule)
    comparison = Comparison.of(outcomes, reference=reference, by_student=recorded, what=what, ties=ties)
    return Combination(settings, comparison, [o for o in outcomes if o.method == comparison.reference], recorded)


def _natural(text: str) -> list[tuple[float, str]]:
    """Sorts numbers in a text as numbers."""
    parts = re.split(r"([0-9]+(?:\.[0-9]+)?)", text)
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]
