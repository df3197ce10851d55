"""A Conductor: a language model that writes workflows, has them run, and reads the answers."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.parsing import repair
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workers import Contractor
from nsed_torch.conductor.workflow import Workflow, WorkflowError, WorkflowStep, workflow_schema
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest, Generation, call_seed
from nsed_torch.core.open_round import longest_end
from nsed_torch.core.thoughts import part_thoughts
from nsed_torch.engines.sentence_encoder import logged
from nsed_torch.records.execution import Execution, PlanRecord
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task

MAX_RECURSION = 3  # further workflows at most, each of which sees what the one before it came to
# What a Conductor reads of itself where it is one of its own workers.
ITSELF = "has a part that takes several models done by them"


@dataclass(frozen=True)
class WritingAgent(Agent):
    """A model that writes workflows, and what tells how near to a question a worker's description is.

    `encoder` makes the encoder, once, where a pool is first laid out: `partial(load_encoder, weights)`, in YAML
    `_partial_: true`. With None a pool is laid out as it is drawn. With `alone` a subtask is all that its worker reads
    (`references`). One that does not look back writes one workflow a task: further ones are refused, for what it was
    shown of earlier ones taught it nothing. Where somebody's description is `nearer` to the question than those of all
    whom a first workflow asks, by so much of a cosine, that one is asked the bare question in its place; None, or
    no encoder, leaves every workflow as it is.
    """

    template: ClassVar[str] = "conduct"  # of the prompts that it reads

    encoder: Callable[[], Encoder] | None = field(default=None, repr=False)
    alone: bool = False
    looks_back: bool = True
    nearer: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nearer is not None and not 0 <= self.nearer <= 2:
            raise ValueError(f"{self.name}: expected nearer from 0 to 2, got {self.nearer}: correct it")
        if self.encoder is not None:
            object.__setattr__(self, "encoder", cache(self.encoder))


@dataclass(frozen=True)
class PromptedAgent(WritingAgent):
    """Any instruct model as a Conductor, by its prompt alone: it has learned nothing of workflows. Ours.

    It reads rules and four examples, and writes a plan and the lists as JSON. Where no step can be read it is asked
    once more, with the reader's reason. Where that is in vain, the strongest worker answers the bare question.
    Thoughts before its text are left out.
    """

    template: ClassVar[str] = "conduct_by_prompt"

    constrained: bool = True  # whether servers are told to hold it to `workflow_schema`; those that cannot need not
    strongest: str = ""  # a worker's name; "" is the one with the highest completion price, of equals the first


class WorkflowPlan(NamedTuple):
    """What a Conductor made of a task."""

    workflow: Workflow  # as mended; the default where no step could be read
    record: PlanRecord  # its text, the reasons, what it cost
    fault: str = ""  # why no step could be read, in a line


class Conductor:
    """Answers tasks by workflows of its own: `conductor.answer(tasks) -> list[Execution]`.

    Its model reads the question and the pool as a numbered list, writes a workflow (`parsing`), and the executor runs
    it; with recursion it then reads the answer and either accepts it or writes another one (published: the Conductor,
    arXiv 2512.04388). Any engine and adapter can be the model. Its calls go through the executor's call log, with seeds
    from run seed, task, level and its name: what comes of a task does not depend on the others.

    Our reading: texts are repaired. Where no step can be read, model 0 of the pool answers the bare question in a first
    workflow, and a further one counts as accepting; either way the reason is kept. With permuted pools that is random
    routing. A `PromptedAgent` says for itself what happens then.

    The executor's workers, prompts, seed and most steps are the Conductor's as well. `agent` is the model that writes;
    it is no worker, has a name of its own, and its backbone is one of the ensemble's; a persona of its own stands
    in place of rules and examples. `descriptions` say what workers are good at that are no agents. With `itself` above
    0 it is one of its own workers, so that a workflow may contain another, so many deep; it then makes at most
    `max_steps ** (itself + 1)` calls a level. Published without a bound.

    With a `WritingAgent`'s encoder a pool is laid out nearest first: worker 0 is the one whose description has the
    largest cosine with the question. A small model that knows only the words it was trained on can then go by the place
    as well. Ours.

    Raises:
        ValueError: for a name that an agent has, a backbone or an adapter that does not exist, or an `itself` outside
            0 to 3, or a strongest worker who is none.
    """

    def __init__(
        self,
        executor: Executor,
        agent: Agent,
        *,
        pools: Pools = Pools(),
        descriptions: Mapping[str, str] | None = None,
        itself: int = 0,
    ) -> None:
        check_recursion(itself, what="itself")
        self.agent = agent
        self.prompted = agent if isinstance(agent, PromptedAgent) else None
        self.alone = isinstance(agent, WritingAgent) and agent.alone
        self.template = agent.template if isinstance(agent, WritingAgent) else WritingAgent.template
        self.nearer = agent.nearer if isinstance(agent, WritingAgent) else None
        self.pools = pools
        self._vectors: dict[str, Tensor] = {}  # of descriptions
        team = executor.ensemble
        self.encoder: Callable[[], Encoder] | None = None
        if isinstance(agent, WritingAgent) and (made := agent.encoder) is not None:
            self.encoder = cache(lambda: logged(made(), lambda: team.call_log))
        # The same engines and the same log, and one more who speaks.
        self.planner = Ensemble(team.engines, [*team.agents, agent], call_log=team.call_log)
        self.descriptions = {a.name: a.description for a in team.agents} | dict(descriptions or {})
        self.executor = executor
        if itself:
            inner = Conductor(executor, agent, pools=pools, descriptions=descriptions, itself=itself - 1)
            contractor = Contractor(inner.answer, executor.prompts, executor.seed, team.count_tokens)
            self.executor = executor.joined_by(agent.name, contractor)
            self.descriptions.setdefault(agent.name, ITSELF)
        if self.prompted and self.prompted.strongest not in ("", *self.executor.workers):
            known, got = ", ".join(self.executor.workers), self.prompted.strongest
            raise ValueError(f"expected a strongest worker out of {known}, got {got!r}: correct the name")

    def pool(self, task: Task, seed: int | None = None) -> tuple[str, ...]:
        """The names of the workers that a task's workflows may ask, by number; None draws by the executor's seed."""
        drawn = self.pools(self.executor.workers, task, self.executor.seed if seed is None else seed)
        said = [self.descriptions.get(name, "") for name in drawn]
        return tuple(drawn[place] for place in self.nearest(task.question, said))

    def nearest(self, question: str, descriptions: Sequence[str]) -> list[int]:
        """The places of descriptions, nearest to the question first; without an encoder as they stand."""
        if self.encoder is None:
            return list(range(len(descriptions)))
        return self._nearness(self.encoder(), question, descriptions).argsort(descending=True, stable=True).tolist()

    def _nearness(self, encoder: Encoder, question: str, descriptions: Sequence[str]) -> Float[Tensor, " worker"]:
        if new := [text for text in dict.fromkeys(descriptions) if text not in self._vectors]:
            self._vectors.update(zip(new, encoder.embed(new), strict=True))
        return torch.stack([self._vectors[text] for text in descriptions]) @ encoder.embed([question])[0]

    def request(
        self,
        task: Task,
        pool: Sequence[str],
        previous: Execution | None = None,
        ledger: TokenLedger | None = None,
        fault: str = "",
    ) -> GenerateRequest:
        """The call that asks for a workflow; with recursion, of one that may accept what there is so far.

        `fault` says why a first text could not be read, where it is asked for another.
        """
        executor, agent = self.executor, self.agent
        level = len(previous.levels) if previous else 0
        shown = None
        if previous is not None:
            # No longer than workers see it, so that a long answer does not fill the window.
            shown = longest_end(previous.answer, executor.response_tokens, executor.ensemble.count_tokens)
        seed = call_seed(executor.seed, task.id, level + 1, agent.name, "conduct", *filter(None, [fault]))
        messages = executor.prompts.conduct(
            task.question,
            workers=[self.descriptions.get(name, "") for name in pool],
            max_steps=executor.max_steps,
            previous=shown,
            seed=seed,
            persona=agent.persona,
            kind=self.template,
            fault=fault,
        )
        schema = ""
        if self.prompted and self.prompted.constrained:
            schema = json.dumps(workflow_schema(len(pool), executor.max_steps, allow_empty=previous is not None))
        template = executor.prompts.fingerprint(self.template)
        asked = agent.name, messages, agent.decoding, seed, agent.adapter, template, ledger
        return GenerateRequest(*asked, schema=schema)

    def plan(
        self,
        tasks: Sequence[Task],
        pools: Sequence[Sequence[str]],
        previous: Sequence[Execution | None] | None = None,
        ledgers: Sequence[TokenLedger] | None = None,
    ) -> list[WorkflowPlan]:
        """Have a workflow written for every task out of its pool, all together; with recursion after what there is.

        `ledgers` hold what each task's calls have had computed; None counts every plan as its task's only call.

        Raises:
            ContextWindowError: if a prompt does not fit the model's window.
        """
        before = previous or [None] * len(tasks)
        counted: Sequence[TokenLedger | None] = ledgers or [None] * len(tasks)
        requests = [self.request(*asked) for asked in zip(tasks, pools, before, counted, strict=True)]
        report = partial(self.executor.report, "plan")
        with self.planner.one_run():
            written = self.planner.generate(requests, report)
            plans = [
                self.read(generation, workers=len(pool), further=earlier is not None)
                for generation, pool, earlier in zip(written, pools, before, strict=True)
            ]
            again = [i for i, plan in enumerate(plans) if self.prompted and plan.fault]
            requests = [self.request(tasks[i], pools[i], before[i], counted[i], plans[i].fault) for i in again]
            for i, generation in zip(again, self.planner.generate(requests, report) if again else (), strict=True):
                second = self.read(generation, workers=len(pools[i]), further=before[i] is not None)
                plans[i] = self._second(plans[i], second, pools[i])
        return [
            plan if earlier is not None else self.to_the_nearest(task, pool, plan)
            for task, pool, plan, earlier in zip(tasks, pools, plans, before, strict=True)
        ]

    def to_the_nearest(self, task: Task, pool: Sequence[str], plan: WorkflowPlan) -> WorkflowPlan:
        """The bare question for whoever is so much `nearer` to it than all whom a plan asks; else the plan."""
        if self.nearer is None or self.encoder is None or not plan.workflow.steps:
            return plan
        if self.alone and "{" in task.question:  # which would be read as a reference to replies
            return plan
        near = self._nearness(self.encoder(), task.question, [self.descriptions.get(name, "") for name in pool])
        asked, best = [step.worker for step in plan.workflow.steps], int(near.argmax())
        if float(near[best] - near[asked].max()) <= self.nearer:
            return plan
        subtask = task.question if self.alone else "Answer the question."
        notes = [*plan.record.notes, f"{pool[best]} is asked, whose description is nearest to the question"]
        return plan._replace(
            workflow=Workflow((WorkflowStep(best, subtask),)), record=replace(plan.record, notes=notes)
        )

    def _second(self, first: WorkflowPlan, second: WorkflowPlan, pool: Sequence[str]) -> WorkflowPlan:
        """What became of a task whose first text could not be read: nothing that was paid for is left out."""
        notes = [*first.record.notes, f"asked again: {first.fault}", *second.record.notes]
        workflow = second.workflow
        if second.fault and workflow.steps:
            prices = {agent.name: agent.completion_price for agent in self.executor.ensemble.agents}
            dearest = max(pool, key=lambda name: prices.get(name, -1.0))
            strongest = self.prompted.strongest if self.prompted and self.prompted.strongest in pool else dearest
            workflow = Workflow((replace(workflow.steps[0], worker=pool.index(strongest)),))
            notes.append(f"{second.fault}; {strongest} answers the question alone")
        usage = first.record.usage + second.record.usage
        return second._replace(workflow=workflow, record=replace(second.record, notes=notes, usage=usage))

    def answer(self, tasks: Sequence[Task], *, recursion: int = 0) -> list[Execution]:
        """Answer all tasks, one level per workflow, each with its plan.

        With recursion a task gets so many further workflows, up to 3, as long as it does not accept its answer.

        Raises:
            ValueError: for another recursion, for any of one that does not look back, and as `Pools`.
            ContextWindowError: if a prompt does not fit the Conductor's window.
        """
        check_recursion(recursion, self.agent)
        pools = [self.pool(task) for task in tasks]
        ledgers = [TokenLedger() for _ in tasks]
        nothing = [None] * len(tasks)
        executions = self.follow(tasks, pools, self.plan(tasks, pools, nothing, ledgers), nothing, ledgers)
        for _ in range(recursion):
            going = [i for i, execution in enumerate(executions) if execution.levels[-1].steps]
            asked, given = [tasks[i] for i in going], [pools[i] for i in going]
            before = [executions[i] for i in going]
            counted = [ledgers[i] for i in going]
            further = self.follow(asked, given, self.plan(asked, given, before, counted), before, counted)
            for i, execution in zip(going, further, strict=True):
                executions[i] = execution
        return executions

    def settings(self) -> dict[str, Any]:
        """What an execution keeps beside the executor's settings."""
        record = dataclasses.asdict(self.planner.records()[-1])
        record["template"] = self.executor.prompts.fingerprint(self.template)
        return {
            "conductor": record,
            "max_steps": self.executor.max_steps,
            "pools": dataclasses.asdict(self.pools) | {"without": list(self.pools.without)},
            "descriptions": {name: self.descriptions.get(name, "") for name in self.executor.workers},
            **({} if self.encoder is None else {"encoder": dict(self.encoder().identity())}),
            **({} if self.nearer is None else {"nearer": self.nearer}),
        }

    def follow(
        self,
        tasks: Sequence[Task],
        pools: Sequence[tuple[str, ...]],
        plans: Sequence[WorkflowPlan],
        previous: Sequence[Execution | None],
        ledgers: Sequence[TokenLedger] | None = None,
    ) -> list[Execution]:
        """Have the plans of tasks run, all together; `ledgers` as for `plan`."""
        counted: Sequence[TokenLedger | None] = ledgers or [None] * len(tasks)
        jobs = [
            WorkflowJob(task, plan.workflow, pool, before, plan.record, ledger, self.alone)
            for task, pool, plan, before, ledger in zip(tasks, pools, plans, previous, counted, strict=True)
        ]
        settings = self.settings()
        return [replace(done, settings=done.settings | settings) for done in self.executor.run(jobs)]

    def read(self, generation: Generation, *, workers: int, further: bool) -> WorkflowPlan:
        """What is made of a text, mended where it can be; one that answers an earlier workflow may accept."""
        text = part_thoughts(generation.text).answer if self.prompted else generation.text
        record = PlanRecord(text, notes=list(generation.notes), usage=self.agent.charged(generation))
        try:
            workflow, reasons = repair(text, workers=workers, max_steps=self.executor.max_steps, allow_empty=further)
        except WorkflowError as error:
            default = Workflow(() if further else (WorkflowStep(0, "Answer the question."),))
            record = replace(record, reasons=[str(error.reason)], fallback=True)
            return WorkflowPlan(default, record, fault=str(error))
        return WorkflowPlan(workflow, replace(record, reasons=[str(reason) for reason in reasons]))


def check_recursion(recursion: int, agent: Agent | None = None, what: str = "recursion") -> None:
    """Refuse a recursion beyond `MAX_RECURSION`, and any of an agent that does not look back."""
    if not 0 <= recursion <= MAX_RECURSION:
        raise ValueError(f"expected {what} from 0 to {MAX_RECURSION}, got {recursion}: correct it")
    if recursion and isinstance(agent, WritingAgent) and not agent.looks_back:
        wanted = f"expected no recursion of {agent.name}, which does not look back"
        raise ValueError(f"{wanted}, got {recursion}: leave it out, or set conductor.looks_back=true")
