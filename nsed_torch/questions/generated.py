"""Tasks that are generated: the families of reasoning-gym."""

import difflib
import importlib.metadata
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nsed_torch.questions.answers.kinds import Kind, guessed
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, question_id
from nsed_torch.records.extras import missing
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

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
    family: str, size: int = 100, seed: int = 0, *, options: Mapping[str, Any] | None = None, reading: str = "general"
) -> GradedTasks:
    """Tasks of a reasoning-gym family.

    An answer is right if it equals the family's recorded one, or if it is made of numbers, signs and brackets alone and
    the family's own scorer, which knows other solutions, gives it full marks. A task depends on family, seed, options
    and its place alone, so a larger size, of at most `APART`, only adds tasks. A question that came before is left out.
    `options` are the family's own settings, such as `{"max_terms": 3}` of `chain_sum`; ids begin with its name.
    `reading` is as in `AnswerGrader`: `reasoning_gym` reads its tags alone.
    """
    settings = dict(options or {})
    items = _drawn(family, size, seed, settings, family)
    grader = GymGrader(items=items, reading=reading)
    return GradedTasks(_tasks(items), grader, _identity(family, seed, settings) | dict(grader.identity()))


def mixed_tasks(
    families: Mapping[str, Mapping[str, Any]], size: int = 100, seed: int = 0, unlike: Mapping[int, int] | None = None
) -> GradedTasks:
    """Tasks of several reasoning-gym families in turn; strata are their names here.

    The tasks of a family are the first of `generated_tasks`, so a larger size, the number of all tasks, only adds some.
    `families` are their settings by name, in order. A setting `family` names the family where the name is a label, so
    that one family can come twice, with other settings. `unlike` leaves out what repeats one of the first so many
    questions of each family at another seed, word by word or as the same sum in another order: seed -> how many.
    """
    drawn, identities = {}, {}
    for name, family, settings, count in shares(families, size):
        known = {other: most for other, most in (unlike or {}).items() if other != seed}
        drawn[name] = _drawn(family, count, seed, settings, name, known_questions(family, known, settings))
        identities[name] = _identity(family, seed, settings) | ({"unlike": known} if known else {})
    turns = itertools.zip_longest(*([(name, entry) for entry in items.items()] for name, items in drawn.items()))
    dealt = [(name, *entry) for turn in turns for name, entry in filter(None, turn)]
    items = {task: item for _, task, item in dealt}
    about = {"name": f"reasoning_gym {', '.join(families)}", "seed": seed, "families": identities}
    grader = GymGrader(items=items)
    strata = {task: name for name, task, _ in dealt}
    return GradedTasks(_tasks(items), grader, {**grader.identity(), **about}, strata)


def shares(families: Mapping[str, Mapping[str, Any]], size: int) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Of families that are asked in turn: name here, family, its other settings, and how many of so many tasks."""
    if not families or size < len(families):
        raise ValueError(f"expected one family or more and a task for each, got {len(families)} and size={size}")
    for place, (name, given) in enumerate(families.items()):
        settings = dict(given or {})
        yield name, str(settings.pop("family", name)), settings, len(range(place, size, len(families)))


class GymItem(NamedTuple):
    """A generated task, and what its family knows of it."""

    dataset: Any  # reasoning-gym's
    entry: Mapping[str, Any]
    numeric: bool  # whether the family's answers are numbers


@dataclass(frozen=True)
class GymGrader(AnswerGrader):
    """Right if equal to the recorded answer, or if the family's own scorer gives a harmless answer full marks."""

    items: Mapping[str, GymItem] = field(default_factory=dict)  # by id of the task

    def kind_of(self, task: Task) -> Kind:
        """Numbers or words, as the task's family has it."""
        return "number" if self.items[question_id(task)].numeric else "text"

    def grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        """As `AnswerGrader`, then by the family's scorer."""
        return [
            Verdict.RIGHT if verdict is Verdict.RIGHT or _scored(self.items[question_id(task)], answer) else verdict
            for (task, answer), verdict in zip(pairs, super().grade(pairs), strict=True)
        ]

    def identity(self) -> dict[str, Any]:
        """The equality's, and whose scorer it is."""
        return {**super().identity(), "scorer": f"reasoning_gym {importlib.metadata.version('reasoning-gym')}"}


