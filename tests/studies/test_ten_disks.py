"""Every step is voted on behind right work, by as many members as it takes."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.agents import Agent, Ensemble, Prompts, ScriptedEngine
from nsed_torch.records import Task
from studies.ten_disks import elected, least_elected, right_steps, told, undecided, votes


def test_members_are_asked_until_one_step_is_two_ahead():
    assert undecided([], 10)
    assert undecided(["a"], 10)
    assert not undecided(["a", "a"], 10)
    assert undecided(["a", "b", "a"], 10)
    assert not undecided(["a", "b", "a"], 3)
    assert elected(["b", "a", "a"]) == "a"
    assert elected(["b", "a"]) == "b"


def test_each_work_has_votes_of_its_own():
    def write(request):
        work = "two" if "two" in request.messages[-1].content else "one"
        return f"{work} wrong" if request.agent == "ant" and work == "two" else f"{work}  done"

    agents = [Agent(name, "tiny") for name in ("ant", "bee", "cat", "dog")]
    ensemble = Ensemble({"tiny": ScriptedEngine(write, lambda request, candidate: 0.0)}, agents)
    said = votes(ensemble, Prompts(style="direct"), Task("Go on.", "t"), ["one", "two"], 0, [0, 1])
    assert said == [["one done"] * 2, ["two wrong", *["two done"] * 3]]
    assert [elected(texts) for texts in said] == ["one done", "two done"]
    assert votes(ensemble, Prompts(style="direct"), Task("Go on.", "t"), ["one", "two"], 0, [1]) == said[1:]


def outcome(said):
    """Whether right or wrong is elected, as `votes` would, of what members would say in turn; ties to wrong."""
    heard = []
    for text in said:
        if not undecided(heard, len(said)):
            break
        heard.append(text)
    return heard.count("right") > heard.count("wrong")


@given(right=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_odds_of_a_vote_are_those_of_all_that_may_be_said(right):
    every = itertools.product(*([("right", p), ("wrong", 1 - p)] for p in right))
    expected = sum(math.prod(p for _, p in told) for told in every if outcome([text for text, _ in told]))
    assert least_elected(right) == pytest.approx(expected)


def test_each_adapter_is_read_once_and_counts_for_its_samples(capsys):
    def write(request):
        raise AssertionError("nothing is drawn")

    agents = [Agent(name, "tiny") for name in ("ant", "bee", "cat")]
    ensemble = Ensemble({"tiny": ScriptedEngine(write, lambda request, text: 0.5)}, agents)
    rows = right_steps(ensemble, Prompts(style="direct"), Task("Go on.", "t"), ["one", "two"], ["two", "three"], 0)
    assert [len(row) for row in rows] == [3, 3]
    assert all(row == [row[0]] * 3 for row in rows)
    told([[1.0, 1.0], [0.5, 1.0]], 7, ["ant", "bee"])
    assert capsys.readouterr().out == (
        "seed 7: how likely all 2 steps are right, at the least\n"
        "  the vote: 0.5000; weakest: 2 (0.5000), 1 (1.0000)\n"
        "  ant: 0.5000; weakest: 2 (0.5000), 1 (1.0000)\n"
        "  bee: 1.0000; weakest: 1 (1.0000), 2 (1.0000)\n"
    )
