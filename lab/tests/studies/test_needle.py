"""Right answers among wrong ones, in the layout of recorded answers."""

import re
from collections import Counter

import pytest

from nsed_lab.studies.needle import write_candidates
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import load_recorded

TASKS = [Task(f"Which is {i}?", f"t{i}", "abcd"[i % 4]) for i in range(200)]


def test_every_task_has_one_right_candidate_among_targets_of_others(tmp_path):
    assert write_candidates(tmp_path, [*TASKS, Task("Which is 3?", "again", "d")], count=3) == 200
    table = load_recorded(tmp_path)
    assert (len(table), table.agents) == (200, ("candidate_1", "candidate_2", "candidate_3"))
    assert (table.correct.sum(1) == 1).all()
    assert table.answered.all()
    for task, outputs, right in zip(table.tasks, table.outputs, table.correct.tolist(), strict=True):
        assert outputs[right.index(True)] == task.target
        assert len(set(outputs)) == 3
        assert set(outputs) <= set("abcd")


def test_neither_place_nor_text_betrays_the_right_one(tmp_path):
    write_candidates(tmp_path, TASKS, count=3)
    table = load_recorded(tmp_path)
    assert all(40 < n < 95 for n in table.correct.sum(0).tolist())  # 67 expected, sd 6.7
    wrong = Counter(
        o
        for row, right in zip(table.outputs, table.correct.tolist(), strict=True)
        for o, r in zip(row, right, strict=True)
        if not r
    )
    assert all(60 < wrong[letter] < 140 for letter in "abcd")  # 100 expected, sd under 9


def test_the_seed_decides_and_order_does_not(tmp_path):
    for name, tasks, seed in (("a", TASKS, 0), ("b", TASKS, 0), ("c", TASKS, 1)):
        write_candidates(tmp_path / name, tasks, seed=seed)
    digests = [load_recorded(tmp_path / name).digest for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("tasks", "count", "different"), [(TASKS, 5, 4), (TASKS, 1, 4), ([*TASKS, Task("?", "x")], 3, 4)]
)
def test_what_cannot_be_written_is_one_line(tmp_path, tasks, count, different):
    line = f"expected tasks with targets and 2 or more candidates out of {different} different targets, got count="
    with pytest.raises(ValueError, match=f"^{re.escape(line)}"):
        write_candidates(tmp_path, tasks, count=count)
    assert not list(tmp_path.iterdir())
