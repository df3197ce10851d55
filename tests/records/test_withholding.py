"""Withheld records: numbers stay, texts go, and what goes once is not missed again."""

from dataclasses import replace

import pytest
from team_traces import trace, turn

from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Critique, MemorySlot, Task, Usage
from nsed_torch.records.withholding import WITHHELD, withheld_outcome, withheld_trace

SECRET = "What weighs more than lead?"


def test_a_trace_keeps_its_numbers_and_no_text():
    given = trace("q7", turn(["A", SECRET, None], ratings=[[None, 0.5, 0.1], [0.25, None, 0]], texts=[SECRET, "B", ""]))
    (record,) = given.transcript.rounds
    slot = MemorySlot(f"{SECRET} B", "a", 1, 0.5, 1.0, shown=True)
    record = replace(record, memory=[slot], critiques=[Critique(0, 1, f"{SECRET}!")], notes=[f"error: {SECRET}"])
    task = Task(SECRET, "q7", SECRET, "gold")
    told = replace(given, transcript=replace(given.transcript, task=task, rounds=[record], answer=f"{SECRET} A"))
    hidden = withheld_trace(told)
    assert SECRET in told.to_line()
    assert SECRET not in hidden.to_line()
    assert hidden.transcript.task == Task(WITHHELD, "q7")
    assert [p.text for p in hidden.transcript.rounds[0].proposals] == [WITHHELD, WITHHELD, ""]
    assert (hidden.grades, hidden.answers) == (told.grades, [["A", WITHHELD, None]])
    assert hidden.transcript.rounds[0].ratings == record.ratings
    assert hidden.transcript.rounds[0].memory == [replace(slot, text=WITHHELD)]
    assert withheld_trace(hidden) == hidden


@pytest.mark.parametrize(
    ("answer", "kept"), [("B", "B"), (None, None), ("", ""), ("7", WITHHELD), ("lead", WITHHELD), (SECRET, WITHHELD)]
)
def test_an_outcome_keeps_the_letter_of_its_option_and_no_text(answer, kept):
    outcome = Outcome(
        "m", "q7", "q7", "physics", answer, f"{SECRET} B", Verdict.RIGHT, Usage(1, 2, 3), f"said {SECRET}"
    )
    hidden = withheld_outcome(outcome)
    assert hidden == replace(outcome, text=WITHHELD, answer=kept, note="")
    assert withheld_outcome(hidden) == hidden
