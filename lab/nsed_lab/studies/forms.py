"""`-m nsed_lab.studies.forms BENCHMARK SEED SIZE LEARNED`: of how many questions by kind the form is among the lessons.

Two questions are of one form if nothing but names tells them apart: each name is replaced by its place among those that
came so far; in lists of words the words are left out, so that all lists of a length are one form. Lessons are the first
LEARNED questions of each family that the shipped experts learned (conf/specialist), of seed 0. Writes JSON: kind ->
share.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from nsed_torch.app.config.paths import conf_file
from nsed_torch.questions.generated import TRIES, canonical_question, gym_dataset, mixed_tasks, shares

LISTED = "word_sequence_reversal"
"""The family whose questions are lists of words."""

_BYSTANDERS = {"aiw": ("Matilda",)}  # names that a family always uses


def form(question: str, names: Iterable[str], *, listed: bool = False) -> str:
    """A question with names, or the words of a list, replaced by their places."""
    if listed:
        head, _, words = question.rpartition(":")
        return f"{head}: {len(words.split(','))} words"
    places: dict[str, int] = {}
    some = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})\b")
    plain = some.sub(lambda found: f"<{places.setdefault(found[0], len(places))}>", question) if names else question
    return canonical_question(plain)


def forms(family: str, settings: dict[str, Any], questions: Iterable[str]) -> Iterator[str]:
    """Of questions of a family, whose settings say which names it uses."""
    config = gym_dataset(family, 1, 0, settings).config
    names = {*getattr(config, "male_names", ()), *getattr(config, "female_names", ()), *_BYSTANDERS.get(family, ())}
    return (form(question, names, listed=family == LISTED) for question in questions)


def lessons(learned: int) -> set[str]:
    """The forms that the experts learned."""
    found: set[str] = set()
    generalist = yaml.safe_load(conf_file("specialist/generalist").read_text("utf-8"))
    for family, settings in generalist["families"].items():
        data = gym_dataset(family, learned * TRIES, 0, settings)
        firsts: dict[str, None] = {}
        for i in range(learned * TRIES):
            firsts.setdefault(data[i]["question"])
            if len(firsts) == learned:
                break
        found |= set(forms(family, settings, firsts))
    return found


def main(benchmark: str, seed: int, size: int, learned: int) -> dict[str, float]:
    """Kind -> share of questions whose form is among the lessons."""
    families = yaml.safe_load(conf_file(f"tasks/{benchmark}").read_text("utf-8"))["families"]
    known, found = lessons(learned), {}
    tasks = mixed_tasks(families, size, seed, {0: learned, 1: 400, 2: 1000, **dict.fromkeys(range(3, seed), 1008)})
    for kind, family, settings, _ in shares(families, size):
        asked = [task.question for task in tasks.tasks if tasks.strata[task.id] == kind]
        found[kind] = sum(one in known for one in forms(family, settings, asked)) / len(asked)
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:5]))))
