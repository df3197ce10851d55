"""What methods and deliberations may cost, before any model is called."""

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from nsed_torch.conductor.policy import WritingAgent
from nsed_torch.conductor.workflow import Workflow, WorkflowStep
from nsed_torch.core.agent import Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
)
from nsed_torch.core.open_round import SlotText
from nsed_torch.core.ratings import MARKUP
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import full_team
from nsed_torch.evaluation.methods.conducted import Conducted
from nsed_torch.evaluation.methods.method import Method, Panel
from nsed_torch.records.transcript import Task, Usage

FULLEST = Workflow((WorkflowStep(0, "Check everything so far.", "all"),) * 64).render()
"""What a Conductor is taken to write: as many steps as it may, each of which reads all."""


def expected_usage(method: Method, panel: Panel, tasks: Sequence[Task]) -> Usage:
    """Calls, tokens and price of a method at its own size, estimated from above.

    The method runs as it would, with agents that write nothing but fill every allowance. Prompts are counted by the
    engines' own tokenizers; answers are counted as plain words, and 16 tokens a message stand for a chat template.
    Calls that other methods share, or that a call log already holds, are counted all the same; of what calls share,
    computed tokens leave out only what the candidates of one judge do. The seconds are 0. A
    Conductor writes as many steps as it may, all for model 0 of a pool as it is drawn; it accepts no answer, and is
    understood at once. Where the panel knows no leads, the first that may propose leads.
    """
    if isinstance(method, Conducted) and isinstance(method.conductor, WritingAgent):
        method = replace(method, conductor=replace(method.conductor, encoder=None))
    template = getattr(getattr(method, "conductor", None), "template", WritingAgent.template)
    ensemble = _stand_in(panel.ensemble, conducts=panel.prompts.fingerprint(template))
    blank = replace(panel, ensemble=ensemble, encoder=HashedEncoder(8))
    return Usage.sum(answer.usage for answer in method(blank, tasks, None))


def expected_deliberation(rnn: MacroRNN, tasks: Sequence[Task]) -> Usage:
    """Calls, tokens and price of a deliberation, estimated from above as in `expected_usage`.

    Everybody takes part in every round that there may be, whatever the others say: what a broker, an early stop or
    asking one after the other saves is not foreseen, nor what a broker asks itself. Every round is held with the
    fullest memory that there may be by then; where work may begin anew, as elected by nobody, with what it begins with
    if that is longer. That an agent's form makes more tokens of a text than the plain one has is not foreseen.
    """
    cell = rnn.cell
    protocol = replace(cell.protocol, ahead=None, memory="shown", shown_from=0.0, verbatim=False, control=None)
    protocol = replace(protocol, equal_once=False)
    ensemble = _stand_in(cell.ensemble, steps=_steps(cell, tasks))
    stand_in = cell.with_(ensemble=ensemble, encoder=_Alike(cell.encoder.dim), protocol=protocol)
    used = Usage()
    for inputs in sorted({len(task.inputs) for task in tasks}):
        batch = [task for task in tasks if len(task.inputs) == inputs]
        teams, start = [full_team(ensemble, rnn.without)] * len(batch), stand_in.start(batch)
        state = start
        for index in range(1, inputs + rnn.rounds + 1):
            slots = tuple(_fullest(stand_in, task, index) for task in batch)
            with torch.no_grad():
                full = replace(state, memory=start.memory, slots=slots)
                records, state = stand_in(batch, teams, full, index=index)
            used += Usage.sum(record.usage for record in records)
    return used


def _steps(cell: MacroRNNCell, tasks: Sequence[Task]) -> dict[str, int]:
    """How many words each agent may write at most where rounds are steps: no longer step is shown, or rated."""
    if cell.protocol.unit == "answer":
        return {}
    budget, count = cell.protocol.memory_tokens, cell.ensemble.count_tokens

    def length(words: int) -> int:
        return count(" ".join([_named(10**6), *["word"] * words]))

    longest = {agent.name: cell.kind(tasks[0], 1).longest(agent) for agent in cell.ensemble.agents}
    return {name: max(bisect_right(range(most), budget, key=length), 1) for name, most in longest.items()}


