"""The works that tasks of a family go through, and how each is written down: short, and with all that the next needs.

Ours. A small model copies what has a name and loses count of what has none, so disks are letters; what is done is set
apart from what is left by a word or a sign; and a work begins with what led to it, so that it is decided before it is
done: without, a model copied numbers of twenty digits and got the sum of two digits wrong.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import Any

from nsed_torch.core.prompts import FINISHED

PEGS = {1, 2, 3}

"""The work as it stands after each step, from the first to the answer."""


def _chain_sum(entry: Mapping[str, Any]) -> Iterator[str]:
    """The first two numbers become one, until one is left."""
    parts = entry["metadata"]["expression"].split()
    yield f"start: {' '.join(parts)}"
    while len(parts) > 1:
        first, sign, second, *others = parts
        done = int(first) + int(second) * (1 if sign == "+" else -1)
        parts = [str(done), *others]
        yield f"{first} {sign} {second} = {done}: {' '.join(parts)}"
    yield FINISHED + parts[0]


def _long_addition(entry: Mapping[str, Any]) -> Iterator[str]:
    """The last digits of two numbers leave them for their sum, as on paper."""
    found = re.fullmatch(r"([0-9]+) \+ ([0-9]+)", expression := entry["metadata"]["expression"])
    if found is None:
        raise ValueError(
            f"expected sums of two numbers, got {expression!r}: set max_terms=2, operators=['+'], "
            "allow_negation=false and allow_parentheses=false"
        )
    left, right = found.groups()
    carry, total = 0, ""
    yield f"start: {left} + {right} carry 0 sum"
    while left or right:
        digits = int(left[-1:] or 0), int(right[-1:] or 0), carry
        carry, digit = divmod(sum(digits), 10)
        left, right, total = left[:-1], right[:-1], f"{digit}{total}"
        said = " + ".join(map(str, digits))
        yield f"{said} = {sum(digits)}: {left or 'end'} + {right or 'end'} carry {carry} sum {total}"
    yield FINISHED + f"{carry or ''}{total}"


def _sorting(entry: Mapping[str, Any]) -> Iterator[str]:
    """The number in brackets passes the next or is left behind for it; what is last is done, and the first sets out."""
    about = entry["metadata"]
    numbers = [number.removesuffix(".0") for number in about["original_numbers"]]
    turned = about["direction"] == "descending"
    done: list[str] = []
    said = "start"
    while numbers:
        seen, (held, *rest) = list[str](), numbers
        while True:
            yield " ".join([f"{said}: {about['direction']}", *seen, f"[{held}]", *rest, "|", *done])
            if not rest:
                break
            after, *rest = rest
            sign = "=" if float(held) == float(after) else "<" if float(held) < float(after) else ">"
            said = f"{held} {sign} {after}"
            passes = sign == ("<" if turned else ">")
            seen, held = ([*seen, after], held) if passes else ([*seen, held], after)
        numbers, done, said = seen, [held, *done], f"{held} done"
    yield FINISHED + str([number if "." in number else f"{number}.0" for number in done])


def _reversal(entry: Mapping[str, Any]) -> Iterator[str]:
    """The last word goes behind the others that have gone."""
    words: list[str] = entry["metadata"]["words"]
    for left in range(len(words), -1, -1):
        said = words[left] if left < len(words) else "start"
        yield " ".join([f"{said}:", *words[:left], "|", *reversed(words[left:])])
    yield FINISHED + ", ".join(reversed(words))


def _letters(entry: Mapping[str, Any]) -> Iterator[str]:
    """The first word leaves, and its letters are counted."""
    words, letter = entry["metadata"]["span"], entry["metadata"]["target_letter"]
    said, count = "start", 0
    for gone in range(len(words) + 1):
        if gone:
            found = words[gone - 1].lower().count(letter)
            said, count = f"{words[gone - 1]} {found}", count + found
        yield f"{said}: {letter} {count} of {' '.join(words[gone:]) or 'end'}"
    yield FINISHED + str(count)


def _rewriting(entry: Mapping[str, Any]) -> Iterator[str]:
    """The first two neighbours that face each other, in brackets, are rewritten, until none do; "nothing" is an end."""
    tokens = re.findall("[AB]#|#[AB]", entry["question"].partition("following program:")[2])
    said = "start"
    while True:
        facing = (i for i in range(len(tokens) - 1) if tokens[i][1] == "#" == tokens[i + 1][0])
        if (i := next(facing, None)) is None:
            yield f"{said}: {' '.join(tokens) or 'nothing'}"
            yield FINISHED + (" ".join(tokens) or "nothing")
            return
        left, right = tokens[i : i + 2]
        yield " ".join([f"{said}:", *tokens[:i], f"[{left} {right}]", *tokens[i + 2 :]])
        new = [] if left[0] == right[1] else [right, left]
        tokens[i : i + 2] = new
        said = f"{left} {right} becomes {' '.join(new) or 'nothing'}"


def _gcd(entry: Mapping[str, Any]) -> Iterator[str]:
    """The smaller of the first two numbers is taken from the larger, until they are equal and become one (Euclid)."""
    first, *others = entry["metadata"]["numbers"]
    said = "start"
    while others:
        second, *rest = others
        yield f"{said}: {' '.join(map(str, (first, second, *rest)))}"
        low, high = sorted((first, second))
        said = f"{high} - {low} = {high - low}" if low < high else f"{low} = {high}"
        if low == high:
            others = rest
        elif first == high:
            first -= low
        else:
            others = [second - low, *rest]
    yield f"{said}: {first}"
    yield f"{FINISHED}{first}"


def _hanoi(entry: Mapping[str, Any]) -> Iterator[str]:
    """Where each disk lies, the smallest first; which way round the smallest goes; and whose turn it is.

    The smallest disk moves every other time, always the same way round; in between there is one move without it. The
    answer says where each disk lies.
    """
    about = entry["metadata"]
    count, start, target = about["num_disks"], about["start_peg"], about["target_peg"]
    if about["num_pegs"] != len(PEGS):
        raise ValueError(f"expected towers of three pegs, got {about['num_pegs']}: set max_pegs=3")
    (spare,) = PEGS - {start, target}
    way = [start, target, spare] if count % 2 else [start, spare, target]
    places = [start] * count
    yield "start: " + _tower(places, way, small=True)
    for move in range(2**count - 1):
        disk = 0 if move % 2 == 0 else next(d for d in range(count) if places[d] != places[0])
        before = places[disk]
        if disk:
            (places[disk],) = PEGS - {places[0], before}
        else:
            places[0] = way[(way.index(before) + 1) % 3]
        moved = f"{ascii_lowercase[disk]}{before} to {ascii_lowercase[disk]}{places[disk]}: "
        yield moved + _tower(places, way, small=move % 2 == 1)
    yield FINISHED + _places(places)


def _tower(places: Sequence[int], way: Sequence[int], *, small: bool) -> str:
    return f"{_places(places)} way {''.join(map(str, way))} {'small' if small else 'large'}"


def _places(places: Sequence[int]) -> str:
    """As in "a1 b1 c3"."""
    return " ".join(f"{letter}{peg}" for letter, peg in zip(ascii_lowercase, places, strict=False))


def hanoi_moves(works: Sequence[str]) -> str:
    """The moves between towers, as the family's scorer reads them; a ValueError where a step moves no single disk."""
    towers = [
        dict(found)
        for work in works
        if (found := re.findall("([a-z])([123])", work.rpartition(":")[2].partition("way")[0]))
    ]
    lines = []
    for before, after in itertools.pairwise(towers):
        moved = [disk for disk in before if before[disk] != after.get(disk)]
        if len(moved) != 1 or before.keys() != after.keys():
            raise ValueError(f"expected a step that moves one disk, got one from {before} to {after}")
        (disk,) = moved
        number = ascii_lowercase.index(disk) + 1
        lines.append(f"Move disk {number} from Peg {before[disk]} to Peg {after[disk]}")
    return "\n".join(lines)


CHAINS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "ab": _rewriting,
    "basic_arithmetic": _long_addition,
    "chain_sum": _chain_sum,
    "gcd": _gcd,
    "letter_counting": _letters,
    "number_sorting": _sorting,
    "tower_of_hanoi": _hanoi,
    "word_sequence_reversal": _reversal,
}
"""How the works of a reasoning-gym family's tasks are found, the one that the question becomes first."""

GIVEN = ("tower_of_hanoi",)
"""Families whose first work is given."""
