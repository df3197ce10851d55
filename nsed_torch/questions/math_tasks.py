"""Benchmarks of mathematics: a question, and a number or formula that answers it."""

from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.sources import Hub, Row, read_rows

BOXED = r"Put your final answer in \boxed{}."

AIME = {
    2024: Hub("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", split="train"),
    2025: Hub("math-ai/aime25", "563bb8404243c5f09de6ec262f2db674fe5bce9b"),
}
GSM8K = Hub("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866", "main")
MATH500 = Hub("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be")


def aime(
    year: int, *, data_dir: str | None = None, prompt: str = BOXED, math_verify: bool | None = None
) -> GradedTasks:
    """The 30 problems of the AIME of 2024 or 2025; answers are integers, 0 to 999.

    The file is `aime/aime_2024_2025.jsonl` {id, competition, problem, answer}. Settings are those of `sources`, and
    `math_verify` as in `Equality`.
    """
    if year not in AIME:
        raise ValueError(f"expected a year out of {', '.join(map(str, AIME))}, got {year}")
    source = read_rows(f"aime{year}", "aime/aime_2024_2025.jsonl", AIME[year], data_dir)
    entries = []
    for number, row in enumerate(source.rows):
        if f"aime_{year}" in str(row.value("competition") or f"aime_{year}"):
            answer = row.number("answer", "Answer")
            if not 0 <= answer <= 999:
                raise row.fault("an answer from 0 to 999", "another number")
            given = row.value("id", "ID")
            name = str(number if given is None else given)
            name = name if name.startswith("aime") else f"aime_{year}_{name}"
            entries.append((name, row.text("problem", "Problem", "question"), str(answer), ""))
    return source.answered(entries, prompt, math_verify)


def gsm8k(*, data_dir: str | None = None, prompt: str = BOXED, math_verify: bool | None = None) -> GradedTasks:
    """Grade-school word problems, the 1,319 of the test split (Cobbe et al. 2021).

    The file is `gsm8k/test.jsonl` {question, answer}. The rows carry no ids: a task's is its place in the split.
    """
    source = read_rows("gsm8k", "gsm8k/test.jsonl", GSM8K, data_dir)
    entries = [(f"gsm8k-test-{i}", row.text("question"), _solved(row), "") for i, row in enumerate(source.rows)]
    return source.answered(entries, prompt, math_verify)


def math500(*, data_dir: str | None = None, prompt: str = BOXED, math_verify: bool | None = None) -> GradedTasks:
    """500 competition problems of MATH (Hendrycks et al. 2021, chosen by Lightman et al. 2023); strata are subjects.

    The file is `math500/math500.jsonl` {id or unique_id, problem, answer, subject}. Without math-verify, formulas
    written in another way count as wrong.
    """
    source = read_rows("math500", "math500/math500.jsonl", MATH500, data_dir)
    entries = [
        (row.text("id", "unique_id"), row.text("problem"), row.text("answer"), row.text("subject"))
        for row in source.rows
    ]
    return source.answered(entries, prompt, math_verify)


def _solved(row: Row) -> str:
    """What a worked solution ends with."""
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark or not answer.strip():
        raise row.fault("a solution that ends with '#### number'", "none")
    return answer.strip().replace(",", "")
