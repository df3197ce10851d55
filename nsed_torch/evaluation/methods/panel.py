"""What every method is given, and what it gives back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nsed_torch.agents import Agent, Ensemble, GenerateRequest, Generation, Prompts, call_seed, unfence
from nsed_torch.benchmarks import Grader
from nsed_torch.deliberation import RatingMode
from nsed_torch.records import Task, Usage


class Draft(NamedTuple):
    """One text that one agent wrote, without copied marks, and what it cost."""

    agent: Agent
    text: str
    usage: Usage


class Answer(NamedTuple):
    """What a method hands in for a task: a text, what all its calls cost, and how it was chosen."""

    text: str
    usage: Usage
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """The agents, prompts and rules that all methods share.

    Args:
        ensemble: the agents; its call log makes every call once.
        prompts: the templates.
        rating: how judges come to ratings.
        grader: finds final answers and says which are equal; a method never learns which are right.
        seed: the run's.
        leads: task id -> name of the agent that methods of one agent use; the first that may propose where there is
            none.
        report: called with a phase, calls done and calls in all.
    """

    ensemble: Ensemble
    prompts: Prompts
    rating: RatingMode
    grader: Grader
    seed: int = 0
    leads: Mapping[str, str] = field(default_factory=dict)
    report: Callable[[str, int, int], None] = lambda phase, done, total: None

    def lead(self, task: Task) -> Agent:
        """The agent that methods of one agent use for a task."""
        name = self.leads.get(task.id)
        return self.ensemble.proposers[0] if name is None else self.proposer(name)

    def proposer(self, name: str) -> Agent:
        """The agent of that name, which may propose.

        Raises:
            ValueError: if there is none.
        """
        return _named(self.ensemble.proposers, name)

    def judge(self, name: str) -> Agent:
        """The agent of that name, which may rate.

        Raises:
            ValueError: if there is none.
        """
        return _named(self.ensemble.judges, name)

    def propose(self, asked: Sequence[tuple[Task, Agent]], sample: int = 1, *, phase: str = "propose") -> list[Draft]:
        """One answer a pair, from the prompt of a deliberation's first round.

        Sample 1 is the very call that round 1 of a deliberation makes, so it is made once for all methods.

        Args:
            asked: tasks, each with the agent that answers.
            sample: from 1; another number, another seed.
            phase: for the report.
        """
        requests = []
        for task, agent in asked:
            seed = call_seed(self.seed, task.id, sample, agent.name, "propose")
            messages = self.prompts.propose(task.question, memory=(), critiques=(), persona=agent.persona, seed=seed)
            template = self.prompts.fingerprint("propose")
            requests.append(GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter, template))
        return self.write(requests, phase)

    def ask(
        self,
        kind: str,
        asked: Sequence[tuple[Task, Agent, Sequence[str]]],
        step: int,
        *,
        phase: str,
    ) -> list[Draft]:
        """One text for each (task, agent, texts to read), from the template `kind`.

        Args:
            kind: a template with `system` and `user` blocks, given `question`, `texts` and `persona`.
            asked: tasks with the agent that writes and what it reads.
            step: which one of this kind it is for the task, from 1; names the seed.
            phase: for the report.
        """
        requests = []
        for task, agent, texts in asked:
            seed = call_seed(self.seed, task.id, step, agent.name, kind)
            messages = self.prompts.ask(kind, task.question, texts=texts, persona=agent.persona, seed=seed)
            template = self.prompts.fingerprint(kind)
            requests.append(GenerateRequest(agent.name, messages, agent.decoding, seed, agent.adapter, template))
        return self.write(requests, phase)

    def write(self, requests: Sequence[GenerateRequest], phase: str) -> list[Draft]:
        """Have requests answered, all agents and tasks together."""
        written = self.ensemble.generate(requests, lambda done, total: self.report(phase, done, total))
        agents = [self.ensemble.agent(request.agent) for request in requests]
        return [_draft(agent, generation) for agent, generation in zip(agents, written, strict=True)]


class Method(Protocol):
    """A way to an answer."""

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None) -> list[Answer]:
        """Answer all tasks, phase by phase together.

        Args:
            panel: agents, prompts, rules.
            tasks: with different ids.
            budgets: tokens, read and written, that each task may take; None for the method's own size. A method grows
                by whole steps (a sample, a layer, a round) as long as the next one fits, which is taken to cost what
                the task's samples cost so far, or what its prompt says; its smallest form runs in any case.

        Returns:
            An answer a task; its usage is what was really spent.
        """
        ...


def _named(agents: Sequence[Agent], name: str) -> Agent:
    found = {agent.name: agent for agent in agents}
    if name not in found:
        raise ValueError(f"expected an agent out of {', '.join(found)}, got {name!r}: correct the name")
    return found[name]


def _draft(agent: Agent, generation: Generation) -> Draft:
    usage = agent.usage(generation.prompt_tokens, generation.completion_tokens, generation.seconds)
    return Draft(agent, unfence(generation.text), usage)
