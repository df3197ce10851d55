"""LoRA adapters fitted to chats with replies, by Hugging Face's trainer, on rows that share what is common."""

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from nsed_torch.core.engine import Message
from nsed_torch.engines.adapters import WEIGHTS, add_adapter, copy_adapter
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.tuning.logs import FileLog
from nsed_torch.tuning.losses import linear

KINDS = ("plain", "activated")
"""Of adapters: one reads all of a prompt, the other from its invocation on."""

PASS = 1536
"""Tokens of examples that go through together, unless one is longer."""

LEARNER = "learner"  # what an adapter is called while it learns; a saved one has no name


class Example(NamedTuple):
    """A chat, and what the assistant is to say next."""

    messages: tuple[Message, ...]
    reply: str


@dataclass(frozen=True)
class FineTuning:
    """How an adapter is fitted, by AdamW."""

    steps: int = 100
    batch: int = 16  # examples per step
    learning_rate: float = 2e-3  # at its highest; rises over the warm-up, then falls linearly to zero
    warmup_steps: int = 10
    weight_decay: float = 0.0
    max_norm: float = 1.0  # gradients of larger norm are scaled to it
    save_steps: int = 20  # between two checkpoints
    seed: int = 0  # of the order of examples

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.save_steps) < 1 or not (self.learning_rate > 0 and self.max_norm > 0):
            raise ValueError(f"expected steps, batch, save_steps of at least 1 and rates above 0, got {self}")


def tokenized(engine: TransformersEngine, examples: Sequence[Example]) -> dict[str, list[Any]]:
    """Examples as the engine reads them: `sequences` of token ids, and where in each the reply `starts`."""
    chat = engine.chat
    prompts = [chat.ids(example.messages) for example in examples]
    for prompt in prompts:
        if not engine.invoked(prompt, LEARNER):
            raise ValueError(
                "expected prompts that end with the adapter's invocation, got one that ends with "
                f"{chat.tokenizer.decode(prompt[-24:])!r}: set adapter.invocation to what they all end with"
            )
    ends = chat.tokenizer.eos_token_id
    replies = [[*chat.encode(example.reply), ends] for example in examples]
    sequences = [[*prompt, *reply] for prompt, reply in zip(prompts, replies, strict=True)]
    if (longest := max(map(len, sequences))) > engine.context_window:
        raise ValueError(
            f"expected examples of at most {engine.context_window} tokens, the model's window, got one of {longest}: "
            "learn from shorter ones"
        )
    return {"sequences": sequences, "starts": [len(prompt) for prompt in prompts]}


def reply_loss(engine: TransformersEngine, sequences: Sequence[list[int]], starts: Sequence[int]) -> Tensor:
    """Mean cross-entropy of the tokens of replies, each read by the adapter that learns; examples share passes.

    A token sees its own example alone, so the gradient is that of the examples one by one. Attention takes time by the
    square of a pass, so long examples go through apart, `PASS` tokens at a time, and what a pass keeps for its gradient
    is gone before the next begins.
    """
    parts = _passes(sequences)
    if len(parts) > 1:
        written = [sum(map(len, sequences[own])) - sum(starts[own]) for own in parts]
        learned = [parameter for parameter in engine.model.parameters() if parameter.requires_grad]
        means = [linear(reply_loss(engine, sequences[own], starts[own]), learned) for own in parts]
        return torch.stack([mean * n for mean, n in zip(means, written, strict=True)]).sum() / sum(written)
    logits, rows = engine.follow(sequences, [LEARNER] * len(sequences), [start - 1 for start in starts])
    wanted = [token for ids, start in zip(sequences, starts, strict=True) for token in ids[start:]]
    behind = [row for own in rows for row in own[:-1]]
    return nn.functional.cross_entropy(logits[behind].float(), torch.tensor(wanted, device=logits.device))


def _passes(sequences: Sequence[Sequence[int]]) -> list[slice]:
    """Which sequences go through together: consecutive ones of at most `PASS` tokens, or one that is longer."""
    firsts, room = [0], PASS
    for i, ids in enumerate(sequences):
        if len(ids) > room and i > firsts[-1]:
            firsts, room = [*firsts, i], PASS
        room -= len(ids)
    return [slice(first, end) for first, end in pairwise([*firsts, len(sequences)])]


