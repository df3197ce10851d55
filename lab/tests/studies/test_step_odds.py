"""Odds of steps: read once an adapter, worked out for the vote as all that may be said would come out."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_lab.studies import step_odds
from nsed_lab.studies.step_odds import (
    DOUBT,
    ENDING,
    SAMPLES,
    OddsFigures,
    draw_steps,
    keep_odds,
    load_odds,
    main,
    read_steps,
)
from nsed_lab.studies.step_outcomes import three_works, whole_works
from nsed_lab.studies.ten_disks import undecided
from nsed_lab.studies.vote_odds import drawn_elected, least_elected, said_by
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.forms import form_named
from nsed_torch.records.transcript import Task

odds = st.floats(0, 1)


def right_wins(said, ties_lost):
    """Whether the right step is elected by members who would say this in turn; a tie goes to the first, or is lost."""
    heard = []
    for text in said:
        if not undecided(heard, len(said)):
            break
        heard.append(text)
    return heard.count("right") > len(heard) / 2 - 0.25 * (not ties_lost and heard[0] == "right")


@given(right=st.lists(odds, min_size=1, max_size=6), ties_lost=st.booleans())
def test_the_odds_of_a_vote_are_those_of_all_that_may_be_said(right, ties_lost):
    every = itertools.product(*([("right", p), ("wrong", 1 - p)] for p in right))
    expected = sum(math.prod(p for _, p in one) for one in every if right_wins([text for text, _ in one], ties_lost))
    assert least_elected(right, ties_lost=ties_lost).right == pytest.approx(expected)


@given(said=st.lists(st.sampled_from(["right", "a", "b", "c"]), min_size=1, max_size=9))
def test_unlike_wrong_steps_never_help_the_wrong(said):
    alike = ["right" if text == "right" else "wrong" for text in said]
    heard = []
    for text in said:
        if undecided(heard, len(said)):
            heard.append(text)
    others = max((heard.count(text) for text in set(heard) - {"right"}), default=0)
    assert not right_wins(alike, ties_lost=True) or heard.count("right") > others


@given(right=st.lists(odds, min_size=1, max_size=6), more=odds, place=st.integers(0, 5))
def test_who_is_right_more_often_harms_nobody(right, more, place):
    place %= len(right)
    better = [max(p, more) if i == place else p for i, p in enumerate(right)]
    assert least_elected(better).right >= least_elected(right).right - 1e-9


@given(right=st.lists(odds, min_size=1, max_size=5), data=st.data())
def test_votes_may_weigh_unlike(right, data):
    weights = data.draw(st.lists(st.integers(1, 3).map(float), min_size=len(right), max_size=len(right)))
    ahead = data.draw(st.integers(1, 6))
    expected = asked = 0.0
    for said in itertools.product((1, -1), repeat=len(right)):
        lead = turns = 0.0
        for sign, weight in zip(said, weights, strict=True):
            turns += abs(lead) < ahead
            lead += sign * weight * (abs(lead) < ahead)
        likely = math.prod(p if sign > 0 else 1 - p for sign, p in zip(said, right, strict=True))
        expected, asked = expected + likely * (lead > 0), asked + likely * turns
    assert least_elected(right, ahead, weights, ties_lost=True) == pytest.approx((expected, asked))


@given(right=st.lists(odds, min_size=1, max_size=5), data=st.data())
def test_drawn_votes_come_to_what_is_worked_out_where_all_wrong_steps_are_one(right, data):
    weights = data.draw(st.lists(st.integers(1, 3).map(float), min_size=len(right), max_size=len(right)))
    said = [
        np.array([0.0, 0.0, p, 1 - p]) for p in right
    ]  # no votes are tied between the right and the wrong: all are odd
    said = [row[[2, 0, 3]] for row in said]
    weights = [2 * weight + (1 if i == 0 else 0) for i, weight in enumerate(weights)]
    vote, least = drawn_elected(said, 3, weights), least_elected(right, 3, weights)
    assert vote == pytest.approx(least, abs=0.05 * max(1, len(right)))


def test_wrong_steps_that_differ_do_not_add_up_and_ties_go_to_the_first():
    right, a, b, none = (np.eye(4)[place] for place in (0, 2, 3, 1))
    assert drawn_elected([a, b, right, right]).right == 1
    assert drawn_elected([a, a, right, right]).right == 0  # two ahead: nobody else is asked
    assert drawn_elected([a, a, right, right]).asked == 2
    assert drawn_elected([a, right]).right == 0
    assert drawn_elected([right, a]).right == 1
    assert drawn_elected([none, none, right]).right == 1
    assert drawn_elected([none, none]).right == 0
    assert drawn_elected([a, right], weights=[1.0, 1.5]).right == 1


def test_who_was_not_drawn_says_the_likeliest_wrong_step_of_the_others():
    odds = said_by([0.5, 0.1, 0.002], [[16, 4, 0, 12], [30, 0, 2], []])
    assert np.array(odds) == pytest.approx(np.array([[0.5, 0.125, 0, 0.375], [0.9, 0, 0.1, 0], [0.998, 0, 0, 0.002]]))


def test_each_step_is_read_behind_its_work_in_the_members_own_form():
    seen = []

    def rate(request, text):
        seen.append((request.agent, request.messages[-1].content, text))
        return 0.5

    agents = [Agent("ant", "tiny"), Agent("bee", "tiny", form="placed")]
    ensemble = Ensemble({"tiny": ScriptedEngine(lambda request: "", rate)}, agents)
    task = Task("Add 12 and 7.", "t")
    rows = read_steps(ensemble, Prompts(style="direct"), task, ["12 + 7", "Answer: 19"], agents)
    placed = form_named("placed").written
    assert [(name, text) for name, _, text in seen] == [
        ("ant", "12 + 7"),
        ("bee", placed("12 + 7")),
        ("ant", "Answer: 19"),
        ("bee", placed("Answer: 19")),
    ]
    assert "12 + 7" in seen[2][1]
    assert placed("12 + 7") in seen[3][1]
    assert all(0 < error < 1 for row in rows for error in row)


def test_what_else_is_written_is_drawn_where_there_is_doubt():
    asked = []

    def write(request):
        asked.append((request.agent, request.decoding.temperature))
        if request.decoding.temperature == 0:
            return "12 + 8"
        return form_named("placed").written("12 + 7") if request.agent == "bee" else "12  +  7"

    agents = [Agent("ant", "tiny"), Agent("bee", "tiny", form="placed"), Agent("cow", "tiny")]
    ensemble = Ensemble({"tiny": ScriptedEngine(write, lambda request, text: 0.5)}, agents)
    chain, sure = ["12 + 7", "Answer: 19"], DOUBT / 2
    wrong = [[sure, DOUBT, 0.5], [sure, sure, sure]]
    said = draw_steps(ensemble, Prompts(style="direct"), Task("Add 12 and 7.", "t"), chain, agents, wrong)
    assert said == {"0": {"drawn": [[], [SAMPLES], [SAMPLES]], "greedy": [0, 0, 2]}}
    assert asked.count(("bee", 1)) == asked.count(("cow", 1)) == SAMPLES
    assert ("ant", 1) not in asked


def test_who_is_asked_greedily_and_what_was_drawn_enter_the_figures():
    said = {"1": {"drawn": [[8, 0, 24], [16, 0, 0, 16]], "greedy": [2, 0]}}
    told = OddsFigures({"run": [{"task": "a", "agents": ["x", "y"], "wrong": [[0.0, 0.0], [0.5, 0.5]], "said": said}]})
    assert told.odds("run", "=x").startswith("0.50000")
    assert told.odds("run", "=y").startswith("0.00000")
    assert told.odds_drawn("run") == "1"
    assert told.odds_checked("run") == "0.500 and 0.625"
    assert told.odds("run", "vote of =y =x y", 1).startswith("0.00000")  # where all differ, the first is right
    assert float(told.odds("run", "vote of =x =y y", 1)[:7]) == pytest.approx(0.25, abs=0.02)
    assert told.odds("run", "vote of =x =x =y", 1).startswith("0.50000")
    assert told.odds_asked("run", "vote of =x =x =y", 1) == "2.00"
    assert told.odds("run", "vote of =y =x", 1, weighed_by="run").startswith("0.00000")


@pytest.fixture
def figures():
    tasks = [
        {"task": "a", "agents": ["x", "y"], "wrong": [[0.0, 0.2], [0.5, 0.0]]},
        {"task": "b", "agents": ["x", "y"], "wrong": [[0.1, 0.1]]},
    ]
    return OddsFigures({"run": tasks})


def test_figures_follow_from_what_was_read(figures):
    told, steps = figures.functions(), ([0.0, 0.2], [0.5, 0.0], [0.1, 0.1])
    votes = [1 - least_elected([1 - e for e in row] * 3, ties_lost=True).right for row in steps]
    assert told["odds_steps"]("run") == "3"
    assert told["odds"]("run", "x").startswith("0.20000 [0.10000, 0.25000]")
    assert told["odds"]("run").startswith(f"{np.mean(votes):.5f} [")
    assert told["odds_horizon"]("run", "x") == f"{math.log(0.5) / math.log(0.8):,.0f}"
    assert told["odds_doubtful"]("run", "x") == "1"
    assert told["odds_doubtful"]("run", "y") == "0"
    assert told["odds_run"]("run", "x") == f"{1 * 0.5 * 0.9:.4f}"
    alone = [1 - least_elected([1 - e] * 5, ties_lost=True).right for e in (0.0, 0.5, 0.1)]
    assert told["odds"]("run", "vote of x", 5).startswith(f"{np.mean(alone):.5f} [")
    assert told["odds"]("run", "vote of x y") == told["odds"]("run")
    ahead = math.log(0.8) / math.log(1 - np.mean(alone))
    assert told["odds_times"]("run", "x", 5, vote="vote of x").startswith(f"{ahead:.1f} [")
    assert told["odds_works"]("run", 3, who="vote of x y") == told["odds_works"]("run")
    slips = [0.2, 0.1]  # of x and y on average
    weights = [math.log((1 - slip) / slip) for slip in slips] * 3
    weighed = [1 - least_elected([1 - e for e in row] * 3, 3 * max(weights), weights).right for row in steps]
    assert told["odds"]("run", weighed_by="run").startswith(f"{np.mean(weighed):.5f} [")
    times = math.log(0.8) / math.log(1 - np.mean(votes))
    assert told["odds_times"]("run", "x").startswith(f"{times:.1f} [")
    four = [1 - least_elected([1 - e for e in row] * 3, 4, ties_lost=True).right for row in steps]
    assert told["odds"]("run", ahead=4).startswith(f"{np.mean(four):.5f} [")
    works = math.log(0.5) / math.log(1 - np.mean(four)) / whole_works([(2, 0.8), (2, 0.9)])
    assert told["odds_times_works"]("run", 2, ahead=4).startswith(f"{works:.1f} [")


def test_what_was_read_is_stored_told_and_read_again(tmp_path, monkeypatch, capsys):
    pytest.importorskip("reasoning_gym")
    agents = [Agent("ant", "tiny"), Agent("bee", "tiny"), Agent("cow", "tiny", form="counted")]
    ensemble = Ensemble({"tiny": ScriptedEngine(lambda request: "", lambda request, text: 0.9)}, agents)
    monkeypatch.setattr(step_odds, "build_ensemble", lambda cfg: ensemble)
    file = tmp_path / "kept" / f"run{ENDING}"
    main(file, ["tasks=steps", "prompts.style=direct"])
    (task,) = load_odds(file)
    assert task["agents"] == ["ant", "cow"]  # a sample of the ant's kind is the ant
    assert len(task["wrong"]) == 128
    assert json.loads(json.dumps(task)) == task
    assert "128 steps" in capsys.readouterr().out
    main(file, [])
    assert "whole works" in capsys.readouterr().out


def test_other_tasks_have_no_steps(tmp_path):
    with pytest.raises(TypeError, match="expected tasks in steps, got GradedTasks: set tasks=steps"):
        keep_odds(tmp_path / f"run{ENDING}", ["tasks=experts", "tasks.size=8"])


def test_a_greedy_run_of_two_is_gone_on_with_by_a_third_where_one_of_them_may_be_wrong(tmp_path, monkeypatch, capsys):
    pytest.importorskip("reasoning_gym")
    asked = []

    def rate(request, text):
        asked.append((request.agent, text))
        slips = {"ant": "7:", "bee": "Answer"}  # at whose steps each is unsure
        return 0.4 if slips.get(request.agent, "none") in text else 0.999

    agents = [Agent("ant", "tiny"), Agent("bee", "tiny", form="backwards"), Agent("cow", "tiny", form="counted")]
    ensemble = Ensemble({"tiny": ScriptedEngine(lambda request: "a  wrong step", rate)}, agents[:2])
    monkeypatch.setattr(step_odds, "build_ensemble", lambda cfg: ensemble)
    file, settings = tmp_path / f"run{ENDING}", ["tasks=additions", "tasks.size=3", "prompts.style=direct"]
    main(file, settings, greedily=True)
    two = load_odds(file)
    steps = sum(len(task["wrong"]) for task in two)
    doubted = sum(len(task["said"]) for task in two)
    assert 3 <= doubted < steps
    assert len(asked) == 2 * steps
    ensemble = Ensemble(ensemble.engines, agents)
    asked.clear()
    main(file, settings, greedily=True)
    three = load_odds(file)
    assert "vote of =ant =bee =cow: 0.00000 [0.00000, " in capsys.readouterr().out
    assert len(asked) == doubted
    assert {name for name, _ in asked} == {"cow"}
    assert [task["agents"] for task in three] == [["ant", "bee", "cow"]] * 3
    for before, after in zip(two, three, strict=True):
        assert [row[:2] for row in after["wrong"]] == before["wrong"]
        read = {str(i) for i, row in enumerate(after["wrong"]) if row[2] is not None}
        assert read == after["said"].keys() == before["said"].keys()
        assert all(not any(one["drawn"]) and one["greedy"][2] == 0 for one in after["said"].values())
    told = OddsFigures({"run": three})
    assert told.odds("run", "vote of =ant =bee =cow", 1).startswith("0.00000")  # nobody errs where another does
    asked_of = 2 + sum(after["said"][i]["greedy"][:2] != [0, 0] for after in three for i in after["said"]) / steps
    assert told.odds_asked("run", "vote of =ant =bee =cow", 1) == f"{asked_of:.2f}"
    with pytest.raises(ValueError, match="=cow was asked at some steps of run only"):
        told.odds("run", "=cow")


@given(right=st.lists(st.floats(0.9, 0.9999), min_size=3, max_size=3))
def test_three_whole_works_reach_at_least_as_far_as_the_first_and_as_two_that_agree(right):
    steps = three_works(right)
    first, second, third = (rate**steps for rate in right)
    assert first + (1 - first) * second * third == pytest.approx(0.5)
    assert steps >= math.log(0.5) / math.log(right[0]) - 1e-6
    assert steps >= whole_works([(1, rate) for rate in right]) - 1e-6


def test_greedy_errors_are_counted_and_held_against_three_whole_works():
    said = {"0": {"drawn": [[], [], []], "greedy": [2, 0, 0]}, "1": {"drawn": [[], [], []], "greedy": [2, 0, 2]}}
    wrong = [[0.9, 0.1, 0.2], [0.8, 0.1, 0.7], *[[0.1, 0.1, None]] * 18]
    told = OddsFigures({"run": [{"task": "a", "agents": ["x", "y", "z"], "wrong": wrong, "said": said}]})
    vote = "vote of =x =y =z"
    assert told.odds_wrong("run", "=x") == "2"
    assert told.odds_wrong("run", vote) == "1"
    assert told.odds_share("run", vote).startswith("0.05000 [0.00127, 0.24873]")
    assert told.odds_split("run", vote, "aRR") == told.odds_split("run", vote, "aRa", "Raa") == "1"
    assert told.odds_split("run", "vote of =z =x", "ab", "aa") == "1"
    times = math.log(0.5) / math.log(0.95) / three_works([0.9, 1 - 1e-9, 0.9])
    assert float(told.odds_times_three("run", "=x =y =x", vote=vote).split()[0]) == pytest.approx(times, abs=0.1)
