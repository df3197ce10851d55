"""No text makes the readers raise anything but their documented error, or warn, or take long.

NSED_FUZZ sets the number of mutated texts: `NSED_FUZZ=100000 python -m pytest tests/conductor/test_fuzz.py -s`.
"""

import contextlib
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_texts import HUGE, NASTY, fuzz, outcome

from nsed_torch.conductor.parsing import MAX_CHARS, repair
from nsed_torch.conductor.workflow import Reason, WorkflowError

LABELS = ("model_id = [", "subtasks = [", "access_list = [", "]\n", "</think>")


def test_mutated_texts():
    n = int(os.environ.get("NSED_FUZZ", "10000"))
    start = time.perf_counter()
    found = fuzz(n)
    print(f"{n} texts in {time.perf_counter() - start:.1f} s: {dict(found.most_common())}")
    assert found.total() == n
    # The fuzzer does its work: neither all is broken nor all is well, and faults of every kind come up.
    assert n / 10 < found["valid"] < n / 2
    assert set(found) >= {*Reason, "valid"} - {Reason.TOO_LONG}


@given(st.text(max_size=40))
def test_any_text(text):
    assert outcome(text) != "valid"


@given(st.lists(st.sampled_from([*NASTY, *HUGE, *LABELS]) | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_of_the_languages_own_parts(text):
    outcome(text)


@given(*[st.lists(st.sampled_from([*NASTY, ",", ",", '"x"', "0"]), max_size=6).map("".join) for _ in range(3)])
def test_any_text_inside_the_lists(a, b, c):
    outcome(f"model_id = [{a}]\nsubtasks = [{b}]\naccess_list = [{c}]", allow_empty=True)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(*[st.lists(literals, max_size=6)] * 3)
def test_any_literals_in_the_lists(a, b, c):
    outcome(f"model_id = {a}\nsubtasks = {b}\naccess_list = {c}")


FRAME = "model_id = [{}0]\nsubtasks = ['a']\naccess_list = ['all']"


@pytest.mark.parametrize(
    ("frame", "unit"),
    [
        ("{}", unit)
        for unit in (
            "[",
            '"',
            "#",
            "\\",
            "</think>",
            "model_id ",
            "model_id=['",
            'model_id=[\\"',
            "model_id=[ #'\n",
            "model_id=[#",
            'model_id=["""',
        )
    ]
    + [(FRAME, unit) for unit in ("[]", "“", "-", "\n", "[-", "'", "model_id=[")]
    + [(FRAME.replace("'all'", "{}").replace("{}0", "0"), unit) for unit in ("x,", "(", "{,", ",#\n", "[0 1],")],
)
def test_a_megabyte_of_anything_does_not_hang(frame, unit):
    size = 1_000_000 if frame == "{}" else MAX_CHARS - len(frame) - len(unit)
    start = time.process_time()
    with contextlib.suppress(WorkflowError):
        repair(frame.format(unit * (size // len(unit))), workers=1)
    # No measurement: 0.3 s at most is usual, and quadratic reading would take minutes for most of these.
    assert time.process_time() - start < 30
