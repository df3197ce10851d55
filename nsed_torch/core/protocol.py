"""How rounds are held: one description for the cell, its transcripts, the forecast of costs and configurations."""

import math
from dataclasses import asdict, dataclass
from typing import Any

UNITS = ("answer", "step")
"""What a round may elect."""

CONTROLS = (None, "ratings", "memory")
"""What may be made worthless, to see what it is worth."""

FAINT = 1e-4
"""The least retention with which a note is heard in part; what is fainter is not read."""

MEMORIES = ("shown", "weighted", "beside")
"""How agents may be told of what the memory holds."""

RARE = ("memory", "shown_from", "verbatim", "control", "judges", "candidates", "equal_once")
"""Switches that a transcript keeps only where somebody set them."""


@dataclass(frozen=True)
class Protocol:
    """The switches of a deliberation's rounds; by default those of the published protocol.

    What a task gives to read is read first, a round a piece, whatever rounds elect behind that.

    Raises:
        ValueError: for a value out of its range.

    Examples:
        >>> Protocol(unit="step", ahead=3).settings()["unit"]
        'step'
        >>> Protocol(unit="word")
        Traceback (most recent call last):
        ValueError: protocol: expected a unit out of answer, step and a lead above 0, got 'word' and ahead=None: correct them
    """  # noqa: E501 - an error is one line

    # What a round elects. "answer", as published: everybody answers the question anew, beside what the memory holds.
    # "step": the next step of some work, asked for with the work alone; equal texts are one answer, and the elected one
    # alone enters the memory.
    unit: str = "answer"
    memory_tokens: int = 256  # what the memory may take of a prompt
    # "shown", as published: agents read all slots that are shown alike. Two are ours. "weighted": attention to a slot's
    # tokens from behind it gets `+ log retention`. "beside": likewise, and slots are read side by side, so that their
    # order is nothing and one that was read is not read again.
    memory: str = "shown"
    diagonal_mask: bool = True  # whether a voter rates all answers but its own; False lets it rate and counts that too
    anonymous: bool = True  # whether judges see Candidate_A, Candidate_B, ...; False shows them the authors' names
    shuffled: bool = True  # whether every judge sees the candidates in an order of its own; False is the team's for all
    # Ask one proposer after the other, until an answer is ahead of the next by so much trust in who gives it, 1 each at
    # the start; None asks all at once. See `core.asking`.
    ahead: float | None = None
    # Retention, from 0 to below 1, from which agents are shown what a slot holds. With 0, as published, they read all
    # slots, also what the gate has all but let go of. Ours.
    shown_from: float = 0.0
    # Whether of a note those sentences alone count that its author's piece says word for word, so that nobody remembers
    # what was never said; False takes notes as they are. Ours.
    verbatim: bool = False
    # By how many judges each proposal is rated, and how many each judge rates; None is by all. With both, neither is
    # exceeded. Who rates what is drawn anew for each task and round, evenly; what nobody rated is masked. Ours.
    judges: int | None = None
    candidates: int | None = None
    equal_once: bool = False  # whether a judge rates one of several proposals that say the same, for all of them; ours
    control: str | None = None  # what is made worthless, see `core.controls`

    def __post_init__(self) -> None:
        if self.unit not in UNITS or (self.ahead is not None and not 0 < self.ahead < math.inf):
            wanted = f"expected a unit out of {', '.join(UNITS)} and a lead above 0"
            raise ValueError(f"protocol: {wanted}, got {self.unit!r} and ahead={self.ahead}: correct them")
        if self.memory not in MEMORIES:
            wanted = f"expected a memory out of {', '.join(MEMORIES)}"
            raise ValueError(f"protocol: {wanted}, got {self.memory!r}: correct it")
        if self.memory_tokens < 0:
            raise ValueError(f"protocol: expected memory_tokens of at least 0, got {self.memory_tokens}: correct it")
        if not 0 <= self.shown_from < 1:
            wanted = "expected a retention from 0 to below 1 from which slots are shown"
            raise ValueError(f"protocol: {wanted}, got shown_from={self.shown_from}: correct it")
        if any(number is not None and number < 1 for number in (self.judges, self.candidates)):
            got = f"judges={self.judges} and candidates={self.candidates}"
            raise ValueError(
                f"protocol: expected judges and candidates of at least 1, or null, got {got}: correct them"
            )
        if self.control not in CONTROLS or (self.control == "memory" and self.unit == "step"):
            wanted = "expected a control out of null, ratings and, where rounds are answers, memory"
            raise ValueError(f"protocol: {wanted}, got {self.control!r}: correct it")

    @property
    def floor(self) -> float:
        """The least retention of a slot that agents are shown."""
        return self.shown_from if self.memory == "shown" else max(self.shown_from, FAINT)

    @property
    def sparse(self) -> bool:
        """Whether not every judge rates all that it may."""
        return self.judges is not None or self.candidates is not None or self.equal_once

    def settings(self) -> dict[str, Any]:
        """The switches as a transcript keeps them."""
        usual = Protocol.__dataclass_fields__
        return {k: v for k, v in asdict(self).items() if v != usual[k].default or k not in RARE}
