"""`-m nsed_lab.studies.round_votes FOLDER... OUT`: votes over all rounds, on folds by question.

Every FOLDER holds the traces of one team; their names are those of the runs. OUT gets what every rule came to, a file a
folder, for lab/data/rounds. See lab/pages/rounds.md.
"""

import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Usage
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.featured import featured_traces
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.splits import place
from nsed_torch.tuning.round_fit import RoundFit, by_rounds, fit_round_vote

FOLDS = 5
GROUPS = ("text", "support")
HALF = 0.145
"""Half of the share of agents, in teams of three, that turned from right to wrong after round 1."""


def rules(parts: Sequence[Episodes]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Name -> whether each task of every folder is answered right, each fold by rules that learned from the others."""
    data = [by_rounds(part) for part in parts]
    plain = [part.__class__(**{**vars(part), "features": None, "feature_names": ()}) for part in parts]
    yield "first", [d.led(0) for d in data]
    yield "last", [d.led() for d in data]
    wholes = {"votes": plain, "texts": list(parts)}
    for name, given in wholes.items():
        yield name, folded(given, name)
        yield f"{name}_alone", [folded([one], f"{name}_alone")[0] for one in given]
    yield "back_half", folded(wholes["texts"], "back_half", most_turned=HALF)
    yield "halt", folded(wholes["texts"], "halt", stops=True)


def folded(
    parts: Sequence[Episodes], name: str, most_turned: float | None = None, *, stops: bool = False
) -> list[torch.Tensor]:
    """Whether each task is answered right, fold by fold; says on standard output what was fitted."""
    data = [by_rounds(part) for part in parts]
    found = [torch.zeros(len(part), dtype=torch.bool) for part in parts]
    for fold in range(FOLDS):
        tests = [torch.tensor([int(place(one) * FOLDS) == fold for one in part.ids]) for part in parts]
        learned = [part.select((~test).nonzero()[:, 0]) for part, test in zip(parts, tests, strict=True)]
        fit: RoundFit = fit_round_vote(learned, most_turned=most_turned, stops=stops)
        weights = " ".join(f"{value:.2f}" for value in fit.vote.votes.tolist())
        chosen = f"caution {fit.vote.caution:.1f}, enough {fit.vote.enough:.1f}"
        print(f"{name} {fold}: hold {fit.strength:g}, inner {fit.inner:.4f}, votes {weights}, {chosen}")
        saved = total = 0
        for i, (d, test) in enumerate(zip(data, tests, strict=True)):
            one = d.select(test)
            stood = fit.vote.decide(one.said, one.held, one.features)
            found[i][test] = one.correct(stood.answer)
            saved, total = saved + int(stood.reached.sum()), total + int(one.held.sum())
        print(f"  rounds {saved} of {total}")
    return found


def main(folders: Sequence[Path], out: Path) -> None:
    """Read, decide, store."""
    parts = []
    for folder in folders:
        part = load_traces(folder)
        parts.append(featured_traces(part, list(read_traces(folder)), GROUPS))
    first = [by_rounds(part).led(0) for part in parts]
    lines: list[list[str]] = [[] for _ in parts]
    for name, rights in rules(parts):
        for i, (part, right) in enumerate(zip(parts, rights, strict=True)):
            on = part.round_mask.sum(1) > 1
            for task, ok, began, more in zip(part.ids, right.tolist(), first[i].tolist(), on.tolist(), strict=True):
                stratum = ("right" if began else "wrong") if more else "one"
                verdict = Verdict.RIGHT if ok else Verdict.WRONG
                task_here = f"{folders[i].name}/{task}"
                lines[i].append(Outcome(name, task_here, task, stratum, None, "", verdict, Usage()).to_line())
            print(folders[i].name, name, round(right.double().mean().item(), 4))
    out.mkdir(parents=True, exist_ok=True)
    for folder, kept in zip(folders, lines, strict=True):
        (out / f"{folder.name}.jsonl.gz").write_bytes(gzip.compress("".join(kept).encode(), 9, mtime=0))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:-1]], Path(sys.argv[-1]))
