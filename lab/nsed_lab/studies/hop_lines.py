"""`python -m nsed_lab.studies.hop_lines KIND SIZE SEED > FILE`: hops of composite questions, as lines to learn from.

A line is {"question", "answer"}: a hop of a kind as a worker reads it, who reads nothing else, with the right reply and
earlier ones filled in. A quarter of the SIZE questions are in the templates' own words. No hop comes twice.
`nsed specialize questions=FILE adapter.start=...` learns from them.
"""

import json
import sys
from collections.abc import Iterator, Sequence

from nsed_lab.composite import ALONE, KINDS
from nsed_lab.natural_words import natural_tasks
from nsed_torch.conductor.references import referred


def main(arguments: Sequence[str]) -> None:
    """Print the lines."""
    kind, size, seed = arguments
    if kind not in KINDS:
        raise SystemExit(f"expected a kind out of {', '.join(KINDS)}, got {kind!r}: name one of them")
    for question, answer in hop_lines(kind, int(size), int(seed)):
        print(json.dumps({"question": question, "answer": answer}))


def hop_lines(kind: str, size: int, seed: int) -> Iterator[tuple[str, str]]:
    """Each hop of a kind in so many questions, and the reply to it."""
    tasks, seen = natural_tasks(size, seed, wordings="lessons", plain=0.25), set()
    for task in tasks.tasks:
        hops = tasks.hops[task.id]
        for hop in hops:
            replies = {k: before.reply for k, before in enumerate(hops)}
            whole = task.question if hop.subtask == ALONE else referred(hop.subtask.strip(), replies)
            if hop.kind == kind and whole not in seen:
                seen.add(whole)
                yield whole, hop.reply


if __name__ == "__main__":
    main(sys.argv[1:])
