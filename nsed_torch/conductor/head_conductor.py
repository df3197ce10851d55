"""A Conductor that writes nothing: a head on its backbone's hidden state picks worker and role turn by turn."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from nsed_torch.conductor.executor import Executor, WorkflowJob, WorkflowObserver
from nsed_torch.conductor.head import PARTS, Head, load_head
from nsed_torch.conductor.policy import Conductor, WorkflowPlan
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workers import words_of
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Message, call_seed
from nsed_torch.core.ledger import TokenLedger
from nsed_torch.core.state import longest_end
from nsed_torch.records.execution import Execution, PlanRecord, StepRecord
from nsed_torch.records.transcript import Task, Usage

ROLES = tuple(PARTS)

Taken = tuple[tuple[str, str], ...]
"""Who went in every turn, and as what."""


@dataclass(frozen=True)
class HeadAgent(Agent):
    """The backbone, and the adapter if any, whose hidden states a head reads, and the folder of the head."""

    weights: str = ""  # "" where the head is yet to be trained


@dataclass(frozen=True)
class Turns:
    """A task on its way, and the head that picks for it."""

    task: Task
    pool: tuple[str, ...]
    head: Head
    taken: Taken = ()
    usage: Usage = Usage()  # of what the head read

    def workflow(self, pool: Sequence[str] = ()) -> Workflow:
        """The turns as steps, workers by their places in a pool, the task's own if empty; each reads all before."""
        names, steps = list(pool or self.pool), []
        for k, (name, role) in enumerate(self.taken):
            access: Literal["all"] | tuple[int, ...] = "all" if k else ()
            steps.append(WorkflowStep(names.index(name), PARTS[role], access, aside=role != "worker"))
        return Workflow(tuple(steps))


