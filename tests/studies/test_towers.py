"""The study of teams that take steps: who is right how often, where the first wrong step is, when a team finishes."""

import itertools
import json
import random
import re

import pytest
from omegaconf import OmegaConf

from nsed_torch.agents import Agent, Decoding, Ensemble, ScriptedEngine
from nsed_torch.records import CallLog
from studies import steps

pytest.importorskip("reasoning_gym")

FENCED = re.compile(r"<text-([0-9a-f]+)>\n(.*?)\n</text-\1>", re.DOTALL)
NAMES = ("ant", "bee", "cat")


@pytest.fixture
def chain():
    """Of the held-out tower of three disks."""
    (works,) = steps.towers([3], 1).chains.values()
    return works


@pytest.fixture
def ensemble(chain):
    """Each goes wrong at a work of its own, half of the time; alone that is the end. dog writes all in one text."""
    following = dict(itertools.pairwise(chain))

    def write(request):
        draw = random.Random(request.seed)
        if request.agent == "dog":
            return "\n".join(chain if draw.random() < 0.5 else chain[:3] + chain[-1:])
        shown = FENCED.findall(request.messages[-1].content)
        work = shown[-1][1] if shown else ""
        if request.agent in NAMES and work == chain[2 + NAMES.index(request.agent)] and draw.random() < 0.5:
            return f"{request.agent} slipped"
        return following.get(work, chain[0] if not shown else "lost")

    agents = [Agent(n, "s", decoding=Decoding(200, 0.7)) for n in NAMES]
    with CallLog(None) as log:
        dog = Agent("dog", "s", decoding=Decoding(999, 0.7))
        yield Ensemble({"s": ScriptedEngine(write, lambda *_: 0.0)}, [*agents, dog], call_log=log)


@pytest.fixture
def study(ensemble, monkeypatch, tmp_path):
    """The command, with scripted agents in place of models; returns what it writes."""
    monkeypatch.setattr(
        steps, "compose", lambda *_: OmegaConf.create({"ensemble": {}, "protocol": {"without": ["dog"]}})
    )
    monkeypatch.setattr(steps, "build_ensemble", lambda *_: ensemble)

    def run(what, *words):
        steps.main(what, tmp_path, *words)
        return json.loads((tmp_path / f"{what}.json").read_text("utf-8"))

    return run


def test_odds_of_a_tower_by_all_and_by_each_alone_and_in_one_text(study, chain, capsys):
    found = study("odds", "3")
    assert list(found) == ["alone, greedy", *NAMES, "team", "dog"]
    assert all(len(one["runs"]) == 20 for one in found.values())
    assert found["team"]["right"][0] == 1
    assert found["team"]["first_wrong"] is None
    assert sum(run["contested"] for run in found["team"]["runs"]) > 10
    for place, name in enumerate(NAMES):
        one = found[name]
        assert 0.1 < one["right"][0] < 0.9
        assert one["first_wrong"] == 4 + place
        assert {run["held"] for run in one["runs"]} == {3 + place, len(chain)}
        assert [run["in_time"] for run in one["runs"]] == [run["right"] for run in one["runs"]]
        assert all(run["calls"] == run["rounds"] for run in one["runs"])
    # The line that says where a tower ends is there in each of its texts; that alone solves no tower.
    assert 0.1 < found["dog"]["right"][0] < 0.9
    assert found["dog"]["first_wrong"] == 4
    said = capsys.readouterr().out
    assert "team: right 20 of 20; voted to finish within 2 steps of the end in 20 of 20; 0 s and " in said
    assert re.search(r"bee: right \d+ of 20, first wrong step 5 on average of the others; voted to finish", said)


def test_runs_and_errors_tell_how_far_and_how_often(study, chain, capsys):
    found = study("runs", "3")
    assert found["team"]["towers"][0]["right"]
    assert found["team"]["in_time"][0] == 1
    assert found["team, two ahead"]["towers"][0]["calls"] < found["team"]["towers"][0]["calls"]
    assert "held 9 of 9; voted to finish within 2 steps of the end in 1 of 1" in capsys.readouterr().out
    found = study("errors", "3")
    assert set(found["wrong"]) == {"alone, greedy", *NAMES}
    assert 0 < found["wrong"]["ant"][0] < 0.2
    assert found["both_wrong"]["ant, bee"][0] == 0
    assert found["vote_wrong"][0] == 0


def test_members_of_different_kinds_are_all_asked_greedily(ensemble):
    agents = [*ensemble.agents[:2], Agent("fox", "s", backwards=True)]
    names = list(steps.alone(Ensemble(ensemble.engines, agents), ["bee"]))
    assert names == ["ant, alone, greedy", "fox, alone, greedy", "ant", "fox"]