def canonical_question(question: str) -> str:
    """A question with what makes no difference taken out: blanks, case, and the order of a sum's numbers."""
    terms = re.compile(r"[0-9]+(?: \+ [0-9]+)+")
    plain = " ".join(question.lower().split())
    return terms.sub(lambda found: " + ".join(sorted(found[0].split(" + "), key=int)), plain)


def known_questions(family: str, unlike: Mapping[int, int], options: Mapping[str, Any]) -> frozenset[str]:
    """The first so many canonical questions of a family at seeds; fewer where a family has not so many."""
    found: set[str] = set()
    for seed, most in unlike.items():
        tries = min(TRIES * most, APART)
        found |= set(map(canonical_question, _firsts(gym_dataset(family, tries, seed, options), tries, most)))
    return frozenset(found)


def _firsts(dataset: Any, tries: int, size: int, known: frozenset[str] = frozenset()) -> dict[str, tuple[int, Any]]:
    """The first items of a data set that have different questions, none of them known, with their places."""
    firsts: dict[str, tuple[int, Any]] = {}
    for i in range(tries):
        if len(firsts) == size:
            break
        entry = dataset[i]
        if not known or canonical_question(entry["question"]) not in known:
            firsts.setdefault(entry["question"], (i, entry))
    return firsts


def _drawn(
    family: str, size: int, seed: int, options: Mapping[str, Any], label: str, known: frozenset[str] = frozenset()
) -> dict[str, GymItem]:
    """Items by id, the first that have different questions, none of them known."""
    sought = TRIES * size * (10 if known else 1)  # of a small family most are known
    tries = min(sought, APART) if 1 <= size <= APART else size
    dataset = gym_dataset(family, tries, seed, options)
    try:
        firsts = _firsts(dataset, tries, size, known)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"reasoning-gym family {family!r}: {error}; correct size, seed or options") from error
    if len(firsts) < size:
        raise ValueError(
            f"expected {size} different questions of reasoning-gym's {family!r}, got {len(firsts)} in {tries} tries: "
            "lower the size or widen its options"
        )
    numeric = _numeric(family, options)
    return {f"{label}-{seed}-{i}": GymItem(dataset, entry, numeric) for i, entry in firsts.values()}


def gym_dataset(family: str, tries: int, seed: int, options: Mapping[str, Any]) -> Any:
    """A family's data set of so many items, which lie apart from those of every other seed."""
    reasoning_gym = _reasoning_gym()
    known = reasoning_gym.factory.DATASETS
    if not 1 <= tries <= APART:
        raise ValueError(f"expected a size from 1 to {APART}, got {tries}: use several seeds for more tasks")
    if family not in known:
        near = ", ".join(difflib.get_close_matches(family, known, n=1) or sorted(known)[:3])
        raise ValueError(f"expected one of reasoning-gym's {len(known)} families, such as {near}, got {family!r}")
    try:
        return reasoning_gym.create_dataset(family, size=tries, seed=seed * APART, **options)
    except (AssertionError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"reasoning-gym family {family!r}: {error}; correct size, seed or options") from error


def _reasoning_gym() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of a package it needs, where that is compiled first
            import reasoning_gym  # noqa: PLC0415 - an extra; costs seconds
            import reasoning_gym.factory  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(missing("reasoning-gym", "generated tasks", "gym", error)) from error
    return reasoning_gym


def _tasks(items: Mapping[str, GymItem]) -> tuple[Task, ...]:
    return tuple(Task(item.entry["question"], name, str(item.entry["answer"])) for name, item in items.items())


def _identity(family: str, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    return {**GymGrader().identity(), "name": f"reasoning_gym {family}", "seed": seed, "options": dict(options)}


def _numeric(family: str, options: Mapping[str, Any]) -> bool:
    """Whether a family's first answers are numbers; not those of the tasks, so that size and seed change no rule."""
    probe = _reasoning_gym().create_dataset(family, size=PROBED, seed=0, **options)
    return all(guessed(str(probe[i]["answer"])) == "number" for i in range(PROBED))


def _scored(item: GymItem, answer: str) -> bool:
    """Whether the family's scorer gives full marks; it is only asked about numbers, signs and brackets."""
    if not _HARMLESS.fullmatch(answer):
        return False
    try:
        return bool(item.dataset.score_answer(answer, item.entry) >= 1)
    except Exception:  # whatever a scorer cannot read is no solution
        return False
