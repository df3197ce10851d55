"""Methods put to tasks: what each outcome says, what budgets are, what fails, and that processes share the work."""

import random
from collections import Counter

import pytest

from nsed_torch.app.verbs.evaluate import expected_costs
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import ContextWindowError, Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.conducted import Conducted, RandomRouting
from nsed_torch.evaluation.methods.independent import Plurality
from nsed_torch.evaluation.methods.method import Answer
from nsed_torch.evaluation.run_methods import Contest, Shard
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import ROLES, Task, Usage
from nsed_torch.traces.equality import Equality

RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"How much is {i} times 7?", f"q{i}", str(7 * i)) for i in range(6))
AGENTS = ("ada", "ben", "cleo")


def contest(methods=None, *, poison="", gone="", lost="", log=None, calls=None, roles=None, greedy=False, **settings):
    """ada is right on even questions, ben on odd ones, cleo always; whoever reads the poison breaks.

    The server of the agent `gone` fails; of `lost` only its ratings do.
    """

    def write(request):
        text = request.messages[-1].content
        if request.agent == gone:
            raise ConnectionError("status 500")
        if poison and poison in text:
            raise ContextWindowError("the prompt is too long")
        if calls is not None:
            calls.append(request)
        number = next(i for i in range(6) if f"is {i} times" in text)
        knows = {"ada": number % 2 == 0, "ben": number % 2 == 1, "cleo": True}.get(request.agent)
        return f"The answer is {7 * number if knows else 1000 + random.Random(request.seed).randrange(9)}."

    def judge(request, candidate):
        if request.agent in {gone, lost}:
            raise ConnectionError("status 500")
        return random.Random(f"{request.seed}{candidate}").uniform(-1, 1)

    log = CallLog(None) if log is None else log
    decoding = Decoding(temperature=0.0 if greedy else 0.7)
    agents = [Agent(name, "s", decoding=decoding, roles=(roles or {}).get(name, ROLES)) for name in AGENTS]
    ensemble = Ensemble({"s": ScriptedEngine(write, judge)}, agents, call_log=log)
    cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), seed=5)
    graded = GradedTasks(TASKS, AnswerGrader(RULE), {}, strata={"q1": "odd"}, call_log=log).repeated(1)
    return Contest(MacroRNN(cell, halting=FixedHalting(2)), graded, methods or {}, **{"batch_tasks": 4} | settings)


def by_method(outcomes):
    found = {}
    for outcome in outcomes:
        found.setdefault(outcome.method, []).append(outcome)
    return found


def test_every_method_has_an_outcome_for_every_task_in_order():
    result = contest({"plurality": Plurality()}).run(["plurality", "deliberation", "single", "best_single"])
    found = by_method(result.outcomes)
    assert list(found) == ["plurality", "deliberation", "single:ada", "single:ben", "single:cleo", "best_single"]
    assert all([o.task for o in outcomes] == [t.id for t in TASKS] for outcomes in found.values())
    assert [o.score for o in found["single:ada"]] == [1, 0] * 3
    assert [o.score for o in found["single:ben"]] == [0, 1] * 3
    assert [o.score for o in found["best_single"]] == [1] * 6  # cleo, chosen on the other folds
    assert all(o.usage.calls == 1 and o.usage.completion_tokens == 4 for o in found["single:cleo"])
    assert found["single:ada"][1].stratum == "odd"
    assert found["single:ada"][0].stratum == ""
    for outcome, trace in zip(found["deliberation"], result.traces, strict=True):
        transcript = trace.transcript
        assert (outcome.text, outcome.usage) == (transcript.answer, transcript.usage)
        assert outcome.usage.calls == 2 * (3 + 3)
        assert outcome.score == trace.grades[-1][transcript.rounds[-1].winner]


def test_who_only_judges_is_no_single_and_leads_nobody():
    """ada and ben propose, cleo, who would be right on everything, only judges them."""
    roles = {"ada": ("proposer",), "ben": ("proposer",), "cleo": ("judge",)}
    calls, leads = [], {}

    def method(panel, tasks, budgets):
        leads.update({task.id: panel.lead(task).name for task in tasks})
        return [Answer("", Usage()) for _ in tasks]

    run = contest({"mine": method}, roles=roles, calls=calls)
    result = run.run(["deliberation", "single", "best_single", "mine"])
    assert list(by_method(result.outcomes)) == ["deliberation", "single:ada", "single:ben", "best_single", "mine"]
    assert {request.agent for request in calls} == {"ada", "ben"}
    assert set(leads.values()) <= {"ada", "ben"}
    for trace in result.traces:
        assert {(*r.proposers, *r.voters) for r in trace.transcript.rounds} == {("ada", "ben", "cleo")}
    costs = expected_costs(run.rnn, run.graded, {}, ["deliberation", "single"], equal_tokens=True)
    assert (costs["deliberation"].calls, costs["single"].calls) == (6 * 2 * (2 + 1), 6 * 2)


def test_methods_get_the_tokens_that_deliberation_took_or_their_own_size():
    seen = []

    def method(panel, tasks, budgets):
        seen.append(budgets)
        return [Answer("7", Usage()) for _ in tasks]

    result = contest({"mine": method}).run(["deliberation", "mine"])
    tokens = [o.usage.tokens for o in by_method(result.outcomes)["deliberation"]]
    assert seen == [tokens[:4], tokens[4:]]
    seen.clear()
    contest({"mine": method}, equal_tokens=False).run(["mine"])
    assert seen == [None, None]


