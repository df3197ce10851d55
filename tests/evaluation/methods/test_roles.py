"""Methods with agents that may not do everything: nobody is asked for what it may not do."""

from dataclasses import replace

import pytest

from nsed_torch.core.agent import Ensemble
from nsed_torch.evaluation.methods.costs_ahead import expected_usage
from nsed_torch.evaluation.methods.independent import BestOf, Plurality, SelfConsistency, Single
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfCorrection, SelfMoA

ROLES = {"Zebulon": ("judge",), "Quillfeather": ("proposer",), "Oberon": ("proposer", "judge")}
METHODS = [Plurality(2), SelfConsistency(2), SelfCorrection(1), SelfMoA(2), MixtureOfAgents(1), Debate(2), BestOf(3)]


@pytest.fixture
def panel(team):
    return lambda roles=ROLES, **options: with_roles(team, roles, **options)


def with_roles(team, roles, **options):
    """The panel's agents with these roles, and the engine that speaks for them."""
    panel, engine = team.build(**options)
    agents = [replace(agent, roles=roles[agent.name], judge_adapter="rates") for agent in panel.ensemble.agents]
    return replace(panel, ensemble=Ensemble(panel.ensemble.engines, agents)), engine


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_who_only_judges_writes_nothing_and_who_only_proposes_rates_nothing(team, panel, method):
    built, engine = panel()
    answers = method(built, team.tasks, None)
    assert [answer.text for answer in answers].count("") < len(answers)
    assert {request.agent for request, _ in engine.generated} <= {"Quillfeather", "Oberon"}
    assert {request.adapter for request, _ in engine.generated} == {None}
    assert {(request.agent, request.adapter) for request, _ in engine.rated} <= {("Oberon", "rates")}
    assert bool(engine.rated) is isinstance(method, BestOf)
    assert expected_usage(method, built, team.tasks).tokens >= sum(answer.usage.tokens for answer in answers)


@pytest.mark.parametrize("method", [Plurality(2), MixtureOfAgents(1), Debate(2)], ids=lambda m: type(m).__name__)
def test_a_judge_beside_them_changes_no_answer_of_the_proposers(team, panel, method):
    """The same as without it: neither members nor orders nor seeds know of it."""
    built, _ = panel()
    alone = Ensemble(built.ensemble.engines, built.ensemble.agents[1:])
    assert method(built, team.tasks, None) == method(replace(built, ensemble=alone), team.tasks, None)


def test_the_first_that_may_propose_leads(team, panel):
    built, _ = panel()
    assert built.lead(team.tasks[0]).name == "Quillfeather"


@pytest.mark.parametrize(
    ("lead", "named", "judge"),
    [
        ("Quillfeather", None, "Oberon"),
        ("Oberon", None, "Zebulon"),  # the next one only proposes, and after the last comes the first
        ("Quillfeather", "Zebulon", "Zebulon"),
        ("Oberon", "Oberon", "Zebulon"),
    ],
)
def test_the_judge_is_the_next_one_that_may(team, panel, lead, named, judge):
    roles = ROLES if lead == "Quillfeather" else {**ROLES, "Zebulon": ("judge",)}
    built, engine = panel(roles, leads={"a": lead})
    BestOf(judge=named)(built, team.tasks[:1], None)
    assert {request.agent for request, _ in engine.generated} == {lead}
    assert [request.agent for request, _ in engine.rated] == [judge]


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (Single("Zebulon"), "expected an agent out of Quillfeather, Oberon, got 'Zebulon': correct the name"),
        (
            BestOf(judge="Quillfeather"),
            "expected an agent out of Zebulon, Oberon, got 'Quillfeather': correct the name",
        ),
    ],
)
def test_a_role_that_an_agent_does_not_have_is_one_line(team, panel, fails, method, line):
    with fails(line):
        method(panel()[0], team.tasks, None)


def test_without_a_judge_beside_the_lead_best_of_n_is_refused(team, panel, fails):
    for roles in ({**ROLES, "Zebulon": ("proposer",), "Oberon": ("proposer",)}, {**ROLES, "Zebulon": ("proposer",)}):
        built, _ = panel(roles, leads={"a": "Oberon"})
        with fails("expected a judge beside the lead 'Oberon', got none: give an agent the role judge"):
            BestOf()(built, team.tasks[:1], None)
