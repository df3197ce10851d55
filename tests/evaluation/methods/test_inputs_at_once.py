"""Methods without rounds to read in: everybody reads at once what a deliberation would have given it, and no more."""

import pytest

from nsed_torch.core.agent import Agent
from nsed_torch.evaluation.methods.conducted import Conducted
from nsed_torch.evaluation.methods.independent import BestOf, Plurality
from nsed_torch.evaluation.methods.interactive import Debate, SelfCorrection
from nsed_torch.records.transcript import Task

TASK = Task("Who has it?", "book", inputs=("All read this.", {"0": "Z alone", "Oberon": "O alone"}, "And this."))
GIVEN = {
    "Zebulon": ["All read this.", "Z alone", "And this."],
    "Quillfeather": ["All read this.", "And this."],
    "Oberon": ["All read this.", "O alone", "And this."],
}


@pytest.mark.parametrize("method", [Plurality(), SelfCorrection(), Debate(), BestOf(samples=2)], ids=repr)
def test_every_call_shows_an_agent_all_that_it_is_given(team, method):
    panel, engine = team.build()
    method(panel, [TASK], None)
    assert engine.requests
    for request in engine.requests:
        whole = request.messages[-1].content
        assert TASK.question in whole
        assert team.fenced(request)[: len(GIVEN[request.agent])] == GIVEN[request.agent]
        assert sum(secret in whole for secret in ("Z alone", "O alone")) == len(GIVEN[request.agent]) - 2


def test_whoever_is_given_nothing_is_asked_the_question(team):
    panel, engine = team.build()
    Plurality()(panel, [Task("Who?", inputs=({"0": "x"},))], None)
    asked = {r.agent: r.messages for r in engine.requests}
    assert asked["Oberon"] == panel.prompts.propose("Who?", memory=(), critiques=(), persona="You are voice 2.", seed=0)


def test_workflows_show_no_inputs_and_say_so(team):
    panel, _ = team.build()
    with pytest.raises(ValueError, match="task 'book': expected no inputs"):
        Conducted(Agent("writer", "scripted"))(panel, [TASK], None)
