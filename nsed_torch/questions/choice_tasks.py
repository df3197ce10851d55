"""Multiple choice: the letter that an answer names, and GPQA, MMLU, HellaSwag."""

import csv
import io
import os
import random
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsed_torch.questions.answers.evidence import readable
from nsed_torch.questions.answers.letters import LETTERS, chosen_letter, listed
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import Grader, question_id
from nsed_torch.questions.sources import Hub, Row, Rows, file_identity, paragraphs, parse_rows, read_file, read_rows
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

LETTER = "Answer with the letter of the right option."
PASSWORD = "NSED_GPQA_PASSWORD"  # noqa: S105 - the variable's name

GPQA = Hub("Idavidrein/gpqa", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_diamond", "train", gated=True)
MMLU = Hub("cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe", "all")
HELLASWAG = Hub("Rowan/hellaswag", "218ec52e09a7e7462a5400043bb9a69a41d06b76", split="validation")

_MARKS = re.compile(r"\s*\[(?:header|title|step|substeps)\]\s*")


def gpqa(
    *, data_dir: str | None = None, prompt: str = LETTER, password: str | None = None, seed: int = 0
) -> GradedTasks:
    """GPQA Diamond, 198 questions of graduate science (Rein et al. 2023); strata are high-level domains.

    Its authors ask that examples are not revealed, so texts are `withheld`. The file is `gpqa/gpqa_diamond.zip`,
    encrypted and decrypted in memory only, which holds `gpqa_diamond.jsonl` or `.csv` in the dataset's own columns; on
    the Hub it is gated. No password reads the environment's NSED_GPQA_PASSWORD, which stays out of recorded configs.
    `seed` is that of the options' order, here and below.
    """
    source = _sealed_rows(data_dir, password) if data_dir else read_rows("gpqa", "", GPQA, None)
    entries = []
    for row in source.rows:
        options = [row.text(name).strip() for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
        entries.append((row.text("Record ID"), row.text("Question"), options, 0, row.text("High-level domain")))
    return _graded(source, entries, prompt, seed, withheld=True)


def mmlu(*, data_dir: str | None = None, prompt: str = LETTER, seed: int = 0) -> GradedTasks:
    """MMLU, the 14,042 questions of the test split (Hendrycks et al. 2021); strata are its 57 subjects.

    The file is `mmlu/mmlu_test.jsonl.gz` {id, subject, question, choices, answer}; the Hub's ids are subject and place
    in it, as in the file.
    """
    source = read_rows("mmlu", "mmlu/mmlu_test.jsonl.gz", MMLU, data_dir)
    places: dict[str, int] = {}
    entries = []
    for row in source.rows:
        subject = row.text("subject")
        place = places[subject] = places.get(subject, -1) + 1
        name = row.text("id") if "id" in row.values else f"{subject}/{place}"
        entries.append((name, row.text("question"), row.texts("choices"), row.number("answer"), subject))
    return _graded(source, entries, prompt, seed)


def hellaswag(*, data_dir: str | None = None, prompt: str = LETTER, seed: int = 0) -> GradedTasks:
    """HellaSwag, how a text goes on (Zellers et al. 2019); strata are activities.

    The file is `hellaswag/hellaswag_val_1000.jsonl` {ind, source_id, activity_label, ctx, endings, label}, 1,000 rows
    of the validation split; the Hub has all 10,042.
    """
    source = read_rows("hellaswag", "hellaswag/hellaswag_val_1000.jsonl", HELLASWAG, data_dir)
    entries = []
    for row in source.rows:
        # `~` marks epochs in our ids, and stands in some of theirs.
        name = f"{row.number('ind')}-{row.text('source_id')}".replace("~", ":")
        activity = row.text("activity_label")
        question = f"Which option continues the text best?\n\n{activity}: {_plain(row.text('ctx'))}"
        entries.append((name, question, [_plain(text) for text in row.texts("endings")], row.number("label"), activity))
    return _graded(source, entries, prompt, seed)


def _graded(
    source: Rows,
    entries: Sequence[tuple[str, str, Sequence[str], int, str]],
    prompt: str,
    seed: int,
    *,
    withheld: bool = False,
) -> GradedTasks:
    """Tasks out of (id, question, options, index of the right one, stratum)."""
    tasks, options = [], {}
    for row, (name, question, given, right, stratum) in zip(source.rows, entries, strict=True):
        if not 0 <= right < len(given):
            raise row.fault(f"a right option out of {len(given)}", f"number {right}")
        options[name], letter = shuffled(given, right, seed, name)
        tasks.append((Task(paragraphs(question.strip(), listed(options[name]), prompt), name, letter), stratum))
    return source.graded(tasks, ChoiceGrader(options), withheld=withheld, prompt=prompt, seed=seed)


def _plain(text: str) -> str:
    """Without the marks of the how-to articles that the text comes from."""
    return " ".join(_MARKS.sub(" ", text).split())


def _sealed_rows(data_dir: str, password: str | None) -> Rows:
    """The rows of the encrypted archive; what is decrypted never leaves memory."""
    file = "gpqa/gpqa_diamond.zip"
    path = Path(data_dir).expanduser() / file
    data = read_file(path, GPQA)
    word = password or os.environ.get(PASSWORD)
    if not word:
        raise ValueError(
            f"{path}: expected the archive's password, got none: GPQA's authors publish it beside their dataset and "
            f"ask that examples are not revealed; set the environment variable {PASSWORD}"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [n for n in archive.namelist() if n.endswith(("gpqa_diamond.jsonl", "gpqa_diamond.csv"))]
            if not names:
                raise ValueError(f"{path}: expected gpqa_diamond.jsonl or gpqa_diamond.csv in it, got neither")
            text = archive.read(names[0], pwd=word.encode())
    except (RuntimeError, zlib.error, zipfile.BadZipFile) as error:  # one wrong password in 256 shows as damage
        raise ValueError(
            f"{path}: cannot be decrypted; the password in {PASSWORD} is wrong, or the archive is damaged"
        ) from error
    where = f"{path}:{names[0]}"
    if names[0].endswith(".jsonl"):
        rows = tuple(parse_rows(text, where))
    else:
        table = csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""))
        rows = tuple(Row(f"{where}, row {number}", record) for number, record in enumerate(table))
    return Rows("gpqa", rows, file_identity(file, data))


def shuffled(options: Sequence[str], right: int, seed: int, name: str) -> tuple[tuple[str, ...], str]:
    """Options in an order that depends on seed and task id alone, and the letter of the right one in it."""
    order = list(range(len(options)))
    random.Random(f"{seed}\x1f{name}").shuffle(order)  # noqa: S311 - fairness, not secrecy
    return tuple(options[i] for i in order), LETTERS[order.index(right)]


@dataclass(frozen=True)
class ChoiceGrader(Grader):
    """Right if the letter of the right option is named; the task's target is that letter."""

    options: Mapping[str, tuple[str, ...]]  # id of the question -> its options, in the order in which they were listed

    def extract(self, task: Task, text: str) -> str | None:
        """As `chosen_letter`."""
        return chosen_letter(readable(text), self.options[question_id(task)])[0]

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """Compare each letter with its task's target; a task without one is a ValueError."""
        if missing := [task.id for task, _ in pairs if task.target is None]:
            raise ValueError(f"expected the letter of the right option as target of {missing[0]!r}, got none")
        return [Verdict.RIGHT if answer == task.target else Verdict.WRONG for task, answer in pairs]

    def identity(self) -> dict[str, Any]:
        """The rule."""
        return {"rule": "letter of an option, 2"}
