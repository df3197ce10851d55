"""`python -m bench [lines...]`: measure, print a table, write `bench.json`; each line is a ratio of medians of one run.

python -m bench                                    every line of the engine, about an hour on two cores
python -m bench propose rate --sample 1            two of its lines, every single call timed
python -m bench --target core                      a training step against a matrix product
python -m bench --target tune --repeats 3          tuned cells against a logistic vote, needs nsed_torch[recorded]
python -m bench propose rate whole --device cuda --dtype bfloat16 --quantization nf4 --random-weights llama3_1_8b
                                                   on an accelerator, at the size of a model of 8 billion parameters
python -m bench gpu                                an accelerator's table in ten minutes, without a network
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from omegaconf import OmegaConf

from bench import gpu, phases
from bench.core import WIDTHS, import_line, training_line, tuning_line
from bench.embed import embed_lines
from bench.experts import experts_lines
from bench.llama import find_gguf, llama_lines
from bench.llama_server import llama_server_lines
from bench.memory import memory_lines
from bench.notes import notes_lines
from bench.phases import propose_lines, rate_lines
from bench.random_weights import SHAPES, write_random
from bench.replicas import replicas_lines
from bench.requests import give_adapters, propose_requests
from bench.serve import serve_lines
from bench.startup import TEAM, placed, startup_line
from bench.steps import steps_lines
from bench.teams import conduct_lines, whole_lines
from bench.timing import Measurement, show
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.engine import Decoding
from nsed_torch.engines.backbones import DTYPES, QUANTIZATIONS, check_device, load_backbone
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import Weights, resolve
from nsed_torch.evaluation.provenance import machine, versions
from nsed_torch.records.files import write_json

LINES = (
    "propose",
    "llama_server",
    "rate",
    "whole",
    "experts",
    "steps",
    "conduct",
    "memory",
    "notes",
    "llama_cpp",
    "replicas",
    "serve",
    "startup",
    "embed",
    "import",
)
"""What of the engine can be measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line names; faults that a user can fix are one line and exit code 2."""
    options = parse(arguments)
    identity: dict[str, Any] | None = None
    try:
        if options.lines == ["gpu"]:
            return accelerator(options)
        if options.target == "engine":
            with ExitStack() as folders:
                settings = engine_settings(options, folders)
                engine = load_backbone(**settings)
                identity = dict(engine.identity(None))
                precision = f"{identity['quantization']}, {identity['dtype']}"
                title = f"{identity['name']}, {precision}, {device_name(engine.device)}"
                lines = list(engine_lines(options, engine, settings))
        else:
            title = f"{options.target}, float32, {torch.get_num_threads()} threads"
            core = options.target == "core"
            lines = [training_line(options.repeats, dim) for dim in WIDTHS] if core else [tuning_line(options.repeats)]
    except (OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    file = Path(options.output, "bench.json")
    head = {"hardware": {**machine(), **versions()}, "backbone": identity}
    head |= {"repeats": options.repeats, "sample": options.sample}
    write_json(file, {**head, "lines": [line.as_json() for line in lines]})
    show(lines, title)
    print(file)
    return 0


def accelerator(options: argparse.Namespace) -> int:
    """`python -m bench gpu`: the table of `bench.gpu`, in gpu.json and gpu.txt."""
    check_device(options.device)
    settings = {name: value for name in ("device", "dtype") if (value := getattr(options, name)) is not None}
    if options.random_weights is not None:
        settings["shapes"] = (options.random_weights,)
    words, output = backbone_settings(options.backbone)["weights"], Path(options.output)
    gpu.measure(words, output, limit=options.seconds, repeats=options.repeats, **settings)
    print((output / "gpu.txt").read_text(encoding="utf-8"), output / "gpu.json", sep="")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; `None` takes the process's own."""
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "lines", nargs="*", metavar="line", help=f"of the engine: {', '.join(LINES)}; all by default. Or `gpu` alone"
    )
    parser.add_argument("--target", choices=("engine", "core", "tune"), default="engine", help="what is measured")
    parser.add_argument("--repeats", type=_positive, default=5, help="timed rounds, 5")
    sample = "of calls made one by one, each 7th is timed and counted 7 times; 1 times them all"
    parser.add_argument("--sample", type=_positive, default=7, help=sample)
    backbone = "a file in conf/backbone, or a folder with weights"
    parser.add_argument("--backbone", default="smollm2_135m_instruct", help=backbone)
    parser.add_argument("--device", help="where it computes, as cuda or cuda:1; an accelerator by default, else cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="of what is not quantized; by default the backbone's")
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="none", help="none by default")
    shapes = f"in place of the backbone's weights: {', '.join(SHAPES)}, or a config.json; the tokenizer stays"
    parser.add_argument("--random-weights", metavar="SHAPE", help=shapes)
    parser.add_argument("--seconds", type=_positive, default=gpu.WHOLE, help="of `gpu` in all, 540")
    parser.add_argument("--output", default="runs/bench", metavar="DIR", help="where bench.json goes")
    options = parser.parse_args(arguments)
    if options.lines != ["gpu"] and (unknown := sorted(set(options.lines) - set(LINES))):
        parser.error(f"expected lines out of {', '.join(LINES)}, got {', '.join(unknown)}")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def backbone_settings(name: str) -> dict[str, Any]:
    """Keyword arguments of `load_backbone` for a name in conf/backbone, or for a folder with weights."""
    if Path(name).is_dir():
        return {"weights": Weights("local", path=name), "quantization": "none"}
    known = {path.stem: path for path in sorted((conf_dir() / "backbone").glob("*.yaml"))}
    if name not in known:
        raise ValueError(f"expected a backbone out of {', '.join(known)}, or a folder with weights, got {name!r}")
    settings: Any = OmegaConf.to_container(OmegaConf.load(known[name]))
    if settings.pop("_target_") != "nsed_torch.engines.backbones.load_backbone":
        raise ValueError(f"expected a backbone whose weights are loaded here, got {name}, which answers elsewhere")
    return {**settings, "weights": instantiate(settings["weights"]), "quantization": "none"}


