"""`nsed deliberate` from the start of its process to its first proposal, against plain transformers to one answer."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

import torch

from bench.timing import Measurement
from nsed_torch.engines.backbones import native_dtype
from nsed_torch.engines.weights import Weights, resolve

QUESTION = "What is 17 plus 29?"
NEW_TOKENS = 24
"""What one of the shipped experts may write."""

TEAM = ("ensemble=experts", "rating=likelihood", "prompts.style=direct", "rounds=1")
"""The shipped experts, as their preset has them."""

PAUSE = 0.005
"""Seconds between two looks at what a process has written."""

OURS, PLAIN = ("loading models",), ("imported", "loaded", "answered")
"""Lines in which a process says how far it is."""


def placed(team: Sequence[str], device: str | None, dtype: str | None) -> list[str]:
    """Overrides of a team whose backbone computes on a device and in a precision; None leaves both to the preset."""
    given = {"device": device, "dtype": dtype}
    return [*team, *(f"ensemble.engines.smollm2.{name}={value}" for name, value in given.items() if value)]


def startup_line(
    weights: Weights,
    repeats: int,
    *,
    team: Sequence[str] = TEAM,
    device: str | None = None,
    dtype: str | None = None,
    warm: bool = True,
) -> Measurement:
    """Seconds from the start of a process to the first proposal in its call log, against plain transformers.

    Ours is the command itself, with what it imports, its encoder, its adapters and the first answers of all its
    agents. The other imports torch and transformers, loads the bare backbone with `from_pretrained` in the same
    precision, and writes one answer by `generate`.

    Args:
        weights: of the team's backbone; the plain process reads the folder they are found in.
        repeats: timed rounds.
        team: overrides of `nsed deliberate`.
        device: of both; None is the accelerator where there is one, else the CPU.
        dtype: of both; None is what the hardware computes in.
        warm: whether both are run once before, so that their files are in the system's cache.

    Returns:
        The line; its facts have the medians of the parts: ours until it begins to load models, and to its end; the
        other's import, load and answer.

    Raises:
        ChildProcessError: if a process failed; says why.
    """
    here = torch.accelerator.current_accelerator(check_available=True) or "cpu"
    precision = str(native_dtype()).removeprefix("torch.") if dtype in {None, "auto"} else dtype
    plain = [sys.executable, "-P", "-m", "bench.plain_start", str(resolve(weights).folder), str(device or here)]
    plain += [str(precision), QUESTION, str(NEW_TOKENS)]

    def ours() -> dict[str, float]:
        with TemporaryDirectory() as folder:
            command = [sys.executable, "-P", "-m", "nsed_torch", "deliberate", f"question={QUESTION}"]
            command += placed(team, device, dtype)
            log = Path(folder, "run", "calls.sqlite")
            return watch([*command, f"output_dir={log.parent}"], OURS, lambda: finished_calls(log) > 0)

    def theirs() -> dict[str, float]:
        return watch(plain, PLAIN)

    if warm:
        ours()
        theirs()
    mine, others = zip(*[(ours(), theirs()) for _ in range(repeats)], strict=True)
    imported, loaded, answered = ([one[mark] for one in others] for mark in PLAIN)
    line = Measurement(
        "start-up of `nsed deliberate` to the first proposal",
        "the command with its team of experts",
        "transformers: import, load, one answer",
        tuple(one["done"] for one in mine),
        tuple(answered),
    )
    facts = {
        "ours_before_loading": median(one[OURS[0]] for one in mine),
        "ours_loading_and_first_answers": median(one["done"] - one[OURS[0]] for one in mine),
        "ours_to_the_end": median(one["ended"] for one in mine),
        "other_import": median(imported),
        "other_load": median(b - a for a, b in zip(imported, loaded, strict=True)),
        "other_answer": median(b - a for a, b in zip(loaded, answered, strict=True)),
    }
    return replace(line, facts=facts)


def watch(command: Sequence[str], marks: Sequence[str], done: Callable[[], bool] = lambda: False) -> dict[str, float]:
    """Run a process to its end: seconds since its start when it printed each mark, when it was `done`, when it ended.

    Raises:
        ChildProcessError: if it failed, or did not print every mark; says why.
    """
    found: dict[str, float] = {}
    with TemporaryFile("w+") as errors:
        start = time.perf_counter()
        with subprocess.Popen(  # noqa: S603 - our own words
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
        ) as process:
            reader = threading.Thread(target=_note, args=(process.stdout, marks, start, found))
            reader.start()
            while process.poll() is None and not done():
                time.sleep(PAUSE)
            found["done"] = time.perf_counter() - start
            reader.join()
        found["ended"] = time.perf_counter() - start
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if process.returncode or not found.keys() >= set(marks):
        raise ChildProcessError(said[-1] if said else f"the process ended with {process.returncode}")
    return found


def _note(stream: IO[str], marks: Sequence[str], start: float, found: dict[str, float]) -> None:
    for line in stream:
        if (mark := line.strip()) in marks:
            found.setdefault(mark, time.perf_counter() - start)


def finished_calls(log: Path) -> int:
    """How many calls another process has finished; it may be making the file at this moment."""
    if not log.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{log.as_uri()}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM calls").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def environment() -> dict[str, str]:
    """Of a process that finds `bench` and `nsed_torch` where this one did, and says at once what it has to say.

    It keeps what it compiled of Python, as where a package is installed.
    """
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
