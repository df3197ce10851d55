"""Who takes part in a round: the interface of brokers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nsed_torch.core.team import Team
from nsed_torch.records.transcript import Round, Task

if TYPE_CHECKING:
    from nsed_torch.core.round import MacroRNNCell

Seating = Callable[[Task, Sequence[Round]], Team | None]
"""What a broker does, as a function."""


class InfeasibleBudgetError(ValueError):
    """No team fits the budgets; the message names the binding resource, what would do and the remedy."""


class Broker(Protocol):
    """Who takes part, in one method; any object with it will do, and so will a function of the same arguments.

    A broker that wants more of a run than that is a `RunBroker`, whose hooks it may override.

    Examples:
        >>> class Widening:  # two begin, everybody else joins them behind the first round
        ...     def team(self, task, rounds):
        ...         return Team((0, 1, 2), (0, 1, 2)) if rounds else Team((0, 1), (0, 1))
        >>> Widening().team(Task("17 or 71?"), rounds=[]).proposers
        (0, 1)
    """

    def team(self, task: Task, rounds: Sequence[Round]) -> Team | None:
        """The next team of a task, which has held some rounds; None where nobody else is worth asking.

        An `InfeasibleBudgetError` says that what is left pays for none.
        """
        ...


class RunBroker:
    """A broker that is told of the run as well: hooks, each of which does nothing until it is overridden."""

    def check(self, cell: "MacroRNNCell") -> None:
        """Refuse a cell that it cannot choose teams for, with a ValueError, before any run."""

    def begin(self, tasks: Sequence[Task], cell: "MacroRNNCell") -> None:
        """A run begins; a broker that asks a model asks about all tasks together here."""

    def heard(self, records: Sequence[Round]) -> list[Round]:
        """The records of a round, one per task that held it, with what the broker has to add."""
        return list(records)

    def settings(self) -> dict[str, Any]:
        """What a transcript keeps of it; JSON data."""
        return {"broker": getattr(self, "__qualname__", type(self).__name__)}


def hook(broker: Any, name: str) -> Callable[..., Any]:
    """A hook of any broker: its own, or what a `RunBroker` does."""
    own: Callable[..., Any] | None = getattr(broker, name, None)
    default: Callable[..., Any] = getattr(RunBroker, name)
    return own if own is not None else lambda *args: default(broker, *args)


def seating(broker: Any) -> Seating:
    """The one method of a broker, or the function that it is; a ValueError for anything else."""
    seat: Any = getattr(broker, "team", broker)
    if isinstance(broker, type) or not callable(seat):
        wanted = "expected an object with team(task, rounds), or a function of these"
        raise ValueError(f"broker: {wanted}, got {broker!r}: pass one such as BudgetBroker()")
    found: Seating = seat
    return found
