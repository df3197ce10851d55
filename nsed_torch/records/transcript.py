"""A task and everything of one deliberation on it, as plain data that survives the process: a transcript.

It holds the same values whenever the same seed runs again, except for fields named `seconds`,
which take no part in comparisons.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nsed_torch.records.checked import Record

ROLES = ("proposer", "judge")
"""What an agent may be in a round."""


@dataclass(frozen=True)
class Task:
    """A question with an id and, in a benchmark, a target; perhaps with what rounds show besides it.

    Piece t of the inputs is what round t has agents read: a text for all of them, or texts for some, each under an
    agent's name or its place in the ensemble, from "0". Rounds behind the last piece answer from memory.

    Raises:
        ValueError: if the question or the id is blank, or a piece is neither a text nor names with a text each.
    """

    question: str  # the text put to every agent
    id: str = "task"  # names the task in seeds, logs and files; unique within a run
    target: str | None = None  # the reference answer, which agents never see
    category: str | None = None
    inputs: tuple[str | dict[str, str], ...] = field(default=(), hash=False)
    start: str = ""  # where rounds are steps, the work as it is given; "" where the first step reads the question
    goal: str = ""  # where rounds are steps, words that a work has when nothing is left to do; "" where nobody knows

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError("expected a question, got an empty text: pass question='...'")
        if not self.id.strip():
            raise ValueError("expected a task id, got an empty text")
        given: Any = self.inputs  # files may hold anything
        if not isinstance(given, list | tuple) or not all(map(_is_piece, given)):
            wanted = "a text, or agents with a text each, for every round that reads"
            raise ValueError(f"task {self.id!r:.60}: expected {wanted}, got {repr(given)[:60]}: correct the inputs")
        pieces = (piece if isinstance(piece, str) else dict(piece) for piece in given)
        object.__setattr__(self, "inputs", tuple(pieces))

    def reads(self, index: int) -> bool:
        """Whether round `index`, from 1, shows a piece of the inputs; its proposals are notes and no answers."""
        return index <= len(self.inputs)


def _is_piece(piece: object) -> bool:
    texts = [*piece, *piece.values()] if isinstance(piece, Mapping) else [piece]
    return bool(texts) and all(isinstance(text, str) and text.strip() for text in texts)


AS_BILLED = -1
"""Stands for a number of computed tokens that nobody knows better than what is billed."""


@dataclass(frozen=True)
class Usage:
    """What calls cost: their number, tokens, price in US$, wall-clock seconds.

    Prompt, completion and price are what a metered endpoint bills: of every call the whole prompt and all it wrote,
    a rating being one call per candidate. Computed are the tokens that had to be read or written, given the same task's
    earlier calls by the same method: what begins alike, for the same reader, counts once.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    price: float = 0.0
    seconds: float = field(default=0.0, compare=False)
    computed_tokens: int = AS_BILLED

    def __post_init__(self) -> None:
        counts = self.calls, self.prompt_tokens, self.completion_tokens, self.price, self.seconds
        if not all(0 <= count < math.inf for count in counts) or self.computed_tokens < AS_BILLED:
            raise ValueError(f"usage: expected numbers of at least 0, got {str((*counts, self.computed_tokens))[:80]}")
        if self.computed_tokens < 0:
            object.__setattr__(self, "computed_tokens", self.billed)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def tokens(self) -> int:
        """Those computed: what budgets and comparisons at equal tokens go by."""
        return self.computed_tokens

    @property
    def billed(self) -> int:
        """Tokens in and out together, as a metered endpoint charges them."""
        return self.prompt_tokens + self.completion_tokens

    @staticmethod
    def sum(usages: Iterable["Usage"]) -> "Usage":
        """The total; of none, zero."""
        return sum(usages, Usage())


@dataclass(frozen=True)
class AgentRecord:
    """Who took part, and the whole identity of the model behind it."""

    name: str
    backbone: str
    persona: str
    identity: dict[str, Any]  # tells one model from another: backbone, revision, quantization, dtype, adapter
    decoding: dict[str, Any]
    prompt_price: float = 0.0  # US$ per million tokens, like the other
    completion_price: float = 0.0
    roles: list[str] = field(default_factory=lambda: list(ROLES))  # that it may take
    judge_identity: dict[str, Any] | None = None  # of the model that rates for it; None where it is the same one


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
    """A text that is kept from round to round."""

    text: str  # what agents read next round, before the token budget cuts it
    agent: str  # who wrote it; agents never see this
    round: int  # in which it was proposed, from 1
    retention: float  # its weight after this round, in [0, 1]
    gate: float  # the factor of this round's forget gate, in [0, 1]; 1 for a slot just written
    shown: bool  # whether it fits the token budget, is as strong as shown_from and is read next round


