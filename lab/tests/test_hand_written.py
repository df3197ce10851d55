"""Workflows written by hand answer every composite question, if every hop's worker knows its kind and reads enough."""

import itertools
import random
import re
from dataclasses import replace
from functools import partial

import pytest
from omegaconf import OmegaConf

from nsed_lab.composite import ALONE, KINDS, Hop, composite_tasks
from nsed_lab.descriptions import FRAMES, GENERALIST, MANY_SIDED, OTHER_WORDS, OTHERS, SPECIALISTS
from nsed_lab.hand_written import HandWritten, best_workflow, lessons_by_hand
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.policy import Conductor, WritingAgent
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workflow import Topology, WorkflowStep
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.method import Panel
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.outcome import Verdict

pytest.importorskip("reasoning_gym", reason="the extra `bench` is not installed")


@pytest.fixture(scope="module")
def graded():
    return composite_tasks(104, 7)


def adds(subtask, read):
    """The sum, of numbers in the subtask and above."""
    numbers = [int(number) for number in re.findall(r"[0-9]+", subtask)]
    if "two numbers above" in subtask:
        numbers = [int(number) for number in read[-2:]]
    elif "above" in subtask:
        numbers += [int(read[-1])]
    return str(sum(numbers)) if len(numbers) == 2 else "?"


def counts(subtask, read):
    """One more than the number of sisters, or of female friends."""
    given = re.search(r"(?:([0-9]+)|as many) (?:sisters|female friends)", subtask)
    return str(int(given[1] or read[-1]) + 1)


def reverses(subtask, read):
    """The list backwards, where it is asked for with what stands above at its end."""
    words, _, above = re.search(r"list of words: ([^\n]+)", subtask)[1].partition(", and at its end the ")
    return ", ".join(reversed([*words.split(", "), *(read[-1:] if above else [])]))


class Relatives:
    """Knows who is what to whom in all families of some tasks."""

    def __init__(self, graded):
        self.known = {}
        for hops in graded.hops.values():
            for before, hop in itertools.pairwise([None, *hops]):
                if hop.kind == "relations" and hop.subtask != ALONE:
                    names = re.findall(r"[A-Z]\w+", before.reply if hop.reads else self.asked(hop.subtask))
                    self.known[self.story(hop.subtask), names[0], names[-1]] = hop.reply
        for task in graded.tasks:
            if graded.strata[task.id] == "relations":
                names = re.findall(r"[A-Z]\w+", self.asked(task.question))
                self.known[self.story(task.question), names[0], names[-1]] = task.target

    def __call__(self, subtask, read):
        names = re.findall(r"[A-Z]\w+", read[-1] if "name above" in subtask else self.asked(subtask))
        return self.known.get((self.story(subtask), names[0], names[-1]), "?")

    def story(self, text):
        return text.partition("\n\n")[0]

    def asked(self, text):
        return re.search(r"(?:What|How) ([^?]+)\?", text)[1]


class Workers:
    """An executor of four experts, each of whom does what it knows and nothing else."""

    def __init__(self, graded):
        self.skills = {"sums": adds, "siblings": counts, "words": reverses, "relations": Relatives(graded)}
        agents = [Agent(kind, "one", decoding=Decoding(40, 0.0)) for kind in KINDS]
        engine = ScriptedEngine(self.write, lambda request, candidate: 0.0)
        self.executor = Executor(Ensemble({"one": engine}, agents), prompts=Prompts(style="direct"))

    def write(self, request):
        text = request.messages[-1].content
        read = [message.content for message in request.messages if message.role == "assistant"]
        subtask = (
            text.partition("give no orders.")[2].rpartition("\nQuestion: ")[0].strip() if read else self.said(text)
        )
        try:
            return self.skills[request.agent](subtask, read)
        except (IndexError, TypeError, ValueError):  # another's kind
            return "I do not know."

    def said(self, text):
        """The subtask in a text that begins with the question; the question where it is bare."""
        body = text.removeprefix("Question: ").removesuffix(ALONE).rstrip()
        task = next(task for task in self.tasks if body.startswith(task.question.rstrip()))
        return body.removeprefix(task.question.rstrip()).strip() or body

    def right(self, graded, workflows, pool):
        self.tasks = sorted(graded.tasks, key=lambda task: -len(task.question))
        jobs = [WorkflowJob(task, workflow, pool) for task, workflow in zip(graded.tasks, workflows, strict=True)]
        answers = [execution.answer for execution in self.executor.run(jobs)]
        pairs = zip(graded.tasks, answers, strict=True)
        verdicts = graded.verdicts([(task, graded.grader.extract(task, answer)) for task, answer in pairs])
        return [verdict is Verdict.RIGHT for verdict in verdicts]


