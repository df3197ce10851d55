r"""Recorded debates: teams of one model, as personas or at several temperatures, whose agents read each other.

The files have the form of Du et al. 2023 (arXiv 2305.14325): `{question: [[messages of an agent, ...], gold]}`.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from nsed_torch.records.files import parse_json
from nsed_torch.records.lookalikes import one_line
from nsed_torch.traces.canonical import canonical
from nsed_torch.traces.clones import Clone, RecordedLine, Source, fields, whole

ROUNDS = 3

_FOLDER = "experiments/linux_single/slurm/results_hpc"
_NAME = re.compile(r"(gsm|mmlu)_([\w.+-]+?)_(?:persona_|temp)([\w.+-]+)_agents\d_rounds\d\.json")
_FRAME = re.compile(
    r"^Can you (?:answer|solve) the following [\w ]+[?:] "
    r"| (?:Answer in English only\. )?Explain your (?:answer, putting|reasoning\. Your final) .*",
    re.DOTALL,
)
_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LETTERS = (
    re.compile(r"\\boxed\{\s*(?:\\\w+\{)?\(?([A-Da-d])\b"),
    re.compile(r"(?:\((?=.\))|\([Xx]\)\s*(?=[A-D]))([A-Da-d])\b"),  # some models write `(X) B` for `(B)`
    re.compile(r"answer(?:\s+is)?[:\s*]+([A-D])\b", re.IGNORECASE),
)
_ALONE = re.compile(r"\b([B-D]|A(?! [a-z]))\b")
_DIGITS = re.compile(r"(?:(?<![\w)\]}])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?")


def debates(agents: int) -> Source:
    """Debates of so many agents on GSM8K and MMLU, by place, in the order of a team's personas or temperatures.

    A task is a question to a team, `gsm/MODEL/TEAM/INDEX`, of category `gsm/MODEL`. The same few questions come again
    for every team. Divide by the question's text: other divisions test on questions that were learned from.
    """

    def files(clone: Clone) -> dict[str, list[Path]]:
        patterns = [f"{_FOLDER}/{kind}/{kind}_*_agents{agents}_rounds{ROUNDS}.json" for kind in _READ]
        paths = [path for one in patterns for path in clone.files(one) if _NAME.fullmatch(path.name)]
        return {f"agent{place}": paths for place in range(1, agents + 1)} if paths else {}

    return Source("lferreiraMD/slm_multiagent_debate", "MIT (by its README)", files, partial(_lines, agents))


def _lines(agents: int, clone: Clone, path: Path) -> Iterator[RecordedLine]:
    ((kind, model, team),) = _NAME.findall(path.name)
    asked = parse_json(clone.content(path), str(path), "fetch it again", halves=True)
    if not isinstance(asked, dict):
        raise ValueError(f"{path}: expected debates by question, got {one_line(asked, 60)!r}: fetch it again")
    for index, (text, debate) in enumerate(asked.items()):
        where = f"{path}: question {index + 1}"
        replies, gold = _replies(debate, agents, where)
        question, target = _FRAME.sub("", whole(text)), _READ[kind](f"({gold.strip()})")
        if target is None or not question.strip():
            got = f"{one_line(text, 60)!r} and {one_line(gold, 60)!r}"
            raise ValueError(f"{where}: expected a question and its gold answer, got {got}: fetch the file again")
        name = f"{kind}/{model}/{team}/{index}"
        for place, number in ((place, number) for place in range(agents) for number in range(ROUNDS)):
            output = replies[place][number]
            # What was thought answers only where nothing behind it does.
            answer = _READ[kind](output.rpartition("</think>")[2]) or _READ[kind](output)
            known = (name, question, target, f"{kind}/{model}", output, answer, answer == target)
            yield RecordedLine(*known, round=number, agent=f"agent{place + 1}")


def _replies(debate: Any, agents: int, where: str) -> tuple[list[list[str]], str]:
    """What each agent said, by round, and the gold answer."""
    match debate:
        case [list() as contexts, str() as gold] if all(isinstance(context, list) for context in contexts):
            kinds = {"role": str, "content": str}
            talks = [[fields(message, where, kinds) for message in context] for context in contexts]
            said = [[known["content"] for known in talk if known["role"] == "assistant"] for talk in talks]
            if [len(one) for one in said] == [ROUNDS] * agents:
                return said, gold
    wanted = f"expected {agents} agents with {ROUNDS} replies each, and a gold answer"
    raise ValueError(f"{where}: {wanted}, got {one_line(debate, 60)!r}: fetch the file again")


def _number(text: str) -> str | None:
    """The last box with a number, else the last number, as the repository reads them."""
    said = [*_DIGITS.findall(text)[-1:], *_BOX.findall(text)]
    return next((str(value) for value in map(canonical, reversed(said)) if isinstance(value, Fraction)), None)


def _letter(text: str) -> str | None:
    """The last letter of the first form that the text has, by the repository's `eval_mmlu.py`, and of boxes."""
    said = *(form.findall(text) for form in _LETTERS), _ALONE.findall(text[-200:])
    return next((letters[-1].upper() for letters in said if letters), None)


_READ = {"gsm": _number, "mmlu": _letter}
