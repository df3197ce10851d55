"""Scripts in processes of their own, without the type checks that pytest hooks in, yet without a new torch for each."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

FORKS = """
import importlib, json, os, signal, sys, traceback
import torch

def run(asked):
    for number, file in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[file], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin.close()
    signal.alarm(300)
    sys.argv = ["script", *asked["words"]]
    try:
        exec(compile(asked["script"], "script", "exec"), {"__name__": "__main__"})
        return 0
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    asked = json.loads(line)
    for name in asked["has"]:
        importlib.import_module(name)
    if (child := os.fork()) == 0:
        code = run(asked)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class PlainPython:
    """A process with torch that forks one for every script; one script runs after the other."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def __call__(self, script, *words, has=()):
        """The script's exit code and what it said; `has` names modules to be imported before, once for all scripts."""
        if self.process is None:
            path = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen([sys.executable, "-c", FORKS], env=os.environ | path, **pipes)
        files = {name: self.folder / name for name in ("out", "err")}
        asked = {"script": script, "words": list(map(str, words)), "has": has, **{k: str(v) for k, v in files.items()}}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return SimpleNamespace(returncode=code, **{name: file.read_text() for name, file in files.items()})

    def close(self):
        """End the process."""
        if self.process is not None:
            self.process.communicate()
