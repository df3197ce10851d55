"""Proposals and ratings with an adapter an agent at one precision: ours, vLLM in this process, llama.cpp's server.

python -m bench.equal                        8 and 32 questions; a Python with vLLM, llama-server on the PATH
python -m bench.equal --dtype bfloat16 --questions 8

All compute in turns in one process, on as many threads; what is not installed is left out, and said.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import torch
from omegaconf import OmegaConf

from bench.llama import find_gguf
from bench.llama_server import LlamaServer, converted, find_server, room, serving
from bench.phases import AGENTS, CANDIDATES, NEW_TOKENS, SCALE, afresh
from bench.requests import give_adapters, propose_requests, rate_requests, unstoppable
from bench.timing import Measurement, Way, compare, show
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.engine import Decoding, Engine, GenerateRequest, RateRequest
from nsed_torch.engines.adapters import save_adapter
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.vllm_engine import VllmEngine
from nsed_torch.engines.weights import Weights
from nsed_torch.evaluation.provenance import machine, versions
from nsed_torch.records.files import write_json

TYPES = {"float32": gguf.GGMLQuantizationType.F32, "bfloat16": gguf.GGMLQuantizationType.BF16}
"""What a GGUF calls a precision."""

PHASES = ("propose", "rate")
"""What is measured of a round."""

KEPT_LOGPROBS = 1000
"""Tokens whose log-probabilities llama.cpp's server is asked for, for a rating."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write it to OUTPUT/equal.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="smollm2_135m_instruct", help="a file of conf/backbone")
    parser.add_argument("--dtype", choices=TYPES, default="float32")
    parser.add_argument("--questions", type=int, nargs="+", default=[8, 32], help="that each agent answers")
    parser.add_argument("--phases", choices=PHASES, nargs="+", default=PHASES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("runs/bench"))
    given = parser.parse_args(arguments)
    weights = instantiate(OmegaConf.load(conf_dir() / "backbone" / f"{given.backbone}.yaml").weights)
    lines = list(measured(weights, given.dtype, given.questions, given.repeats, given.phases))
    head = {"hardware": {**machine(), **versions()}, "threads": torch.get_num_threads(), "dtype": given.dtype}
    write_json(given.output / "equal.json", {**head, "lines": [line.as_json() for line in lines]})
    show(lines, f"{weights.name}, {given.dtype}, {torch.get_num_threads()} threads")
    return 0


def measured(
    weights: Weights, dtype: str, counts: Sequence[int], repeats: int, wanted: Sequence[str] = PHASES
) -> Iterator[Measurement]:
    """Lines of both phases for each number of questions; a quarter of them is rated, behind 600 tokens."""
    with ExitStack() as parts:
        folder = Path(parts.enter_context(TemporaryDirectory()))
        loaded = partial(load_backbone, weights, dtype=dtype, max_batch=AGENTS * max(counts))
        engine = loaded(device="cpu")
        names = give_adapters(engine, AGENTS)
        for name in names:
            save_adapter(engine, name, folder / name)
        there = found_vllm(partial(loaded, adapters={name: str(folder / name) for name in names}))
        binary, file = find_server(), find_gguf(weights, folder)
        if binary is None or file is None:
            print("llama.cpp's server: left out: llama-server is not on the PATH, or there is no GGUF", flush=True)
        else:
            file = same_precision(file, folder / "equal" / file.name, dtype)
        for count in counts:
            propose = propose_requests(count, names, Decoding(NEW_TOKENS, temperature=0.0))
            rate = rate_requests(engine, max(1, count // 4), CANDIDATES, names, SCALE)
            with ExitStack() as server:
                llama = None
                if binary is not None and file is not None:
                    files = converted(engine, propose, file, folder)
                    size, slots = room(engine, propose)
                    size = max(size, rate_room(engine, rate))
                    llama = server.enter_context(serving(binary, file, files, size, slots))
                if "propose" in wanted:
                    yield from propose_lines(engine, there, llama, propose, repeats)
                if "rate" in wanted:
                    yield from rate_lines(engine, there, llama, rate, repeats)


def propose_lines(
    engine: TransformersEngine,
    there: VllmEngine | None,
    llama: LlamaServer | None,
    requests: Sequence[GenerateRequest],
    repeats: int,
) -> list[Measurement]:
    """Answers of one length by whoever is here, and how many have the same text where they may end."""
    texts = [one.text for one in engine.generate(requests)]
    others: list[Way] = []
    facts: dict[str, Any] = {"answers": len(requests)}
    with unstoppable(engine), ExitStack() as endless:
        if there is not None:
            facts["same texts, vLLM"] = alike(texts, [one.text for one in there.generate(requests)])
            endless.enter_context(never_ending(there))
            others.append(("vLLM in this process", lambda: afresh(there, there.generate, requests)))
        if llama is not None:
            facts["same texts, llama.cpp"] = alike(texts, llama.generate(engine, requests, full=False))
            others.append(("llama.cpp's server", lambda: llama.generate(engine, requests, full=True)))
        return compare(
            f"propose, {AGENTS} adapters x {len(requests) // AGENTS} questions x {NEW_TOKENS} tokens",
            ours=("one batch", lambda: afresh(engine, engine.generate, requests)),
            others=others,
            repeats=repeats,
            facts=facts,
        )


def rate_lines(
    engine: TransformersEngine,
    there: VllmEngine | None,
    llama: LlamaServer | None,
    requests: Sequence[RateRequest],
    repeats: int,
) -> list[Measurement]:
    """Ratings by whoever is here, and how far they are apart; nothing is kept from one repeat to the next."""
    values = [one.values for one in engine.rate(requests)]
    others: list[Way] = []
    facts: dict[str, Any] = {"prompts": sum(map(len, values))}
    if there is not None:
        facts["most apart, vLLM"] = farthest(values, [one.values for one in there.rate(requests)])
        others.append(("vLLM in this process", lambda: afresh(there, there.rate, requests)))
    if llama is not None:
        facts["most apart, llama.cpp"] = farthest(values, rated(llama, engine, requests))
        others.append(("llama.cpp's server", lambda: rated(llama, engine, requests)))
    return compare(
        f"rate, {AGENTS} adapters x {len(requests) // AGENTS} questions x {CANDIDATES} candidates",
        ours=("packed passes", lambda: afresh(engine, engine.rate, requests)),
        others=others,
        repeats=repeats,
        facts=facts,
    )


def found_vllm(loaded: Callable[[], Engine]) -> VllmEngine | None:
    """A vLLM in this process with what would be loaded; None and a line where it is not installed."""
    try:
        return VllmEngine(partial(loaded, context_window=2048), cache_gb=2)
    except ValueError as error:
        print(f"vLLM: left out: {error}", flush=True)
        return None


def same_precision(source: Path, file: Path, dtype: str) -> Path:
    """A GGUF with the values of another one, its tables at a precision and its vectors in float32."""
    reader = gguf.GGUFReader(source)
    file.parent.mkdir()
    writer = gguf.GGUFWriter(file, str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture", "general.file_type")):
            sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        kind = TYPES[dtype] if len(tensor.shape) > 1 else TYPES["float32"]
        writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def rated(llama: LlamaServer, engine: TransformersEngine, requests: Sequence[RateRequest]) -> list[Any]:
    """Ratings by llama.cpp's server; a judge's candidates in turn in a slot, so that their prefix is read once."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda pair: _rated(llama, engine, *pair), enumerate(requests)))


def _rated(llama: LlamaServer, engine: TransformersEngine, slot: int, request: RateRequest) -> list[float | None]:
    labels, values = engine.chat.label_ids(request.scale.labels), []
    for i, prompt in enumerate(engine.rating_prompts(request)):
        told = llama.read(prompt, request.adapter, slot, KEPT_LOGPROBS, fresh=not i)
        known = torch.tensor([told.get(label, -torch.inf) for label in labels])
        scores = torch.tensor(request.scale.values)
        values.append(float(known.softmax(0) @ scores) if known.isfinite().all() else None)
    return values


def rate_room(engine: TransformersEngine, requests: Sequence[RateRequest]) -> int:
    """Tokens that the longest prompts of all requests take together, and one more each."""
    return sum(max(map(len, engine.rating_prompts(request))) + 1 for request in requests)


def alike(texts: Sequence[str], others: Sequence[str]) -> float:
    """Share of texts that are the same."""
    return sum(a == b for a, b in zip(texts, others, strict=True)) / len(texts)


def farthest(values: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> float:
    """The largest difference of two ratings that both have."""
    pairs = [(a, b) for row, other in zip(values, others, strict=True) for a, b in zip(row, other, strict=True)]
    return max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=float("nan"))


def never_ending(there: VllmEngine) -> ExitStack:
    """While open, every answer of vLLM takes all the tokens it may."""
    sampling, stops = there._sampling, there.stop_ids
    parts = ExitStack()
    parts.callback(setattr, there, "_sampling", sampling)
    parts.callback(setattr, there, "stop_ids", stops)
    there._sampling = lambda **given: sampling(ignore_eos="logprobs" not in given, **given)
    there.stop_ids = []
    return parts


if __name__ == "__main__":
    sys.exit(main())
