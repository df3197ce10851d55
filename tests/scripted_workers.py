"""Workers without models: every text is a function of its call, and every request is kept."""

import random

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.workflow import Workflow
from nsed_torch.conductor.workflow import WorkflowStep as Step
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import ContextWindowError, Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.transcript import Task

NAMES = ("Zebulon", "Quillfeather", "Oberon")
PROMPTS = Prompts(style="direct")
TASKS = [Task(f"How much is question number {c}?", c, target="secret") for c in "abc"]
POOL = ("team", *NAMES)


class Recorder(ScriptedEngine):
    """Keeps every request; a prompt beyond its window is refused, and with it the whole batch, as engines do."""

    def __init__(self, write, *, window=10**6, **options):
        super().__init__(write, lambda request, candidate: random.Random(candidate).uniform(-1, 1), **options)
        self.window = window
        self.asked = []

    def generate(self, requests):
        for request in requests:
            system, *turns = [message.role for message in request.messages]
            assert system == "system"
            assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"]
            assert all(message.content.strip() for message in request.messages)
            if sum(self.count_tokens(m.content) for m in request.messages) > self.window:
                raise ContextWindowError("too long")
        results = super().generate(requests)
        self.asked += requests
        return results


def drawn(request):
    """A few words drawn from the call's seed, with marks as models copy them; one text in six is empty."""
    draw = random.Random(request.seed)
    words = " ".join(draw.choices(["red", "blue", "seven", "so"], k=draw.randint(1, 16)))
    return draw.choice(["", "<text-ab>\n" + words, words, words, words, words])


def build(write=drawn, *, engine=None, temperature=1.0, call_log=None, price=1.0, **options):
    """An executor of three scripted agents, and the engine that speaks for them."""
    engine = engine or Recorder(write)
    agents = [
        Agent(name, "one", f"You are voice {i}.", Decoding(12, temperature), prompt_price=price)
        for i, name in enumerate(NAMES)
    ]
    return Executor(Ensemble({"one": engine}, agents, call_log=call_log), prompts=PROMPTS, **options), engine


def flow(*steps):
    """A workflow of (worker, subtask, access)."""
    return Workflow(tuple(Step(*step) for step in steps))


def answers(request):
    """Each agent says its name, and what it read."""
    return " ".join([request.agent, *(m.content for m in request.messages if m.role == "assistant")])


CHAIN = flow((0, "Begin.", ()), (1, "Go on.", (0,)), (2, "End.", "all"))


def council(executor, *, rounds=2, broker=None, seed=0, agents=3):
    """A deliberation of the executor's own agents."""
    encoder = HashedEncoder(8)
    cell = MacroRNNCell(
        executor.ensemble, encoder, ConsensusCell(8, agents=agents).double(), prompts=PROMPTS, seed=seed
    )
    return MacroRNN(cell, halting=FixedHalting(rounds), broker=broker)


def with_council(write=drawn, **options):
    executor, engine = build(write)
    rnn = council(executor, **options)
    return Executor(executor.ensemble, prompts=PROMPTS, deliberations={"team": rnn}), rnn, engine