@pytest.fixture(scope="module")
def workers(graded):
    return Workers(graded)


@pytest.mark.parametrize("seed", range(3))
def test_every_workflow_written_by_hand_is_right_for_any_order_of_the_pool(graded, workers, seed):
    pool = tuple(random.Random(seed).sample(list(KINDS), 4))
    flows = [best_workflow(graded.hops[task.id], pool) for task in graded.tasks]
    assert all(workers.right(graded, flows, pool))


def test_a_wrong_worker_in_any_hop_is_wrong(graded, workers):
    pool, wrong, tried = tuple(KINDS), 0, 0
    for place in range(3):
        for shift in (1, 2, 3):
            flows, changed = [], []
            for task in graded.tasks:
                steps = list(best_workflow(graded.hops[task.id], pool).steps)
                changed.append(place < len(steps))
                if changed[-1]:
                    step = steps[place]
                    steps[place] = WorkflowStep((step.worker + shift) % 4, step.subtask, step.access)
                flows.append(type(best_workflow((), pool))(tuple(steps)))
            right = workers.right(graded, flows, pool)
            assert all(r for r, c in zip(right, changed, strict=True) if not c)
            tried += sum(changed)
            wrong += sum(c and not r for r, c in zip(right, changed, strict=True))
    assert tried > 500
    assert wrong / tried > 0.98


def test_a_hop_that_reads_nothing_of_what_it_needs_is_wrong(graded, workers):
    pool = tuple(KINDS)
    flows = []
    for task in graded.tasks:
        flow = best_workflow(graded.hops[task.id], pool)
        blind = tuple(WorkflowStep(step.worker, step.subtask) for step in flow.steps)
        flows.append(type(flow)(blind))
    right = workers.right(graded, flows, pool)
    assert [r for r, task in zip(right, graded.tasks, strict=True) if len(graded.hops[task.id]) > 1] == [False] * 78
    assert all(r for r, task in zip(right, graded.tasks, strict=True) if len(graded.hops[task.id]) == 1)


def test_what_is_written_by_hand_is_the_conductors_language(graded):
    flows = {name: best_workflow(graded.hops[name], tuple(KINDS)) for name in graded.hops}
    assert all(parse(flow.render(), workers=4, max_steps=3) == flow for flow in flows.values())
    shapes = {flow.topology() for flow in flows.values()}
    assert shapes == {Topology.SINGLE, Topology.CHAIN, Topology.TREE}
    assert {step.access for flow in flows.values() for step in flow.steps} == {(), "all"}


HOP = (Hop("words", "Reverse this list of words: a, b, c", "c, b, a"),)


def test_workers_are_known_by_their_names_or_by_what_is_said_of_them():
    assert best_workflow(HOP, ["sums", "words"]).steps[0].worker == 1
    assert best_workflow(HOP, [*SPECIALISTS.values()]).steps[0].worker == 2
    assert best_workflow(HOP, [GENERALIST[1], "words"]).steps[0].worker == 1
    assert best_workflow(HOP, ["sums", "generalist"]).steps[0].worker == 1
    with pytest.raises(ValueError, match=r"expected 'words' or 'generalist' in a pool .* got sums, relations: add one"):
        best_workflow(HOP, ["sums", "relations"])
    agents = OmegaConf.load(conf_dir() / "ensemble/experts.yaml").ensemble.agents
    assert {name: agent.description for name, agent in agents.items()} == SPECIALISTS | dict([GENERALIST])


def test_as_a_method_it_is_right_and_without_its_subtasks_it_is_not(graded, workers):
    workers.tasks = sorted(graded.tasks, key=lambda task: -len(task.question))
    panel = Panel(workers.executor.ensemble, Prompts(style="direct"), AgreementRating(), graded.grader)

    def right(method):
        answers = method(panel, graded.tasks)
        finals = [(t, graded.grader.extract(t, a.text)) for t, a in zip(graded.tasks, answers, strict=True)]
        return [verdict is Verdict.RIGHT for verdict in graded.verdicts(finals)]

    assert all(right(HandWritten()))
    assert sum(right(HandWritten(bare=True))) < 40  # single ones above all
    with pytest.raises(ValueError, match="hand_written: expected tasks whose hops are known"):
        HandWritten()(replace(panel, grader=AnswerGrader()), graded.tasks)


@pytest.fixture
def conducts():
    """A Conductor of two agents, which lessons do not ask."""
    agents = [Agent(name, "one") for name in ("ant", "bee")]
    executor = Executor(Ensemble({"one": ScriptedEngine(lambda request: "", lambda *_: 0.0)}, agents))
    return Conductor(executor, Agent("conductor", "one"))


