"""Tasks with graders: from files, generated, and what a trace keeps of their grades."""

import gzip
import hashlib
import json
import re
import sys

import pytest

from nsed_torch.questions.generated import generated_tasks
from nsed_torch.questions.graded import file_tasks, recorded_tasks
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Proposal, Round, Task, Transcript, Usage
from nsed_torch.traces.recorded import read_tasks

QUESTIONS = [{"id": i, "question": f"How much is {i} + {i}?", "target": 2 * i} for i in range(3)]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in QUESTIONS))
    return path


def transcript(task, *rounds):
    """Rounds of proposals that nobody rates."""
    nothing = {"trust": [], "controversy": [], "memory": [], "ratings": [], "vote_mask": [], "ballots": []}
    verdict = {"winner": 0, "all_negative": False, "conviction": 0.0, "decisiveness": 0.0}
    records = [
        Round(
            index=index,
            proposers=[f"agent{j}" for j in range(len(texts))],
            voters=[],
            proposals=[Proposal(f"agent{j}", text, "stop") for j, text in enumerate(texts)],
            support=[0.0] * len(texts),
            consensus=[0.0] * len(texts),
            **nothing,
            **verdict,
        )
        for index, texts in enumerate(rounds, start=1)
    ]
    return Transcript(task, [], records, "", "rounds", Usage(), 0)


def right(graded, task, answer):
    (verdict,) = graded.grader.grade([(task, answer)])
    return verdict is Verdict.RIGHT


def test_a_file_is_read_and_limited(questions):
    graded = file_tasks(str(questions), math_verify=False)
    assert graded.tasks == read_tasks(questions)
    assert [(task.id, task.target) for task in graded.tasks] == [("0", "0"), ("1", "2"), ("2", "4")]
    assert graded.limited(2).tasks == graded.tasks[:2]
    assert graded.limited(None).tasks == graded.limited(9).tasks == graded.tasks
    assert graded.identity == {"rule": "answers, 3", "math_verify": None, "kinds": {"number": 3}}


def test_every_proposal_of_every_round_is_graded(questions):
    graded = file_tasks(str(questions))
    (trace,) = graded.traces(
        [transcript(graded.tasks[2], ["it is 4.0", "3", ""], [r"\boxed{5}", "Answer: four\n4", "$4"])]
    )
    assert trace.answers == [["4.0", "3", None], ["5", "four", "$4"]]
    assert trace.grades == [[True, False, False], [False, True, True]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "expected questions, got an empty file"),
        ('{"id": 1, "question": "?"}\n', "1: expected an object with question and answer"),
        ('{"id": 1, "question": "?", "target": null}\n', "1: answer: expected a text or a number, got None"),
        ('{"id": 1, "question": "?", "target": [1]}\n', "1: answer: expected a text or a number, got [1]"),
        ("{\n", "1: not valid JSON"),
        (
            '{"id": 1, "question": "?", "target": "a", "inputs": "x"}\n',
            "1: task '1': expected a text, or agents with a text",
        ),
        ('{"id": 1, "question": "?", "target": "a", "inputs": null}\n', "got None: correct the inputs"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        file_tasks(str(path))
    assert str(error.value).startswith(f"{path}:")


def test_questions_of_a_file_may_have_inputs(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": 1, "question": "?", "target": "a", "inputs": ["x", {"0": "y"}]}\n')
    assert file_tasks(str(path)).tasks[0].inputs == ("x", {"0": "y"})


def test_no_file_is_said():
    with pytest.raises(ValueError, match="expected a file of questions, got none: pass questions=FILE"):
        file_tasks("")


def test_without_reasoning_gym_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ValueError, match=r"expected reasoning-gym .* pip install .*\[gym\]"):
        generated_tasks("chain_sum")


@pytest.fixture
def gym():
    return pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")


@pytest.mark.usefixtures("gym")
def test_generated_tasks_depend_on_seed_and_place_alone():
    few, many = generated_tasks("chain_sum", 3, seed=7), generated_tasks("chain_sum", 5, seed=7)
    assert few.tasks == many.tasks[:3]
    assert generated_tasks("chain_sum", 3, seed=8).tasks[0].question != few.tasks[0].question
    assert len({task.id for task in many.tasks}) == 5
    assert all(right(many, task, f"{task.target}.0") and not right(many, task, "x") for task in many.tasks)
    short = generated_tasks("chain_sum", 4, options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    assert all(len(re.findall(r"[0-9]+", task.question)) == 2 for task in short.tasks)


@pytest.mark.usefixtures("gym")
def test_the_familys_scorer_knows_other_solutions_and_never_runs_a_models_text(tmp_path):
    graded = generated_tasks("countdown", 1, options={"min_numbers": 2, "max_numbers": 2, "shuffle": True})
    (task,) = graded.tasks
    a, sign, b = re.fullmatch(r"\(?([0-9]+) ?([-+*/]) ?([0-9]+)\)?", task.target).groups()
    other = f"({a} {sign} {b})*1" if sign in "-/" else f"{b}{sign}{a}"
    assert right(graded, task, task.target)
    assert right(graded, task, other) == (sign in "+*")
    spiral = generated_tasks("spiral_matrix", 1)
    mark = tmp_path / "mark"
    assert not right(spiral, spiral.tasks[0], f"[open({str(mark)!r}, 'w')]")
    assert not mark.exists()
    assert not right(graded, task, "9**9**9**9**9")


@pytest.mark.usefixtures("gym")
def test_a_family_that_does_not_exist_or_a_wrong_setting_is_one_line():
    with pytest.raises(ValueError, match="families, such as chain_sum, got 'chain_sums'"):
        generated_tasks("chain_sums")
    for options, complaint in (({"words": 1}, "unexpected keyword argument"), ({"min_terms": 0}, "chain_sum")):
        with pytest.raises(ValueError, match=complaint) as error:
            generated_tasks("chain_sum", 1, options=options)
        assert str(error.value).startswith("reasoning-gym family 'chain_sum': ")


def test_a_task_without_target_is_not_graded_by_guess(questions):
    graded = file_tasks(str(questions))
    with pytest.raises(ValueError, match="expected a target"):
        graded.traces([transcript(Task("?", "new"), ["4"])])


def test_questions_of_recorded_answers_are_asked_again(tmp_path, questions):
    folder = tmp_path / "zeroeval" / "sums"
    folder.mkdir(parents=True)
    (folder / "questions.jsonl.gz").write_bytes(gzip.compress(questions.read_bytes()))
    graded = recorded_tasks(str(tmp_path), math_verify=False)
    assert graded.tasks == read_tasks(questions) == recorded_tasks(str(tmp_path), "sums").tasks
    assert recorded_tasks(str(tmp_path / "zeroeval"), "sums").tasks == graded.tasks
    assert graded.identity["file"] == "questions.jsonl"
    assert graded.identity["sha256"] == hashlib.sha256(questions.read_bytes()).hexdigest()
    asked = recorded_tasks(str(tmp_path), "sums", prompt="Box it.")
    assert [task.question for task in asked.tasks] == [f"{task.question}\n\nBox it." for task in graded.tasks]
    assert asked.identity["file"] == "zeroeval/sums/questions.jsonl.gz"
    assert right(asked, asked.tasks[2], "4")


def test_a_folder_without_questions_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"expected questions in one of .*zeroeval.*/x/questions.jsonl.gz, got none"):
        recorded_tasks(str(tmp_path), "x")
    for nothing in (None, ""):
        with pytest.raises(ValueError, match="expected a folder of recorded answers, got none: pass data_dir=DIR"):
            recorded_tasks(nothing)
