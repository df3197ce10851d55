"""Runs the steps of a study, each in a process of its own, and only what is not complete."""

import fcntl
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from nsed_torch import __version__
from nsed_torch.experiments.steps import Step
from nsed_torch.records import call_key, read_json, write_json

RECORD = "step.json"
"""In a step's folder, written last: the step is complete."""

LOG = "step.log"
"""In a step's folder: all that it printed, run after run."""

_PLAIN_PATH = re.compile(r"[\w./~@+-][\w./~@+ -]*")  # what Hydra reads as one text without quotes


class Runner:
    """Runs what is not complete.

    A step is complete if its `step.json` has its fingerprint: of the verb and overrides as the study writes them, the
    package's version, and the `step.json` of every step that it needs, so that whatever follows a step that ran again
    runs again as well. Nothing is deleted but the `step.json` of a step about to run: its verb finds its own unfinished
    work and goes on.

    Args:
        steps: of the study, all of them.
        root: the study's folder.
        report: hears what is done.
        jobs: steps that run at a time, if they do not need each other; each gets its share of the cores.

    Raises:
        ValueError: for a folder whose name Hydra would not read as one text, or less than one job.
    """

    def __init__(
        self, steps: Sequence[Step], root: Path, report: Callable[[str], None] = lambda text: None, *, jobs: int = 1
    ) -> None:
        if jobs < 1:
            raise ValueError(f"expected jobs of at least 1, got {jobs}")
        if not _PLAIN_PATH.fullmatch(str(root)):
            raise ValueError(f"expected an output_dir of letters, digits, blanks and ./~@+-_, got {str(root)!r}")
        self.steps = {step.name: step for step in steps}
        self.root = root
        self.report = report
        self.jobs = jobs
        self._processes: set[subprocess.Popen[str]] = set()

    def record(self, name: str) -> dict[str, Any] | None:
        """What `step.json` holds, of this command or an earlier one; None if the step is unfinished."""
        path = self.root / name / RECORD
        found: dict[str, Any] | None = read_json(path) if path.is_file() else None
        return found

    def complete(self, name: str) -> bool:
        """Whether the step, and all that it needs, ran as the study has it now."""
        record = self.record(name)
        if record is None or not all(map(self.complete, self.steps[name].needs)):
            return False
        return bool(record["fingerprint"] == self.fingerprint(name))

    def fingerprint(self, name: str) -> str:
        """Names everything that shapes the step's results; what it needs has run."""
        step = self.steps[name]
        needs = {other: self.record(other) for other in step.needs}
        return call_key(verb=step.verb, overrides=step.overrides, version=__version__, needs=needs)

    def state(self, name: str) -> str:
        """`complete`, `outdated` (a step.json of another command, or of other results that it needs), or `not run`."""
        return "complete" if self.complete(name) else "outdated" if self.record(name) else "not run"

    def run(self, names: Sequence[str]) -> None:
        """Run those of the named steps that are not complete, in the study's order; others wait for the folder.

        Where a step fails, those beside it run to their end, and none begins.

        Raises:
            ValueError: in one line with the step, if it needs one that is neither complete nor named, or fails.
        """
        waiting = [step for step in self.steps.values() if step.name in names]
        places = {step.name: f"step {n} of {len(waiting)}, {step.name}" for n, step in enumerate(waiting, start=1)}
        running: dict[Future[None], str] = {}
        with self._alone() as lock, ThreadPoolExecutor(self.jobs) as pool:
            try:
                while waiting or running:
                    unfinished = {step.name for step in waiting} | set(running.values())
                    ready = [step for step in waiting if unfinished.isdisjoint(step.needs)]
                    due = []
                    for step in ready[: self.jobs - len(running)]:
                        waiting.remove(step)
                        due.append(self._is_due(step, places[step.name]))
                        if due[-1]:
                            running[pool.submit(self._run, step, lock)] = step.name
                    if not all(due):
                        continue  # what is complete already takes no place
                    for done in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                        del running[done]
                        done.result()
            except KeyboardInterrupt:
                for process in self._processes:
                    process.terminate()
                raise

    def _is_due(self, step: Step, place: str) -> bool:
        if missing := [other for other in step.needs if not self.complete(other)]:
            raise ValueError(
                f"step {step.name}: expected {missing[0]} to be complete, got {self.state(missing[0])}; "
                f"name it among steps as well"
            )
        complete = self.complete(step.name)
        self.report(f"{place}: {'complete already' if complete else step.command(self.root)}")
        return not complete

    def _run(self, step: Step, lock: int) -> None:
        folder, began = self.root / step.name, time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD).unlink(missing_ok=True)
        code, usage = self._run_verb(step, keep=lock)
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code:
            raise ValueError(f"step {step.name} {_ending(code, step.verb, folder / LOG)}; its log is {folder / LOG}")
        unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
        write_json(
            folder / RECORD,
            {
                "command": ["nsed", *step.words(self.root)],
                "fingerprint": self.fingerprint(step.name),
                "run": uuid4().hex,  # two runs of one step are never the same, as their results need not be
                "version": __version__,
                "seconds": round(time.perf_counter() - began, 1),
                "peak_memory_mib": round(usage.ru_maxrss / unit),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )

    def _run_verb(self, step: Step, *, keep: int) -> tuple[int, resource.struct_rusage]:
        """Run a step's words in a process of its own, what it prints going here and to the end of its log.

        Args:
            step: with the verb and its overrides.
            keep: a file descriptor that the process holds open.

        Returns:
            The exit code, negative for a signal, and what the process used.
        """
        words, here = step.words(self.root), f"{step.name}: " if self.jobs > 1 else ""
        # The same package in the same place as here, whatever lies in the current folder.
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
        if self.jobs > 1:
            env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.jobs)))
        with (
            (self.root / step.name / LOG).open("a", encoding="utf-8") as file,
            subprocess.Popen(  # noqa: S603 - our own interpreter and the study's words, without a shell
                [sys.executable, "-P", "-m", "nsed_torch.cli", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=[keep],
                encoding="utf-8",
                errors="replace",
            ) as process,
        ):
            self._processes.add(process)
            try:
                file.write(f"$ {shlex.join(['nsed', *words])}\n")
                for line in process.stdout or ():
                    for target, text in ((sys.stdout, here + line), (file, line)):
                        target.write(text)
                        target.flush()
            except BaseException:
                process.terminate()
                raise
            # Unlike Popen.wait, this tells what this one process used.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._processes.remove(process)
        return process.returncode, usage

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Hold the study's folder; a verb that outlives a killed study holds on to it until it ends."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "study.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.report(f"{self.root}: another process is at work here; waiting until it ends")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()


def _ending(code: int, verb: str, log: Path) -> str:
    """How a step ended that did not end well; a fault that the user can fix comes with the verb's own line."""
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    said = [line for line in log.read_text("utf-8").splitlines() if line.startswith((f"nsed {verb}: ", "nsed: "))]
    return f"failed with exit code {code}" + (f": {said[-1]}" if code == 2 and said else "")
