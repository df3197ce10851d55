"""Replicas of one engine on Ray, on one machine or a cluster, that answer as one."""

import importlib
import math
import os
import secrets
import socket
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn

import torch

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
    Request,
    failed,
)
from nsed_torch.engines.gguf_files import first_line
from nsed_torch.engines.packing.forest import passes, shared_with_last
from nsed_torch.records.extras import missing
from nsed_torch.records.lookalikes import one_line

LOCAL = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a Ray that is no cluster listens on loopback only, on Linux too
    "RAY_worker_niceness": "0",  # what replicas do is the work: Ray's 15 would let everything else go first
}
"""The environment in which Ray is started here; what is set already stays."""

STORE_BYTES = 2**28
"""Room for objects of a Ray that is started here: results are texts, and Ray would take a third of the memory."""

_FACTS = ("max_batch", "shares_prefixes", "context_window", "measures", "weighs")


class _LostError(Exception):
    """A replica is no more; no engine raises it."""


class _Replica:
    """What each of Ray's processes runs; it builds nothing before it is told to, so that faults keep their types."""

    engine: Engine

    def build(self, engine: Callable[[], Engine], threads: int) -> dict[str, Any]:
        if threads:
            torch.set_num_threads(threads)
        self.engine = engine()
        return {name: getattr(self.engine, name) for name in _FACTS}

    def ask(self, name: str, *args: Any) -> Any:
        return getattr(self.engine, name)(*args)

    def stream(self, name: str, requests: Sequence[Request], counted: Sequence[bool]) -> Iterator[dict[int, Any]]:
        """Results as they are done, those that are counted with their readings: asked singly, they would take long."""
        for part in getattr(self.engine, name)(requests):
            yield {
                k: (result, self.engine.readings(requests[k], result) if counted[k] and not result.failure else None)
                for k, result in part.items()
            }


