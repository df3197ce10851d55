"""Type checks of tensor arguments in tests: a function checks each kind of arguments once.

A check sees of a tensor its class, dtype and shape, and of other values no more than `kind` tells; what it let pass
it would let pass again. Checking every call anew takes longer than most of the functions.
"""

import functools
from collections.abc import Iterable

import torch
from beartype import beartype


def kind(value):
    """All that a check can see of a value; None where it could see more."""
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.shape
    if isinstance(value, tuple):
        inner = tuple(map(kind, value))
        return None if None in inner else (type(value), inner)
    return None if isinstance(value, Iterable) and not isinstance(value, str) else type(value)


def checked(function):
    """beartype for `jaxtyping.jaxtyped`, which reads no result: what it calls has a signature and no body."""
    check, passed = beartype(function), set()

    @functools.wraps(check)
    def once(*args, **kwargs):
        seen = (*map(kind, args), *kwargs, *map(kind, kwargs.values()))
        if None in seen:
            check(*args, **kwargs)
        elif seen not in passed:
            check(*args, **kwargs)
            passed.add(seen)

    return once
