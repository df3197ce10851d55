"""What runs inside the sandbox, by the standard library alone: `python inside.py MODE [ENTRY]`.

    program     the program as it is, with standard input and output
    call        loads the program, calls ENTRY with one JSON value a line of standard input, prints the result as JSON
    serve       loads the program and calls what the tests, in another sandbox, ask for, until they end
    tests       runs the tests; what they name and do not define is the program's, and a call of it a line to `serve`

Tests never share an interpreter with the program. Only plain data passes between them: numbers, texts, the usual
containers, each rebuilt as its base type. What is no plain data stays where it is and can be called, and its attributes
read and set, from afar; it equals nothing but itself.

Exit codes: 0, and of `tests` only if all of them were passed; else one of those below or, as usual, another.
"""

import builtins
import importlib
import json
import os
import site
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

COMPILE_ERROR, WRONG, MEMORY_LIMIT = 65, 66, 67

STARS = ("typing", "collections", "heapq", "bisect", "itertools", "functools", "math")
MODULES = (*STARS, "copy", "operator", "random", "re", "string", "sys")
"""What programs that are called find imported, as starter code assumes: all names of some modules, then the modules."""

DIGITS, DEPTH = 50_000, 50_000
"""How long integers may be as texts, and how deep calls may go: more than Python allows by itself, as judges do."""

Keep = Callable[[Any], dict[str, Any]]


