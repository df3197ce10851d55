"""A Conductor that names a team: its workflow says who deliberates."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.policy import Conductor, WorkflowPlan, WritingAgent
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workflow import Workflow
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.broker import RunBroker
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import Team, full_team
from nsed_torch.records.transcript import ROLES, Round, Task, Usage


def workflow_team(workflow: Workflow, pool: Sequence[str], ensemble: Ensemble) -> Team:
    """The team that a workflow names; our reading.

    Every worker with a step proposes. Those that read "all" in one of their steps rate as well; where nobody who may
    rate does, all workers with a step rate, and where none of them may, whoever of the ensemble may.
    """
    named = {pool[step.worker] for step in workflow.steps}
    seers = {pool[step.worker] for step in workflow.steps if step.access == "all"}
    judges = {agent.name for agent in ensemble.judges}
    voters = seers & judges or named & judges or judges
    places = [(i, agent.name) for i, agent in enumerate(ensemble.agents)]
    return Team(*(tuple(i for i, name in places if name in chosen) for chosen in (named, voters)))


class ConductorBroker(RunBroker):
    """Has one workflow written a question and lets its team deliberate, the same in every round.

    Subtasks and access beyond `workflow_team` count for nothing here. Where no step can be read, everybody takes part.
    A plan's cost is charged to the first round, whose notes say who sits where and why. The Conductor's model runs on a
    backbone of the ensemble.
    """

    def __init__(self, conductor: Agent, *, pools: Pools = Pools(), max_steps: int = 5) -> None:
        self.conductor, self.pools, self.max_steps = conductor, pools, max_steps
        self._named: dict[str, tuple[Team, str, Usage]] = {}

    def check(self, cell: MacroRNNCell) -> None:
        """Refuse a Conductor that the cell's ensemble cannot speak for, as `Conductor` does."""
        self.ask(cell)

    def ask(self, cell: MacroRNNCell) -> Conductor:
        """The Conductor of a cell's agents."""
        executor = Executor(cell.ensemble, prompts=cell.prompts, seed=cell.seed, max_steps=self.max_steps)
        return Conductor(executor, self.conductor, pools=self.pools)

    def begin(self, tasks: Sequence[Task], cell: MacroRNNCell) -> None:
        """Have the workflows of all tasks written together, and read a team off each."""
        conductor, ensemble = self.ask(cell), cell.ensemble
        pools = [conductor.pool(task) for task in tasks]
        self._named = {}
        for task, pool, plan in zip(tasks, pools, conductor.plan(tasks, pools), strict=True):
            team = full_team(ensemble) if plan.record.fallback else workflow_team(plan.workflow, pool, ensemble)
            self._named[task.id] = team, _note(plan, team, ensemble), plan.record.usage

    def team(self, task: Task, rounds: Sequence[Round]) -> Team:
        """The team that the task's workflow names, whatever the rounds brought."""
        return self._named[task.id][0]

    def heard(self, records: Sequence[Round]) -> list[Round]:
        """Charge a first round, which all tasks of the run hold, with its plan, and note what came of it."""
        if records[0].index > 1:
            return list(records)
        return [
            replace(record, notes=[note, *record.notes], usage=record.usage + usage)
            for record, (_, note, usage) in zip(records, self._named.values(), strict=True)
        ]

    def settings(self) -> dict[str, Any]:
        """Who conducts, as a transcript keeps it."""
        encoder = self.conductor.encoder if isinstance(self.conductor, WritingAgent) else None
        told = {} if encoder is None else {"encoder": dict(encoder().identity())}
        return {"conductor": str(self.conductor), "pools": str(self.pools), **told}


def _note(plan: WorkflowPlan, team: Team, ensemble: Ensemble) -> str:
    seats = dict(zip(ROLES, (team.proposers, team.voters), strict=True))
    said = "; ".join(f"{role}s {', '.join(ensemble.agents[i].name for i in who)}" for role, who in seats.items())
    why = f" ({', '.join(plan.record.reasons)})" if plan.record.reasons else ""
    return f"team of {'everybody' if plan.record.fallback else 'the Conductor'}{why}: {said}"
