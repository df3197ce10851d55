"""A scripted engine that replicas build in their own processes, and that notes in a file what it is asked."""

import os
import random
import time
from functools import partial
from pathlib import Path

from nsed_torch.engines.scripted import ScriptedEngine

WORDS = ["red", "blue", "seven", "eleven", "because", "therefore", "larger", "smaller"]


def write(request):
    """Some words drawn from the call's seed."""
    draw = random.Random(request.seed)
    return f"#{request.seed} " + " ".join(draw.choices(WORDS, k=draw.randint(1, 20)))


def judge(request, candidate):
    """A rating on a grid of hundredths, drawn from judge and text."""
    return random.Random(f"{request.agent} {candidate}").randint(-100, 100) / 100


class Noting(ScriptedEngine):
    """Answers one request after the other, takes its time, and writes down its process and each request's seed."""

    def __init__(self, file, pause=0.0):
        super().__init__(write, judge, name="noting", max_batch=1)
        self.file, self.pause = file, pause

    def generate(self, requests):
        for request in requests:
            with Path(self.file).open("a") as notes:
                notes.write(f"{os.getpid()} {request.seed}\n")
        time.sleep(self.pause)
        return super().generate(requests)


def noting(file, pause=0.0):
    """What makes one."""
    return partial(Noting, str(file), pause)


def broken():
    """What cannot be built."""
    raise ValueError("weights 'none': not to be had: fetch them")


def notes(file):
    """Processes and seeds, as they were written down."""
    return [tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []
