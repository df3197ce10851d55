"""The propose phase through llama.cpp's own server, which takes an adapter a request."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import torch

from bench.adapter_gguf import write_adapter_gguf
from bench.requests import unstoppable
from bench.timing import Measurement, compare
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.engines.adapters import save_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import DownloadError

BINARY = "llama-server"
"""What is run, and a package that brings it."""

PATIENCE = 120.0
"""Seconds to wait for the server's weights, and for an answer of any length."""


def llama_server_lines(
    engine: TransformersEngine,
    requests: Sequence[GenerateRequest],
    gguf: Callable[[], Path | None],
    *,
    repeats: int,
    report: Callable[[str], None] = print,
) -> list[Measurement]:
    """The same answers by our engine and by llama.cpp's server, each request with the adapter of its agent.

    All requests are sent at once, agent by agent, and the server has a slot for each. It batches those that have the
    same adapter and lets the others wait. Every answer takes its whole allowance; the server's tokens are the
    likeliest ones, and both start without anything kept from earlier repeats. The fact `same_answers` is the share of
    answers of at most 8 likeliest tokens that both give to the letter.

    Args:
        engine: ours; it holds the adapters that the requests name.
        requests: of one allowance.
        gguf: finds the same model for llama.cpp; None where there is none.
        repeats: timed rounds.
        report: hears in one line why there is no line, where the server or a file is missing.
    """
    binary, missing, file = find_server(), f"{BINARY} is not on the PATH: build it from llama.cpp", None
    if binary is not None:
        missing = "the backbone's weights come without a GGUF"
        try:
            file = gguf()
        except (OSError, DownloadError) as error:
            missing = str(error)
    if binary is None or file is None:
        report(f"llama.cpp's server: left out: {missing}")
        return []
    (allowance,) = {request.decoding.max_new_tokens for request in requests}

    def ours() -> None:
        engine.forget()
        engine.generate(requests)

    with ExitStack() as parts:
        folder = Path(parts.enter_context(TemporaryDirectory()))
        adapters = converted(engine, requests, file, folder)
        server = parts.enter_context(serving(binary, file, adapters, *room(engine, requests)))
        alike = same_answers(engine, server, requests)
        parts.enter_context(unstoppable(engine))
        engine.generate(requests[:1])
        server.generate(engine, requests[:1], full=True)
        facts = {
            "same_answers": alike,
            "gguf": file.name,
            "note": f"llama.cpp reads the GGUF's quantized weights, ours are {engine.identity(None)['dtype']}",
        }
        return compare(
            f"propose, {len(adapters)} adapters x {len(requests) // len(adapters)} tasks x {allowance} tokens",
            ours=("all in one batch", ours),
            others=[("llama.cpp's server, an adapter a request", lambda: server.generate(engine, requests, full=True))],
            repeats=repeats,
            facts=facts,
        )


def find_server() -> Path | None:
    """llama.cpp's server on the PATH; None without one."""
    found = shutil.which(BINARY)
    return Path(found) if found else None


def converted(
    engine: TransformersEngine, requests: Sequence[GenerateRequest], backbone: Path, folder: Path
) -> dict[str, Path]:
    """The adapters that requests name, as GGUF files in a folder."""
    files = {}
    for name in sorted({request.adapter for request in requests if request.adapter is not None}):
        save_adapter(engine, name, folder / name, dtype="float32")  # which NumPy knows
        files[name] = folder / f"{name}.gguf"
        write_adapter_gguf(folder / name, backbone, files[name])
    return files


def room(engine: TransformersEngine, requests: Sequence[GenerateRequest]) -> tuple[int, int]:
    """Tokens that all requests and their answers take together, and how many there are."""
    lengths = [len(engine.chat.ids(one.messages)) + one.decoding.max_new_tokens for one in requests]
    return sum(lengths), len(requests)


class LlamaServer:
    """A running server, and the place of each adapter in its list."""

    def __init__(self, url: str, adapters: Sequence[str]) -> None:
        self.url = url
        self.places = {name: place for place, name in enumerate(adapters)}

    def generate(self, engine: TransformersEngine, requests: Sequence[GenerateRequest], *, full: bool) -> list[str]:
        """Answers of the likeliest tokens, all asked for at once; `full` ones stop at no token."""
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(lambda one: self._answer(engine, one, full), requests))

    def read(self, prompt: list[int], adapter: str | None, slot: int, count: int, *, fresh: bool) -> dict[int, float]:
        """The likeliest tokens behind a prompt; a slot keeps what its prompts begin with, unless they start `fresh`."""
        said = self._complete(prompt, adapter, 1, n_probs=count, id_slot=slot, cache_prompt=not fresh)
        return {one["id"]: one["logprob"] for one in said["completion_probabilities"][0]["top_logprobs"]}

    def _answer(self, engine: TransformersEngine, request: GenerateRequest, full: bool) -> str:
        prompt, most = engine.chat.ids(request.messages), request.decoding.max_new_tokens
        said = self._complete(prompt, request.adapter, most, ignore_eos=full, cache_prompt=False)
        return str(said["content"]).strip()

    def _complete(self, prompt: list[int], adapter: str | None, most: int, **more: Any) -> Any:
        # An adapter that is not in the list has scale 0.
        scales = [{"id": place, "scale": float(name == adapter)} for name, place in self.places.items()]
        return self._ask(
            "/completion", {"prompt": prompt, "n_predict": most, "temperature": 0.0, "lora": scales, **more}
        )

    def is_ready(self) -> bool:
        """Whether the weights are loaded."""
        try:
            return bool(self._ask("/health")["status"] == "ok")
        except (OSError, urllib.error.HTTPError):
            return False

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:  # noqa: S310
            return json.load(reply)


@contextmanager
def serving(binary: Path, gguf: Path, adapters: Mapping[str, Path], tokens: int, slots: int) -> Iterator[LlamaServer]:
    """While open, llama.cpp serves a model with adapters on this machine, on as many threads as PyTorch has.

    Raises:
        ValueError: if it ends before it answers, or does not answer in time; says why.
    """
    port, threads = _free_port(), str(torch.get_num_threads())
    command = [binary, "--model", gguf, "--host", "127.0.0.1", "--port", str(port), "--offline"]
    command += ["--threads", threads, "--threads-batch", threads, "--ctx-size", str(tokens)]
    # One cache for all slots, and nothing kept of what has been answered.
    command += ["--parallel", str(slots), "--kv-unified", "--cache-ram", "0", "--metrics"]
    if adapters:
        command += ["--lora", ",".join(map(str, adapters.values())), "--lora-init-without-apply"]
    with (
        TemporaryFile("w+") as said,
        subprocess.Popen(list(map(str, command)), stdout=said, stderr=said, text=True) as process,  # noqa: S603
    ):
        server = LlamaServer(f"http://127.0.0.1:{port}", list(adapters))
        try:
            end = time.monotonic() + PATIENCE
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > end:
                    said.seek(0)
                    last = (said.read().strip().splitlines() or ["nothing"])[-1]
                    code = process.poll()  # negative for the signal that ended it, None where it still runs
                    raise ValueError(f"{binary}: expected a server that answers, got {last!r}, exit code {code}")
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()


def same_answers(engine: TransformersEngine, server: LlamaServer, requests: Sequence[GenerateRequest]) -> float:
    """Share of short answers of likeliest tokens that the server and the engine give to the letter."""
    short = [replace(one, decoding=replace(one.decoding, max_new_tokens=8, temperature=0.0)) for one in requests]
    theirs = server.generate(engine, short, full=False)
    return sum(a == b.text for a, b in zip(theirs, engine.generate(short), strict=True)) / len(short)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
