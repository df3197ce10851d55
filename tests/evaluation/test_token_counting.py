"""What methods are charged for: what they share within a task counts once, and nothing else makes a difference."""

import random
import zlib
from dataclasses import replace

import pytest

from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, GenerateRequest, RateRequest
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import full_team
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.conducted import Conducted
from nsed_torch.evaluation.methods.independent import BestOf, SelfConsistency
from nsed_torch.evaluation.methods.interactive import Debate, MixtureOfAgents, SelfMoA
from nsed_torch.evaluation.run_methods import Contest, Shard
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality

TASKS = tuple(Task(f"How much is {i} times 7, in numbers and not in words?", f"q{i}", str(7 * i)) for i in range(5))
FLOW = Workflow((WorkflowStep(0, "Add."), WorkflowStep(1, "Check.", "all"), WorkflowStep(0, "Say.", "all"))).render()


class Reading(ScriptedEngine):
    """A script whose tokens are words that everybody reads alike."""

    shares_prefixes = True

    def generate(self, requests):
        return [replace(result, written=tuple(ids(result.text))) for result in super().generate(requests)]

    def readings(self, request, result):
        if isinstance(request, GenerateRequest):
            return [[*chat(request.messages), *result.written]]
        if isinstance(request, RateRequest):
            return [chat(request.about(candidate)) for candidate in request.candidates]
        return [[*chat(request.messages), *ids(text)] for text in request.texts]


def ids(text):
    return [zlib.crc32(word.encode()) for word in text.split()]


def chat(messages):
    return [reading for message in messages for reading in ids(message.content)]


def write(request):
    if request.agent == "conductor":
        return FLOW
    draw = random.Random(request.seed)
    return f"{' '.join(draw.choices(['so', 'thus'], k=6))} The answer is {draw.randint(1, 3)}."


def judge(request, candidate):
    return random.Random(f"{request.agent}{candidate}").uniform(-1, 1)


METHODS = {
    "consistency": SelfConsistency(4),
    "best": BestOf(4),
    "moa": SelfMoA(3),
    "debate": Debate(2),
    "mixture": MixtureOfAgents(1),
    "conducted": Conducted(Agent("conductor", "s"), recursion=1),
}


def contest(rating=None, *, tasks=TASKS, log=None, kind=Reading, max_batch=32, **settings):
    agents = [Agent(name, "s", decoding=Decoding(max_new_tokens=40)) for name in ("ada", "ben", "cleo")]
    log = CallLog(None) if log is None else log
    ensemble = Ensemble({"s": kind(write, judge, max_batch=max_batch)}, agents, call_log=log)
    rating = rating or VerdictRating()
    cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), rating=rating, seed=5)
    graded = GradedTasks(tasks, AnswerGrader(Equality(math_verify=False)), {}, call_log=log)
    rnn = MacroRNN(cell, halting=FixedHalting(2))
    return Contest(rnn, graded, METHODS, **{"batch_tasks": 3, "equal_tokens": False} | settings)


def usages(own, names=("deliberation", *METHODS)):
    """By method and task."""
    return {(outcome.method, outcome.task): outcome.usage for outcome in own.run(list(names)).outcomes}


@pytest.mark.parametrize(
    "rating", [VerdictRating(), CritiqueRating(), LikelihoodRating()], ids=lambda r: type(r).__name__
)
def test_usage_depends_on_a_tasks_own_calls_alone(rating, tmp_path):
    straight = usages(contest(rating))
    assert all(usage.tokens <= usage.billed for usage in straight.values())
    for name in ("deliberation", *METHODS):
        assert all(straight[name, task.id].tokens < straight[name, task.id].billed for task in TASKS), name
    for options in ({"batch_tasks": 1}, {"max_batch": 1}, {"tasks": TASKS[::-1]}):
        assert usages(contest(rating, **options)) == straight
    # Each method by itself, and the others first.
    for name in ("deliberation", *METHODS):
        alone = usages(contest(rating), [name])
        assert alone == {place: usage for place, usage in straight.items() if place in alone}
    assert usages(contest(rating), [*reversed(METHODS), "deliberation"]) == straight
    # From the calls of a run that was cut off, and once more from all of them.
    for names in (["debate", "deliberation"], ["deliberation", *METHODS]):
        with CallLog(tmp_path / "calls.sqlite") as log:
            contest(rating, tasks=TASKS[:2], log=log).run(names)
            again = usages(contest(rating, log=log))
        assert again == straight


def test_processes_that_share_a_call_log_count_alike():
    log, straight = CallLog(None), usages(contest())
    for rank in (1, 0):
        assert usages(contest(log=log, shard=Shard(rank, 2))) == straight


def test_samples_of_one_prompt_read_it_once():
    for (_, task), usage in usages(contest(), ["consistency"]).items():
        alone = usages(contest(), ["single"])["single:ada", task]
        assert usage.calls == 4
        assert usage.billed == 4 * alone.prompt_tokens + usage.completion_tokens
        assert usage.tokens <= alone.prompt_tokens + usage.completion_tokens


def test_at_equal_tokens_samples_get_what_a_shared_prompt_saves():
    def samples(kind):
        own = contest(kind=kind, equal_tokens=True)
        found = usages(own, ["deliberation", "consistency"])
        for task in TASKS:
            spent, budget = found["consistency", task.id], found["deliberation", task.id]
            assert spent.tokens <= budget.tokens
        return sum(usage.calls for (name, _), usage in found.items() if name == "consistency")

    assert samples(Reading) > 1.5 * samples(ScriptedEngine)


def test_the_same_state_gives_the_same_round_again():
    cell = contest().rnn.cell
    team = cell.ensemble
    state = cell.start(TASKS[:1])
    (first,), after = cell(TASKS[:1], [full_team(team)], state, index=1)
    (again,), _ = cell(TASKS[:1], [full_team(team)], state, index=1)
    assert again == first
    (second,), _ = cell(TASKS[:1], [full_team(team)], after, index=1)
    assert second.usage.tokens < first.usage.tokens
    assert second.usage.billed > first.usage.billed  # with a memory
