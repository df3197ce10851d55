"""Verdicts are given once, and kept."""

import pytest

from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"{i} + {i}?", f"q{i}", str(2 * i)) for i in range(3))


class Counting(AnswerGrader):
    asked = 0
    broken = False

    def grade(self, pairs):
        type(self).asked += len(pairs)
        return [Verdict.NOT_RUN] * len(pairs) if self.broken else super().grade(pairs)


def test_each_answer_is_graded_once_for_all_runs_with_one_log(tmp_path):
    pairs = [(TASKS[1], "2"), (TASKS[2], "2"), (TASKS[1], "2"), (TASKS[1], "2.0")]
    expected = [Verdict.RIGHT, Verdict.WRONG, Verdict.RIGHT, Verdict.RIGHT]
    Counting.asked = 0
    for _ in range(2):
        with CallLog(tmp_path / "calls.sqlite") as log:
            graded = GradedTasks(TASKS, Counting(RULE), {}, call_log=log)
            assert graded.verdicts(pairs) == expected
            assert graded.verdicts([]) == []
    assert Counting.asked == 3


def test_that_nobody_could_grade_is_not_kept():
    class Broken(Counting):
        broken = True

    log = CallLog(None)
    assert GradedTasks(TASKS, Broken(RULE), {}, call_log=log).verdicts([(TASKS[0], "0")]) == [Verdict.NOT_RUN]
    assert len(log) == 0
    assert GradedTasks(TASKS, Counting(RULE), {}, call_log=log).verdicts([(TASKS[0], "0")]) == [Verdict.RIGHT]


def test_another_rule_grades_for_itself():
    class Strict(AnswerGrader):
        def identity(self):
            return {**super().identity(), "strict": True}

        def grade(self, pairs):
            return [Verdict.WRONG] * len(pairs)

    log, pair = CallLog(None), (TASKS[1], "2")
    assert GradedTasks(TASKS, Counting(RULE), {}, call_log=log).verdicts([pair]) == [Verdict.RIGHT]
    assert GradedTasks(TASKS, Strict(RULE), {}, call_log=log).verdicts([pair]) == [Verdict.WRONG]


def test_ids_epochs_and_groups():
    graded = GradedTasks(TASKS, AnswerGrader(RULE), {}, strata={"q1": "odd"})
    twice = graded.repeated(2)
    assert [task.id for task in twice.tasks] == ["q0", "q1", "q2", "q0~2", "q1~2", "q2~2"]
    assert [twice.group(task) for task in twice.tasks] == ["q0", "q1", "q2"] * 2
    assert twice.strata == {"q1": "odd", "q1~2": "odd"}
    assert graded.repeated(1).tasks == graded.tasks
    assert [t.id for t in graded.chosen(["q2", "q0"]).tasks] == ["q0", "q2"]
    assert graded.chosen(None) is graded
    for ids, got in ((["q9"], "'q9'"), ([], "'none'")):
        with pytest.raises(ValueError, match=f"expected ids of 3 tasks, such as 'q0', got {got}"):
            graded.chosen(ids)
