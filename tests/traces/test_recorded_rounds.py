"""Recorded answers of several rounds: aligned, masked, rated, and faults that name file and line."""

import json
import re
from pathlib import Path

import pytest
import torch

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.traces.episodes import Episodes, recorded_episodes
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.featured import featured
from nsed_torch.traces.recorded import load_recorded

EXACT = Equality(math_verify=False)
QUESTIONS = [{"id": name, "question": f"Which of {name}?\nA. one\nB. two", "target": "A"} for name in ("p", "q")]
SAID = {  # agent -> (question, round) -> answer
    "ant": {("p", 0): "A", ("p", 1): "B", ("q", 0): "B"},
    "bee": {("p", 0): "B", ("p", 1): "B", ("q", 0): "B"},
    "cat": {("p", 0): "B", ("q", 0): None},  # absent from the second round of p
}


def line(question, number, answer, **other):
    said = {"id": question, "output": f"I say {answer}.", "answer": answer, "correct": answer == "A"}
    return said | {"round": number} | other


def write(root: Path, said=None, ratings=(), rounds=True) -> Path:
    (root / "answers").mkdir(parents=True, exist_ok=True)
    (root / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    for name, lines in (said or SAID).items():
        items = lines.items() if isinstance(lines, dict) else ()
        kept = [line(q, r, answer) for (q, r), answer in items] or [dict(x) for x in lines]
        if not rounds:
            kept = [{k: v for k, v in x.items() if k != "round"} for x in kept]
        (root / "answers" / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in kept))
    if ratings:
        (root / "ratings.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ratings))
    return root


def rating(value, judge="ant", candidate="bee", number=0, question="p"):
    return {"id": question, "round": number, "judge": judge, "candidate": candidate, "rating": value}


def episodes(root, groups=()) -> Episodes:
    recorded = load_recorded(root)
    found = recorded_episodes(recorded, HashedEncoder(8), equality=EXACT)
    return featured(found, recorded, groups) if groups else found


def test_rounds_stand_one_behind_the_other_and_who_is_absent_is_masked(tmp_path):
    found = episodes(write(tmp_path), ["text"])
    assert found.round_mask.tolist() == [[True, True], [True, False]]
    assert found.proposal_mask.tolist() == [[[True] * 3, [True, True, False]], [[True, True, False], [False] * 3]]
    # Equal answers of a task have equal numbers in all rounds.
    assert found.classes.tolist() == [[[0, 1, 1], [1, 1, -1]], [[0, 0, -1], [-1, -1, -1]]]
    assert found.correct.tolist() == [[[True, False, False], [False] * 3], [[False] * 3] * 2]
    assert found.labels.tolist()[0] == [[0, 1, 1], [1, 1, -1]]
    assert found.features.shape == (2, 2, 3, 11)
    assert found.features[0, 1].isfinite().any(-1).tolist() == [True, True, False]
    assert found.cost[0, 1] < found.cost[0, 0]
    assert load_recorded(tmp_path).select([1]).held.tolist() == [1]


def test_one_round_is_what_it_is_without_saying_so(tmp_path):
    one = {name: {key: a for key, a in lines.items() if key[1] == 0} for name, lines in SAID.items()}
    plain, told = episodes(write(tmp_path / "plain", one, rounds=False)), episodes(write(tmp_path / "told", one))
    for name, value in vars(plain).items():
        other = getattr(told, name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name


def test_ratings_stand_for_agreement_where_a_round_has_some(tmp_path):
    given = [rating(0.5), rating(-1, "bee", "ant")]
    found = episodes(write(tmp_path, ratings=given))
    assert found.vote_mask[0, 0].tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert (found.ratings[0, 0, 0, 1], found.ratings[0, 0, 1, 0]) == (0.5, -1.0)
    assert found.ratings[0, 1, :2, :2].tolist() == [[0, 1], [1, 0]]  # by agreement
    assert found.vote_mask[1, 0].any()
    chosen = load_recorded(tmp_path, agents=["cat", "bee"])
    assert chosen.ratings is None  # of those two nobody rated the other


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line("p", 0, "A"), line("p", 2, "A")], "p: expected answers of rounds 0, 1, ... without a gap"),
        ([line("p", 1, "A")], "p: expected answers of rounds 0, 1, ... without a gap, got those of 1"),
        ([line("p", 10**12, "A")], "without a gap"),
        ([line("p", -1, "A")], "ant.jsonl:1: expected a round of 0, 1, ..., got -1"),
        ([line("p", True, "A")], "expected a round of 0, 1, ..., got True"),
        ([line("p", "0", "A")], "expected a round of 0, 1, ..., got '0'"),
        ([line("p", None, "A")], "expected a round of 0, 1, ..., got None"),
        ([line("p", 0, "A"), line("p", 1, "A"), line("p", 1, "B")], "l:3: expected every id once, got 'p, round 1'"),
        ([line("p", 0, "A"), line("p", 0, "B", round=0.0)], "expected a round of 0, 1, ..., got 0.0"),
    ],
)  # fmt: skip
def test_faults_of_rounds_are_told_in_one_line(tmp_path, lines, expected):
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        load_recorded(write(tmp_path, {"ant": lines}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([rating(2)], "ratings.jsonl:1: expected a rating in [-1, 1], got 2"),
        ([rating(float("nan"))], "ratings.jsonl:1: not valid JSON (NaN is no JSON number)"),
        ([rating(True)], "expected a rating in [-1, 1], got True"),
        ([rating("1")], "expected a rating in [-1, 1], got '1'"),
        ([rating(1, judge="dog")], "expected judge and candidate with files in answers, got 'dog'"),
        ([rating(1, candidate=["ant"])], "expected judge and candidate with files in answers, got ['ant']"),
        ([rating(1, candidate="ant")], "expected ratings of others' answers, got 'ant' of its own"),
        ([rating(1, number=1, candidate="cat")], "expected answers of both in that round, got a rating alone"),
        ([rating(1), rating(1)], "ratings.jsonl:2: expected every id once, got 'p' again"),
        ([rating(1, number=-1)], "expected a round of 0, 1, ..., got -1"),
        ([{"id": "p"}], "expected an object with id, round, judge, candidate, rating"),
    ],
)
def test_faults_of_ratings_are_told_in_one_line(tmp_path, given, expected):
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        load_recorded(write(tmp_path, ratings=given))
    assert "\n" not in str(error.value)


def test_rounds_join_in_no_waves(tmp_path):
    with pytest.raises(ValueError, match="expected no waves for answers of 2 rounds, got 2: remove them"):
        recorded_episodes(load_recorded(write(tmp_path)), HashedEncoder(8), equality=EXACT, rounds=2)
