"""Agents and the backbones they share."""

import dataclasses
import importlib.metadata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from torch import nn

from nsed_torch.core.engine import (
    Decoding,
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
    Request,
    check_answered,
    check_result,
)
from nsed_torch.records.call_log import CallLog, call_key
from nsed_torch.records.checked import rebuild
from nsed_torch.records.transcript import AS_BILLED, ROLES, AgentRecord, Usage

Progress = Callable[[int, int], None]
"""Called with calls done and calls in all."""

Kind = Literal["generate", "rate", "likelihood"]
R = TypeVar("R", Generation, Ratings, Likelihood)


@dataclass(frozen=True)
class Agent:
    """A backbone with an adapter, a persona, decoding settings and a price."""

    name: str  # unique in its ensemble; no model reads it, save judges of a deliberation that is not anonymous
    backbone: str  # key of the engine it runs on
    persona: str = ""  # what it is told about itself
    decoding: Decoding = Decoding()
    adapter: str | None = None  # name of a LoRA adapter of its backbone; None for the bare backbone
    prompt_price: float = 0.0  # US$ per million tokens read
    completion_price: float = 0.0  # US$ per million tokens written
    roles: tuple[str, ...] = ROLES  # those it may take
    judge_adapter: str | None = None  # name of the adapter it rates with; None is `adapter`
    description: str = ""  # what it is good at, for a Conductor, which knows it by a number; no part of its own calls
    form: str = "plain"  # where rounds are steps, in which of `parts.forms` it reads and writes works

    def __post_init__(self) -> None:
        given: Any = self.roles  # from YAML it may be anything; a text is a sequence too, of letters
        named = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
        if not named or not set(named) <= set(ROLES):
            known = ", ".join(ROLES)
            raise ValueError(f"agent {self.name!r}: expected roles out of [{known}], got {given!r}: correct them")
        object.__setattr__(self, "roles", tuple(role for role in ROLES if role in named))
        if self.form != "plain":
            from nsed_torch.parts.forms import form_named  # noqa: PLC0415 - loaded for agents that have one

            form_named(self.form)

    @property
    def rating_adapter(self) -> str | None:
        """The adapter it rates with."""
        return self.adapter if self.judge_adapter is None else self.judge_adapter

    def usage(
        self, prompt_tokens: int, completion_tokens: int, seconds: float = 0.0, computed_tokens: int = AS_BILLED
    ) -> Usage:
        """One call's cost at this agent's prices."""
        price = (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6
        return Usage(1, prompt_tokens, completion_tokens, price, seconds, computed_tokens)

    def charged(self, result: Generation | Ratings | Likelihood) -> Usage:
        """What a finished call cost; ratings write nothing."""
        written = result.completion_tokens if isinstance(result, Generation) else 0
        return self.usage(result.prompt_tokens, written, result.seconds, result.computed_tokens)


class Ensemble(nn.Module):
    """The agents of a run and the engines that speak for them, by backbone name, each engine held once.

    Every call is looked up in the call log first and stored there as soon as its batch is done; without one, it is kept
    in memory. Engines that are modules become submodules, so `.to()`, `.parameters()` and `state_dict()` reach their
    weights. A call that failed is not kept, so it is made again the next time; the first such ends a batch with a
    ConnectionError when all others are done, unless callers take it `silent`: a result that says nothing.
    Agents that `check_agents` refuses, an unknown adapter, or a backbone name that no submodule can bear, are a
    ValueError.
    """

    def __init__(
        self, engines: Mapping[str, Engine], agents: Sequence[Agent], *, call_log: CallLog | None = None
    ) -> None:
        super().__init__()
        self.agents = tuple(agents)
        self.engines = dict(engines)
        try:
            self.backbones = nn.ModuleDict({k: e for k, e in engines.items() if isinstance(e, nn.Module)})
        except KeyError as error:
            raise ValueError(
                f"expected backbone names that can name a submodule, {error.args[0]}: rename it"
            ) from error
        self.call_log = call_log if call_log is not None else CallLog(None)
        self._by_name = {agent.name: agent for agent in self.agents}
        check_agents(self.agents, self.engines)
        for agent in self.agents:
            for adapter in {agent.adapter, agent.rating_adapter}:
                self.engine(agent).identity(adapter)

    def __len__(self) -> int:
        return len(self.agents)

    @property
    def proposers(self) -> tuple[Agent, ...]:
        """The agents that may propose."""
        return tuple(agent for agent in self.agents if "proposer" in agent.roles)

    @property
    def judges(self) -> tuple[Agent, ...]:
        """The agents that may rate."""
        return tuple(agent for agent in self.agents if "judge" in agent.roles)

    def agent(self, name: str) -> Agent:
        """The agent of that name."""
        return self._by_name[name]

    def engine(self, agent: Agent) -> Engine:
        """The engine an agent runs on."""
        return self.engines[agent.backbone]

    def count_tokens(self, text: str) -> int:
        """Length of a text in the tokens of whichever engine needs most."""
        return max(engine.count_tokens(text) for engine in self.engines.values())

    def generate(
        self, requests: Sequence[GenerateRequest], progress: Progress | None = None, *, silent: bool = False
    ) -> list[Generation]:
        """Answer requests of any agents, one backbone after the other."""
        return self._call("generate", requests, Generation, progress, silent)

    def rate(
        self, requests: Sequence[RateRequest], progress: Progress | None = None, *, silent: bool = False
    ) -> list[Ratings]:
        """Rate candidates for any agents, one backbone after the other."""
        return self._call("rate", requests, Ratings, progress, silent)

    def measure(
        self, requests: Sequence[LikelihoodRequest], progress: Progress | None = None, *, silent: bool = False
    ) -> list[Likelihood]:
        """Measure how likely texts are for any agents, one backbone after the other."""
        return self._call("likelihood", requests, Likelihood, progress, silent)

    @contextmanager
    def one_run(self) -> Iterator[None]:
        """Let engines reuse what calls of this run computed, and nothing from before it; free it behind."""
        for engine in self.engines.values():
            engine.forget()
        try:
            yield
        finally:
            for engine in self.engines.values():
                engine.forget()

    def records(self) -> list[AgentRecord]:
        """The agents as a transcript keeps them."""
        records = []
        for agent in self.agents:
            engine, same = self.engine(agent), agent.rating_adapter == agent.adapter
            kept = ("name", "backbone", "persona", "prompt_price", "completion_price")
            records.append(
                AgentRecord(
                    **{name: getattr(agent, name) for name in kept},
                    identity=dict(engine.identity(agent.adapter)),
                    decoding=dataclasses.asdict(agent.decoding),
                    roles=list(agent.roles),
                    judge_identity=None if same else dict(engine.identity(agent.rating_adapter)),
                )
            )
        return records

    def _call(
        self, kind: Kind, requests: Sequence[Any], result: type[R], progress: Progress | None, silent: bool
    ) -> list[R]:
        """Look every request up, ask the engines for what is missing, and commit what is done as soon as it is."""
        keys = self._keys(kind, requests)
        asked = dict(zip(keys, requests, strict=True))
        results = self.call_log.get(keys, lambda key, value: _loaded(result, asked[key], value))
        # Equal requests have equal keys and are asked once.
        missing = {key: request for key, request in asked.items() if key not in results}
        report = progress or (lambda done, total: None)
        total = len(results) + len(missing)
        report(len(results), total)
        for name, engine in self.engines.items():
            mine = [key for key, request in missing.items() if self.agent(request.agent).backbone == name]
            ask: Any = {"generate": engine.generations, "rate": engine.ratings, "likelihood": engine.likelihoods}[kind]
            for done in ask([missing[key] for key in mine]) if mine else ():
                ended = {mine[i]: value for i, value in done.items()}
                self.call_log.put({k: dataclasses.asdict(value) for k, value in ended.items() if not value.failure})
                results.update(ended)
                report(len(results), total)
        if not silent:
            check_answered(results.values())
        # In the order of the requests, whoever was done first and wherever a result comes from.
        return [self._counted(request, results[key]) for request, key in zip(requests, keys, strict=True)]

    def _counted(self, request: Any, result: R) -> R:
        """A result with the tokens that are new to the request's ledger, where the engine can tell."""
        backbone = self.agent(request.agent).backbone
        engine = self.engines[backbone]
        if request.ledger is None or result.failure or not engine.shares_prefixes:
            return result
        rows = engine.readings(request, result)
        new = sum(request.ledger.enter(backbone, row) for row in rows)
        if isinstance(result, Generation):
            # An answer that an older log holds without its ids is taken to be new.
            return dataclasses.replace(result, computed_tokens=new + result.completion_tokens - len(result.written))
        # Older logs count what candidates share once.
        return dataclasses.replace(result, prompt_tokens=sum(map(len, rows)), computed_tokens=new)

    def _keys(self, kind: Kind, requests: Sequence[Request]) -> list[str]:
        """The call log's keys; an adapter that learns is hashed once, not for every request."""
        version = importlib.metadata.version("nsed_torch")
        places = [(self.agent(request.agent).backbone, request.adapter) for request in requests]
        identities = {place: dict(self.engines[place[0]].identity(place[1])) for place in set(places)}
        return [
            call_key(kind=kind, version=version, identity=identities[place], request=_named(request))
            for place, request in zip(places, requests, strict=True)
        ]


def check_agents(agents: Sequence[Agent], backbones: Collection[str]) -> None:
    """Refuse fewer than two agents, none that may propose, equal names, and unknown backbones, by a ValueError."""
    if len(agents) < 2:
        raise ValueError(f"expected an ensemble of at least 2 agents, got {len(agents)}: add agents to it")
    if len({agent.name for agent in agents}) < len(agents):
        raise ValueError(f"expected agents with different names, got {[a.name for a in agents]}")
    if not any("proposer" in agent.roles for agent in agents):
        raise ValueError(f"expected an agent that may propose, got {len(agents)} judges: give one the role proposer")
    for agent in agents:
        if agent.backbone not in backbones:
            known = ", ".join(sorted(backbones)) or "none"
            raise ValueError(f"agent {agent.name!r}: expected a backbone out of {known}, got {agent.backbone!r}")


def _named(request: Request) -> dict[str, Any]:
    """What of a request shapes its result."""
    data = dataclasses.asdict(dataclasses.replace(request, ledger=None))
    del data["ledger"]
    if not request.notes:  # keys of calls without are as they were
        del data["notes"], data["beside"]
    if not data.get("schema"):
        data.pop("schema", None)
    return data


def _loaded(result: type[R], request: Request, value: Any) -> R:
    """What the log keeps of a request's result; a ValueError or TypeError for what no engine has answered to it."""
    kept: R = rebuild(result, value)
    check_result(request, kept)
    if kept.failure:
        raise ValueError("expected a result that says something: failures are never kept")
    return kept