def test_the_leads_of_methods_come_from_other_tasks():
    leads = {}

    def method(panel, tasks, budgets):
        leads.update({task.id: panel.lead(task).name for task in tasks})
        return [Answer("", Usage()) for _ in tasks]

    outcomes = contest({"mine": method}, equal_tokens=False).run(["mine"]).outcomes
    assert leads == dict.fromkeys((t.id for t in TASKS), "cleo")
    assert {o.verdict for o in outcomes} == {Verdict.NO_ANSWER}


def test_members_that_say_the_same_are_not_asked_alone_to_choose_one():
    lead = {"lead": _lead}
    for greedy, asked in ((False, 3), (True, 0)):
        calls = []
        found = by_method(contest(lead, greedy=greedy, calls=calls).run(["lead"]).outcomes)
        assert len(calls) == asked * len(TASKS)
        assert {o.text for o in found["lead"]} == {"cleo" if asked else "ada"}
    calls = []
    contest(lead, greedy=True, calls=calls).run(["lead", "single"])
    assert len(calls) == 3 * len(TASKS)


@pytest.mark.parametrize(
    ("method", "calls_each"),
    [(RandomRouting(), {"ada": 2, "ben": 2, "cleo": 2}), (Conducted(Agent("writer", "s")), {"writer": 6, "ada": 6})],
    ids=["random_routing", "conductor"],
)
def test_nobody_is_asked_alone_for_a_method_without_a_lead(method, calls_each):
    calls = []
    contest({"mine": method}, calls=calls).run(["mine"])
    asked = Counter(request.agent for request in calls)
    assert sum(asked.values()) == sum(calls_each.values())
    assert set(asked) <= set(calls_each)
    calls.clear()
    contest({"mine": method, "lead": _lead}, calls=calls).run(["mine", "lead"])
    assert {request.agent for request in calls} >= set(AGENTS)


def _lead(panel, tasks, budgets=None):
    return [Answer(panel.lead(task).name, Usage()) for task in tasks]


def test_a_task_that_breaks_spoils_no_other_and_failures_are_bounded():
    result = contest(poison="is 3 times", max_failures=4).run(["deliberation", "single"])
    failed = [o for o in result.outcomes if o.verdict is Verdict.FAILED]
    assert [(o.method, o.task) for o in failed] == [
        (name, "q3") for name in ("deliberation", "single:ada", "single:ben", "single:cleo")
    ]
    assert all(o.note == "ContextWindowError: the prompt is too long" and o.score == 0 for o in failed)
    assert [t.transcript.task.id for t in result.traces] == ["q0", "q1", "q2", "q4", "q5"]
    clean = by_method(contest().run(["deliberation"]).outcomes)["deliberation"]
    mended = by_method(result.outcomes)["deliberation"]
    assert [o for o in mended if o.task != "q3"] == [o for o in clean if o.task != "q3"]
    with pytest.raises(
        ValueError, match="at most 3 failures, got 4; the first of single:cleo, task 'q3': ContextWindow"
    ):
        contest(poison="is 3 times", max_failures=3).run(["deliberation", "single"])


def test_a_server_that_fails_is_one_of_the_failures():
    def method(panel, tasks, budgets):
        raise ConnectionError("http://host/v1: status 500")

    outcomes = contest({"mine": method}, max_failures=6).run(["deliberation", "mine"]).outcomes
    failed = by_method(outcomes)["mine"]
    assert {(o.verdict, o.note) for o in failed} == {(Verdict.FAILED, "ConnectionError: http://host/v1: status 500")}


def test_a_silent_member_is_no_failure_of_its_task_but_one_of_its_own():
    result = contest(lost="ben").run(["deliberation", "single"])
    assert not [o for o in result.outcomes if o.verdict is Verdict.FAILED]
    for trace in result.traces:
        for record in trace.transcript.rounds:
            assert record.ratings[1] == [None] * 3
            assert any("ben: the call failed" in note for note in record.notes)
    assert len(contest(gone="ben").run(["deliberation"]).traces) == 6
    with pytest.raises(ValueError, match="at most 0 failures, got 4; the first of single:ben, task 'q0': Connection"):
        contest(gone="ben").run(["deliberation", "single"])


def test_faults_of_the_program_are_not_counted_as_failures():
    def method(panel, tasks, budgets):
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        contest({"mine": method}, max_failures=99).run(["deliberation", "mine"])


def test_shards_make_their_own_calls_first_and_all_come_to_the_same():
    whole = contest({"plurality": Plurality()}).run(["deliberation", "plurality"])
    log, calls, at = CallLog(None), [], []
    order = lambda: at.append(len(calls))  # noqa: E731
    one = contest({"plurality": Plurality()}, log=log, calls=calls, shard=Shard(0, 2, order))
    two = contest({"plurality": Plurality()}, log=log, shard=Shard(1, 2, lambda: None))
    first = one.run(["deliberation", "plurality"])
    second = two.run(["deliberation", "plurality"])
    assert first == second == whole
    # At the first barrier this shard had written for its three tasks alone: two rounds of three agents.
    assert at[0] == 3 * 2 * 3
    assert Shard(1, 3).mine(range(8)) == range(1, 8, 3)


def test_batches_do_not_matter_and_progress_is_told():
    lines = []
    one = contest({"plurality": Plurality()}, batch_tasks=1, report=lines.append).run(["deliberation", "plurality"])
    assert one == contest({"plurality": Plurality()}, batch_tasks=99).run(["deliberation", "plurality"])
    assert lines[0].startswith("deliberation: 1 of 6 tasks, ")
    assert lines[0].endswith(" left")
    assert lines[5] == "deliberation: 6 of 6 tasks"
