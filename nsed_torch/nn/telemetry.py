"""How agents have been doing: accuracy, latency and failures as they come in, and who sits out."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from nsed_torch.records import read_json, write_json
from nsed_torch.records.checked import rebuild

FEATURES = ("accuracy", "latency", "failures")
"""Share of right answers; log(1 + seconds); share of failed calls."""

DECAY = 0.95
"""Weight of an observation relative to the next."""

PAUSE, LONGEST = 300.0, 1800.0
"""Seconds on the bench: after a first failure, and at most."""

VERSION = 1


@dataclass(frozen=True)
class _Entry:
    """What the file has of an agent."""

    mean: list[float]
    mass: list[float]
    strikes: int
    benched_until: int

    def __post_init__(self) -> None:
        for values in (self.mean, self.mass):
            if len(values) != len(FEATURES) or not all(v >= 0 for v in values):
                raise ValueError(f"expected {len(FEATURES)} numbers of at least 0, got {values}")
        for value in (self.strikes, self.benched_until):
            if not 0 <= value < 2**62:
                raise ValueError(f"expected a whole number of at least 0, got {value}")


class Telemetry(nn.Module):
    """What is known about agents from what they did: means of `FEATURES`, and a bench for those that fail.

    A mean over observations o_1 ... o_n weighs o_t by `DECAY^(n - t)`, so the first few count alike. An agent whose
    call fails sits out for `PAUSE 2^(strikes - 1)` seconds, at most `LONGEST`; one success clears its strikes. That
    rule and its 5 and 30 minutes are published in the authors' SDK. Ours: calls that fail while their agent sits out
    were under way already and add no strike. An agent that declines is not reported at all.

    Everything lies in buffers (`state_dict`) and, by agent name, in the JSON that `save` writes.

    Args:
        agents: their names.
        clock: seconds of wall time, the same after a restart.

    Raises:
        ValueError: if there are no agents or two of one name; of methods, if there is no such agent or a number is
            out of range.
    """

    mean: Tensor
    mass: Tensor
    strikes: Tensor
    benched_until: Tensor

    def __init__(self, agents: Sequence[str], *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        if not agents or len(set(agents)) != len(agents):
            raise ValueError(f"telemetry agents: expected one or more different names, got {list(agents)}")
        self.agents = tuple(agents)
        self._clock = clock
        for name in ("mean", "mass"):
            self.register_buffer(name, torch.zeros(len(agents), len(FEATURES), dtype=torch.float64))
        # Whole seconds: a module cast to float32 would round today's clock to minutes.
        for name in ("strikes", "benched_until"):
            self.register_buffer(name, torch.zeros(len(agents), dtype=torch.long))

    def success(self, agent: str, seconds: float, *, correct: bool | float | None = None) -> None:
        """Count a call that came back, and how right it was in [0, 1], where somebody knows."""
        index = self._index(agent)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"telemetry of {agent}: expected seconds of at least 0, got {seconds}")
        if correct is not None and not 0 <= correct <= 1:
            raise ValueError(f"telemetry of {agent}: expected correct in [0, 1], got {correct}")
        self._observe(index, "latency", math.log1p(seconds))
        self._observe(index, "failures", 0.0)
        if correct is not None:
            self._observe(index, "accuracy", float(correct))
        self.strikes[index] = 0
        self.benched_until[index] = 0

    def failure(self, agent: str) -> None:
        """Count a call that failed, and bench its agent."""
        index = self._index(agent)
        self._observe(index, "failures", 1.0)
        now = self._clock()
        if now < int(self.benched_until[index]):
            return
        self.strikes[index] += 1
        # The longest pause is reached long before a power of two overflows.
        doublings = min(int(self.strikes[index]) - 1, 60)
        self.benched_until[index] = math.ceil(now + min(PAUSE * 2**doublings, LONGEST))

    def available(self) -> Bool[Tensor, "agent"]:
        """Who may be asked now: everybody but those on the bench."""
        # Whole seconds on both sides: torch would compare with a float in float32.
        return self.benched_until <= math.floor(self._clock())

    def save(self, path: Path) -> None:
        """Write what is known as JSON, whole or not at all."""
        fields = {name: value.tolist() for name, value in self.named_buffers()}
        agents = {name: {field: fields[field][i] for field in fields} for i, name in enumerate(self.agents)}
        write_json(path, {"version": VERSION, "agents": agents})

    def load(self, path: Path) -> None:
        """Take over what a file knows of these agents; nothing, with a ValueError, of any other file."""
        content = read_json(path)
        try:
            if content["version"] != VERSION:
                raise ValueError(f"expected version {VERSION}, got {content['version']!r}")
            known = {n: rebuild(_Entry, content["agents"][n]) for n in self.agents if n in content["agents"]}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected the telemetry that `save` writes, got another file ({error}): remove it"
            ) from error
        for name, entry in known.items():
            for field, buffer in self.named_buffers():
                buffer[self._index(name)] = torch.tensor(getattr(entry, field), dtype=buffer.dtype)

    def _observe(self, index: int, feature: str, value: float) -> None:
        column = FEATURES.index(feature)
        self.mass[index, column] = DECAY * self.mass[index, column] + 1
        self.mean[index, column] += (value - self.mean[index, column]) / self.mass[index, column]

    def _index(self, agent: str) -> int:
        if agent not in self.agents:
            raise ValueError(f"telemetry: expected one of the agents {', '.join(self.agents)}, got {agent!r}")
        return self.agents.index(agent)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"agents={list(self.agents)}, decay={DECAY}, pause={PAUSE}, longest={LONGEST}"
