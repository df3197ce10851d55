"""`python tests/mutants/mutate.py [WORD ...] [--page]`: take every defence away in turn; each time its test must fail.

The defences stand in the TOML files beside this one: a promise, what is taken away, the file, its text before and
after, and the test that has to turn red. Words choose the mutants in whose defence, file or test one of them occurs.
--page writes the table of lab/pages/defences.md and runs nothing.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "lab/pages/defences.md"
BEGIN, END = "<!-- mutants -->\n", "<!-- end -->\n"
FAILED = 1  # pytest's exit code when a test was red; others say that it could not be run
PATIENCE = 300.0  # seconds for a test without its defence


@dataclass(frozen=True)
class Mutant:
    """A defence and how it is taken away."""

    promise: str
    defence: str
    file: str  # below the project's folder
    old: str  # stands once in the file
    new: str
    test: str  # pytest's name of it

    def mutated(self, root: Path = ROOT) -> str:
        """The file without the defence."""
        text = (root / self.file).read_text("utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.defence}: expected its text once in {self.file}, got it {count} times; correct old"
            )
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All of the table, file by file."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return [Mutant(**entry) for file in files for entry in tomllib.loads(file.read_text("utf-8"))["mutant"]]


def table(entries: Sequence[Mutant]) -> str:
    """The table of lab/pages/defences.md, promise by promise."""
    lines = ["| promise | defence taken away | test that turns red |", "| --- | --- | --- |"]
    promises = list(dict.fromkeys(entry.promise for entry in entries))
    for entry in sorted(entries, key=lambda entry: promises.index(entry.promise)):
        cells = (entry.promise, entry.defence, f"`{entry.test.removeprefix('tests/')}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def page(entries: Sequence[Mutant]) -> str:
    """lab/pages/defences.md with today's table."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n{table(entries)}\n{END}{rest.split(END)[1]}"


def run(tests: Sequence[str], root: Path, seconds: float | None = None) -> tuple[int, str]:
    """Run tests of one copy of the project: pytest's exit code and what it said. Tests that do not end are red."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-n", "0", "--no-header", *tests]
    # CI: without a sandbox its tests are red, for a mutant whose test was skipped has survived.
    env = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=root, env=env, start_new_session=True, **pipes) as child:
        try:
            said, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # without its defence a test may have started anything
            return FAILED, "did not end"
    return child.returncode, said


def survives(mutant: Mutant, root: Path) -> str:
    """Why the mutant counts as alive; "" if its test was red."""
    file = root / mutant.file
    kept, mutated = file.read_text("utf-8"), mutant.mutated(root)
    try:
        compile(mutated, mutant.file, "exec") if file.suffix == ".py" else None
        file.write_text(mutated, "utf-8")
        code, said = run([mutant.test], root, PATIENCE)
    finally:
        file.write_text(kept, "utf-8")
    return "" if code == FAILED else f"pytest ended with {code}: {said[-300:].strip()}"


def copies(folder: Path, count: int) -> Queue[Path]:
    """Copies of what git knows and does not ignore, to be mutated one mutant at a time."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    free: Queue[Path] = Queue()
    for number in range(count):
        for name in filter(None, names):
            if (ROOT / name).is_file():
                target = folder / str(number) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        free.put(folder / str(number))
    return free


def main() -> int:
    """Return 0 if every mutant chosen was caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*")
    parser.add_argument("--page", action="store_true")
    chosen = parser.parse_args()
    if chosen.page:
        PAGE.write_text(page(mutants()), "utf-8")
        return 0
    words = chosen.word or [""]
    entries = [m for m in mutants() if any(word in f"{m.defence} {m.file} {m.test}" for word in words)]
    if not entries:
        parser.error(f"expected words of a defence, a file or a test, got {' '.join(words)}: see lab/pages/defences.md")
    with tempfile.TemporaryDirectory() as folder:
        free = copies(Path(folder), jobs := max(1, (os.cpu_count() or 2)))
        code, said = run(sorted({entry.test for entry in entries}), ROOT)
        if code:
            print(f"mutants: the tests are red before anything was taken away\n{said[-3000:]}")
            return 1

        def attempt(mutant: Mutant) -> str:
            root = free.get()
            try:
                return survives(mutant, root)
            finally:
                free.put(root)

        alive = 0
        with ThreadPoolExecutor(jobs) as pool:
            for mutant, why in zip(entries, pool.map(attempt, entries), strict=True):
                alive += bool(why)
                print(
                    f"{'SURVIVED' if why else 'caught'}  {mutant.file}: {mutant.defence}{'  ' + why if why else ''}",
                    flush=True,
                )
    print(f"mutants: {len(entries) - alive} of {len(entries)} caught")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
