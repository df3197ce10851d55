"""Where strangers' prompt templates are rendered: nothing but texts within reach, no giant ones, and not for ever."""

from collections.abc import Iterable
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nsed_torch.core.deadline import PATIENCE, within

MOST = 1_000_000  # characters or numbers

LONGEST = 10 * MOST
"""Characters of a prompt; no model reads as many."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox whose arithmetic makes no giant texts or numbers; Jinja itself bounds `range`."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply if both factors are small."""
        numbers = [value for value in (left, right) if isinstance(value, int | float)]
        sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
        large = (operator == "%" and sizes) or (operator == "**" and max(map(abs, numbers), default=0) > 100)
        if large or (operator == "*" and sizes and max(numbers, default=0) * max(sizes) > MOST):
            raise SecurityError(f"{operator} of these values is not for prompts")
        return super().call_binop(context, operator, left, right)


def joined(parts: Iterable[str]) -> str:
    """What a template writes part by part; one that does not end, or writes without end, is a SecurityError."""

    def read() -> str:
        kept, size = [], 0
        for part in parts:
            kept.append(part)
            if (size := size + len(part)) > LONGEST:
                raise SecurityError(f"expected at most {LONGEST} characters, got more: shorten it")
        return "".join(kept)

    try:
        return within(PATIENCE, read)
    except TimeoutError as error:
        raise SecurityError(f"did not end within {PATIENCE:g} s: correct it") from error
