"""What a value of a config may be: the annotation of what takes it, and a range that its name tells."""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SIGNED = {"values", "threshold", "seed"}  # numbers that may be negative
COUNTS = {
    "rounds",
    "max_batch",
    "context_window",
    "pass_tokens",
    "batch_tasks",
    "epochs",
    "divisions",
    "waves",
    "max_steps",
    "dim",
}
COUNTS |= {"slots", "samples", "layers", "batch", "limit", "examples", "round", "questions", "rollouts", "rank", "size"}
COUNTS |= {"patience", "probe", "checkpoint"}
COUNTS |= {"read", "written", "learned"}  # speeds
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "keys",
    type(None): "null",
}


def fault(name: str, value: Any, annotation: Any) -> str | None:
    """What is wrong with a value that `name` is to have, as "expected ..., got ..."; None if nothing is."""
    if not fits(value, annotation):
        return f"expected {described(annotation)}, got {value!r}"
    least = -math.inf if name in SIGNED else int(name in COUNTS)
    for number in value if isinstance(value, list) else [value]:
        if type(number) in {int, float} and not least <= number < math.inf:
            return f"expected a value of at least {least}, got {value!r}"
    return None


def fits(value: Any, annotation: Any) -> bool:  # noqa: PLR0911 - a line per kind
    """Whether a value is what an annotation says; whole numbers pass for numbers, and YAML's lists for any sequence."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return any(fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is Any or not isinstance(origin, type):
        return True
    if isinstance(value, list) and issubclass(origin, Sequence) and origin is not str:
        return all(fits(item, inner[0]) for item in value) if inner else True
    if isinstance(value, dict) and origin in {dict, Mapping}:
        return all(fits(item, inner[1]) for item in value.values()) if inner else True
    if type(value) in {int, bool}:
        return origin is type(value) or (origin is float and type(value) is int)
    return isinstance(value, origin)


def described(annotation: Any) -> str:
    """An annotation in words."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(described(one) for one in inner)
    kind = dict if origin is Mapping else list if origin in {Sequence, tuple} else origin
    words = _WORDS.get(kind, getattr(kind, "__name__", str(kind)))
    if kind in {dict, list} and inner and inner[-1] is not Any:
        item = inner[1] if kind is dict else inner[0]
        words += f" with {described(item)} each"
    return words


@functools.cache
def annotations(target: Callable[..., Any]) -> Mapping[str, Any]:
    """What a function, or a class's constructor, says of its arguments."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {name: hints.get(name, Any) for name in inspect.signature(target).parameters}
