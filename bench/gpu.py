"""An accelerator's table in ten minutes: `python -m bench gpu`, one script that needs no network.

On a bare machine, in a copy of the working tree:

    python3 -m venv .venv
    .venv/bin/pip install -c constraints.txt -e .
    TMPDIR=/tmp HF_HUB_OFFLINE=1 .venv/bin/python -m bench gpu --seconds 540 --output "${OUT:-runs/bench}"

Here it is tried with little: `python -m bench gpu --device cpu --random-weights small.json --seconds 60`, where
small.json is a model's config.json with few and narrow layers.

`TMPDIR` wants 17 GB; a folder in memory loads faster. The tokenizer is the default backbone's where it is on disk, else
one of bytes that is made on the spot. gpu.json and gpu.txt are written anew after every part, so a run that is killed
leaves what it had. A part that is over its share of the seconds is stopped, and named with what it was.

What holds decoding back on an accelerator, as the code has it: layers are called from Python one by one, some 15
kernels each, so that few rows wait for the processor (32 layers take about as long as 16 GB of weights); a step sends
seven small tensors of places and tokens to the device; the nucleus asks the device three times, and `tolist` once a
step. Masks are made once a step, not once a layer. Graphs of captured kernels would take the first away; they are
not here, for nobody could try them yet.
"""

import gc
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from rich.console import Console

from bench.floors import Floor, Rates
from bench.memory import compared, forget_peak, of_agents, of_rounds, peak
from bench.phases import TASKS, afresh, propose_lines, rate_lines
from bench.random_weights import speak_plainly, write_bytes_tokenizer, write_random
from bench.requests import CANDIDATE, PERSONAS, propose_requests, questions, unstoppable
from bench.teams import deliberate
from bench.timing import Measurement, compare, seconds, show
from nsed_torch.core.engine import Decoding, GenerateRequest, Message, Note, RatingScale
from nsed_torch.core.prompts import Prompts, fence, nonce
from nsed_torch.core.round import Observer
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.engines.weights import Weights, resolve
from nsed_torch.evaluation.provenance import machine, versions
from nsed_torch.records.files import write_json
from nsed_torch.records.transcript import Round, Task
from nsed_torch.tuning.fine_tuning import LEARNER, Example, reply_loss, start_adapter, tokenized

SHAPES = ("llama3_1_8b", "qwen2_5_7b")

READ, STEPS, ROWS = (4, 1024), 32, (1, 8, 64)
"""Sequences and their tokens in a pass of reading; tokens of an answer and answers at once in decoding."""

ADAPTERS, EXAMPLES, LATE = 8, 16, 8
"""Agents with an adapter each; examples of a training step; the round whose memory is read."""

CELL = {"agents": 5, "rounds": 5, "questions": 300, "tokens": 256, "at_once": 26}
"""The deliberations that are wanted, and how many of the questions are begun together, as many as fit."""

BAR = 600.0
"""Seconds that the cell may take."""

NOTES = 6
"""In a prompt whose notes are heard in part."""

SETTINGS = {"max_batch": 64, "pass_tokens": 8192, "prefix_tokens": 16384}
"""Of the engine, as conf/backbone/qwen2_5_7b_instruct.yaml has them."""


class TimeUp(BaseException):
    """A part's share is over; no fault, so that nobody takes it for one."""


T = TypeVar("T")
Work = Callable[[TransformersEngine, Floor], list[Measurement]]


