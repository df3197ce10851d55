"""Writing many answers at once: rows that are finished leave the batch, rows that wait enter it."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nsed_torch.agents.packing import OpenedModel, Slots, passes, shared_with_last
from nsed_torch.agents.sampling import Row, draw

REFILL = 8
"""New rows enter when one row in so many is free: a prefill of few tokens costs more a token."""

SPARE = 128
"""Columns for an answer that are taken at once; a longer answer takes more when it gets there."""


@dataclass
class Job:
    """One answer to write.

    Args:
        index: which request it answers.
        prompt: token ids.
        adapter: None for the bare backbone.
        row: how its tokens are drawn, and those written.
        allowance: tokens it may write.
        seconds: its share of the time of all passes it took part in.
    """

    index: int
    prompt: list[int]
    adapter: str | None
    row: Row
    allowance: int
    seconds: float = 0.0

    @property
    def position(self) -> int:
        """Where its last written token stands."""
        return len(self.prompt) + len(self.row.written) - 1


def decode(
    model: OpenedModel, jobs: Sequence[Job], *, max_rows: int, pass_tokens: int, ended: Callable[[Job], bool]
) -> Iterator[list[Job]]:
    """Write all answers, those with the largest allowances first, and hand them out as they end.

    Args:
        model: what reads and predicts.
        jobs: what to write.
        max_rows: answers written at the same time.
        pass_tokens: prompt tokens read in one pass.
        ended: whether the token just written was an answer's last.
    """
    waiting = sorted(jobs, key=lambda job: (-job.allowance, job.adapter or "", job.prompt))
    width = max((len(job.prompt) + min(job.allowance, SPARE) for job in jobs), default=0)
    slots = Slots(min(max_rows, len(jobs)), width)
    running: list[Job] = []
    while waiting or running:
        room = slots.rows - len(running)
        if waiting and room * REFILL >= slots.rows:
            fresh = waiting[:room]
            del waiting[:room]
            shared = shared_with_last([job.prompt for job in fresh], [job.adapter for job in fresh])
            for few in passes([len(job.prompt) for job in fresh], pass_tokens, shared):
                entering = [fresh[i] for i in few]
                _prefill(model, entering, slots, len(running))
                running += entering
        else:
            _step(model, running, slots)
        done = _leave(running, slots, ended)
        if done:
            yield done


def _prefill(model: OpenedModel, jobs: Sequence[Job], slots: Slots, first: int) -> None:
    """Read prompts into the rows from `first` on and draw each one's first token."""
    start = time.perf_counter()
    rows = range(first, first + len(jobs))
    logits = model.read([job.prompt for job in jobs], [job.adapter for job in jobs], slots, rows)
    draw(logits, [job.row for job in jobs])
    _charge(jobs, start)


def _step(model: OpenedModel, jobs: Sequence[Job], slots: Slots) -> None:
    """Read every row's last token and draw its next one."""
    start = time.perf_counter()
    last, positions = [job.row.written[-1] for job in jobs], [job.position for job in jobs]
    draw(model.step(last, positions, [job.adapter for job in jobs], slots), [job.row for job in jobs])
    _charge(jobs, start)


def _leave(running: list[Job], slots: Slots, ended: Callable[[Job], bool]) -> list[Job]:
    """Take finished rows out; the last row moves up into each gap."""
    done = [i for i, job in enumerate(running) if ended(job)]
    left = [running[i] for i in done]
    for i in reversed(done):
        last = running.pop()
        if i < len(running):
            slots.move(len(running), i, last.position)
            running[i] = last
    return left


def _charge(jobs: Sequence[Job], start: float) -> None:
    share = (time.perf_counter() - start) / len(jobs)
    for job in jobs:
        job.seconds += share
