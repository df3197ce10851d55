"""Which agents have failed of late, and so sit out."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nsed_torch.records.checked import rebuild
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.lookalikes import one_line

PAUSE, LONGEST = 300.0, 1800.0
"""Seconds on the bench: after a first failure, and at most."""

VERSION = 1


@dataclass
class TrackRecord:
    """What is known of an agent."""

    strikes: int = 0  # failures in a row, but for those while it sat out
    benched_until: int = 0  # seconds of wall time

    def __post_init__(self) -> None:
        for value in (self.strikes, self.benched_until):
            if not 0 <= value < 2**62:
                raise ValueError(f"expected a whole number of at least 0, got {value}")


class Telemetry:
    """A bench for agents that fail.

    An agent whose call fails sits out for `PAUSE 2^(strikes - 1)` seconds, at most `LONGEST`; one success clears its
    strikes. The rule and its 5 and 30 minutes are published in the authors' SDK. Ours: calls that fail while their
    agent sits out were under way already and add no strike. An agent that declines is not reported at all.

    Args:
        agents: their names.
        clock: seconds of wall time, the same after a restart.

    Raises:
        ValueError: if there are no agents or two of one name.
    """

    def __init__(self, agents: Sequence[str], *, clock: Callable[[], float] = time.time) -> None:
        if not agents or len(set(agents)) != len(agents):
            raise ValueError(f"telemetry agents: expected one or more different names, got {list(agents)}")
        self.records = {name: TrackRecord() for name in agents}
        self._clock = clock

    @property
    def agents(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.records)

    def success(self, agent: str) -> None:
        """Count a call that came back."""
        self.records[agent] = TrackRecord()

    def failure(self, agent: str) -> None:
        """Count a call that failed, and bench its agent."""
        record, now = self.records[agent], self._clock()
        if now < record.benched_until:
            return
        record.strikes += 1
        # The longest pause is reached long before a power of two overflows.
        record.benched_until = math.ceil(now + min(PAUSE * 2 ** min(record.strikes - 1, 60), LONGEST))

    def benched(self) -> dict[str, int]:
        """Who sits out now -> after how many failures; whoever is back first stands first."""
        now = self._clock()
        out = [name for name, record in self.records.items() if now < record.benched_until]
        return {name: self.records[name].strikes for name in sorted(out, key=lambda n: self.records[n].benched_until)}

    def save(self, path: Path) -> None:
        """Write what is known as JSON, whole or not at all."""
        agents = {name: asdict(record) for name, record in self.records.items()}
        write_json(path, {"version": VERSION, "agents": agents})

    def load(self, path: Path) -> None:
        """Take over what a file knows of these agents; nothing, with a ValueError, of any other file."""
        content = read_json(path)
        try:
            if content["version"] != VERSION:
                raise ValueError(f"expected version {VERSION}, got {content['version']!r}")
            known = {n: rebuild(TrackRecord, content["agents"][n]) for n in self.agents if n in content["agents"]}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected the telemetry that `save` writes, got another file ({one_line(error)}): remove it"
            ) from error
        self.records |= known

    def __repr__(self) -> str:
        return f"Telemetry(agents={list(self.agents)}, pause={PAUSE}, longest={LONGEST})"