@dataclass(frozen=True)
class AnswerSet:
    """What may be right: the truth is among it with the promised coverage."""

    answers: list[int]  # indices of the proposals that show its answers
    none_of_these: bool  # whether "none of these" is in it too
    coverage: float  # promised share of sets that hold the truth

    @property
    def decided(self) -> bool:
        """Whether it holds one answer and nothing else."""
        return len(self.answers) == 1 and not self.none_of_these


@dataclass(frozen=True)
class Round:
    """One turn of the recurrence: V voters rate P proposals."""

    index: int  # from 1
    proposers: list[str]  # names in the order of the proposals
    voters: list[str]  # names in the order of the rows of `ratings`
    proposals: list[Proposal]
    ratings: list[list[float | None]]  # V x P in [-1, 1]; None where a voter gave no valid rating or was masked
    vote_mask: list[list[bool]]  # V x P; True where the rating counts
    ballots: list[list[float]]  # V x P; what the vote made of the ratings, 0 where masked
    trust: list[float]  # V weights tau of the voters, of any sign
    support: list[float]  # P summed ballots
    consensus: list[float]  # P probabilities of answers, each at the proposal that shows it; 0 for any other
    winner: int | None  # the proposal that shows the winning answer; None if nobody answered
    all_negative: bool  # whether even the winner has negative support
    conviction: float  # support of the winning answer over the sum of absolute supports of answers, in [-1, 1]
    decisiveness: float  # sum of absolute supports of answers
    controversy: list[float]  # P variances of the counted ratings
    memory: list[MemorySlot]  # after the gate, strongest first
    critiques: list[Critique] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # shrunk answer allowances, unparsable ratings, who was left out
    usage: Usage = Usage()
    classes: list[int] = field(default_factory=list)  # P numbers, equal for equal answers; -1 is its own answer
    answer_set: AnswerSet | None = None  # None where nothing was calibrated
    standing: list[str] = field(default_factory=list)  # proposers whose proposals of the round before stand

    def __post_init__(self) -> None:
        count = len(self.proposals)
        if self.winner is not None and not 0 <= self.winner < count:
            raise ValueError(f"round {self.index}: expected a winner below {count} or none, got {self.winner}")
        if wrong := [r for row in self.ratings for r in row if r is not None and not -1 <= r <= 1]:
            raise ValueError(f"round {self.index}: expected ratings in [-1, 1], got {wrong[0]}")
        places = [(c.voter, c.proposal) for c in self.critiques]
        shown = self.answer_set.answers if self.answer_set else []
        if any(not 0 <= v < len(self.voters) for v, _ in places) or any(
            not 0 <= p < count for p in (*(p for _, p in places), *shown)
        ):
            raise ValueError(f"round {self.index}: expected critiques and sets of its voters and proposals, got others")

    @property
    def elected(self) -> list[int]:
        """The proposals that say what the winner says, the winner among them; none where nobody answered."""
        return [] if self.winner is None else self.saying(self.winner)

    def saying(self, proposal: int) -> list[int]:
        """The proposals that say what one of them says, that one among them."""
        kind = self.classes[proposal] if self.classes else -1
        return [j for j in range(len(self.proposals)) if j == proposal or (kind >= 0 and self.classes[j] == kind)]

    @property
    def tied(self) -> list[int]:
        """The proposals that show answers as probable as the winner, the winner first; none where nobody answered."""
        if self.winner is None:
            return []
        # What is recorded is rounded to nine digits.
        level = [j for j, p in enumerate(self.consensus) if p and p >= self.consensus[self.winner] - 1.5e-9]
        return [self.winner, *(j for j in level if j != self.winner)]

    @property
    def contested(self) -> bool:
        """Whether something was elected that not everybody proposed."""
        return 0 < len(self.elected) < len(self.proposals)


@dataclass(frozen=True)
class Transcript(Record):
    """Everything of one deliberation."""

    WHAT = "a transcript"
    VERSION = 2

    task: Task
    agents: list[AgentRecord]  # the ensemble, in its order
    rounds: list[Round]
    answer: str  # of the last round's winner, or what a halting rule that goes back names; "" if nobody ever answered
    # "rounds", "evidence", "fatigue", "settled" (by a vote over all rounds), "budget", "broker" (nobody else is worth
    # asking), "finished", "no_answers"
    stop_reason: str
    usage: Usage
    seed: int  # the run's
    settings: dict[str, Any] = field(default_factory=dict)  # templates, vote, gate, halting, budgets, versions
    schema_version: int = VERSION

    @property
    def unit(self) -> str:
        """What its rounds elected: "answer" or "step"."""
        return str(self.settings.get("unit", "answer"))

    def _repr_html_(self) -> str:
        """What a notebook shows: the page of the deliberation, in a frame of its own."""
        # Pages are drawn floors above, which nothing here may import: the package's own name space finds who does.
        drawn: str = sys.modules[__name__.partition(".")[0]].framed_transcript(self)
        return drawn