def engine_settings(options: argparse.Namespace, folders: ExitStack) -> dict[str, Any]:
    """Keyword arguments of `load_backbone` as the command line has them; random weights lie in a folder meanwhile."""
    settings = backbone_settings(options.backbone) | {"quantization": options.quantization}
    settings |= {name: value for name in ("device", "dtype") if (value := getattr(options, name)) is not None}
    check_device(settings.get("device"))
    if options.random_weights is not None:
        folder = Path(folders.enter_context(TemporaryDirectory()))
        dtype = settings.get("dtype", "auto")
        settings["weights"] = write_random(options.random_weights, settings["weights"], folder, dtype=dtype)
    return settings


def device_name(device: torch.device) -> str:
    """What a device is called by whoever made it, or how many threads compute on the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} threads of the CPU" if device.type == "cpu" else str(device)


def engine_lines(
    options: argparse.Namespace, engine: TransformersEngine, settings: dict[str, Any]
) -> Iterator[Measurement]:
    """The lines that were named, in the order of `LINES`."""
    repeats, sample, weights = options.repeats, options.sample, settings["weights"]

    def elsewhere() -> dict[str, Any]:
        # As another process can read it, the weights as the folder they were found in.
        return {**settings, "weights": {"name": weights.name, "path": str(resolve(weights).folder)}}

    def llama_cpp() -> list[Measurement]:
        bare = propose_requests(phases.TASKS, [None] * phases.AGENTS, Decoding(phases.NEW_TOKENS))
        with TemporaryDirectory() as folder:
            gguf = lambda: find_gguf(weights, Path(folder))  # noqa: E731 - asked only where llama.cpp is here
            return llama_lines(engine, bare, gguf, repeats=repeats, sample=sample)

    def llama_server() -> list[Measurement]:
        adapters = give_adapters(engine, phases.AGENTS)
        mixed = propose_requests(phases.TASKS, adapters, Decoding(phases.NEW_TOKENS, temperature=0.7))
        with TemporaryDirectory() as folder:
            gguf = lambda: find_gguf(weights, Path(folder))  # noqa: E731 - likewise
            return llama_server_lines(engine, mixed, gguf, repeats=repeats)

    def startup() -> list[Measurement]:
        shipped = backbone_settings(parse([]).backbone)["weights"]
        return [startup_line(shipped, repeats, device=options.device, dtype=options.dtype)]

    ways: dict[str, Callable[[], list[Measurement]]] = {
        "propose": lambda: propose_lines(engine, repeats, sample),
        "llama_server": llama_server,
        "rate": lambda: rate_lines(engine, repeats, sample),
        "whole": lambda: whole_lines(engine, repeats, sample),
        "experts": lambda: experts_lines(repeats, sample, placed(TEAM, options.device, options.dtype)),
        "steps": lambda: steps_lines(repeats),
        "conduct": lambda: conduct_lines(engine, repeats, sample),
        "memory": lambda: memory_lines(elsewhere()),
        "notes": lambda: notes_lines(elsewhere()),
        "llama_cpp": llama_cpp,
        "replicas": lambda: replicas_lines(settings, repeats),
        "serve": lambda: serve_lines(repeats, placed(TEAM, options.device, options.dtype)),
        "startup": startup,
        "embed": lambda: embed_lines(repeats, options.device),
        "import": lambda: [import_line(repeats)],
    }
    for name in LINES:
        if name in (options.lines or LINES):
            print(f"measuring {name}", flush=True)  # some take minutes
            yield from ways[name]()


if __name__ == "__main__":
    sys.exit(main())
