"""Programs graded in a sandbox of small bounds, and the mark of tests that need one."""

import os
from collections.abc import Mapping

import pytest

from nsed_torch.questions.programs import ProgramGrader
from nsed_torch.questions.sandbox import Sandbox
from nsed_torch.records.transcript import Task

SANDBOX = Sandbox(seconds=3, memory_mb=512, processes=8, file_mb=4, output_kb=64)


def skipped(why: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether tests of what is missing are left out: not where a whole suite is to prove something."""
    return bool(why) and "CI" not in environ


usable = pytest.mark.skipif(skipped(SANDBOX.why), reason=SANDBOX.why or "usable")
TASK = Task("?", "t")


def grade(code, *cases, sandbox=SANDBOX, **settings):
    """The verdict on one program."""
    (verdict,) = ProgramGrader({"t": cases}, sandbox, **settings).grade([(TASK, code)])
    return verdict