@dataclass
class Budget:
    """Divides seconds among parts, and keeps what they gave.

    Args:
        ends: when all is over, on the clock of `time.perf_counter`.
        repeats: of a part at most; it is done again only where its share has room for that.
        save: called after every part.
    """

    ends: float
    repeats: int
    save: Callable[["Budget"], None]
    lines: list[Measurement] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)

    def spend(self, part: str, share: float, work: Callable[[], list[Measurement]], *, again: bool = True) -> None:
        """Do a part, once or as often as its share allows; how it ended is kept, a fault of it too."""
        print(f"measuring {part}", flush=True)  # some take a minute
        start, given = time.perf_counter(), list[list[Measurement]]()
        limit, outcome, where = min(share, self.ends - start), "done", ""
        try:
            with alarm(limit):
                while not given or (again and len(given) < self.repeats and room(start, limit, len(given))):
                    given.append(work())
        except TimeUp:
            outcome = f"stopped after its {limit:.3g} s" if given else f"not reached in its {limit:.3g} s"
            outcome = outcome if limit > 0 else "not reached: no time was left"
        except Exception as error:
            outcome, where = f"failed: {type(error).__name__}: {error}".splitlines()[0], traceback.format_exc(limit=-4)
        self.lines += [replace(line, name=f"{part}: {line.name}") for line in merged(given)]
        self.note(part, share, outcome, seconds=time.perf_counter() - start, repeats=len(given), where=where)

    def obtain(self, part: str, share: float, make: Callable[[], T]) -> T | None:
        """What a part without lines made, None if it came to nothing."""
        made: list[T] = []

        def work() -> list[Measurement]:
            made.append(make())
            return []

        self.spend(part, share, work, again=False)
        return made[0] if made else None

    def note(self, part: str, share: float, outcome: str, **more: Any) -> None:
        """Keep how a part ended, and save."""
        self.parts.append({"part": part, "share": share, "outcome": outcome, **more})
        self.save(self)


@contextmanager
def alarm(limit: float) -> Iterator[None]:
    """While open, a `TimeUp` comes after so many seconds; at once where there are none."""

    def stop(*_: Any) -> None:
        raise TimeUp

    if limit <= 0:
        raise TimeUp
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def room(start: float, limit: float, done: int) -> bool:
    """Whether there is time for once more, by what the others took."""
    taken = time.perf_counter() - start
    return taken + taken / done < limit


