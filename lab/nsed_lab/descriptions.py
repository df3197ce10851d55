"""What workers say of themselves: the experts' own words, and many other ways to say it, from which lessons draw."""

import random
from pathlib import Path
from typing import Any

from nsed_torch.records.files import read_json

GENERALIST = ("generalist", "adds, counts siblings and friends, writes words backwards, knows families")
SPECIALISTS = {
    "sums": "adds two small numbers",
    "siblings": "counts brothers, sisters and friends",
    "words": "writes words backwards",
    "relations": "tells who is what to whom in a family",
}
"""What the experts say of themselves, by the kind of question they know."""

_WORDS: Any = read_json(Path(__file__).with_suffix(".json"))

OTHER_WORDS: dict[str, tuple[str, ...]] = {kind: tuple(said) for kind, said in _WORDS["other_words"].items()}
"""The same in words that no expert uses, so that it is a description that is learned and not a worker."""

MANY_SIDED: tuple[str, ...] = tuple(_WORDS["many_sided"])
"""A generalist in other words; where a specialist is there too, it is the specialist who is asked."""

OTHERS: dict[str, tuple[str, ...]] = {family: tuple(said) for family, said in _WORDS["others"].items()}
"""Families of reasoning-gym that no expert knows, and what somebody who does would say.

Not in here, so that whom a Conductor asks where nothing was learned can be measured: `gcd`, `leg_counting`,
`caesar_cipher`, `dice`, `word_ladder` and whatever else is not named.
"""

FRAMES = ("{}", "{}", "{}", "{}", "{}, nothing else", "skill: {}", "expert: {}", "{} (small model)")
"""What stands around a description, drawn."""


def described(kind: str, draw: random.Random) -> str:
    """What a worker of a kind says of itself, drawn: half of the time an expert's own words."""
    own = GENERALIST[1] if kind == GENERALIST[0] else SPECIALISTS.get(kind)
    if own is not None and draw.random() < 0.5:
        return own
    if kind == GENERALIST[0]:
        words = draw.choice(MANY_SIDED)
    else:
        words = draw.choice(OTHER_WORDS[kind] if kind in OTHER_WORDS else OTHERS[kind])
    return draw.choice(FRAMES).format(words)
