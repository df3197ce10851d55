"""Everything of one deliberation, as plain data that survives the process.

A transcript holds the same values whenever the same seed runs again, except for fields named `seconds`,
which take no part in comparisons.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from nsed_torch.records.files import read_json, to_json, write_json
from nsed_torch.records.task import Task

SCHEMA_VERSION = 2
"""Raised by one when a field changes its meaning or goes away; new fields alone leave it."""

ROLES = ("proposer", "judge")
"""What an agent may be in a round."""


@dataclass(frozen=True)
class Usage:
    """What calls cost: their number, tokens in and out, price in US$, wall-clock seconds."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    price: float = 0.0
    seconds: float = field(default=0.0, compare=False)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.price + other.price,
            self.seconds + other.seconds,
        )

    @property
    def tokens(self) -> int:
        """Tokens in and out together."""
        return self.prompt_tokens + self.completion_tokens

    @staticmethod
    def sum(usages: Iterable["Usage"]) -> "Usage":
        """Total of any number of usages; of none, zero."""
        return sum(usages, Usage())


@dataclass(frozen=True)
class AgentRecord:
    """Who took part: name, persona, and the whole identity of the model behind it.

    `identity` holds what tells one model from another (backbone, revision, quantization, dtype, adapter);
    `decoding` the sampling settings; prices are in US$ per million tokens. `roles` are those that it may take;
    `judge_identity` tells the model that rates for it, None where that is the same one.
    """

    name: str
    backbone: str
    persona: str
    identity: dict[str, Any]
    decoding: dict[str, Any]
    prompt_price: float = 0.0
    completion_price: float = 0.0
    roles: list[str] = field(default_factory=lambda: list(ROLES))
    judge_identity: dict[str, Any] | None = None


@dataclass(frozen=True)
class Proposal:
    """One agent's answer in one round."""

    agent: str
    text: str
    finish_reason: str
    usage: Usage = Usage()


@dataclass(frozen=True)
class Critique:
    """What one voter wrote about one proposal; indices count the round's voters and proposals."""

    voter: int
    proposal: int
    text: str


@dataclass(frozen=True)
class MemorySlot:
    """A text that is kept from round to round.

    Args:
        text: what agents read next round, before the token budget cuts it.
        agent: who wrote it. Agents never see this.
        round: the round it was proposed in, from 1.
        retention: its weight after this round, in [0, 1].
        gate: the factor that this round's forget gate applied, in [0, 1]; 1 for a slot just written.
        shown: whether it fits the token budget and is shown next round.
    """

    text: str
    agent: str
    round: int
    retention: float
    gate: float
    shown: bool


@dataclass(frozen=True)
class AnswerSet:
    """What may be right: the truth is among it with the promised coverage.

    Args:
        answers: indices of the proposals that show its answers.
        none_of_these: whether "none of these" is in it too.
        coverage: promised share of sets that hold the truth.
    """

    answers: list[int]
    none_of_these: bool
    coverage: float

    @property
    def decided(self) -> bool:
        """Whether it holds one answer and nothing else."""
        return len(self.answers) == 1 and not self.none_of_these


@dataclass(frozen=True)
class Round:
    """One turn of the recurrence: V voters rate P proposals.

    Args:
        index: from 1.
        proposers: names in the order of the proposals.
        voters: names in the order of the rows of `ratings`.
        proposals: P answers.
        ratings: V x P in [-1, 1]; None where a voter gave no valid rating or was masked.
        vote_mask: V x P; True where the rating counts.
        ballots: V x P; what the vote activation made of the ratings; 0 where masked.
        trust: V weights tau of the voters, of any sign.
        support: P summed ballots.
        consensus: P probabilities of answers, each at the proposal that shows it; 0 for any other proposal.
        winner: index of the proposal that shows the winning answer, None if nobody answered.
        all_negative: whether even the winner has negative support.
        conviction: support of the winning answer over the sum of absolute supports of answers, in [-1, 1].
        decisiveness: sum of absolute supports of answers.
        controversy: P variances of the counted ratings.
        memory: the slots after the gate, strongest first.
        critiques: what voters wrote, where the rating mode asks for it.
        notes: events worth knowing: shrunk answer allowances, unparsable ratings, who was left out.
        usage: what this round cost.
        classes: P numbers, equal for proposals that say the same; -1 for one that is its own answer.
        answer_set: which answers may be right; None where nothing was calibrated.
        standing: names of the proposers whose proposals are those of the round before: they were not asked again.
    """

    index: int
    proposers: list[str]
    voters: list[str]
    proposals: list[Proposal]
    ratings: list[list[float | None]]
    vote_mask: list[list[bool]]
    ballots: list[list[float]]
    trust: list[float]
    support: list[float]
    consensus: list[float]
    winner: int | None
    all_negative: bool
    conviction: float
    decisiveness: float
    controversy: list[float]
    memory: list[MemorySlot]
    critiques: list[Critique] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    usage: Usage = Usage()
    classes: list[int] = field(default_factory=list)
    answer_set: AnswerSet | None = None
    standing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Transcript:
    """Everything of one deliberation.

    Args:
        task: what was asked.
        agents: the ensemble, in its order.
        rounds: one entry a round.
        answer: the text of the last round's winner; "" if nobody ever answered.
        stop_reason: why it ended: "rounds", "evidence", "fatigue", "learned", "budget", "broker" (nobody else
            is worth asking) or "no_answers".
        usage: what the whole deliberation cost.
        seed: the run's seed.
        settings: what shaped the run besides its agents: templates, vote, gate, halting, budgets, versions.
        schema_version: see `SCHEMA_VERSION`.
    """

    task: Task
    agents: list[AgentRecord]
    rounds: list[Round]
    answer: str
    stop_reason: str
    usage: Usage
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Transcript":
        """Read what `save` wrote.

        Raises:
            ValueError: if the file is no transcript of a version this package reads; names file and version.
        """
        return cls.from_data(read_json(path), str(path))

    @classmethod
    def from_data(cls, data: Any, where: str) -> "Transcript":
        """Rebuild a transcript from the JSON data that `save` writes.

        Args:
            data: as JSON keeps it; unknown keys are passed over.
            where: its file, and line if it is one of several, for errors.

        Raises:
            ValueError: if it is no transcript of a version this package reads.
        """
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{where}: expected a transcript of schema version {SCHEMA_VERSION}, got {version}; "
                "rerun the command that wrote it"
            )
        try:
            transcript: Transcript = rebuild(cls, data)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: not a complete transcript ({error}); rerun the command that wrote it"
            ) from error
        return transcript

    def to_json(self) -> str:
        """The text that `save` writes, for printing."""
        return to_json(dataclasses.asdict(self))


def rebuild(kind: Any, value: Any) -> Any:
    """Rebuild a dataclass tree from what JSON kept of it; drops unknown keys, refuses wrong types.

    Raises:
        TypeError: for a value of another type than the field's, or a field that is missing.
        ValueError: for a value that its enumeration does not have.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and types.NoneType in args):
        return value
    if origin is types.UnionType:
        return rebuild(next(a for a in args if a is not types.NoneType), value)
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    expected = dict if dataclasses.is_dataclass(kind) else origin or kind
    if type(value) is not expected:
        raise TypeError(f"expected {expected.__name__}, got {str(value)[:40]!r}")
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        known = [f.name for f in dataclasses.fields(kind) if f.name in value]
        return kind(**{name: rebuild(hints[name], value[name]) for name in known})  # type: ignore[operator]
    return [rebuild(args[0], item) for item in value] if origin is list else value