def merged(given: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """The lines of repeats as lines of several values; facts are the last repeat's."""
    return [
        replace(
            same[-1],
            ours_values=tuple(value for line in same for value in line.ours_values),
            other_values=tuple(value for line in same for value in line.other_values),
        )
        for same in zip(*given, strict=True)
    ]


def reading(engine: TransformersEngine, floor: Floor) -> list[Measurement]:
    """A pass over long prompts that share nothing."""
    rows, tokens = READ
    drawn = torch.randint(3, len(engine.chat.tokenizer), (rows, tokens), generator=torch.Generator().manual_seed(0))

    @torch.no_grad()
    def read() -> None:
        engine.forget()
        engine.follow(drawn.tolist(), [None] * rows, [tokens - 1] * rows)

    read()
    taken, least = seconds(read), floor.reading([tokens] * rows)
    facts = {"tokens_a_second": rows * tokens / taken}
    name = f"prefill, {rows} prompts x {tokens} tokens"
    return [Measurement(name, "a pass", "its floor", (taken,), (least,), facts=facts)]


def writing(engine: TransformersEngine, floor: Floor) -> list[Measurement]:
    """A token more in each row: what many take longer than one, drawn and, for the most rows, likeliest tokens."""
    lines, ahead = [], engine.lookup_tokens
    engine.lookup_tokens = 0
    try:
        for rows, temperature in (*((rows, 0.7) for rows in ROWS), (ROWS[-1], 0.0)):
            long, short = (
                propose_requests(rows, [None], Decoding(tokens, temperature=temperature)) for tokens in (STEPS + 1, 1)
            )
            afresh(engine, engine.generate, short)
            whole, begun = (seconds(partial(afresh, engine, engine.generate, asked)) for asked in (long, short))
            step = (whole - begun) / STEPS
            context = sum(len(engine.chat.ids(one.messages)) for one in long) / rows + STEPS / 2
            facts = {"tokens_a_second": rows / step, "context": context}
            name = f"decode, {rows} rows, {'drawn' if temperature else 'likeliest'} tokens"
            lines.append(Measurement(name, "a step", "its floor", (step,), (floor.step(rows, context),), facts=facts))
    finally:
        engine.lookup_tokens = ahead
    return lines


def cell(engine: TransformersEngine, _: Floor) -> list[Measurement]:
    """Deliberations, as many as the part's share allows: rounds that came to their end are counted, and scaled."""
    ended: list[float] = []

    class Watch(Observer):
        def on_round(self, task: Task, record: Round) -> None:
            ended.append(time.perf_counter())

    wanted, together = CELL["questions"], min(CELL["at_once"], CELL["questions"])
    tasks = [Task(question, f"t{i}") for i, question in enumerate(questions(together))]
    decoding = Decoding(max_new_tokens=CELL["tokens"], temperature=0.7)
    start = time.perf_counter()
    try:
        shape = {"agents": CELL["agents"], "rounds": CELL["rounds"]}
        deliberate(engine, tasks, **shape, decoding=decoding, observer=Watch())
    except TimeUp:
        if not ended:
            raise
    each = (ended[-1] - start) * CELL["rounds"] / len(ended)
    facts = {"deliberations_an_hour": 3600 / each, "questions_measured": together, "rounds_measured": len(ended)}
    name = "{agents} agents x {rounds} rounds x {questions} questions x {tokens} tokens, scaled".format(**CELL)
    return [Measurement(name, "all questions", "the bar", (each * wanted,), (BAR,), facts=facts)]


def memory(engine: TransformersEngine, _: Floor) -> list[Measurement]:
    """Of 8 agents with an adapter each against 1, and after round 8 against round 1, in this process."""
    loaded, peaks = peak(), dict[int, float]()
    for agents in (1, ADAPTERS):
        engine.forget()
        forget_peak()
        peaks[agents] = of_agents(engine, agents)
    engine.forget()
    forget_peak()
    by_round = of_rounds(engine, LATE)
    return [*compared("agents", peaks, loaded), *compared("rounds", {1: by_round[0], LATE: by_round[-1]}, loaded)]


def weighing(engine: TransformersEngine, _: Floor) -> list[Measurement]:
    """Answers to prompts whose notes are heard in part, against the same prompts heard as they are."""
    prompts, heard = Prompts(), []
    texts = [CANDIDATE.format(46 + i) for i in range(NOTES)]
    for task, question in enumerate(questions(TASKS)):
        for i, persona in enumerate(PERSONAS):
            messages = prompts.propose(question, memory=texts, critiques=(), persona=persona, seed=task)
            notes = tuple(Note(fence(text, nonce(task)), 0.5 + 0.01 * task) for text in texts)
            decoding = Decoding(STEPS, temperature=0.7)
            heard.append(GenerateRequest(f"agent{i}", messages, decoding, seed=task, notes=notes))
    plain = [replace(request, notes=()) for request in heard]
    afresh(engine, engine.generate, heard[:1])
    return compare(
        f"weighted memory, {len(heard)} answers x {NOTES} notes x {STEPS} tokens",
        ours=("heard in part", lambda: afresh(engine, engine.generate, heard)),
        others=[("heard as they are", lambda: afresh(engine, engine.generate, plain))],
        repeats=1,
    )


def training(engine: TransformersEngine, floor: Floor) -> list[Measurement]:
    """A step of an adapter: forward, backward, AdamW. Its floor is reading twice, for A and B are thin."""
    if LEARNER not in engine.adapters:
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        start_adapter(engine, start=None, rank=8, alpha=16.0, targets=targets, seed=0)
    learns = [parameter for parameter in engine.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr=1e-4)
    examples = [
        Example((Message("user", question),), " ".join([CANDIDATE.format(i)] * 4))
        for i, question in enumerate(questions(EXAMPLES))
    ]
    rows = tokenized(engine, examples)
    lengths = [len(sequence) for sequence in rows["sequences"]]
    places = sum(n - start + 1 for n, start in zip(lengths, rows["starts"], strict=True))

    def step() -> None:
        optimizer.zero_grad()
        reply_loss(engine, **rows).backward()
        optimizer.step()

    step()
    taken, least = seconds(step), 2 * floor.reading(lengths, places)
    facts = {"tokens": sum(lengths), "tokens_a_second": sum(lengths) / taken}
    return [Measurement(f"train, {EXAMPLES} examples", "a step", "its floor", (taken,), (least,), facts=facts)]


def proposing(engine: TransformersEngine, _: Floor) -> list[Measurement]:
    """Adapters that answer together; of a call an answer, every 32nd is made."""
    return propose_lines(engine, 1, 32, ADAPTERS)


def rating(engine: TransformersEngine, _: Floor) -> list[Measurement]:
    """Judges behind a prefix that they share; of a pass a pair, every 16th is made."""
    return rate_lines(engine, 1, 16, RatingScale())


PARTS: dict[str, Work] = {
    "reading": reading,
    "writing": writing,
    "cell": cell,
    "memory": memory,
    "proposing": proposing,
    "rating": rating,
    "weighing": weighing,
    "training": training,
}
"""What is measured of a model, in this order: parts behind `memory` find adapters loaded."""

SHARES = {"draw": 40, "load": 30, "reading": 10, "writing": 20, "cell": 75, "memory": 25}
SHARES |= {"proposing": 35, "rating": 20, "weighing": 15, "training": 15}
"""Seconds that each part may take in a run of `WHOLE`; most take less, and where they do not the last go without."""

WHOLE = 540.0

FIRST = {"none": tuple(PARTS), "nf4": ("reading", "writing", "memory", "training")}
"""Parts of the first shape, by quantization."""

OTHERS = {"none": ("reading", "writing", "cell"), "nf4": ("reading", "writing")}


def measure(
    tokenizer: Weights,
    output: Path,
    *,
    limit: float = WHOLE,
    repeats: int = 3,
    device: str | None = None,
    dtype: str = "bfloat16",
    shapes: Sequence[str] = SHAPES,
) -> list[Measurement]:
    """All parts of all shapes, unquantized and in NF4, within `limit` seconds; returns the lines.

    Args:
        tokenizer: of which model, if that is on disk.
        output: folder for gpu.json and gpu.txt.
        limit: seconds of all; shares grow and shrink with it.
        repeats: of a part at most.
        device: where; None is the accelerator where there is one, else the CPU.
        dtype: of what is not quantized.
        shapes: as in `write_random`.
    """
    ends, scale = time.perf_counter() + limit, limit / WHOLE
    where = torch.device(device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
    card = (
        torch.cuda.get_device_name(where) if where.type == "cuda" else f"{torch.get_num_threads()} threads of the CPU"
    )
    rates = Rates.measured(where, getattr(torch, dtype))
    head = {"card": card, "hardware": {**machine(), **versions()}, "dtype": dtype, "limit": limit, **vars(rates)}
    budget = Budget(ends, repeats, partial(save, output, head))
    with TemporaryDirectory() as folder:
        words = at_hand(tokenizer, Path(folder))
        head["tokenizer"] = "bytes" if words == Path(folder) else tokenizer.name
        for plan, shape in zip((FIRST, *[OTHERS] * len(shapes)), shapes, strict=False):
            with TemporaryDirectory() as place:
                name = Path(shape).stem
                draw = partial(write_random, shape, words, Path(place), dtype=dtype, device=where)
                weights = budget.obtain(f"{name}, draw", scale * SHARES["draw"], draw)
                for quantization, parts in plan.items():
                    options = {"quantization": quantization, "dtype": dtype, "device": device}
                    load = partial(load_backbone, weights, **options, **SETTINGS) if weights else None
                    one_model(budget, f"{name} {quantization}", load, parts, rates, scale)
    return budget.lines


def at_hand(tokenizer: Weights, folder: Path) -> Path:
    """Where a model's tokenizer lies on this machine; else the folder, with one of bytes in it."""
    try:
        return resolve(tokenizer, offline=True).folder
    except ValueError:
        return write_bytes_tokenizer(folder)


def one_model(
    budget: Budget,
    name: str,
    load: Callable[[], TransformersEngine] | None,
    parts: Sequence[str],
    rates: Rates,
    scale: float,
) -> None:
    """The parts of one model, which is freed behind them; without it they are named as not reached."""
    engine = budget.obtain(f"{name}, load", scale * SHARES["load"], load) if load else None
    if engine is None:
        for part in parts:
            budget.note(f"{name}, {part}", SHARES[part] * scale, "not reached: its model was not there")
        return
    speak_plainly(engine)
    floor = Floor(engine, rates)
    with unstoppable(engine):
        for part in parts:
            budget.spend(f"{name}, {part}", SHARES[part] * scale, partial(PARTS[part], engine, floor))
    del engine
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def save(output: Path, head: Mapping[str, Any], budget: Budget) -> None:
    """gpu.json and gpu.txt, as far as the run is."""
    lines = [line.as_json() for line in budget.lines]
    write_json(output / "gpu.json", {**head, "parts": budget.parts, "lines": lines})
    with (output / "gpu.txt").open("w", encoding="utf-8") as file:
        console = Console(file=file, width=140)
        rates = f"{head['bandwidth'] / 1e9:.4g} GB/s copied, {head['products'] / 1e12:.4g} TFLOP/s multiplied"
        show(budget.lines, f"{head['card']}, {head['dtype']}, tokenizer {head['tokenizer']}; {rates}", console)
        for part in budget.parts:
            if part["outcome"] != "done":
                console.print(f"{part['part']}: {part['outcome']}")