def listed(messages):
    """The descriptions in a prompt, by number."""
    return re.findall(r"^(.+): model [0-9]+$", messages[-1].content.partition("Models:\n")[2], re.MULTILINE)


SAID = {kind: (SPECIALISTS[kind], *said) for kind, said in OTHER_WORDS.items()} | OTHERS
SAID |= {"generalist": (GENERALIST[1], *MANY_SIDED)}


def meant(words):
    """The kind that a description is of."""
    framed = {kind: [frame.format(w) for w in said for frame in FRAMES] for kind, said in SAID.items()}
    (kind,) = [kind for kind, said in framed.items() if words in said]
    return kind


def test_no_two_workers_say_the_same_of_themselves():
    said = [frame.format(words) for kinds in SAID.values() for words in kinds for frame in dict.fromkeys(FRAMES)]
    assert len(set(said)) == len(said) > 800


def test_a_lesson_by_hand_asks_who_fits_in_the_words_and_by_the_number_of_its_pool(graded, conducts):
    lessons = lessons_by_hand(conducts, graded, 80)
    questions = {task.question.strip(): graded.hops[task.id] for task in graded.tasks}
    own, strange, sizes, general, replaced = 0, 0, set(), 0, 0
    for messages, reply in lessons:
        pool = listed(messages)
        kinds = [meant(words) for words in pool]
        flow = parse(reply, workers=len(pool))
        asked = [kinds[step.worker] for step in flow.steps]
        assert reply.splitlines()[0] == f"{pool[flow.steps[0].worker]}: model {flow.steps[0].worker}"
        said = messages[-1].content
        hops = next((hops for question, hops in questions.items() if f"Question: {question}\n" in said), None)
        if hops is None:
            assert (len(asked), asked[0] in OTHERS) == (1, True)
        else:
            assert asked == [hop.kind if hop.kind in kinds else "generalist" for hop in hops]
            assert [step.subtask for step in flow.steps] == [hop.subtask.strip() for hop in hops]
        own += sum(words in SPECIALISTS.values() for words in pool)
        strange += hops is None
        general += "generalist" in kinds
        replaced += "generalist" in asked
        sizes.add(len(pool))
    assert (len(lessons), strange, sizes) == (80, 20, {2, 3, 4, 5})
    assert 0.2 < own / sum(len(listed(messages)) for messages, _ in lessons) < 0.6
    assert 20 < general < 45
    assert 1 <= replaced < 15
    assert lessons_by_hand(conducts, graded, 80) == lessons


def test_a_persona_stands_in_place_of_the_rules(graded, conducts):
    (plain, _), *_ = lessons_by_hand(conducts, graded, 4)
    conducts.agent = replace(conducts.agent, persona="You write workflows.")
    (told, _), *_ = lessons_by_hand(conducts, graded, 4)
    task = graded.tasks[0]
    assert (told[0].content, told[1:]) == ("You write workflows.", plain[1:])
    assert conducts.request(task, conducts.pool(task)).messages[0] == told[0]
    assert "access_list" in plain[0].content


def test_who_is_left_out_of_pools_comes_in_no_lesson(graded, conducts):
    conducts.pools = Pools(without=("words",))
    lessons = lessons_by_hand(conducts, graded, 104, others=0.0)
    assert 20 < len(lessons) < 70
    assert not any(meant(words) == "words" for messages, _ in lessons for words in listed(messages))


@pytest.mark.parametrize(("count", "others"), [(0, 0.5), (4, 1.1), (4, -0.1), (200, 0.0)])
def test_lessons_that_cannot_be_had_are_refused(graded, conducts, count, others):
    with pytest.raises(ValueError, match="expected lessons from 1, others from 0 to 1 and a task for each lesson"):
        lessons_by_hand(conducts, graded, count, others=others)


def test_lessons_lay_pools_out_as_the_conductor_does(graded, conducts):
    near = Conductor(conducts.executor, WritingAgent("conductor", "one", encoder=partial(HashedEncoder, 512)))
    lessons = lessons_by_hand(near, graded, 80)
    for (messages, reply), (before, _) in zip(lessons, lessons_by_hand(conducts, graded, 80), strict=True):
        pool = listed(messages)
        assert sorted(pool) == sorted(listed(before))
        question = messages[-1].content.partition("Question: ")[2].partition("\n\nModels:")[0]
        assert near.nearest(question, pool) == list(range(len(pool)))
        assert reply.splitlines()[0].rpartition(": ")[0] in pool
    assert [listed(m) for m, _ in lessons] != [listed(m) for m, _ in lessons_by_hand(conducts, graded, 80)]