class HeadConductor(Conductor):
    """Answers tasks turn by turn: a Conductor whose workflows grow a step at a time, and who writes nothing.

    Before each turn its backbone reads the question and the replies so far, and the head picks who goes next, as
    thinker, worker or verifier; each reads all before it. A verifier who accepts ends it, and so does the executor's
    cap on steps. The answer is the last worker's (published: TRINITY, arXiv 2512.04695).

    Our reading: there is nothing to verify before a worker has answered; the last turn is no thinker's, and a worker's
    if there is no answer yet. A verifier accepts by the word, or by coming to the worker's own words, for small experts
    can do nothing but answer. Every turn runs the whole workflow so far, of which the call log has all but the last
    step. `head` is what the agent's folder holds if None.

    Raises:
        ValueError: as `Conductor` and `load_head`.
    """

    template = "coordinate"

    def __init__(
        self,
        executor: Executor,
        agent: HeadAgent,
        *,
        pools: Pools = Pools(),
        descriptions: Mapping[str, str] | None = None,
        head: Head | None = None,
    ) -> None:
        super().__init__(executor, agent, pools=pools, descriptions=descriptions)
        self.engine = self.planner.engine(agent)
        if head is None and agent.weights:
            head = load_head(Path(agent.weights).expanduser(), self.engine.identity(agent.adapter))
        self.head = head
        # Prefixes of a workflow are nothing to show.
        self._quiet = copy.copy(executor)
        self._quiet.observer = WorkflowObserver()
        self._asked: dict[tuple[str, Taken], tuple[Message, ...]] = {}
        self._read: dict[tuple[Message, ...], tuple[Tensor, int]] = {}
        self._done: dict[tuple[str, Taken], list[StepRecord]] = {}

    def plan(
        self,
        tasks: Sequence[Task],
        pools: Sequence[Sequence[str]],
        previous: Sequence[Execution | None] | None = None,
        ledgers: Sequence[TokenLedger] | None = None,
    ) -> list[WorkflowPlan]:
        """As `Conductor.plan`, but workers are asked on the way, and there is no further workflow.

        Raises:
            ValueError: for a previous execution, or without a head.
        """
        if any(previous or ()):
            raise ValueError("expected no recursion of a head, which looks back turn by turn, got some: set it to 0")
        if self.head is None:
            raise ValueError("expected the folder of a trained head, got none: pass conductor.weights=FOLDER")
        grown = self.grow([Turns(task, tuple(pool), self.head) for task, pool in zip(tasks, pools, strict=True)])
        plans = []
        for turns in grown:
            picked = [f"{role}: model {turns.pool.index(name)}" for name, role in turns.taken]
            asked = Usage.sum(step.usage for step in self._steps(turns.task, turns.taken))
            plans.append(WorkflowPlan(turns.workflow(), PlanRecord("\n".join(picked), usage=turns.usage), asked))
        return plans

    @torch.no_grad()
    def grow(self, turns: Sequence[Turns]) -> list[Turns]:
        """Take turns, those of all tasks together, until each task's verifier accepts or the cap is reached."""
        grown, going = list(turns), list(range(len(turns)))
        for left in reversed(range(self.executor.max_steps)):
            if not going:
                break
            states, tokens = self.states([self.prompt(grown[i].task, grown[i].taken) for i in going])
            picks = self._picks([grown[i] for i in going], states, last=not left)
            for i, pick, read in zip(going, picks, tokens, strict=True):
                usage = grown[i].usage + self.agent.usage(read, 0)
                grown[i] = replace(grown[i], taken=(*grown[i].taken, pick), usage=usage)
            self._run([grown[i] for i in going])
            going = [i for i in going if not self._accepted(grown[i])]
        return grown

    def states(self, prompts: Sequence[tuple[Message, ...]]) -> tuple[Float[Tensor, "prompt dim"], list[int]]:
        """The hidden states behind prompts, and the tokens of each; what was read before is kept."""
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._read]
        if new:
            states, tokens = self.engine.hidden_states(new, self.agent.adapter)
            self._read |= zip(new, zip(states, tokens, strict=True), strict=True)
        found = [self._read[prompt] for prompt in prompts]
        return torch.stack([state for state, _ in found]), [read for _, read in found]

    def prompt(self, task: Task, taken: Taken = ()) -> tuple[Message, ...]:
        """What the backbone reads of a task before its next turn."""
        if (kept := self._asked.get((task.id, taken))) is not None:
            return kept
        cut = partial(longest_end, budget=self.executor.response_tokens, count=self.executor.ensemble.count_tokens)
        replies = zip(taken, self._steps(task, taken), strict=True)
        texts = [f"{role}: {cut(step.response) or 'nothing'}" for (_, role), step in replies]
        seed = call_seed(self.executor.seed, task.id, len(texts) + 1, self.agent.name, self.template)
        chat = self.executor.prompts.ask(self.template, task.question, texts=texts, persona="", seed=seed)
        return self._asked.setdefault((task.id, taken), chat)

    def described(self, workers: Sequence[str]) -> Float[Tensor, "worker dim"]:
        """The hidden states of workers' descriptions; a row of NaN for a worker without one."""
        said = {name: text for name in workers if (text := self.descriptions.get(name, "").strip())}
        ask = partial(self.executor.prompts.ask, self.template, texts=(), persona="", seed=0)
        rows = dict(zip(said, self.states([ask(text) for text in said.values()])[0], strict=True)) if said else {}
        blank = torch.full_like(next(iter(rows.values()), torch.zeros(1)), torch.nan)
        return torch.stack([rows.get(name, blank) for name in workers])

    def _picks(self, turns: Sequence[Turns], states: Tensor, *, last: bool) -> list[tuple[str, str]]:
        """Worker and role of the highest score that a task's turn allows; of equal ones the pool's first."""
        workers = list(dict.fromkeys(name for one in turns for name in one.pool))
        described = self.described(workers)
        picks: dict[int, tuple[str, str]] = {}
        for head in {id(one.head): one.head for one in turns}.values():
            mine = [i for i, one in enumerate(turns) if one.head is head]
            for i, table in zip(mine, head.scores(states[mine], described).tolist(), strict=True):
                allowed = self._allowed(turns[i], last=last)
                scores = {
                    (name, role): table[workers.index(name)][ROLES.index(role)]
                    for name, role in itertools.product(turns[i].pool, allowed)
                }
                picks[i] = max(scores, key=lambda pick: scores[pick])
        return [picks[i] for i in range(len(turns))]

    def _allowed(self, turns: Turns, *, last: bool) -> list[str]:
        answered = bool(self._answer(turns))
        return [r for r in ROLES if r == "worker" or (r == "verifier" and answered) or (r == "thinker" and not last)]

    def _run(self, turns: Sequence[Turns]) -> None:
        """Have every workflow so far run that was not run before."""
        new = {(one.task.id, one.taken): one for one in turns}
        new = {key: one for key, one in new.items() if key not in self._done}
        named = {key: tuple(dict.fromkeys(name for name, _ in one.taken)) for key, one in new.items()}
        jobs = [WorkflowJob(one.task, one.workflow(named[key]), named[key]) for key, one in new.items()]
        executed = self._quiet.run(jobs)
        self._done |= {key: done.levels[-1].steps for key, done in zip(new, executed, strict=True)}

    def _steps(self, task: Task, taken: Taken) -> list[StepRecord]:
        return self._done[task.id, taken] if taken else []

    def _answer(self, turns: Turns) -> str:
        """What the last worker said."""
        return next((step.response for step in reversed(self._steps(turns.task, turns.taken)) if not step.aside), "")

    def _accepted(self, turns: Turns) -> bool:
        verdict = self._steps(turns.task, turns.taken)[-1].response
        return turns.taken[-1][1] == "verifier" and accepts(verdict, self._answer(turns))


def accepts(verdict: str, answer: str) -> bool:
    """Whether a verifier accepts: it begins with that word, or says what the answer says."""
    said = words_of(verdict)
    return said.split(" ")[0] in {"accept", "accepted"} or (said != "" and said == words_of(answer))


def conductor_of(
    executor: Executor,
    agent: Agent,
    *,
    pools: Pools = Pools(),
    descriptions: Mapping[str, str] | None = None,
    itself: int = 0,
) -> Conductor:
    """The Conductor that an agent is: one who writes workflows, or a head that picks turn by turn."""
    if not isinstance(agent, HeadAgent):
        return Conductor(executor, agent, pools=pools, descriptions=descriptions, itself=itself)
    if itself:
        raise ValueError("expected a Conductor who writes to be its own worker, got a head: set itself to 0")
    return HeadConductor(executor, agent, pools=pools, descriptions=descriptions)
