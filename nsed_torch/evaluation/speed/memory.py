"""How much memory more agents and more rounds take, each point measured in a fresh process."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nsed_torch.evaluation.measurement import Measurement
from nsed_torch.evaluation.speed.memory_worker import ROUNDS

AGENTS = (1, 2, 4, 8)
"""Agents on one backbone, each with an adapter of its own."""

WORKER = "nsed_torch.evaluation.speed.memory_worker"

Report = Callable[[str], None]


def memory_lines(
    backbone: Mapping[str, Any],
    quantizations: Sequence[str] = ("none", "int8", "nf4"),
    repeats: int = 1,
    report: Report = lambda text: None,
) -> list[Measurement]:
    """Peak memory of 2, 4 and 8 agents against one, and after 2, 4 and 8 rounds against one round.

    The peak is the process's largest resident memory, libraries included; on CUDA it is what PyTorch took at most
    of the device's.

    Args:
        backbone: keyword arguments of `load_backbone` as JSON has them; `weights` holds those of `Weights`: a local
            folder as `{"name": ..., "path": ...}`. The quantization is set here.
        quantizations: names that `load_backbone` knows.
        repeats: processes a point; the allocator moves a peak by a few percent.
        report: told, one line each, of quantizations that this machine cannot do; their lines are left out.

    Returns:
        Three lines on agents and three on rounds for each quantization, in MiB; ours is the larger number of agents
        or rounds, and the fact `loaded` is the peak of loading, which is not counted where the system can tell.

    Raises:
        ValueError: if `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"expected at least 1 repeat, got {repeats}")
    lines = []
    for quantization in quantizations:
        settings = {**backbone, "quantization": quantization}
        try:
            lines += agents_lines(settings, repeats) + rounds_lines(settings, repeats)
        except ChildProcessError as error:
            report(f"memory, {quantization}: left out: {error}")
    return lines


def agents_lines(backbone: Mapping[str, Any], repeats: int) -> list[Measurement]:
    """One phase of proposing and one of rating with 1, 2, 4 and 8 agents, a process each.

    Args:
        backbone: as of `memory_lines`, with its quantization.
        repeats: processes a point.

    Raises:
        ChildProcessError: if a process failed; says why.
    """
    found = {n: [_run({"backbone": backbone, "agents": n}) for _ in range(repeats)] for n in AGENTS}
    peaks = {n: tuple(each["peaks"][-1] for each in results) for n, results in found.items()}
    facts = {"loaded": found[1][0]["loaded"]}
    return _lines("agents on one backbone", backbone, peaks, facts)


def rounds_lines(backbone: Mapping[str, Any], repeats: int) -> list[Measurement]:
    """A deliberation of 8 rounds, its peak so far after 1, 2, 4 and 8.

    Args:
        backbone: as of `memory_lines`, with its quantization.
        repeats: processes.

    Raises:
        ChildProcessError: if a process failed; says why.
    """
    found = [_run({"backbone": backbone, "rounds": ROUNDS[-1]}) for _ in range(repeats)]
    peaks = {n: tuple(each["peaks"][n - 1] for each in found) for n in ROUNDS}
    return _lines("rounds", backbone, peaks, {"loaded": found[0]["loaded"]})


def _lines(
    what: str, backbone: Mapping[str, Any], peaks: Mapping[int, tuple[float, ...]], facts: Mapping[str, Any]
) -> list[Measurement]:
    least, *more = peaks
    name = f"memory, {what}, {backbone['quantization']}"
    return [Measurement(name, str(n), str(least), peaks[n], peaks[least], unit="MiB", facts=facts) for n in more]


def _run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the worker found, in a process of its own."""
    command = [sys.executable, "-m", WORKER, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
        raise ChildProcessError(last)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
