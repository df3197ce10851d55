"""How often our verdicts on recorded texts agree with the recorded ones, by set and model.

    python -m nsed_lab.studies.agreement DATA [--sets mmlu_pro kor] [--every 10] [--exceptions 5] [--reading general]
        [--gym medium.yaml]

DATA holds folders of recorded answers (`questions.jsonl.gz`, `answers/<agent>.jsonl.gz` {id, output, answer, correct}).
Each is read by its own rule, or by the one that `--reading` names. `--gym` is a settings file of reasoning-gym's own
evaluation ({default_seed, categories: [{datasets: [{dataset, params}]}]}): its families' questions are made again, so
that its scorers grade what is not equal to the target.
"""

import argparse
import contextlib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.deadline import within
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded

READINGS = {
    "mmlu_pro": "mmlu_pro",
    "zeroeval/gsm8k": "zero_eval",
    "zeroeval/math_l5": "zero_eval",
    "reasoning_gym/easy": "reasoning_gym",
    "reasoning_gym/hard": "reasoning_gym",
    "kor": "kor",
}
CUT = 1200
"""Characters that are kept of longer texts in some sets."""
DRAWN = 50
"""Questions of a family in reasoning-gym's evaluation."""
PATIENCE = 3.0
"""Seconds for a question that is made again, and for a scorer."""

# A scorer may evaluate what it is given: no names are called but those of functions, and no towers of powers built.
_HARMFUL = re.compile(
    r"__|(?<![a-z])(?!(?:sin|cos|tan|exp|log|sqrt)\s*\()[A-Za-z_]\w*\s*\(|(?:\*\*|\^).*(?:\*\*|\^)\s*\w+\s*(?:\*\*|\^)"
)


class Compared(NamedTuple):
    """One text: whose, how both verdicts compare, and what either reading found."""

    agent: str
    case: str
    task: Task
    answer: str
    recorded: str


def compared(
    table: RecordedAnswers, reading: str, every: int = 1, items: Mapping[str, tuple[Any, Any]] | None = None
) -> Iterator[Compared]:
    """Compare verdicts on every text that is there; `items` are reasoning-gym's own, by question."""
    for column, agent in enumerate(table.agents):
        answered = [
            row[column] is not None for row, texts in zip(table.answers, table.outputs, strict=True) if texts[column]
        ]
        # The records of some models are of an earlier version of the rule, which left answers open.
        named = "mmlu_pro_first" if reading == "mmlu_pro" and not all(answered) else reading
        grader = AnswerGrader(reading=named)
        for place in range(0, len(table), every):
            task, text, recorded = table.tasks[place], table.outputs[place][column], table.answers[place][column]
            if text:
                answer = grader.extract(task, text)
                ours = answer is not None and (
                    grader.grade([(task, answer)]) == [Verdict.RIGHT]
                    or scored(answer, (items or {}).get(task.question))
                )
                case = _case(ours, bool(table.correct[place, column]), answer, recorded, cut=len(text) == CUT)
                yield Compared(agent, case, task, answer or "", recorded or "")


def scored(answer: str, item: tuple[Any, Any] | None) -> bool:
    """Whether the scorer of a question's family gives an answer full marks."""
    if item is None or _HARMFUL.search(answer) or len(answer) > 4 * CUT:
        return False
    try:
        return bool(within(PATIENCE, partial(item[0].score_answer, answer, item[1])) >= 0.99)
    except Exception:  # whatever a scorer cannot read is no solution
        return False


def gym_items(path: Path, families: set[str]) -> dict[str, tuple[Any, Any]]:
    """What reasoning-gym knows of the questions of an evaluation, by question."""
    import reasoning_gym  # noqa: PLC0415 - an extra

    settings = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(settings, dict) or "default_seed" not in settings:
        raise ValueError(f"{path}: expected {{default_seed, categories}}: name a file of reasoning-gym's evaluation")
    listed = [one for category in settings.get("categories", []) for one in category["datasets"]]
    options = {one["dataset"]: one.get("params", {}) for one in listed}
    items = {}
    for family in sorted(families):
        dataset = reasoning_gym.create_dataset(
            family, size=DRAWN, seed=settings["default_seed"], **options.get(family, {})
        )
        for place in range(DRAWN):
            with contextlib.suppress(ValueError, TimeoutError):  # some it cannot make again
                item = within(PATIENCE, partial(dataset.__getitem__, place))
                items[item["question"]] = dataset, item
    return items


def _case(ours: bool, right: bool, answer: str | None, recorded: str | None, *, cut: bool) -> str:
    if ours == right:
        return "agrees"
    if answer is None and recorded is not None and not cut:
        return "guessed, where nothing is found"
    told = f"{'right' if ours else 'wrong'}, where it was {'right' if right else 'wrong'}"
    return f"{told}, of a cut text" if cut else told


def main() -> None:
    """Print a line a set and model, then a line a set, and some of the exceptions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(READINGS))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--exceptions", type=int, default=0)
    parser.add_argument("--reading")
    parser.add_argument("--gym", type=Path)
    given = parser.parse_args()
    for name in given.sets:
        table = load_recorded(given.data / name)
        reading = given.reading or READINGS.get(name, "general")
        items = {}
        if given.gym and reading == "reasoning_gym":
            off = {str(one.task.category) for one in compared(table, reading, given.every) if one.case != "agrees"}
            items = gym_items(given.gym, off)
        cases: dict[str, Counter[str]] = defaultdict(Counter)
        shown: Counter[str] = Counter()
        for agent, case, task, answer, recorded in compared(table, reading, given.every, items):
            cases[agent][case] += 1
            shown[case] += 1
            if case != "agrees" and shown[case] <= given.exceptions:
                told = f"{answer!r:.60}, recorded {recorded!r:.60}, target {task.target!r:.60}"
                print(f"    {name} {agent} {task.id}: {case}: {told}")
        shares = []
        for agent, counts in cases.items():
            shares.append(counts["agrees"] / counts.total())
            told = ", ".join(f"{n} {case}" for case, n in counts.most_common() if case != "agrees")
            print(f"{name:20} {agent:40} {counts.total():6} {shares[-1]:.4f}  {told}")
        texts = sum(counts.total() for counts in cases.values())
        least, middle = min(shares), statistics.median(shares)
        print(f"{name}: reading {reading}, {len(cases)} models, {texts} texts, least {least:.4f}, median {middle:.4f}")


if __name__ == "__main__":
    main()
