"""`python step.py FOLDER nsed VERB [overrides]`: run one step of a study and keep what it cost over all its attempts.

A verb that was stopped goes on where it was, so no single process knows what a step took. FOLDER/attempts.json has
command, time and peak memory of every attempt, up to the last minute of one that was killed; FOLDER/step.json, make's
target, is written last and has the sum over all attempts at its command.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def main(folder: Path, command: list[str]) -> int:
    """Run the command and return its exit code; a second process in the same folder waits for the first."""
    folder.mkdir(parents=True, exist_ok=True)
    done, log = folder / "step.json", folder / "attempts.json"
    with (folder / "step.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done.unlink(missing_ok=True)
        attempts = json.loads(log.read_text("utf-8")) if log.is_file() else []
        began, attempt = time.perf_counter(), {"command": command, "seconds": 0.0, "peak_memory_mib": 0, "date": ""}
        attempts.append(attempt)

        def note(*_: Any) -> None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            attempt.update(seconds=round(time.perf_counter() - began, 1), date=now)
            write(log, attempts)

        note()
        # The verb holds the lock as well: should it outlive this process, nothing else starts here.
        process = subprocess.Popen(nsed(command), env=environment(), pass_fds=[lock.fileno()])  # noqa: S603
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal interrupts the verb itself, which then ends
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        signal.signal(signal.SIGALRM, note)
        signal.setitimer(signal.ITIMER_REAL, 60, 60)
        _, status, usage = os.wait4(process.pid, 0)  # unlike Popen.wait, this tells what the one process used
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        attempt["peak_memory_mib"] = round(usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))
        note()
        if code == 0:
            same = [one for one in attempts if one["command"] == command]
            seconds, most = sum(one["seconds"] for one in same), max(one["peak_memory_mib"] for one in same)
            costs = {"seconds": round(seconds, 1), "peak_memory_mib": most, "attempts": len(same)}
            write(done, {"command": command, **costs, "date": attempt["date"]})
        return code if code >= 0 else 128 - code


def nsed(command: list[str]) -> list[str]:
    """The command as this interpreter runs it, whatever the PATH."""
    return [sys.executable, "-P", "-m", "nsed_torch.app.cli", *command[1:]]


def environment() -> dict[str, str]:
    """This process's, with each of make's jobs on its share of the cores."""
    jobs = re.search(r"-j(\d+)", os.environ.get("MAKEFLAGS", ""))
    threads = max(1, (os.cpu_count() or 1) // int(jobs[1])) if jobs else None
    return ({"OMP_NUM_THREADS": str(threads)} if threads else {}) | os.environ


def write(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
