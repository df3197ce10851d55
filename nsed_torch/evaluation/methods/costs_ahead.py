"""What methods and deliberations may cost, before any model is called."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    Message,
    RateRequest,
    Rating,
)
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.ratings import MARKUP
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
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
    Conductor writes as many steps as it may, all for model 0 of a pool as it is drawn, and accepts no answer. Where the
    panel knows no leads, the first that may propose leads.
    """
    if isinstance(method, Conducted) and isinstance(method.conductor, WritingAgent):
        method = replace(method, conductor=replace(method.conductor, encoder=None))
    ensemble = _stand_in(panel.ensemble, conducts=panel.prompts.fingerprint("conduct"))
    blank = replace(panel, ensemble=ensemble, encoder=HashedEncoder(8))
    return Usage.sum(answer.usage for answer in method(blank, tasks, None))


def expected_deliberation(rnn: MacroRNN, tasks: Sequence[Task]) -> Usage:
    """Calls, tokens and price of a deliberation, estimated from above as in `expected_usage`.

    Everybody takes part in every round that the halting rule allows: what a broker or an early stop saves is not
    foreseen.
    """
    cell = rnn.cell
    stand_in = MacroRNNCell(
        _stand_in(cell.ensemble),
        _Alike(cell.encoder.dim),
        cell.consensus,
        prompts=cell.prompts,
        rating=cell.rating,
        memory_tokens=cell.memory_tokens,
        seed=cell.seed,
        diagonal_mask=cell.diagonal_mask,
        anonymous=cell.anonymous,
        shuffled=cell.shuffled,
    )
    with torch.no_grad():
        deliberation = MacroRNN(stand_in, halting=FixedHalting(rnn.halting.rounds), without=rnn.without)(tasks)
    return Usage.sum(transcript.usage for transcript in deliberation.transcripts)


class _Alike(HashedEncoder):
    """One vector for all texts: what they say costs nothing, and to hash each of their words takes minutes."""

    def embed(self, texts: Sequence[str]) -> Tensor:
        return torch.full((len(texts), self.dim), self.dim**-0.5)


class _Longest(Engine):
    """An engine that fills every allowance with words, each text another, and finds all candidates right."""

    max_batch = 1024

    def __init__(self, engine: Engine, conducts: str) -> None:
        self.engine, self.context_window = engine, engine.context_window
        self.conducts = conducts  # the template of those who write workflows
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
            text = " ".join([str(next(self.written)), *["word"] * (allowance - 1)])
            text = FULLEST if request.template == self.conducts else text
            results.append(Generation(text, self._read(request), allowance, "length"))
        return results

    def hidden_states(self, chats: Sequence[Sequence[Message]], adapter: str | None = None) -> tuple[Any, list[int]]:
        # One number stands for as many as a head wants.
        return torch.zeros(len(chats), 1), [self.count_prompt(c) + MARKUP * len(c) for c in chats]

    def rate(self, requests: Sequence[RateRequest]) -> list[Rating]:
        results = []
        for request in requests:
            billed, computed = self._chats(request, request.candidates)
            results.append(Rating((1.0,) * len(request.candidates), prompt_tokens=billed, computed_tokens=computed))
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


def _stand_in(ensemble: Ensemble, conducts: str = "") -> Ensemble:
    # Whoever has a form of its own reads about as much, and would be refused where steps are not told apart.
    agents = [replace(agent, form="plain") for agent in ensemble.agents]
    return Ensemble({name: _Longest(engine, conducts) for name, engine in ensemble.engines.items()}, agents)
