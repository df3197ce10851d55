"""What many methods made of the same questions, stored small: a digit a method and question, and mean costs."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsed_torch.records.files import parse_json
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

ENDING = ".table.jsonl.gz"


def keep_table(
    file: Path, right: Mapping[str, Sequence[bool]], strata: Sequence[str], costs: Mapping[str, float] | None = None
) -> None:
    """Store by method whether each question is right, the questions' kinds, and what a method costs on average."""
    if lengths := {len(values) for values in right.values()} - {len(strata)}:
        raise ValueError(f"expected {len(strata)} questions of every method, got {lengths}")
    head = {"methods": list(right), "costs": {name: round(cost, 4) for name, cost in (costs or {}).items()}}
    rows = zip(strata, zip(*right.values(), strict=True), strict=True)
    lines = [head, *([kind, "".join("01"[bool(one)] for one in row)] for kind, row in rows)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def load_table(path: Path) -> tuple[list[Outcome], dict[str, float]]:
    """Outcomes, question by question, and costs by method; what cannot be read is a ValueError with file and line."""
    with gzip.open(path, "rb") as file:
        head, *rows = (parse_json(line, f"{path}:{n}", "store it again") for n, line in enumerate(file, 1))
    verdicts = {"1": Verdict.RIGHT, "0": Verdict.WRONG}
    outcomes = [
        Outcome(method, str(task), str(task), kind, None, "", verdicts[one], Usage())
        for task, (kind, row) in enumerate(rows)
        for method, one in zip(head["methods"], row, strict=True)
    ]
    return outcomes, head["costs"]
