"""How often our reading and grading of recorded texts agrees with the official one, by set and model.

The first share is of verdicts; the second is of answers, where the official reading found one.

    python -m nsed_lab.studies.agreement DATA [--sets mmlu_pro kor] [--every 10] [--exceptions 5]

DATA holds folders of recorded answers (`questions.jsonl.gz`, `answers/<agent>.jsonl.gz` {id, output, answer, correct}).
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded

SETS = ("mmlu_pro", "zeroeval/gsm8k", "zeroeval/math_l5", "reasoning_gym/easy", "reasoning_gym/hard", "kor")


def compared(table: RecordedAnswers, every: int = 1) -> Iterator[tuple[str, str, Task, str, str]]:
    """Of every text that is there: agent, how both readings compare, the task, our answer, and the recorded one."""
    grader = AnswerGrader()
    for place in range(0, len(table), every):
        task = table.tasks[place]
        for agent, text, recorded, right in zip(
            table.agents, table.outputs[place], table.answers[place], table.correct[place].tolist(), strict=True
        ):
            if text:
                answer = grader.extract(task, text)
                ours = answer is not None and grader.grade([(task, answer)]) == [Verdict.RIGHT]
                yield agent, _case(ours, right, answer, recorded), task, answer or "", recorded or ""


def _case(ours: bool, right: bool, answer: str | None, recorded: str | None) -> str:
    if ours == right:
        return "agrees"
    if ours:
        return "right, where it found none" if recorded is None else "right, where it was wrong"
    return "none, where it was right" if answer is None else "wrong, where it was right"


def main() -> None:
    """Print a line a set and model, and some of the exceptions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--exceptions", type=int, default=0)
    given = parser.parse_args()
    rule = Equality()
    for name in given.sets:
        table = load_recorded(given.data / name)
        cases: dict[str, Counter[str]] = {}
        shown: Counter[str] = Counter()
        same: dict[str, list[bool]] = {}
        for agent, case, task, answer, recorded in compared(table, given.every):
            cases.setdefault(agent, Counter())[case] += 1
            shown[case] += 1
            if recorded:
                same.setdefault(agent, []).append(bool(answer) and rule.equal(answer, recorded))
            if case != "agrees" and shown[case] <= given.exceptions:
                told = f"{answer!r:.60}, recorded {recorded!r:.60}, target {task.target!r:.60}"
                print(f"    {name} {agent} {task.id}: {case}: {told}")
        for agent, counts in cases.items():
            alike = sum(same.get(agent, ())) / max(len(same.get(agent, ())), 1)
            told = ", ".join(f"{case} {n}" for case, n in counts.most_common() if case != "agrees")
            print(
                f"{name:20} {agent:40} {counts.total():6} {counts['agrees'] / counts.total():.4f} {alike:.4f}  {told}"
            )


if __name__ == "__main__":
    main()
