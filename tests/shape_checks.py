"""Type checks of tensor arguments and results in tests: a function checks each kind of them once.

A check sees of a tensor its class, dtype and shape, and of other values no more than `kind` tells; what it let pass
it would let pass again. Checking every call anew takes longer than most of the functions.
"""

import functools
import threading
import types
from collections.abc import Iterable

import jaxtyping
import torch

_jaxtyped = jaxtyping.jaxtyped
PLAIN = frozenset({str, int, float, bool, type(None)})
KNOWN: dict = {}
"""What has been checked, by the code of functions: kinds of arguments, and these with the kind of their result."""
HERE = threading.local()
"""The result of a function that was called in this thread and whose result is to be checked."""


def kind(value):
    """All that a check can see of a value; None where it could see more."""
    own = type(value)
    if own is torch.Tensor or isinstance(value, torch.Tensor):
        return own, value.dtype, value.shape
    if own in PLAIN:
        return own
    if isinstance(value, tuple):
        inner = tuple(map(kind, value))
        return None if None in inner else (own, inner)
    return None if isinstance(value, Iterable) else own


def once(function=None, *, typechecker):
    """`jaxtyping.jaxtyped` for its import hook, which looks at functions; of a class it checks what makes one."""
    if function is None:
        return functools.partial(once, typechecker=typechecker)
    if not isinstance(function, types.FunctionType):
        return _jaxtyped(function, typechecker=typechecker)
    # A function within a function is made anew at every call of the outer one; its code, and what it takes, stay.
    passed, results = KNOWN.setdefault(function.__code__, (set(), set()))
    here = HERE  # the function below gets the globals of the checked one

    def known_result(*args, **kwargs):
        made = vars(here).pop("result", here)
        return function(*args, **kwargs) if made is here else made

    @functools.cache
    def check():
        """The function with both its checks; one that has its result already is not called again."""
        held = types.FunctionType(known_result.__code__, function.__globals__, None, None, known_result.__closure__)
        return _jaxtyped(functools.wraps(function)(held), typechecker=typechecker)

    @functools.wraps(function)
    def checked(*args, **kwargs):
        seen = (*map(kind, args), *kwargs, *map(kind, kwargs.values()))
        if None in seen:
            return check()(*args, **kwargs)
        if seen not in passed:
            result = check()(*args, **kwargs)
            passed.add(seen)
            results.add((seen, kind(result)))
            return result
        result = function(*args, **kwargs)
        told = kind(result)
        if told is None or (seen, told) not in results:
            here.result = result
            check()(*args, **kwargs)
            results.add((seen, told))
        return result

    return checked


def install():
    """Have the import hook of jaxtyping, which asks for `jaxtyping.jaxtyped`, check each kind of arguments once."""
    jaxtyping.jaxtyped = once
