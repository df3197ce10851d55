"""`-m nsed_lab.studies.endings FILE FOLDER [COUNT]`: how a story goes on (HellaSwag), by the likelihood of each ending.

FILE has a question a line, {ind, activity_label, ctx, endings, label}. The members are the shipped experts and the
backbone without an adapter, which learned nothing of the kind. A member chooses the ending whose tokens it would have
written with the largest mean log-probability, as its first answer in a chat. Methods: every member alone, the mixture
of all (log of the mean probability of the whole ending, over its tokens), the product (mean of the logarithms), the
plurality, ties in expectation. FOLDER gets outcomes.jsonl, as of `nsed evaluate`.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from nsed_torch.app.door import Door
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Likelihood
from nsed_torch.core.ratings import JudgeQuestion
from nsed_torch.parts.rating_modes import LikelihoodRating
from nsed_torch.records.files import parse_json
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

TEAM = {
    "ensemble": "experts",
    "prompts.style": "direct",
    "+ensemble.agents.bare": "{backbone: smollm2}",
}


def run(rows: Sequence[Mapping[str, Any]], door: Door) -> list[Outcome]:
    """What every method chose, question by question."""
    cell, mode = door.rnn.cell, LikelihoodRating()
    members = cell.ensemble.agents
    asked = [
        JudgeQuestion(member, question(row), tuple(row["endings"]), cell.seed) for row in rows for member in members
    ]
    requests = mode.requests(cell.prompts, asked)
    with torch.no_grad(), cell.ensemble.one_run():
        measured = cell.ensemble.measure(requests)
    outcomes = []
    for i, row in enumerate(rows):
        mine = slice(i * len(members), (i + 1) * len(members))
        outcomes += chosen(row, members, requests[mine.start].texts, measured[mine])
    order = list(dict.fromkeys(one.method for one in outcomes))
    return sorted(outcomes, key=lambda one: order.index(one.method))


def checked(line: str, where: str) -> dict[str, Any]:
    """A line of the file; anything else than a question with endings, one of them right, is a ValueError."""
    read, remedy = parse_json(line, where, "take HellaSwag's own file"), "take HellaSwag's own file"
    texts = isinstance(read, dict) and all(isinstance(read.get(key), str) for key in ("activity_label", "ctx"))
    if not texts or not isinstance(read.get("endings"), list) or read.get("label") not in range(len(read["endings"])):
        raise ValueError(
            f"{where}: expected ind, activity_label, ctx, endings and the label of one, got {line[:60]!r}: {remedy}"
        )
    return read


def question(row: Mapping[str, Any]) -> str:
    """What a member is asked."""
    return f"How does this go on?\n{row['activity_label']}: {row['ctx']}"


def chosen(
    row: Mapping[str, Any], members: Sequence[Agent], texts: Sequence[str], measured: Sequence[Likelihood]
) -> Iterator[Outcome]:
    """The outcomes of one question."""
    logs = torch.tensor([one.values for one in measured], dtype=torch.float64).log()  # member x text, mean over tokens
    lengths = torch.tensor(measured[0].lengths, dtype=torch.float64)
    whole = (logs * lengths).logsumexp(0) - torch.tensor(len(members)).log()
    used = [member.charged(one) for member, one in zip(members, measured, strict=True)]
    best = [texts[int(row_of.argmax())] for row_of in logs]
    for member, text, usage in zip(members, best, used, strict=True):
        yield outcome(f"single:{member.name}", row, [text], usage)
    yield outcome("mixture", row, [texts[int((whole / lengths).argmax())]], Usage.sum(used))
    yield outcome("product", row, [texts[int(logs.mean(0).argmax())]], Usage.sum(used))
    counted = Counter(best)
    yield outcome("plurality", row, [t for t, n in counted.items() if n == max(counted.values())], Usage.sum(used))


def outcome(method: str, row: Mapping[str, Any], texts: Sequence[str], usage: Usage) -> Outcome:
    """Of texts that stand level, the share of right ones counts."""
    right = [float(text == row["endings"][row["label"]]) for text in texts]
    verdict = Verdict.RIGHT if right[0] else Verdict.WRONG
    name = str(row["ind"])
    lot = {"by_lot": fmean(right)} if len(texts) > 1 else {}
    return Outcome(method, name, name, row.get("split_type", ""), texts[0], texts[0], verdict, usage, **lot)


def main(file: Path, folder: Path, count: int) -> None:
    """Ask the first questions of a file."""
    rows = [checked(line, f"{file}:{n}") for n, line in enumerate(file.read_text("utf-8").splitlines()[:count], 1)]
    outcomes = run(rows, Door(TEAM))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "outcomes.jsonl").write_text("".join(one.to_line() for one in outcomes), "utf-8")
    for method in dict.fromkeys(one.method for one in outcomes):
        mine = [one.by_lot if one.by_lot is not None else one.score or 0.0 for one in outcomes if one.method == method]
        sys.stdout.write(f"{method}: {fmean(mine):.3f} of {len(mine)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 500)
