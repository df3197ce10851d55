"""Tasks that are generated: the families of reasoning-gym."""

import difflib
import importlib.metadata
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsed_torch.benchmarks.final_answer import final_answer
from nsed_torch.benchmarks.graded import GradedTasks
from nsed_torch.benchmarks.graders import AnswerGrader, Grader
from nsed_torch.records import Task, Verdict

# Some scorers evaluate the answer as Python. A model's text gets there only if it cannot name anything, nor keep an
# interpreter busy with towers of powers.
_HARMLESS = re.compile(r"(?!.*\*\s*\*)[0-9\s+\-*/(),.\[\]]{1,200}", re.DOTALL)


APART = 1_000_000
"""Tasks between two seeds: reasoning-gym draws item i from `seed + i`, so near seeds would share their items."""

TRIES = 20
"""Items looked at for each task at most, while questions repeat."""

PROBED = 16
"""Items by whose answers a family counts as one of numbers."""


def generated_tasks(
    family: str, size: int = 100, seed: int = 0, *, options: Mapping[str, Any] | None = None, label: str | None = None
) -> GradedTasks:
    """Tasks of a reasoning-gym family.

    An answer is right if it equals the family's recorded one, or if it is made of numbers, signs and brackets alone and
    the family's own scorer, which knows other solutions, gives it full marks. A task depends on family, seed, options
    and its place alone, so a larger size only adds tasks. A question that came before is left out.

    Args:
        family: its name, such as `chain_sum`.
        size: how many tasks, at most `APART`.
        seed: another seed, other tasks.
        options: the family's own settings, such as `{"max_terms": 3}`.
        label: what ids begin with; the family's name if None.

    Raises:
        ValueError: if reasoning-gym is not installed, the family does not exist, does not take the settings or has not
            as many different questions.
    """
    try:
        import reasoning_gym  # noqa: PLC0415 - an extra; costs seconds
        from reasoning_gym.factory import DATASETS  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(
            f"expected reasoning-gym for generated tasks, got {error}: pip install nsed_torch[bench]"
        ) from error
    if not 1 <= size <= APART:
        raise ValueError(f"expected a size from 1 to {APART}, got {size}: use several seeds for more tasks")
    if family not in DATASETS:
        near = ", ".join(difflib.get_close_matches(family, DATASETS, n=1)) or ", ".join(sorted(DATASETS)[:3])
        raise ValueError(f"expected one of reasoning-gym's {len(DATASETS)} families, such as {near}, got {family!r}")
    tries = min(TRIES * size, APART)
    firsts: dict[str, tuple[int, Any]] = {}
    try:
        dataset = reasoning_gym.create_dataset(family, size=tries, seed=seed * APART, **(options or {}))
        for i in range(tries):
            if len(firsts) == size:
                break
            firsts.setdefault((entry := dataset[i])["question"], (i, entry))
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"reasoning-gym family {family!r}: {error}; correct size, seed or options") from error
    if len(firsts) < size:
        raise ValueError(
            f"expected {size} different questions of reasoning-gym's {family!r}, got {len(firsts)} in {tries} tries: "
            "lower the size or widen its options"
        )
    entries = {f"{label or family}-{seed}-{i}": entry for i, entry in firsts.values()}
    tasks = tuple(Task(entry["question"], name, str(entry["answer"])) for name, entry in entries.items())
    grader = GymGrader(dataset=dataset, entries=entries, numeric=_numeric(family, options or {}))
    about = {"name": f"reasoning_gym {family}", "seed": seed, "options": dict(options or {})}
    return GradedTasks(tasks, grader, {**grader.identity(), **about})


