"""AIME, GSM8K and MATH-500: rows of files and of the Hub, targets, how to answer."""

import pytest

from nsed_torch.questions.math_tasks import aime, gsm8k, math500
from nsed_torch.records.outcome import Verdict

HOW = "\n\nPut your final answer in \\boxed{}."
AIME = [
    {
        "id": f"aime_{year}_{part}_1",
        "competition": f"aime_{year}_{part}",
        "problem": f"{year} {part}?",
        "answer": answer,
    }
    for year, part, answer in [(2024, "I", "025"), (2024, "II", "0"), (2025, "I", "999"), (2025, "II", "70")]
]
GSM8K = [
    {"question": "Eggs? ", "answer": "She sells <<9*2=18>>18 eggs.\n#### 18"},
    {"question": "Dollars?", "answer": "Many.\n#### 1,250"},
]
MATH500 = [
    {"id": "math500_0000", "problem": "Polar?", "answer": r"\left( 3, \frac{\pi}{2} \right)", "subject": "Algebra"}
]


def verdict(graded, task, text):
    (found,) = graded.verdicts([(task, graded.grader.extract(task, text))])
    return found


def test_aime_takes_its_year(write):
    folder = write("aime/aime_2024_2025.jsonl", AIME)
    graded = aime(2024, data_dir=folder)
    assert [(t.id, t.question, t.target) for t in graded.tasks] == [
        ("aime_2024_I_1", f"2024 I?{HOW}", "25"),
        ("aime_2024_II_1", f"2024 II?{HOW}", "0"),
    ]
    assert [t.target for t in aime(2025, data_dir=folder).tasks] == ["999", "70"]
    assert aime(2024, data_dir=folder, prompt="").tasks[0].question == "2024 I?"
    texts = [r"\boxed{025}", r"so \boxed{25.}", "The answer is 25", r"\boxed{26}", "none"]
    assert [verdict(graded, graded.tasks[0], text).value for text in texts] == ["right"] * 3 + ["wrong", "no answer"]


@pytest.mark.parametrize(
    ("year", "row", "task"),
    [
        (2024, {"id": 60, "problem": "How?", "answer": "204", "year": "2024"}, ("aime_2024_60", "204")),
        (2024, {"ID": "2024-II-4", "Problem": "How?", "Answer": 33}, ("aime_2024_2024-II-4", "33")),
        (2025, {"id": "0", "problem": "How?", "answer": "70"}, ("aime_2025_0", "70")),
        (2025, {"id": 0, "problem": "How?", "answer": "70"}, ("aime_2025_0", "70")),
        (2025, {"question": "How?", "answer": "70"}, ("aime_2025_0", "70")),
    ],
)
def test_aime_knows_the_columns_of_the_hubs_copies(hub, year, row, task):
    calls = hub([row])
    graded = aime(year)
    assert [(t.id, t.target) for t in graded.tasks] == [task]
    assert graded.tasks[0].question == f"How?{HOW}"
    assert calls[0][0][0] == {2024: "HuggingFaceH4/aime_2024", 2025: "math-ai/aime25"}[year]


@pytest.mark.parametrize("answer", ["1000", "-1", "3.5", r"\frac12", None, ""])
def test_an_aime_answer_that_cannot_be_one_is_a_fault_of_its_row(write, answer):
    folder = write("aime/aime_2024_2025.jsonl", [AIME[0], AIME[1] | {"answer": answer}])
    with pytest.raises(ValueError, match=r"aime_2024_2025.jsonl:2: expected (an answer from 0 to 999|a whole number)"):
        aime(2024, data_dir=folder)


def test_aime_of_another_year_is_one_line():
    with pytest.raises(ValueError, match="expected a year out of 2024, 2025, got 2023"):
        aime(2023)


def test_gsm8k_targets_are_the_last_line_of_the_solution(write, hub):
    graded = gsm8k(data_dir=write("gsm8k/test.jsonl", GSM8K))
    assert [(t.id, t.question, t.target) for t in graded.tasks] == [
        ("gsm8k-test-0", f"Eggs?{HOW}", "18"),
        ("gsm8k-test-1", f"Dollars?{HOW}", "1250"),
    ]
    assert verdict(graded, graded.tasks[1], r"\boxed{\$1{,}250.00}") is Verdict.RIGHT
    calls = hub(GSM8K)
    assert gsm8k().tasks == graded.tasks
    assert calls[0][0] == ("openai/gsm8k", "main")


@pytest.mark.parametrize("answer", ["18", "so ####  "])
def test_a_gsm8k_solution_without_an_answer_is_a_fault_of_its_row(write, answer):
    with pytest.raises(ValueError, match=r"test.jsonl:1: expected a solution that ends with '#### number', got none"):
        gsm8k(data_dir=write("gsm8k/test.jsonl", [{"question": "?", "answer": answer}]))


def test_math500_keeps_formulas_and_subjects(write, hub):
    graded = math500(data_dir=write("math500/math500.jsonl", MATH500))
    (task,) = graded.tasks
    assert (task.id, task.target, graded.strata[task.id]) == ("math500_0000", MATH500[0]["answer"], "Algebra")
    assert verdict(graded, task, rf"\boxed{{{task.target}}}") is Verdict.RIGHT
    assert verdict(graded, task, r"\boxed{(3, 0)}") is Verdict.WRONG
    row = {name: value for name, value in MATH500[0].items() if name != "id"}
    calls = hub([row | {"unique_id": "test/algebra/1.json"}])
    assert [t.id for t in math500().tasks] == ["test/algebra/1.json"]
    assert calls[0][0] == ("HuggingFaceH4/MATH-500", None)
