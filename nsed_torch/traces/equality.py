"""When answers are the same: classes of equal answers, and the ratings, votes and winners that follow from them."""

import importlib.metadata
import importlib.util
import os
import string
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.core.functional import vote_mask
from nsed_torch.records.extras import missing
from nsed_torch.traces.canonical import canonical, unit
from nsed_torch.traces.formulas import formulas, latex


@dataclass(frozen=True)
class Equality:
    """Equal answers by the task's own rule: numbers as numbers, formulas by math-verify, the rest as texts.

    Answers of one spelling (`canonical`) are equal, but for numbers of different units. If math-verify is used,
    spellings that read as formulas are then compared one by one with the first answer of every class so far and join
    the first that it finds equal: classes stay an equivalence, and their outcome depends on the order of the answers
    alone. A pair takes seconds at most (`Formulas`). Our reading of the rule.
    """

    math_verify: bool | None = None  # None uses it where it is installed (the extra `bench`)

    def __post_init__(self) -> None:
        installed = importlib.util.find_spec("math_verify") is not None
        if self.math_verify and not installed:
            raise ValueError(missing("math-verify", "math_verify=true", "bench"))
        object.__setattr__(self, "math_verify", installed if self.math_verify is None else self.math_verify)

    def identity(self) -> dict[str, Any]:
        """Which rule and which version of it."""
        return {
            "rule": "answers, 3",
            "math_verify": importlib.metadata.version("math-verify") if self.math_verify else None,
        }

    def equal(self, one: str, other: str) -> bool:
        """Whether two answers are the same."""
        return len(set(self.classes([[one, other]])[0].tolist())) == 1

    def classes(self, answers: Sequence[Sequence[str | None]]) -> Int[Tensor, "batch agent"]:
        """Number every task's classes of equal answers from 0 in the order of each class's first agent.

        Answers come by task and agent, as many per task; an answer of None is of class -1.
        """
        unique = dict.fromkeys(answer for row in answers for answer in row if answer is not None)
        known = {answer: _Spelled.of(answer) for answer in unique}
        rows = []
        for row in answers:
            heads: list[_Spelled] = []
            numbers: dict[_Spelled, int] = {}
            for answer in row:
                if answer is not None and (one := known[answer]) not in numbers:
                    same = (n for n, head in enumerate(heads) if self._same(head, one))
                    number = numbers[one] = next(same, len(heads))
                    heads += [one] if number == len(heads) else []
            rows.append([-1 if answer is None else numbers[known[answer]] for answer in row])
        return torch.tensor(rows, dtype=torch.long).reshape(len(rows), len(rows[0]) if rows else 0)

    def _same(self, one: "_Spelled", other: "_Spelled") -> bool:
        """Whether answers of different spellings mean the same; the cheapest question first."""
        if one.value == other.value:
            return "" in (one.unit, other.unit)
        # Different numbers are different, exactly.
        both_numbers = isinstance(one.value, Fraction) and isinstance(other.value, Fraction)
        if both_numbers or not self.math_verify or not one.formula or not other.formula:
            return False
        return formulas(os.getpid()).equal(one.formula, other.formula)


class _Spelled(NamedTuple):
    """An answer as it is compared."""

    value: Fraction | str
    unit: str  # of a number
    formula: str  # in LaTeX; "" where it is none

    @classmethod
    def of(cls, answer: str) -> "_Spelled":
        value = canonical(answer)
        if isinstance(value, Fraction):
            return cls(value, unit(answer), latex(value))
        # What is spelled alike is alike, so formulas are those of one spelling.
        return cls(value, "", latex(answer))


def agreement(
    classes: Int[Tensor, "batch agent"],
) -> tuple[Float[Tensor, "batch voter proposal"], Bool[Tensor, "batch voter proposal"]]:
    """Ratings without a model: +1 for a proposal that answers what the voter answered, -1 for any other.

    Agents are voters and authors alike. With n answers and m of them in a proposal's class, its net support under the
    signed quadratic vote is `(2 m - n - 1) / sqrt(n - 1)`, under the linear vote the same over `n - 1`: both rank by
    class size, so the consensus of agreement ratings is the plurality. Our reading of DESIGN's `agreement`.

    Returns:
        Ratings in {-1, 0, 1}, 0 only where masked; and which of them count: voter and author answered and differ.
    """
    answered = classes >= 0
    agents = torch.arange(classes.shape[1], device=classes.device).expand_as(classes)
    mask = vote_mask(agents, agents, answered) & answered[:, :, None]
    same = classes[:, :, None] == classes[:, None, :]
    return (2.0 * same.to(torch.get_default_dtype()) - 1.0).masked_fill(~mask, 0.0), mask


def commonest(classes: Int[Tensor, "batch agent"]) -> Bool[Tensor, "batch agent"]:
    """The agents whose answer is commonest, of several largest classes all; nobody where nobody answered."""
    answered = classes >= 0
    size = ((classes[:, :, None] == classes[:, None, :]) & answered[:, :, None]).sum(-1)
    return answered & (size == size.amax(1, keepdim=True))


def shared_labels(answers: Sequence[Sequence[str | None]]) -> Int[Tensor, "batch agent"] | None:
    """Numbers of answers that are letters of options, A is 0; -1 where there is none, None unless all answers are."""
    letters = {letter: number for number, letter in enumerate(string.ascii_uppercase)}
    if any(answer is not None and answer.strip() not in letters for row in answers for answer in row):
        return None
    return torch.tensor([[-1 if answer is None else letters[answer.strip()] for answer in row] for row in answers])