class EngineReplicas(Engine):
    """A pool of processes that hold the same engine each, by Ray; its identity is the engine's, so calls are shared.

    Requests whose prompts begin alike go to the same replica (`shares`), and results are handed out as they are done;
    the call log stays in this process. When a replica dies, the others are asked for what it had not handed out, and
    for nothing else. Replicas answer as the engine does alone, within the rounding that other company in a batch brings
    (docs/engine.md). No gradients pass.

    Where this process has joined a Ray already, that one is used and `address` is not read. A Ray that is started here
    listens on loopback, wants a token of its own, has no dashboard and sends no statistics.

    Args:
        engine: makes the engine, in each replica: `partial(load_backbone, ...)`, in YAML `_partial_: true`.
        replicas: how many there are.
        cpus: cores of each; without gpus, also the threads it computes in.
        gpus: accelerators of each, which it sees alone; a fraction shares one.
        address: of a running cluster, "auto" or "HOST:PORT", of which this machine is a node; None starts Ray here.
        retries: further replicas that a request may be handed to when one dies; then it counts as failed.
        start_s: seconds until all replicas have to be there.

    Raises:
        ValueError: for a setting out of range, without Ray or the cluster, where the machine has not enough cores or
            accelerators, and whatever `engine` raises.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        *,
        replicas: int = 2,
        cpus: float = 1.0,
        gpus: float = 0.0,
        address: str | None = None,
        retries: int = 2,
        start_s: float = 600.0,
    ) -> None:
        _check(engine, replicas=replicas, cpus=cpus, gpus=gpus, retries=retries, start_s=start_s)
        self.replicas, self.retries = replicas, retries
        self._ray = _joined(address, {"CPU": replicas * cpus, "GPU": replicas * gpus})
        kind = self._ray.remote(num_cpus=cpus, num_gpus=gpus)(_Replica)
        self._living = [kind.remote() for _ in range(replicas)]
        self._last = ""  # what the last one died of
        self._rows: dict[Request, list[list[int]]] = {}  # that came with results and were not asked for yet
        facts = self._built(engine, 0 if gpus else max(1, int(cpus)), start_s)
        self.max_batch = replicas * facts["max_batch"]
        self.shares_prefixes, self.context_window, self.measures, self.weighs = (facts[name] for name in _FACTS[1:])
        self._count = lru_cache(maxsize=2**16)(lambda text: int(self._ask("count_tokens", text)))

    def identity(self, adapter: str | None) -> Mapping[str, Any]:
        """The engine's own: who answers is no part of it."""
        return dict(self._ask("identity", adapter))

    def count_tokens(self, text: str) -> int:
        """Length of a text in the engine's tokens."""
        return self._count(text)

    def forget(self) -> None:
        """Free what the replicas keep from earlier calls."""
        self._rows.clear()
        for told in [(replica, replica.ask.remote("forget")) for replica in self._living]:
            with suppress(_LostError):  # who is no more keeps nothing
                self._get(*told)

    def readings(self, request: Request, result: Any) -> list[list[int]]:
        """Every sequence of a finished call, as the engine reads them."""
        rows = self._rows.pop(request, None)
        return list(self._ask("readings", replace(request, ledger=None), result)) if rows is None else rows

    def generations(self, requests: Sequence[GenerateRequest]) -> Iterator[dict[int, Generation]]:
        """Answer all requests, by all replicas at once.

        Raises:
            ConnectionError: if all replicas have died.
        """
        return self._answered("generations", requests)

    def ratings(self, requests: Sequence[RateRequest]) -> Iterator[dict[int, Ratings]]:
        """As `generations`, ratings."""
        return self._answered("ratings", requests)

    def likelihoods(self, requests: Sequence[LikelihoodRequest]) -> Iterator[dict[int, Likelihood]]:
        """As `generations`, likelihoods."""
        return self._answered("likelihoods", requests)

    def _answered(self, name: str, requests: Sequence[Any]) -> Iterator[dict[int, Any]]:
        streams: dict[Any, tuple[Any, dict[int, int]]] = {}  # who answers, and by its own count what is open
        asked = [0] * len(requests)
        self._hand_out(name, requests, range(len(requests)), streams)
        while streams:
            (stream,), _ = self._ray.wait(list(streams), num_returns=1)
            replica, still = streams[stream]
            try:
                part = self._get(replica, next(stream))
            except StopIteration:
                del streams[stream]
            except _LostError as error:
                del streams[stream]
                again = []
                for i in still.values():
                    asked[i] += 1
                    if asked[i] <= self.retries:
                        again.append(i)
                    else:
                        said = f"{asked[i]} replicas died while they were to answer it, the last one: {error}"
                        yield {i: failed(requests[i], ConnectionError(said))}
                self._hand_out(name, requests, again, streams)
            else:
                self._rows |= {requests[still[k]]: rows for k, (_, rows) in part.items() if rows is not None}
                yield {still.pop(k): result for k, (result, _) in part.items()}

    def _hand_out(self, name: str, requests: Sequence[Any], which: Sequence[int], streams: dict[Any, Any]) -> None:
        """Let the living replicas begin with these requests, once they are done with what they have."""
        if which and not self._living:
            self._gone()
        parts = shares([requests[i] for i in which], len(self._living))
        for replica, part in zip(self._living, parts, strict=False):
            mine = [requests[which[k]] for k in part]
            counted = [self.shares_prefixes and request.ledger is not None for request in mine]
            bare = [replace(request, ledger=None) for request in mine]  # a ledger is this process's own
            streams[replica.stream.remote(name, bare, counted)] = replica, dict(enumerate(which[k] for k in part))

    def _ask(self, name: str, *args: Any) -> Any:
        """What one replica says; all of them would say the same."""
        while self._living:
            replica = self._living[0]
            try:
                return self._get(replica, replica.ask.remote(name, *args))
            except _LostError:
                continue
        return self._gone()

    def _get(self, replica: Any, said: Any) -> Any:
        """A replica's word; its engine's own error, or a _LostError where the replica is no more."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(said)
        except errors.RayTaskError as error:
            if isinstance(error.cause, errors.RayError):  # what was sent could not even be read
                why = f"replicas: {first_line(error.cause)}"
                raise ValueError(f"{why}: see that every replica's machine has the packages of this one") from None
            raise error.cause from None
        except errors.RayError as error:  # the process or its machine
            if replica in self._living:
                self._living.remove(replica)
            self._ray.kill(replica)  # one that was only out of reach shall not go on with what others now answer
            self._last = _cause(error)
            raise _LostError(self._last) from None

    def _gone(self) -> NoReturn:
        raise ConnectionError(
            f"all {self.replicas} replicas have died, the last one: {self._last}: see that memory suffices; the same "
            "command goes on with what was not answered"
        )

    def _built(self, engine: Callable[[], Engine], threads: int, start_s: float) -> dict[str, Any]:
        """Have every replica build its engine; returns what is the same of all."""
        building = [replica.build.remote(engine, threads) for replica in self._living]
        done, late = self._ray.wait(building, num_returns=len(building), timeout=start_s)
        if late:
            free = self._ray.available_resources()
            raise ValueError(
                f"expected {self.replicas} replicas within {start_s:g} s, got {len(done)}; free are "
                f"{free.get('CPU', 0):g} cores and {free.get('GPU', 0):g} accelerators: lower replicas or raise start_s"
            )
        try:
            facts: list[dict[str, Any]] = [self._get(*one) for one in zip([*self._living], building, strict=True)]
        except _LostError as error:
            raise ValueError(f"a replica died while it was started: {error}: see that memory suffices") from None
        return facts[0]


def shares(requests: Sequence[Request], parts: int) -> list[list[int]]:
    """Divide requests, by their indices, among replicas: what begins alike stays together, in parts of like size.

    Sorted prompts are cut into at most `parts` runs, such that the longest run has as few tokens as it can have; a run
    reads once what a prompt has in common with the one before it. Four characters count as a token, and an answer as
    its whole allowance.
    """
    prompts = [_pieces(message.content for message in request.messages) for request in requests]
    order = sorted(range(len(requests)), key=lambda i: prompts[i])
    lengths = [len(prompts[i]) + _answer(requests[i]) for i in order]
    shared = shared_with_last([prompts[i] for i in order])
    most = bisect_left(range(sum(lengths)), True, key=lambda most: len(passes(lengths, most, shared)) <= parts)
    return [[order[k] for k in run] for run in passes(lengths, most, shared)]


def _pieces(texts: Iterator[str]) -> list[int]:
    """Texts as numbers, of which each is four of their characters."""
    data = "\x1f".join(texts).encode("utf-16-le", "surrogatepass")
    return array("Q", data + bytes(-len(data) % 8)).tolist()


def _answer(request: Request) -> int:
    """Tokens of a request behind its prompt."""
    if isinstance(request, GenerateRequest):
        return request.decoding.max_new_tokens
    return len(_pieces(iter(request.candidates if isinstance(request, RateRequest) else request.texts)))


def _check(engine: Any, **settings: Any) -> None:
    if isinstance(engine, Engine) or not callable(engine):
        raise ValueError(
            f"replicas, engine: expected what makes an engine, got {type(engine).__name__}: give "
            "functools.partial(load_backbone, ...), in YAML _partial_: true"
        )
    least = {"replicas": 1, "cpus": 0, "gpus": 0, "retries": 0, "start_s": 1}
    for name, value in settings.items():
        if not least[name] <= value < math.inf:
            raise ValueError(f"replicas, {name}: expected at least {least[name]}, got {value}: correct it")


def _joined(address: str | None, wanted: Mapping[str, float]) -> Any:
    """The module of Ray, which this process has joined."""
    if address is None:
        os.environ.update({name: value for name, value in LOCAL.items() if name not in os.environ})
        # Other users can reach this machine's loopback, and read the file in which Ray would put a token of its own.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        ray: Any = importlib.import_module("ray")  # an extra
    except ImportError as error:
        raise ValueError(missing("the package ray", "replicas", "ray", error)) from error
    if not ray.is_initialized():
        if address is None and os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0":
            # Ray read it when it was imported: somebody else may have done that before it was set.
            constants: Any = importlib.import_module("ray._private.ray_constants")
            constants.ENABLE_RAY_CLUSTER = False
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
        try:
            if address not in {None, "auto"}:  # where nobody is, Ray would try for ten minutes
                host, _, port = str(address).rpartition(":")
                socket.create_connection((host, int(port)), timeout=10).close()
            _started(ray, address, options)
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise ValueError(
                f"replicas, address: expected a Ray cluster at {address or 'this machine'}, got {first_line(error)}: "
                "see that ray start ran on this machine, or leave address null"
            ) from error
    if address is None:  # a cluster may grow
        _check_room(ray.cluster_resources(), wanted)
    return ray


def _started(ray: Any, address: str | None, options: Mapping[str, Any]) -> None:
    """Join, or begin; two that begin at once may have chosen the same port, and then it is tried once more."""
    try:
        ray.init(address=address or "local", **options)
    except RuntimeError:
        if address is not None:
            raise
        ray.shutdown()
        ray.init(address="local", **options)


def _check_room(there: Mapping[str, float], wanted: Mapping[str, float]) -> None:
    for name, number in wanted.items():
        if number > there.get(name, 0):
            raise ValueError(
                f"expected {number:g} {name}s for all replicas, got {there.get(name, 0):g}: lower replicas or "
                f"{name.lower()}s"
            )


def _cause(error: Exception) -> str:
    """Why a replica is no more, in Ray's words."""
    lines = [line for line in str(error).splitlines() if line.startswith("The actor is dead because")]
    return one_line(lines[0].split("Some common causes")[0]) if lines else first_line(error)
