"""Run every command of the README, from a fresh clone in an empty folder with empty caches, and say what each took.

    python scripts/readme.py [FOLDER] [--python PYTHON] [--only WORD ...]

Every command runs in one environment; `--only` runs those that have one of the words. Caches of pip
and of weights lie in the folder. A command that fails shows its last line, and the rest goes on.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commands(text: str) -> list[str]:
    """The commands of a page's shell blocks, as they stand."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split(" #")[0].rstrip() for line in lines if line.strip() and not line.startswith("#")]


def main() -> int:
    """Clone, make an environment, run the commands; the exit code counts those that failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=None)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="readme-")).resolve()
    clone, home = folder / "nsed_torch", folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)  # noqa: S603, S607 - ours
    subprocess.run([given.python, "-m", "venv", str(folder / "venv")], check=True)  # noqa: S603 - ours
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "NSED_", "PYTHON"))}
    path = f"{folder / 'venv/bin'}:{kept['PATH']}"
    environment = {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PATH": path}
    failed = 0
    for command in commands((clone / "README.md").read_text("utf-8")):
        if given.only and not any(word in command for word in given.only):
            continue
        print(f"$ {command}", flush=True)
        began = time.monotonic()
        done = subprocess.run(  # noqa: S602 - what the README says
            command, shell=True, cwd=clone, env=environment, capture_output=True, text=True, check=False
        )
        failed += done.returncode != 0
        last = ((done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or [""])[-1]
        print(f"  {time.monotonic() - began:.0f} s, exit code {done.returncode}: {last[:200]}", flush=True)
    print(f"{failed} failed; all of it lies in {folder}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