def mixed_tasks(families: Mapping[str, Mapping[str, Any]], size: int = 100, seed: int = 0) -> GradedTasks:
    """Tasks of several reasoning-gym families in turn; strata are their names here.

    The tasks of a family are the first of `generated_tasks`, so a larger size only adds tasks.

    Args:
        families: name -> the family's own settings, or none; in this order. A setting `family` names the family where
            the name here is a label, so that one family can come twice, with other settings.
        size: how many tasks in all.
        seed: another seed, other tasks.

    Raises:
        ValueError: for no family, fewer tasks than families, and as `generated_tasks`.
    """
    if not families or size < len(families):
        raise ValueError(f"expected one family or more and a task for each, got {len(families)} and size={size}")
    parts = {
        name: _labelled(name, options or {}, len(range(place, size, len(families))), seed)
        for place, (name, options) in enumerate(families.items())
    }
    turns = itertools.zip_longest(*([(family, task) for task in part.tasks] for family, part in parts.items()))
    dealt = [pair for turn in turns for pair in turn if pair is not None]
    grader = MixedGrader(graders={task.id: parts[family].grader for family, task in dealt})
    told = {family: dict(part.identity) for family, part in parts.items()}
    about = {"name": f"reasoning_gym {', '.join(families)}", "seed": seed, "families": told}
    strata = {task.id: family for family, task in dealt}
    return GradedTasks(tuple(task for _, task in dealt), grader, {**grader.identity(), **about}, strata)


@dataclass(frozen=True)
class GymGrader(AnswerGrader):
    """Right if equal to the recorded answer, or if the family's own scorer gives a harmless answer full marks.

    Args:
        dataset: reasoning-gym's.
        entries: task id -> its entry.
    """

    dataset: Any = None
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """As `AnswerGrader`, then by the family's scorer."""
        return [
            Verdict.RIGHT
            if verdict is Verdict.RIGHT or _scored(self.dataset, answer, self.entries[_question(task)])
            else verdict
            for (task, answer), verdict in zip(pairs, super().grade(pairs), strict=True)
        ]

    def identity(self) -> dict[str, Any]:
        """The equality's, and whose scorer it is."""
        return {**super().identity(), "scorer": f"reasoning_gym {importlib.metadata.version('reasoning-gym')}"}


@dataclass(frozen=True)
class MixedGrader:
    """Grades every task as its family does.

    Args:
        graders: task id -> its family's grader.
    """

    graders: Mapping[str, Grader] = field(default_factory=dict)

    def extract(self, task: Task, text: str) -> str | None:
        """As the grader of the task's family."""
        return self.graders[_question(task)].extract(task, text)

    def classes(self, task: Task, answers: Sequence[str | None]) -> list[int]:
        """As the grader of the task's family."""
        return self.graders[_question(task)].classes(task, answers)

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """As the grader of each task's family."""
        return [self.graders[_question(task)].grade([(task, answer)])[0] for task, answer in pairs]

    def identity(self) -> dict[str, Any]:
        """As its first family's."""
        return dict(next(iter(self.graders.values())).identity())


def _labelled(name: str, settings: Mapping[str, Any], size: int, seed: int) -> GradedTasks:
    options = {key: value for key, value in settings.items() if key != "family"}
    return generated_tasks(str(settings.get("family", name)), size, seed, options=options, label=name)


def _numeric(family: str, options: Mapping[str, Any]) -> bool:
    """Whether a family's first answers are numbers; not those of the tasks, so that size and seed change no rule."""
    import reasoning_gym  # noqa: PLC0415 - as in `generated_tasks`

    probe = reasoning_gym.create_dataset(family, size=PROBED, seed=0, **options)
    return all(final_answer(answer) == answer for answer in (str(probe[i]["answer"]) for i in range(PROBED)))


def _question(task: Task) -> str:
    """Id of the entry, whichever epoch asks it."""
    return task.id.partition("~")[0]


def _scored(dataset: Any, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the family's scorer gives full marks; it is only asked about numbers, signs and brackets."""
    if not _HARMLESS.fullmatch(answer):
        return False
    try:
        return bool(dataset.score_answer(answer, entry) >= 1)
    except Exception:  # whatever a scorer cannot read is no solution
        return False
