"""Every step is voted on behind right work, by as many members as it takes."""

from nsed_lab.studies.ten_disks import elected, undecided, votes
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.transcript import Task


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
