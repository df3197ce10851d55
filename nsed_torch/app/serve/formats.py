"""What a request wants of an answer's form: JSON that fits a schema, and no more tokens than it pays for."""

import ast
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from nsed_torch.records.transcript import Transcript

Schema = Mapping[str, Any]

_LONGEST = 32_768
"""Characters of a schema: checking a longer one holds up everybody else."""

_MOST_STEPS = 50_000
"""Keywords that are tried on one answer, some two seconds: references to references may double with each."""

_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)
_LITERALS = ((r"\btrue\b", "True"), (r"\bfalse\b", "False"), (r"\bnull\b", "None"))


class FinalAnswer(NamedTuple):
    """A team's answer as its client gets it."""

    text: str
    reason: str = "stop"  # or "length"
    refusal: str = ""  # why there is none in the form asked for


def instruction(schema: Schema) -> str:
    """What agents are told of the form; an empty schema asks for any object."""
    fits = f" that fits this JSON schema: {json.dumps(schema)}" if schema else ""
    return f"Answer with one JSON object alone{fits or ', and nothing around it'}"


def final(
    transcript: Transcript,
    schema: Schema | None,
    cut: Callable[[str], str],
    most: int | None,
    count: Callable[[str], int],
) -> FinalAnswer:
    """The elected answer in the form asked for.

    Where it does not fit a schema, the best supported proposal of the last round that does is taken.

    Args:
        transcript: of the deliberation.
        schema: what the answer has to fit; None for any text.
        cut: cuts a text at the client's stop texts.
        most: tokens that the answer may have; None for any number.
        count: tells how many tokens a text has.
    """
    text: str | None = transcript.answer
    if schema is not None:
        last = transcript.rounds[-1:] and transcript.rounds[-1]
        pairs = zip(last.support, last.proposals, strict=True) if last else ()
        others = [proposal.text for _, proposal in sorted(pairs, key=lambda pair: -pair[0])]
        steps = iter(range(_MOST_STEPS))
        found = (fitting(other, schema, steps) for other in (transcript.answer, *others))
        text = next((fit for fit in found if fit is not None), None)
    if text is None:
        return FinalAnswer("", refusal=f"no answer of the team fits the format; it elected: {transcript.answer}")
    text = cut(text)
    short = text if most is None else first_tokens(text, most, count)
    said = (proposal for record in transcript.rounds for proposal in record.proposals)
    ended = schema is None and any(p.text == transcript.answer and p.finish_reason == "length" for p in said)
    return FinalAnswer(short, "length" if short != text or ended else "stop")


def first_tokens(text: str, most: int, count: Callable[[str], int]) -> str:
    """The longest beginning of a text that has at most so many tokens."""
    if count(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= most else (low, middle - 1)
    return text[:low]


def fitting(text: str, schema: Schema, steps: Iterator[int] | None = None) -> str | None:
    """The JSON within a text that fits a schema; None where none does, or `steps` ended before it was found.

    What stands around it is left out, and Python's spelling is read, too. A text that is no JSON becomes the one field
    that a schema asks for, if it is of that type.
    """
    left = iter(range(_MOST_STEPS)) if steps is None else steps
    for value in _values(text, schema):
        with contextlib.suppress(TypeError, ValueError, RecursionError):  # Python's values that are no JSON
            whole = json.dumps(value, ensure_ascii=False, allow_nan=False)
            if fits(json.loads(whole), schema, left):
                return whole
    return None


def check_schema(schema: Any) -> None:
    """Refuse what is no JSON schema, or one that would reach out or take for ever, with a ValueError."""
    text = json.dumps(schema) if isinstance(schema, dict) else ""
    if not text or len(text) > _LONGEST:
        got = f"one of {len(text)}" if text else repr(schema)[:60]
        raise ValueError(f"expected a schema, an object of at most {_LONGEST} characters, got {got}: shorten it")
    # A part in another dialect would be checked by what counts no steps.
    outer = r'"(pattern|patternProperties)": ["{]|"\$(?:(?:dynamic|recursive)R|r)ef": "(?!#)|"\$schema": "'
    if found := re.search(outer, json.dumps(_own_dialect(schema))):
        raise ValueError(f"expected a schema without patterns and outer references, got {found.group()}: leave it out")
    try:
        _validator().check_schema(schema)
    except Exception as error:
        raise ValueError(f"expected a JSON schema, got {text[:60]} ({str(error).splitlines()[0][:100]})") from error


def fits(value: Any, schema: Schema, steps: Iterator[int]) -> bool:
    """Whether a value fits a schema, found in so many steps; an empty one is fit by any object."""
    from jsonschema.validators import extend  # noqa: PLC0415 - as below
    from referencing import Registry  # noqa: PLC0415 - as below

    def counted(rule: Callable[..., Any], *given: Any) -> Any:
        if next(steps, None) is None:
            raise TimeoutError
        return rule(*given)

    plain = _validator()
    counting = extend(plain, {name: partial(counted, rule) for name, rule in plain.VALIDATORS.items()})
    with contextlib.suppress(Exception):  # of a reference to nothing, or of a schema without end
        return bool(counting(_own_dialect(schema) or {"type": "object"}, registry=Registry()).is_valid(value))
    return False


def _own_dialect(schema: Schema) -> dict[str, Any]:
    """A schema without the dialect that it names: all are read as the newest."""
    return {name: value for name, value in schema.items() if name != "$schema"}


def _validator() -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - for requests that bring a schema alone

    return Draft202012Validator


def _values(text: str, schema: Schema) -> Iterator[Any]:
    """Values that a text may mean, the likeliest first."""
    decoder = json.JSONDecoder()
    for part in (text, *_FENCE.findall(text)):
        for start in [match.start() for match in re.finditer(r"[{\[]", part)][:50]:
            with contextlib.suppress(ValueError, RecursionError):
                yield decoder.raw_decode(part, start)[0]
    if match := re.search(r"\{.*\}", text, re.DOTALL):
        python = match.group()
        for old, new in _LITERALS:
            python = re.sub(old, new, python)
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            yield ast.literal_eval(python)
    fields = list(schema.get("properties", {}))
    if len(fields) == 1:
        plain = text.strip()
        yield {fields[0]: plain}
        for number in re.findall(r"-?\d+(?:\.\d+)?", plain)[-1:]:
            with contextlib.suppress(ValueError):  # of more digits than Python reads
                yield {fields[0]: json.loads(number) if not re.match(r"-?0\d", number) else int(number)}
