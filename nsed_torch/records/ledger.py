"""What one task's calls by one method have had computed, token by token."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence


class TokenLedger:
    """The sequences of readings that calls took: what begins one of them counts once.

    A reading is a token and who reads it (`engines.packing.forest`). Exact, and the same whatever a prefix cache kept.

    Examples:
        >>> ledger = TokenLedger()
        >>> ledger.enter("tiny", [1, 2, 3]), ledger.enter("tiny", [1, 2, 4, 5]), ledger.enter("other", [1, 2])
        (3, 2, 2)
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[array[int]]] = {}  # by backbone, sorted

    def enter(self, backbone: str, readings: Sequence[int]) -> int:
        """Take down a sequence of a backbone's readings; returns how many of them are new where they stand."""
        rows, row = self._rows.setdefault(backbone, []), array("q", readings)
        place = bisect_left(rows, row)
        # Of all sequences a neighbour in sorted order has most in common with it.
        known = max((common_prefix(row, near) for near in rows[max(place - 1, 0) : place + 1]), default=0)
        if known < len(row):
            rows.insert(place, row)
        return len(row) - known

    def copy(self) -> "TokenLedger":
        """Another one that holds the same."""
        other = TokenLedger()
        other._rows = {backbone: rows.copy() for backbone, rows in self._rows.items()}
        return other


def common_prefix(first: Sequence[int], second: Sequence[int], known: int = 0) -> int:
    """Length of the longest common prefix of two sequences that are known to share some tokens."""
    shortest = min(len(first), len(second))
    return next((i for i in range(known, shortest) if first[i] != second[i]), shortest)
