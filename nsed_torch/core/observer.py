"""Who watches a deliberation."""

import sys

from nsed_torch.records.transcript import Round, Task, Transcript


class Observer:
    """Hears of progress and results; this one ignores them. Override what you want to see."""

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """`done` of `total` calls of a phase ("propose" or "rate") of round `index` are finished."""

    def on_round(self, task: Task, record: Round) -> None:
        """A task's round is over."""

    def on_end(self, transcript: Transcript) -> None:
        """A task's deliberation is over; those of the batch that go on may take longer."""


class Counter(Observer):
    """Counts finished calls on one line of standard error."""

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Show them."""
        sys.stderr.write(f"\rround {index}, {phase}: {done} of {total} calls ")
        sys.stderr.flush()

    def on_end(self, transcript: Transcript) -> None:
        """Leave the line."""
        sys.stderr.write("\n")
