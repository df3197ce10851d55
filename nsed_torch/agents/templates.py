"""Where strangers' prompt templates are rendered: nothing but texts within reach, and no giant ones."""

from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST = 1_000_000  # characters or numbers


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
