"""Benchmarks of mathematics: a question, and a number or formula that answers it."""

from nsed_torch.benchmarks.graded import GradedTasks
from nsed_torch.benchmarks.graders import AnswerGrader
from nsed_torch.benchmarks.sources import Hub, Row, read_rows
from nsed_torch.data.equality import Equality
from nsed_torch.records import Task

BOXED = r"Put your final answer in \boxed{}."

AIME = {
    2024: Hub("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", split="train"),
    2025: Hub("math-ai/aime25", "563bb8404243c5f09de6ec262f2db674fe5bce9b"),
}
GSM8K = Hub("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866", "main")
MATH500 = Hub("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be")


def aime(
    year: int,
    *,
    data_dir: str | None = None,
    repo: str = "",
    revision: str = "",
    split: str = "",
    prompt: str = BOXED,
    math_verify: bool | None = None,
) -> GradedTasks:
    """The 30 problems of a year's American Invitational Mathematics Examinations; answers are integers, 0 to 999.

    Args:
        year: 2024 or 2025.
        data_dir: folder with `aime/aime_2024_2025.jsonl` {id, competition, problem, answer}; None or "" for the Hub.
        repo: dataset with columns problem and answer; "" for the year's.
        revision: its commit or tag; likewise.
        split: its split; likewise.
        prompt: how to answer, behind every question.
        math_verify: as in `Equality`.

    Raises:
        ValueError: in one line, for another year, a source that cannot be read, or an answer that is no such integer.
    """
    if year not in AIME:
        raise ValueError(f"expected a year out of {', '.join(map(str, AIME))}, got {year}")
    own = AIME[year]
    hub = Hub(repo or own.repo, revision or own.revision, split=split or own.split)
    source = read_rows(f"aime{year}", "aime/aime_2024_2025.jsonl", hub, data_dir)
    entries = []
    for number, row in enumerate(source.rows):
        if f"aime_{year}" in str(row.value("competition") or f"aime_{year}"):
            answer = row.number("answer", "Answer")
            if not 0 <= answer <= 999:
                raise row.fault("an answer from 0 to 999", "another number")
            found = row.value("id", "ID")
            name = str(number if found is None else found)
            name = name if name.startswith("aime") else f"aime_{year}_{name}"
            entries.append((_asked(name, row.text("problem", "Problem", "question"), prompt, str(answer)), ""))
    return source.graded(entries, AnswerGrader(Equality(math_verify)), prompt=prompt)


def gsm8k(
    *,
    data_dir: str | None = None,
    repo: str = GSM8K.repo,
    revision: str = GSM8K.revision,
    prompt: str = BOXED,
    math_verify: bool | None = None,
) -> GradedTasks:
    """Grade-school word problems, the 1,319 of the test split (Cobbe et al. 2021).

    The rows carry no ids: a task's is its place in the split.

    Args:
        data_dir: folder with `gsm8k/test.jsonl` {question, answer}; None or "" for the Hub.
        repo: dataset of the same columns.
        revision: its commit or tag.
        prompt: how to answer, behind every question.
        math_verify: as in `Equality`.

    Raises:
        ValueError: in one line, for a source that cannot be read, or a solution without its final `#### number`.
    """
    source = read_rows("gsm8k", "gsm8k/test.jsonl", Hub(repo, revision, GSM8K.config), data_dir)
    entries = [
        (_asked(f"gsm8k-test-{number}", row.text("question"), prompt, _solved(row)), "")
        for number, row in enumerate(source.rows)
    ]
    return source.graded(entries, AnswerGrader(Equality(math_verify)), prompt=prompt)


def math500(
    *,
    data_dir: str | None = None,
    repo: str = MATH500.repo,
    revision: str = MATH500.revision,
    prompt: str = BOXED,
    math_verify: bool | None = None,
) -> GradedTasks:
    """500 competition problems of MATH (Hendrycks et al. 2021, chosen by Lightman et al. 2023); strata are subjects.

    Args:
        data_dir: folder with `math500/math500.jsonl` {id, problem, answer, subject}; None or "" for the Hub.
        repo: dataset of the columns unique_id, problem, answer, subject.
        revision: its commit or tag.
        prompt: how to answer, behind every question.
        math_verify: as in `Equality`; without it, formulas written in another way count as wrong.

    Raises:
        ValueError: in one line, for a source that cannot be read.
    """
    source = read_rows("math500", "math500/math500.jsonl", Hub(repo, revision), data_dir)
    entries = [
        (
            _asked(row.text("id", "unique_id"), row.text("problem"), prompt, row.text("answer")),
            row.text("subject"),
        )
        for row in source.rows
    ]
    return source.graded(entries, AnswerGrader(Equality(math_verify)), prompt=prompt)


def _asked(name: str, question: str, prompt: str, target: str) -> Task:
    return Task("\n\n".join(filter(None, (question.strip(), prompt))), name, target)


def _solved(row: Row) -> str:
    """What a worked solution ends with."""
    _, mark, answer = row.text("answer").rpartition("####")
    if not mark or not answer.strip():
        raise row.fault("a solution that ends with '#### number'", "none")
    return answer.strip().replace(",", "")
