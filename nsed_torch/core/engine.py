"""What is asked of a language model and what comes back: the one protocol that every engine speaks."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import AS_BILLED


def call_seed(*parts: int | str) -> int:
    """A 63-bit seed from, in this order, run seed, task id, round, agent, phase and whatever else names the call."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Message(NamedTuple):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Note(NamedTuple):
    """A part of a chat that is heard in part: attention to its tokens from behind it gets `+ log retention`. Ours."""

    text: str  # as it stands in the messages, fence and all
    retention: float  # in (0, 1]; 1 is heard as if nothing were said about it


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn."""

    max_new_tokens: int = 128  # the answer allowance
    temperature: float = 0.7  # 0 is greedy
    top_p: float = 0.95  # nucleus mass in (0, 1]
    repetition_penalty: float = 1.0  # positive logits of written tokens are divided by it, negative ones multiplied

    def __post_init__(self) -> None:
        for name, valid, expected in (
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("repetition_penalty", self.repetition_penalty > 0, "above 0"),
        ):
            if not valid:
                raise ValueError(f"decoding.{name}: expected a value {expected}, got {getattr(self, name)}")


@dataclass(frozen=True)
class GenerateRequest:
    """Ask an agent to write the next assistant turn of a chat."""

    agent: str  # engines that script look it up, others ignore it
    messages: tuple[Message, ...]
    decoding: Decoding
    seed: int  # of this call alone: the same request gives the same text in any batch
    adapter: str | None = None  # name of a LoRA adapter that the engine has loaded, None for the bare backbone
    template: str = ""  # hash of the prompt template that made the messages; part of the call's key
    # What the task's method had computed before, which this call is entered into; no part of the call's key.
    ledger: TokenLedger | None = field(default=None, compare=False, repr=False)
    notes: tuple[Note, ...] = ()  # parts of the messages that are heard in part, by engines that weigh
    beside: bool = False  # whether notes stand side by side, so that a kept one is never read again
    schema: str = ""  # JSON schema of the text, to which servers that can are told to hold the model; others ignore it

    def __post_init__(self) -> None:
        # The likeliest tokens need no seed: who is asked the same again, in a later round, need not write it again.
        if self.decoding.temperature == 0:
            object.__setattr__(self, "seed", 0)


@dataclass(frozen=True)
class Generation:
    """What an agent wrote."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str = "stop"  # or "length", or "failed"
    notes: tuple[str, ...] = ()  # events worth knowing, such as a shrunk allowance
    seconds: float = field(default=0.0, compare=False)  # this call's share of its batch
    failure: str = ""  # why the call failed; such a result says nothing and is never kept
    written: tuple[int, ...] = field(default=(), repr=False)  # ids of its tokens, which the text does not tell exactly
    computed_tokens: int = AS_BILLED  # new to the request's ledger, where it has one and the engine can tell


