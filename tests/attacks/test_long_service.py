"""A day of service: ten thousand questions, and memory that does not grow."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from served_team import about, serving_team

pytest.importorskip("fastapi")


def resident_mib():
    """What this process holds in memory; only Linux tells."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc to read memory from")
    gc.collect()
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS")) / 1024


@pytest.mark.attack
def test_memory_stays_flat_over_ten_thousand_requests():
    with serving_team(rounds=1) as served, ThreadPoolExecutor(16) as clients:

        def ask(numbers):
            served.engine.asked.clear()  # what the scripted engine keeps for other tests
            return [status for status, _ in clients.map(lambda number: served.client.chat(about(number)), numbers)]

        assert set(ask(range(1_000, 4_000))) == {200}
        before = resident_mib()
        for first in range(4_000, 11_000, 1_000):
            assert set(ask(range(first, first + 1_000))) == {200}
        grown = resident_mib() - before
        assert grown < 8, f"grew by {grown:.1f} MiB"
        assert served.batches.waiting == 0