def load(name: str, *, imports: bool) -> dict[str, Any]:
    """Run the program as a module of this name; what it defined, and all else it can name."""
    text = Path(__file__).with_name("program.py").read_text("utf-8")
    try:
        code = compile(text, "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        sys.exit(_told(error, COMPILE_ERROR))
    module = types.ModuleType(name)
    if imports:
        module.__dict__.update(prelude())
    sys.modules[name] = module
    exec(code, module.__dict__)  # noqa: S102 - what a sandbox is for
    return module.__dict__


def prelude() -> dict[str, Any]:
    """What is imported beforehand."""
    names: dict[str, Any] = {}
    for star in STARS:
        module = importlib.import_module(star)
        public = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        names |= {name: getattr(module, name) for name in public}
    # math.pow would hide a function that takes three arguments; typing.Counter one that counts.
    return names | {"pow": pow} | {name: importlib.import_module(name) for name in MODULES}


def find(names: dict[str, Any], entry: str) -> Any:
    """A method of the program's class Solution, or a function."""
    solution = names.get("Solution")
    return getattr(solution(), entry) if solution and hasattr(solution, entry) else names[entry]


def call(entry: str) -> None:
    """Answer one call."""
    reader, writer = line()
    function = find(load("program", imports=True), entry)
    result = function(*(json.loads(value) for value in reader.read().split("\n") if value.strip()))
    writer.write(json.dumps(result, default=_listed))
    writer.flush()
    os._exit(0)  # threads of the program's would keep it alive


def serve() -> None:
    """Load the program, name what it defined, and do what is asked."""
    reader, writer = line()
    kept: list[Any] = [getattr, setattr]

    def keep(value: Any) -> dict[str, Any]:
        kept.append(value)
        return {"kept": len(kept) - 1}

    def send(do: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        try:
            text = json.dumps({"value": encode(do(*args, **kwargs), keep)})
        except BaseException as error:  # whatever a program throws, SystemExit too
            text = json.dumps({"raised": [type(error).__name__, str(error)]})
        writer.write(text + "\n")
        writer.flush()

    imported, defined = prelude(), load("program", imports=True)
    own = {n: value for n, value in defined.items() if callable(value) and imported.get(n) is not value}
    send(lambda: own)
    for request in reader:
        number, args, kwargs = json.loads(request)
        send(kept[number], *decode(args, kept.__getitem__), **decode(kwargs, kept.__getitem__))
    os._exit(0)


def tests(entry: str) -> None:
    """Run the tests against the program on the other side."""
    reader, writer = line()

    def keep(value: Any) -> dict[str, Any]:
        if isinstance(value, Remote):
            return {"kept": object.__getattribute__(value, "number")}
        raise TypeError(f"cannot hand a {type(value).__name__} to the program")

    def ask(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        writer.write(json.dumps([number, encode(args, keep), encode(kwargs, keep)]) + "\n")
        writer.flush()
        return receive()

    def receive() -> Any:
        reply = json.loads(reader.readline() or '{"raised": ["EOFError", "the program has ended"]}')
        if "value" in reply:
            return decode(reply["value"], lambda number: Remote(number, ask))
        name, text = reply["raised"]
        kind = getattr(builtins, name, None)
        # Nothing that a program throws may end the tests in peace, as SystemExit would, or a loop, as StopIteration.
        if isinstance(kind, type) and issubclass(kind, Exception) and name[:4] != "Stop":
            raise kind(text)
        raise RuntimeError(f"{name}: {text}")

    trusted = {name: importlib.import_module(name) for name in MODULES}
    reserved = {*dir(builtins), *trusted} - {entry}
    # `__builtins__`, were it taken over, would name what the tests call `set` or `abs`.
    theirs = {n: v for n, v in receive().items() if n not in reserved and n[:2] != "__" and isinstance(v, Remote)}
    code = compile(Path(__file__).with_name("tests.py").read_text("utf-8"), "tests.py", "exec", dont_inherit=True)
    exec(code, {**trusted, **theirs, "__name__": "tests"})  # noqa: S102


class Remote:
    """Something of the program's that is no plain data: neither true nor false, and equal to nothing but itself."""

    def __init__(self, number: int, ask: Callable[..., Any]) -> None:
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "ask", ask)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, over there."""
        return _of(self, "ask")(_of(self, "number"), args, kwargs)

    def __bool__(self) -> bool:
        raise TypeError("expected plain data of the program, got an object, which is neither true nor false")

    def __getattribute__(self, name: str) -> Any:
        if name[:2] == "__":
            return object.__getattribute__(self, name)
        return _of(self, "ask")(0, (self, name), {})

    def __setattr__(self, name: str, value: Any) -> None:
        _of(self, "ask")(1, (self, name, value), {})


_of = object.__getattribute__

MAKERS: dict[str, Callable[[Iterator[Any]], Any]] = {
    **{kind.__name__: kind for kind in (list, tuple, set, frozenset, bytes, dict)},
    "complex": lambda parts: complex(*parts),
    "iterator": lambda items: iter(list(items)),
}


def encode(value: Any, keep: Keep) -> Any:
    """Plain data as JSON, containers under the name of their base type; anything else as `keep` has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, dict):
        return {"dict": [encode(pair, keep) for pair in value.items()]}
    for kind in (list, tuple, set, frozenset, bytes):
        if isinstance(value, kind):
            return {kind.__name__: [encode(item, keep) for item in value]}
    if isinstance(value, Iterator):
        return {"iterator": [encode(item, keep) for item in value]}
    return encode(value.tolist(), keep) if hasattr(type(value), "tolist") else keep(value)


def decode(value: Any, kept: Callable[[int], Any]) -> Any:
    """What `encode` made."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return kept(content) if kind == "kept" else MAKERS[kind](decode(item, kept) for item in content)


def line() -> tuple[TextIO, TextIO]:
    """Standard input and output; whoever else reads gets nothing, and whoever else prints prints errors."""
    reader, writer = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return reader, writer


def _listed(value: Any) -> Any:
    """What JSON does not know: NumPy's numbers and arrays as Python's, anything else as what equals nothing."""
    return value.tolist() if hasattr(value, "tolist") else float("nan")


def _told(error: BaseException, code: int) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
    return code


def main(mode: str, entry: str = "") -> None:
    """Do what the module's docstring says of a mode."""
    sys.set_int_max_str_digits(DIGITS)
    sys.setrecursionlimit(DEPTH)
    sys.argv = ["program.py"]
    site.setquit()  # `exit` and `quit`, which Python leaves out with its site
    try:
        if mode == "program":
            load("__main__", imports=False)
        elif mode == "serve":
            serve()
        else:
            {"call": call, "tests": tests}[mode](entry)
    except MemoryError as error:
        sys.exit(_told(error, MEMORY_LIMIT))
    except AssertionError as error:
        if mode != "tests":
            raise
        sys.exit(_told(error, WRONG))


if __name__ == "__main__":
    main(*sys.argv[1:])