@dataclass(frozen=True)
class RatingScale:
    """The answers a judge may give to a rating question, and what each is worth."""

    labels: tuple[str, ...] = tuple("0123456789")  # each one token for the model
    values: tuple[float, ...] = tuple((2 * d - 9) / 9 for d in range(10))  # in [-1, 1]

    def __post_init__(self) -> None:
        # Configs bring lists and whole numbers; tuples keep the scale hashable.
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "values", tuple(map(float, self.values)))
        if len(self.labels) < 2 or len(self.labels) != len(self.values):
            raise ValueError(f"expected two or more labels with a value each, got {self.labels} and {self.values}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"expected labels that differ, got {self.labels}")
        if not all(-1 <= v <= 1 for v in self.values):
            raise ValueError(f"expected rating values in [-1, 1], got {self.values}")


@dataclass(frozen=True)
class RateRequest:
    """Ask an agent to rate candidates.

    The chat of candidate k is `messages` with `candidates[k]` appended to the last message's content, so all
    candidates share one prefix. Other fields are as in `GenerateRequest`.
    """

    agent: str
    messages: tuple[Message, ...]
    candidates: tuple[str, ...]
    scale: RatingScale = RatingScale()
    seed: int = 0  # for engines that draw ratings; a verdict is read from logits and needs none
    adapter: str | None = None
    template: str = ""
    ledger: TokenLedger | None = field(default=None, compare=False, repr=False)
    notes: tuple[Note, ...] = ()
    beside: bool = False

    def about(self, candidate: str) -> tuple[Message, ...]:
        """The chat that asks about one candidate."""
        *before, last = self.messages
        return (*before, Message(last.role, last.content + candidate))


@dataclass(frozen=True)
class Ratings:
    """A judge's expected ratings, one per candidate."""

    values: tuple[float | None, ...]  # in [-1, 1]; None where the judge gave none
    coverage: tuple[float, ...] = ()  # share of the model's probability that lay on the scale's labels at all
    prompt_tokens: int = 0  # every candidate's whole chat, as endpoints charge them
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    failure: str = ""
    computed_tokens: int = AS_BILLED


@dataclass(frozen=True)
class LikelihoodRequest:
    """Ask how likely an agent would have written some texts itself. Other fields are as in `GenerateRequest`."""

    agent: str
    messages: tuple[Message, ...]
    texts: tuple[str, ...]  # each a whole assistant turn, which ends behind it
    adapter: str | None = None
    template: str = ""
    ledger: TokenLedger | None = field(default=None, compare=False, repr=False)
    notes: tuple[Note, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Likelihood:
    """The geometric mean of the probabilities of each text's tokens and of its end."""

    values: tuple[float | None, ...]  # in [0, 1]; None where the model gave none
    prompt_tokens: int = 0  # the whole chat with every text
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    failure: str = ""
    computed_tokens: int = AS_BILLED
    # How many tokens, the end among them, each value is the mean of; none in call logs of before they were counted.
    lengths: tuple[int, ...] = field(default=(), compare=False)


R = TypeVar("R", Generation, Ratings, Likelihood)
Request = GenerateRequest | RateRequest | LikelihoodRequest


class TooLong(str):
    """Why a call failed where the server calls the prompt too long."""


def failed(request: Request, error: Exception) -> Any:
    """The result of a call that failed: nothing said, nothing rated, and why."""
    why = TooLong(error) if isinstance(error, ContextWindowError) else str(error)
    notes = (f"the call failed: {why}",)
    if isinstance(request, GenerateRequest):
        return Generation("", 0, 0, "failed", notes, failure=why)
    if isinstance(request, RateRequest):
        return Ratings((None,) * len(request.candidates), notes=notes, failure=why)
    return Likelihood((None,) * len(request.texts), notes=notes, failure=why)


MOST_TOKENS = 10**7
"""Tokens of one call; a larger count is a mistake or a lie."""


def check_result(request: Request, result: Any) -> None:
    """Refuse what answers no such request, by a ValueError: counts, times or values that no engine can have reached."""
    written = getattr(result, "completion_tokens", 0)
    counts = {"prompt_tokens": result.prompt_tokens, "completion_tokens": written}
    if result.computed_tokens != AS_BILLED:
        counts["computed_tokens"] = result.computed_tokens
    for name, count in counts.items():
        if not 0 <= count <= MOST_TOKENS:
            raise ValueError(f"expected {name} in [0, {MOST_TOKENS}], got {str(count)[:40]}")
    if not 0 <= result.seconds < math.inf:
        raise ValueError(f"expected seconds of at least 0, got {result.seconds}")
    if isinstance(request, GenerateRequest):
        if len(result.written) > written or not all(0 <= token < 1 << 32 for token in result.written):
            raise ValueError(f"expected ids of at most {written} tokens, got {len(result.written)}")
    else:
        _check_values(request, result)


def _check_values(request: RateRequest | LikelihoodRequest, result: Any) -> None:
    if isinstance(request, RateRequest):
        count, least, beside, most = len(request.candidates), -1, result.coverage, 1.001
    else:
        count, least, beside, most = len(request.texts), 0, result.lengths, MOST_TOKENS
    if len(result.values) != count or len(beside) not in {0, count}:
        raise ValueError(f"expected {count} values, got {len(result.values)}")
    if not all(value is None or least <= value <= 1 for value in result.values):
        raise ValueError(f"expected values in [{least}, 1], got {str(result.values)[:60]}")
    if not all(0 <= number <= most for number in beside):
        raise ValueError(f"expected coverages or lengths of at most {most}, got {str(beside)[:60]}")


MIN_ANSWER = 16
"""Tokens of answer below which a prompt counts as too long, unless less was asked for."""

CHARACTERS_PER_TOKEN = 4.0
"""A rule of thumb for English under byte-pair vocabularies, where nothing says how many tokens a text is."""


class ContextWindowError(ValueError):
    """A prompt leaves no room for an answer in the model's window."""


def check_window(needed: int, what: str, window: int, model: str) -> None:
    """Refuse what needs more tokens than a model's window has."""
    if needed > window:
        raise ContextWindowError(
            f"{what} needs at least {needed} tokens, the window of {model} is {window}: shorten the question, lower "
            "memory_tokens or raise context_window"
        )


def allowance(prompt_tokens: int, wanted: int, window: int, model: str) -> int:
    """How many tokens an answer may have behind a prompt; too few are a ContextWindowError."""
    needed = prompt_tokens + min(wanted, MIN_ANSWER)
    check_window(needed, f"a prompt of {prompt_tokens} tokens plus an answer", window, model)
    return min(wanted, window - prompt_tokens)


def shrunk(wanted: int, allowed: int) -> tuple[str, ...]:
    """What to note of an allowance that is less than was wanted."""
    note = f"answer allowance shrunk from {wanted} to {allowed} tokens to fit the window"
    return (note,) if allowed < wanted else ()


@runtime_checkable
class Engine(Protocol):
    """One language model, however it is reached. Engines that own parameters are `nn.Module`s as well.

    Every request is answered as if it were alone. An engine defines `generate`, `rate` and `measure`, which take up to
    `max_batch` requests and answer in their order; or, where it schedules any number by itself, `generations`,
    `ratings` and `likelihoods`, which hand results out as they are done, each under its request's index. The three that
    it leaves out are made of the others. A call that failed through no fault of this process is a ConnectionError, or,
    in a stream, a `failed` result in its place, which spoils no other.
    """

    max_batch: int
    shares_prefixes: bool = False  # whether it knows its `readings`, so that what prompts share is computed once
    context_window: int | None = None  # tokens that the model takes; None where nobody knows
    measures: bool = True  # whether it can say how likely a given text is
    weighs: bool = False  # whether it can hear notes in part

    def identity(self, adapter: str | None) -> Mapping[str, Any]:
        """Whatever tells this model's outputs from another's; JSON values only. Part of every call's key."""
        ...

    def count_tokens(self, text: str) -> int:
        """Length of a text in this model's tokens; estimated, unless the engine knows better."""
        return math.ceil(len(text) / CHARACTERS_PER_TOKEN)

    def memory_bytes(self) -> int:
        """Bytes of weights this engine holds in this process; 0 for a remote one."""
        return 0

    def forget(self) -> None:
        """Free what is kept from earlier calls to make later ones faster."""
        return

    def readings(self, request: Request, result: Any) -> list[list[int]]:
        """Every sequence of a finished call, each token with who reads it; asked where `shares_prefixes`."""
        return []

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Answer all requests, in order."""
        return _in_order(self.generations(requests))

    def rate(self, requests: Sequence[RateRequest]) -> list[Ratings]:
        """Rate all requests' candidates, in order."""
        return _in_order(self.ratings(requests))

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Measure how likely all requests' texts are, in order."""
        return _in_order(self.likelihoods(requests))

    def generations(self, requests: Sequence[GenerateRequest]) -> Iterator[dict[int, Generation]]:
        """As `generate`, answers as they are done."""
        return _batches(self.generate, requests, self.max_batch)

    def ratings(self, requests: Sequence[RateRequest]) -> Iterator[dict[int, Ratings]]:
        """As `rate`, ratings as they are done."""
        return _batches(self.rate, requests, self.max_batch)

    def likelihoods(self, requests: Sequence[LikelihoodRequest]) -> Iterator[dict[int, Likelihood]]:
        """As `measure`, likelihoods as they are done."""
        return _batches(self.measure, requests, self.max_batch)

    def count_prompt(self, messages: Sequence[Message], texts: Sequence[str] = ()) -> int:
        """Length of a chat, and of texts beside it, without what a template puts between them."""
        return sum(map(self.count_tokens, [*(message.content for message in messages), *texts]))


def _in_order(parts: Iterator[Mapping[int, R]]) -> list[R]:
    done = {i: result for part in parts for i, result in part.items()}
    results = [done[i] for i in sorted(done)]
    check_answered(results)
    return results


def check_answered(results: Iterable[Any]) -> None:
    """Raise the first failure among results, as a ConnectionError unless it is `TooLong`."""
    for result in results:
        if result.failure:
            raise (ContextWindowError if isinstance(result.failure, TooLong) else ConnectionError)(result.failure)


def _batches(answer: Callable[[Sequence[Any]], list[R]], requests: Sequence[Any], most: int) -> Iterator[dict[int, R]]:
    for start in range(0, len(requests), most):
        batch = requests[start : start + most]
        try:
            yield dict(enumerate(answer(batch), start))
        except ConnectionError as error:
            if len(batch) == 1:
                yield {start: failed(batch[0], error)}
            else:  # one by one, so that one of them spoils no other
                singles = (part[0] for request in batch for part in _batches(answer, [request], 1))
                yield from ({i: result} for i, result in enumerate(singles, start))
