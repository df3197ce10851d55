r"""How ZeroEval and KOR-Bench read and grade answers, of which recorded ones are studied."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress

from nsed_torch.questions.answers.official import Official
from nsed_torch.records.transcript import Task
from nsed_torch.traces.formulas import arithmetic

_FIELDS = (
    re.compile(r'"answer"\s*:\s*"([^"]*)"'),
    re.compile(r'"answer"\s*:\s*([^,\s]*)'),
    re.compile(r"answer\s*:\s*([^,\s]*)"),
    re.compile(r"The final answer is: \$\\boxed\{([0-9]+)\}"),
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Operations of KOR-Bench whose answers are formulas, and those of ranges, by the numbers in their ids.
_FORMULAS = frozenset({
    18, 73, 74, 77, 94, 115, 116, 117, 121, 122, 123, 125, 131, 132, 134, 135, 136, 141, 143, 145, 146, 147, 149, 151,
    152, 153, 154, 155, 156, 160, 161, 162, 164, 165, 166, 170, 206, 209, 211, 212, 213, 214, 215, 217, 218,
})  # fmt: skip
_RANGES, _BOUND = frozenset((178, 179)), re.compile(r"[\u2264\u2265]\s*-?[0-9]+\.?[0-9]*")
_SIGNS = str.maketrans("\u00d7\u2212", "*-")
_CLEANED, _WORDLESS = re.compile(r'["\n \[\]]'), re.compile(r"\W")
_DRESS = re.compile(r"\\[()\[\]]|\\text\{.*?\}|\\(?:left|right|displaystyle)")


def _zero_eval(_: Task, text: str) -> str | None:
    """ZeroEval: the answer of the first JSON object, else what stands behind that name, else a whole number's box."""
    with suppress(ValueError, RecursionError):
        held = json.loads(_first_object(text).replace("\n", ""))
        if isinstance(held, dict) and "answer" in held:
            return str(held["answer"]) or None
    return next((found[1] for field in _FIELDS if (found := field.search(text))), None) or None


def _first_object(text: str) -> str:
    """The first balanced braces of a text, without regard to what is quoted; "" where none close."""
    start, depth = text.find("{"), 0
    for mark in re.finditer(r"[{}]", text[start:] if start >= 0 else ""):
        depth += 1 if mark[0] == "{" else -1
        if depth == 0:
            return text[start : start + mark.end()]
    return ""


def _first_numbers(answer: str, task: Task) -> bool:
    """Equal texts without dollars and commas, or equal first numbers."""
    one, other = _sanitized(answer), _sanitized(str(task.target))
    numbers = _NUMBER.search(one), _NUMBER.search(other)
    return one == other or bool(numbers[0] and numbers[1] and float(numbers[0][0]) == float(numbers[1][0]))


def _sanitized(answer: str) -> str:
    text = answer.replace("$", "").strip().replace(",", "")
    value = arithmetic(text) if "/" in text else None
    return text if value is None else str(float(value))


def _bracketed(task: Task, text: str) -> str | None:
    """KOR-Bench: what the first double brackets hold; where there are none and no puzzle, a box or single brackets."""
    marks = [("[[", "]]"), ("$\\boxed{", "}$"), ("[", "]")]
    for opening, closing in marks[:1] if _kor_place(task)[0] == "puzzle" else marks:
        start = text.find(opening)
        end = text.find(closing, start + len(opening)) if start >= 0 else -1
        if end >= 0:
            return text[start + len(opening) : end].strip() or None
    return None


def _kor_place(task: Task) -> tuple[str, int]:
    """The category of a task of KOR-Bench and its number there; ten tasks share a rule."""
    category, _, number = task.id.partition("~")[0].rpartition("/")
    if not category or not number.isdecimal():
        raise ValueError(f"reading=kor: expected ids such as operation/18, got {task.id!r}: keep the benchmark's own")
    return category, int(number)


def _kor_right(answer: str, task: Task) -> bool:
    """KOR-Bench: by category and rule.

    Formulas are compared as texts: so were the published ones, where its reader of LaTeX was not installed.
    """
    category, number = _kor_place(task)
    rule = (number - 1) // 10 + 1
    target = str(task.target).strip()
    target = target[2:-2] if target.startswith("[[") and target.endswith("]]") else target
    if category == "puzzle":
        return _kor_puzzle(answer, target, rule)
    if category == "operation":
        return _kor_operation(answer, target, rule, number)
    if category == "logic":
        inner = target[1:-1] if target.startswith("[") and target.endswith("]") else target
        one, other = (re.sub(r'["\n .]', "", f"[[{text}]]") for text in (answer, inner))
        return sorted(one.split(";")) == sorted(other.split(";")) if rule == 5 else one == other
    return _CLEANED.sub("", answer) == _CLEANED.sub("", target)


def _kor_operation(answer: str, target: str, rule: int, number: int) -> bool:
    if number in _RANGES:
        return sorted(_BOUND.findall(_CLEANED.sub("", answer))) == sorted(_BOUND.findall(_CLEANED.sub("", target)))
    if rule == 18:
        return sorted(_WORDLESS.sub("", answer)) == sorted(_WORDLESS.sub("", target))
    if rule in (23, 24, 25):
        return re.findall("[0-9]+", answer) == re.findall("[0-9]+", target)
    if number in _FORMULAS:
        one, other = (_DRESS.sub("", re.sub(r'["\n\[\]$]', "", text).rpartition("=")[2]) for text in (answer, target))
        return one == other
    if "or" in target:
        one, other = (_CLEANED.sub("", text).replace(r"\text{or}", "or") for text in (answer, target))
        return sorted(one.split("or")) == sorted(other.split("or"))
    return _CLEANED.sub("", answer) == _CLEANED.sub("", target)


def _kor_puzzle(answer: str, target: str, rule: int) -> bool:
    letters = re.sub("[^A-Za-z]", "", answer).lower()
    if rule in (9, 10):
        return _kor_sum(answer.translate(_SIGNS), target.translate(_SIGNS), any_order=rule == 10)
    if rule == 18:
        return re.sub(r"[,\s\[\]]", "", answer) == re.sub(r"[,\s\[\]]", "", target)
    if rule in (1, 2, 4):  # letters: the same, one of several words, or a part of one
        return letters in {1: [re.sub("[^A-Za-z]", "", target).lower()], 2: target.split(","), 4: target}[rule]
    if rule == 3:
        return sorted(filter(None, re.split(r"\W+", answer.lower()))) == sorted(target.split(" "))
    if rule == 5:
        return sorted(re.sub(r"\s", "", answer).split(",")) == sorted(target.split(","))
    return _WORDLESS.sub("", answer) == _WORDLESS.sub("", target)


def _kor_sum(answer: str, target: str, *, any_order: bool) -> bool:
    """A sum with the same signs in order that comes to the same, or one of the same numbers that comes to 24."""
    left, wanted = answer.partition("=")[0], target.partition("\n")[0].partition("=")
    if any_order:
        return sorted(_WORDLESS.sub("", left)) == sorted(_WORDLESS.sub("", wanted[0])) and arithmetic(left) == 24
    found = re.match(r"\s*-?[0-9]+", wanted[2])
    same = re.findall(r"[-+*/]", left) == re.findall(r"[-+*/]", wanted[0])
    return bool(same and found and arithmetic(left) == int(found[0]))


READINGS: Mapping[str, Official] = {
    "zero_eval": Official(_zero_eval, _first_numbers),
    "kor": Official(_bracketed, _kor_right),
}
