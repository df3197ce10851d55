"""What every method is given, and what it gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import Encoder
from nsed_torch.core.engine import GenerateRequest, call_seed
from nsed_torch.core.inputs import pieces
from nsed_torch.core.prompts import Prompts, unfence, unseen
from nsed_torch.core.ratings import MARKUP, Rating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.questions.graders import Grader
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task, Usage

Ledgers = Mapping[str, TokenLedger]
"""Task id -> what a method's earlier calls for it had computed; a call of a task without one is the task's only one."""

NO_LEDGERS: Ledgers = MappingProxyType({})


class Attempt(NamedTuple):
    """One text that one agent wrote, without copied marks, and what it cost."""

    agent: Agent
    text: str
    usage: Usage


class Tied(NamedTuple):
    """One of several texts that stood level where a method chose, and whose it is."""

    text: str
    agents: tuple[str, ...]  # who said it


class Answer(NamedTuple):
    """What a method hands in for a task: a text, what all its calls cost, and how it was chosen."""

    text: str
    usage: Usage
    note: str = ""
    tied: tuple[Tied, ...] = ()  # what it was chosen from as the first, where several stood level


class Method(Protocol):
    """A way to an answer.

    One whose size no budget changes has a true attribute `one_size`; one that never asks the lead has a false `led`.
    """

    def __call__(self, panel: "Panel", tasks: Sequence[Task], budgets: Sequence[int] | None) -> list[Answer]:
        """Answer all tasks, which have different ids, phase by phase together.

        Args:
            panel: agents, prompts, rules.
            tasks: any number.
            budgets: computed tokens (`Usage`) that each task may take; None for the method's own size. A method grows
                by whole steps (a sample, a layer, a round) as long as the next one fits, which is taken to cost what
                the task's samples cost so far, without the prompt where an engine reads that once, or what its prompt
                says; its smallest form runs in any case.

        Returns:
            An answer per task; its usage is what was really spent.
        """
        ...


@dataclass(frozen=True)
class Panel:
    """The agents, prompts and rules that all methods share; a method never learns which answers are right."""

    ensemble: Ensemble
    prompts: Prompts
    rating: Rating
    grader: Grader  # finds final answers and says which are equal
    seed: int = 0
    leads: Mapping[str, str] = field(default_factory=dict)  # task id -> name; see `lead`
    encoder: Encoder | None = None  # the deliberation's
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # task id -> what a memory should hold in the end
    rnn: MacroRNN | None = None  # the deliberation, which may be a worker

    def lead(self, task: Task) -> Agent:
        """The agent that methods of one agent use for a task: the first that may propose, unless `leads` names one."""
        name = self.leads.get(task.id)
        return self.ensemble.proposers[0] if name is None else self.proposer(name)

    def proposer(self, name: str) -> Agent:
        """The agent of that name, which may propose; a `ValueError` if there is none."""
        return _named(self.ensemble.proposers, name)

    def judge(self, name: str) -> Agent:
        """The agent of that name, which may rate; a `ValueError` if there is none."""
        return _named(self.ensemble.judges, name)

    def pieces(self, task: Task, agent: Agent) -> list[str]:
        """What the task's inputs give this agent, in their order."""
        names = [member.name for member in self.ensemble.agents]
        given = [pieces(task, index, names).get(agent.name) for index in range(1, len(task.inputs) + 1)]
        return [text for text in given if text is not None]

    def question(self, task: Task, agent: Agent) -> str:
        """What an agent is asked: the task's question, behind which stands all that its inputs give this agent."""
        texts = self.pieces(task, agent)
        mark = unseen(call_seed(self.seed, task.id, "read"), texts)
        return self.prompts.read_at_once(task.question, pieces=texts, seed=mark) if texts else task.question

    def prompt_tokens(self, task: Task, agent: Agent) -> int:
        """The length of the prompt that `propose` shows an agent, with what a chat template may add."""
        asked = self.question(task, agent)
        messages = self.prompts.propose(asked, memory=(), critiques=(), persona=agent.persona, seed=0)
        return self.ensemble.engine(agent).count_prompt(messages) + MARKUP * len(messages)

    def propose(
        self,
        pairs: Sequence[tuple[Task, Agent]],
        sample: int = 1,
        *,
        memories: Mapping[str, Sequence[str]] = MappingProxyType({}),
        ledgers: Ledgers = NO_LEDGERS,
    ) -> list[Attempt]:
        """One answer per pair, from the prompt of a deliberation's first round.

        Sample 1 is the very call that round 1 of a deliberation makes, so it is made once for all methods; samples
        beyond differ in their seeds. Where the task has inputs, an agent reads all that it is given at once. Memories,
        by the task's id, are shown as in later rounds.
        """
        calls = [(task, agent, None) for task, agent in pairs]
        return self.ask("propose", calls, sample, memories=memories, ledgers=ledgers)

    def ask(
        self,
        kind: str,
        calls: Sequence[tuple[Task, Agent, Sequence[str] | None]],
        number: int,
        *,
        memories: Mapping[str, Sequence[str]] = MappingProxyType({}),
        ledgers: Ledgers = NO_LEDGERS,
    ) -> list[Attempt]:
        """One text for each (task, agent, texts to read), from the template `kind`.

        The template is given `question`, `texts` and `persona`, or what a round's is where there are no texts. The
        number, from 1 of this kind and task, names the seed.
        """
        template, requests = self.prompts.fingerprint(kind), []
        for task, agent, texts in calls:
            seed = call_seed(self.seed, task.id, number, agent.name, kind)
            memory = memories.get(task.id, ())
            in_round = partial(self.prompts.propose, memory=memory, critiques=())
            render = in_round if texts is None else partial(self.prompts.ask, kind, texts=texts)
            # One fence for all agents and steps, as in a deliberation, so that what these read in common is read once.
            mark = unseen(call_seed(self.seed, task.id, kind), [*(texts or ()), *memory])
            messages = render(self.question(task, agent), persona=agent.persona, seed=mark)
            asked = agent.name, messages, agent.decoding, seed, agent.adapter, template
            requests.append(GenerateRequest(*asked, ledger=ledgers.get(task.id)))
        return [
            Attempt(agent, unfence(g.text), agent.charged(g))
            for (_, agent, _), g in zip(calls, self.ensemble.generate(requests), strict=True)
        ]


def _named(agents: Sequence[Agent], name: str) -> Agent:
    by_name = {agent.name: agent for agent in agents}
    if name not in by_name:
        raise ValueError(f"expected an agent out of {', '.join(by_name)}, got {name!r}: correct the name")
    return by_name[name]