def _fullest(cell: MacroRNNCell, task: Task, index: int) -> tuple[SlotText, ...]:
    """A memory of as many texts, and as many words in all, as there can be before a round.

    None where the work may begin anew, elected by nobody, and what it begins with is longer.
    """
    kind, budget, proposers = cell.kind(task, index), cell.protocol.memory_tokens, cell.ensemble.proposers
    most = min(cell.consensus.slots, (index - 1) * (1 if kind.winner_alone else len(proposers)), budget)
    words = min(budget, most * max(map(kind.longest, proposers)))
    # The longest is the weakest: it alone is cut, to whatever the others leave.
    texts = [_named(i) for i in range(most - 1)] + ["word " * (words - most) + "word"] * bool(most)

    def length(shown: Sequence[str]) -> int:
        return max(map(cell.ensemble.count_tokens, kind.ask(shown, 0).questions.values()))

    if kind.begins_with and length([]) > length(texts):
        return ()
    return tuple(SlotText(text, "", 0) for text in texts)


def _named(number: int) -> str:
    """A word for a number: no form of steps reads a digit in it."""
    return "".join(ascii_lowercase[int(digit)] for digit in str(number))


class _Alike(HashedEncoder):
    """One vector for all texts: what they say costs nothing, and to hash each of their words takes minutes."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        return torch.full((len(texts), self.dim), self.dim**-0.5)


class _Longest(Engine):
    """An engine that fills every allowance with words, each text another, and finds all candidates right."""

    max_batch = 1024

    def __init__(self, engine: Engine, conducts: str, steps: Mapping[str, int]) -> None:
        self.engine, self.context_window = engine, engine.context_window
        self.conducts = conducts  # the template of those who write workflows
        self.steps = steps  # agent -> words of the longest step it may write, where rounds are steps
        # Equal texts would be rated once and shown once.
        self.written = itertools.count(1)

    def identity(self, adapter: str | None) -> Mapping[str, Any]:
        return self.engine.identity(adapter)

    def count_tokens(self, text: str) -> int:
        return self.engine.count_tokens(text)

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        results = []
        for request in requests:
            allowance = request.decoding.max_new_tokens
            words = self.steps.get(request.agent, allowance)
            text = " ".join([_named(next(self.written)), *["word"] * (words - 1)])
            text = FULLEST if request.template == self.conducts else text
            results.append(Generation(text, self._read(request), allowance, "stop" if self.steps else "length"))
        return results

    def rate(self, requests: Sequence[RateRequest]) -> list[Ratings]:
        results = []
        for request in requests:
            billed, computed = self._chats(request, request.candidates)
            results.append(Ratings((1.0,) * len(request.candidates), prompt_tokens=billed, computed_tokens=computed))
        return results

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        results = []
        for request in requests:
            billed, computed = self._chats(request, request.texts)
            results.append(Likelihood((1.0,) * len(request.texts), billed, computed_tokens=computed))
        return results

    def _chats(self, request: RateRequest | LikelihoodRequest, texts: Sequence[str]) -> tuple[int, int]:
        """Tokens billed and computed for a chat about several texts."""
        billed = sum(self._read(request, [text]) for text in texts)
        return billed, self._read(request, texts) if self.engine.shares_prefixes else billed

    def _read(self, request: GenerateRequest | RateRequest | LikelihoodRequest, texts: Sequence[str] = ()) -> int:
        return self.count_prompt(request.messages, texts) + MARKUP * (len(request.messages) + len(texts))


def _stand_in(ensemble: Ensemble, conducts: str = "", steps: Mapping[str, int] = MappingProxyType({})) -> Ensemble:
    return Ensemble({name: _Longest(e, conducts, steps) for name, e in ensemble.engines.items()}, ensemble.agents)