def start_adapter(
    engine: TransformersEngine,
    *,
    start: str | None,
    rank: int,
    alpha: float,
    targets: Sequence[str],
    seed: int,
    kind: str = "plain",
    invocation: str = "",
    first_layer: int = 0,
) -> None:
    """Give an engine the adapter `LEARNER` and let it learn: a fresh one, or a copy of the one at `start`.

    A fresh one is "plain", or "activated": it reads from the `invocation` on, a sentence that ends all prompts. It
    changes layers from `first_layer` on.
    """
    if kind not in KINDS or (kind == "activated") > bool(invocation):
        raise ValueError(f"expected an adapter's kind out of {', '.join(KINDS)}, with an invocation, got {kind!r}")
    count = engine.model.config.get_text_config().num_hidden_layers
    if not 0 <= first_layer < count:
        raise ValueError(f"expected an adapter's first layer below the model's {count}, got {first_layer}")
    if start is None:
        add_adapter(
            engine,
            LEARNER,
            rank=rank,
            alpha=alpha,
            targets=list(targets),
            layers=range(first_layer, count) if first_layer else None,
            invocation=engine.chat.ending(invocation) if kind == "activated" else None,
            seed=seed,
        )
    else:
        copy_adapter(engine, LEARNER, start)
    engine.model.set_adapter(LEARNER)


def fine_tune(
    engine: TransformersEngine, examples: Sequence[Example], folder: Path, *, settings: FineTuning, log: FileLog
) -> None:
    """Fit the adapter that learns to the replies: mean cross-entropy of their tokens, the end of the turn among them.

    One adapter requires gradients, as from `start_adapter`; every example comes once before any comes again. The log
    takes loss, learning rate, gradient norm and seconds of every step. Checkpoints go to `folder`; the same call goes
    on from the last one, and ends where a straight run does.
    """
    if not examples or not any(p.requires_grad for p in engine.parameters()):
        raise ValueError(f"expected examples and an adapter that learns, got {len(examples)} examples: add an adapter")
    from transformers import TrainingArguments  # noqa: PLC0415 - heavy

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_norm,
        save_steps=settings.save_steps,
        save_total_limit=1,
        logging_steps=1,
        report_to=[],
        seed=settings.seed,
        data_seed=settings.seed,
        remove_unused_columns=False,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=engine.device.type == "cpu",
    )
    step, last = last_checkpoint(folder)
    log.resume(step)
    if last is not None and step >= settings.steps:
        restore(engine, Path(last))  # the trainer itself would take one more step
        return
    trainer = _trainer(engine, examples, arguments, log)
    try:
        with checkpoints_in(folder):
            trainer.train(resume_from_checkpoint=last)
    finally:
        engine.eval()


@contextlib.contextmanager
def checkpoints_in(folder: Path) -> Iterator[None]:
    """An OSError that names the folder where a checkpoint cannot be written: torch and safetensors raise others."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        written = re.search("inline_container|PytorchStreamWriter|iostream error|I/O error|Errno 28", str(error))
        if not written or getattr(error, "filename", None):
            raise
        raise OSError(
            f"{folder}: cannot write a checkpoint ({error}): make space, and the same command goes on"
        ) from error


def last_checkpoint(folder: Path) -> tuple[int, str | None]:
    """Step and path of the last checkpoint that is whole; 0 and None if there is none.

    The trainer writes its state behind everything else, so one that was cut off by a kill has none that can be read.
    """
    whole: dict[int, str] = {}
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        with contextlib.suppress(ValueError):
            whole[int(json.loads(path.read_text(encoding="utf-8"))["global_step"])] = str(path.parent)
    return max(whole.items(), default=(0, None))


def restore(engine: TransformersEngine, folder: Path) -> None:
    """Give the active adapter the weights that it had at a checkpoint."""
    from peft import set_peft_model_state_dict  # noqa: PLC0415 - heavy
    from safetensors.torch import load_file  # noqa: PLC0415

    name = engine.model.active_adapter
    set_peft_model_state_dict(engine.model, load_file(folder / name / WEIGHTS), adapter_name=name)


def _trainer(engine: TransformersEngine, examples: Sequence[Example], arguments: Any, log: FileLog) -> Any:
    from transformers import PrinterCallback, Trainer, TrainerCallback  # noqa: PLC0415 - heavy

    class Losses(Trainer):  # type: ignore[misc]
        """The loss on replies; the vocabulary's product is computed nowhere else."""

        def compute_loss(self, _: nn.Module, inputs: Mapping[str, Any], *__: Any, **___: Any) -> Tensor:
            return reply_loss(engine, **inputs)

    class Numbers(TrainerCallback):  # type: ignore[misc]
        """Hands the trainer's numbers on, with the time that each step took."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = time.perf_counter()

        def on_log(self, _: Any, state: Any, __: Any, *, logs: Mapping[str, Any], **___: Any) -> None:
            if "loss" in logs:
                line = {k: float(logs[k]) for k in ("loss", "grad_norm", "learning_rate")}
                log.write(state.global_step, {**line, "seconds": time.perf_counter() - self.start})

    trainer = Losses(
        model=engine.model,
        args=arguments,
        train_dataset=list(examples),
        data_collator=partial(tokenized, engine),
        callbacks=[Numbers()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
