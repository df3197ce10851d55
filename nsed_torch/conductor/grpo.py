"""TRL's GRPO on an engine: the engine writes the texts and reads them packed, TRL does everything else.

What TRL 1.16 makes of a reward that is None: it counts neither for its group's mean nor for its standard deviation, and
its advantage is 0. Its text still counts where the loss is averaged over texts, so that a masked text shrinks a step as
one without signal does. A group's deviation is that of a sample (n - 1), and 1e-4 is added to it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nsed_torch.agents import TransformersEngine
from nsed_torch.agents.decode_loop import Draft
from nsed_torch.agents.readings import CHUNK


@dataclass(frozen=True)
class GRPO:
    """How a Conductor learns.

    Published (the Conductor, arXiv 2512.04388): GRPO without a KL term; a group's advantages are (r - mean) / std of
    its rewards; tokens are averaged over a text, texts over the step; temperature 1; AdamW with betas 0.9 and 0.999,
    cosine, 3% warm-up; ratios clipped at 0.2; 200 steps of 4 questions. Groups of 64, texts of 1024 tokens and a rate
    of 1e-6 were published for all weights of a model of 7B; the defaults here are for adapters of small ones.

    Raises:
        ValueError: if a number is out of range, or options are given beside `packed`.
    """

    steps: int = 200  # of the optimizer; 0 leaves the Conductor as it begins, after a warm start if there is one
    questions: int = 4  # per step
    rollouts: int = 16  # texts per question, one group
    chunk: int = 16  # texts in one pass of the gradient; less takes less memory and more time
    max_new_tokens: int = 192  # of a text
    temperature: float = 1.0  # at which texts are drawn, and their probabilities taken
    learning_rate: float = 1e-4  # at its highest
    warmup: float = 0.03  # share of the steps in which the rate rises, before it falls as a cosine
    weight_decay: float = 0.0
    clip: float = 0.2  # ratios of new to old probabilities count within 1 - clip and 1 + clip
    max_norm: float = 1.0  # gradients of larger norm are scaled to it
    save_steps: int = 10  # between two checkpoints
    # Share of a step's questions whose groups learn to look back as well: half of such a group are first texts, the
    # other half answer what each of those came to, and the group's advantages are taken over both (published: half of
    # each batch, 20 steps from a trained Conductor).
    recursion: float = 0.0
    first: float = 0.25  # what rewards of first texts count there, as published
    seed: int = 0  # of questions, pools and texts
    # Texts are written by the engine and read in packed rows, what prompts have in common once; every text draws from a
    # seed of its own. False leaves both to TRL, which several processes and vLLM need.
    packed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)  # of TRL's `GRPOConfig`, such as use_vllm

    def __post_init__(self) -> None:
        sizes = (self.questions, self.chunk, self.max_new_tokens, self.save_steps)
        if self.steps < 0 or min(sizes) < 1 or self.rollouts < 2:
            raise ValueError(f"expected steps of at least 0, sizes of at least 1, 2 rollouts or more, got {self}")
        if min(self.temperature, self.learning_rate, self.clip, self.max_norm) <= 0 or not 0 <= self.warmup < 1:
            raise ValueError(f"expected temperature, rate, clip, max_norm above 0 and warmup in [0, 1), got {self}")
        if self.questions * self.rollouts % self.chunk:
            raise ValueError(
                f"expected a chunk that divides {self.questions} questions x {self.rollouts} rollouts, "
                f"got {self.chunk}: choose a divisor"
            )
        if not 0 <= self.recursion <= 1 or not 0 < self.first <= 1:
            raise ValueError(f"expected recursion in [0, 1] and first in (0, 1], got {self.recursion} and {self.first}")
        if self.recursion and (self.rollouts % 2 or self.rollouts < 4 or not self.packed):
            raise ValueError("expected packed=true and an even number of rollouts from 4 on for recursion, got others")
        if self.packed and self.options:
            raise ValueError(f"expected options of TRL for packed=false alone, got {dict(self.options)}")

    @property
    def recursed(self) -> int:
        """Questions of a step whose groups look back: its first ones."""
        return round(self.recursion * self.questions)


def trl_arguments(engine: TransformersEngine, folder: Path, settings: GRPO) -> Any:
    """TRL's `GRPOConfig` for an engine's model, checkpoints in a folder, and settings, whose options win.

    Raises:
        ValueError: if TRL is not installed, or the texts of a step do not part evenly into the processes there are.
    """
    try:
        from accelerate import PartialState  # noqa: PLC0415 - heavy
        from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 - heavy, and an extra
    except ImportError as error:
        raise ValueError(f"expected trl, got {error}: pip install nsed_torch[conductor]") from error
    processes, texts = PartialState().num_processes, settings.questions * settings.rollouts
    if settings.packed and processes > 1:
        raise ValueError(f"expected one process for packed=true, got {processes}: pass packed=false")
    if texts % (settings.chunk * processes):
        raise ValueError(
            f"expected {texts} texts a step to part evenly, got {processes} processes and a chunk of {settings.chunk}: "
            "choose a divisor"
        )
    given = {
        "output_dir": str(folder),
        "max_steps": settings.steps,
        "per_device_train_batch_size": settings.chunk,
        "gradient_accumulation_steps": texts // (settings.chunk * processes),
        "num_generations": settings.rollouts,
        "max_completion_length": settings.max_new_tokens,
        "temperature": settings.temperature,
        "loss_type": "grpo",
        "scale_rewards": "group",
        "beta": 0.0,
        "epsilon": settings.clip,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": round(settings.warmup * settings.steps),
        "weight_decay": settings.weight_decay,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "max_grad_norm": settings.max_norm,
        "save_steps": settings.save_steps,
        "save_total_limit": 1,
        "logging_steps": 1,
        "report_to": [],
        "seed": settings.seed,
        "shuffle_dataset": False,  # they come in their order
        "bf16": False,  # the engine's own dtype
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "use_cpu": engine.device.type == "cpu",
    }
    return GRPOConfig(**{**given, **settings.options})


def log_probabilities(
    engine: TransformersEngine,
    adapter: str,
    tokens: Int[Tensor, "text token"],
    mask: Bool[Tensor, "text token"],
    kept: int,
    temperature: float = 1.0,
) -> tuple[Float[Tensor, "text kept"], Float[Tensor, "text kept"]]:
    """Logarithms of the probabilities of the last tokens of texts, and the entropies of what stood to choose.

    `log softmax(z / T)` of the token that came. Texts are read in one packed row, what they have in common once; the
    numbers, and gradients, are those of each text alone.

    Args:
        engine: reads.
        adapter: whose probabilities.
        tokens: prompts, padded to the left, then what was written, padded to the right.
        mask: False for padding.
        kept: columns of what was written.
        temperature: T.

    Returns:
        Both, 0 at padding; only the first has gradients. Entropies in nats.
    """
    rows: list[list[int]] = [own[seen].tolist() for own, seen in zip(tokens, mask, strict=True)]
    starts = [len(row) - int(seen[-kept:].sum()) for row, seen in zip(rows, mask, strict=True)]
    logits, places = engine.follow(rows, [adapter] * len(rows), [start - 1 for start in starts])
    totals, chances = _normalizers(logits, temperature)
    # The last place of a text has nothing behind it. One look at the logits for all texts: each would cost a gradient
    # of all vocabularies.
    before = [place for own in places for place in own[:-1]]
    tokens_said = [token for row, start in zip(rows, starts, strict=True) for token in row[start:]]
    sizes = [len(own) - 1 for own in places]
    said = (logits[before, tokens_said].float() / temperature - totals[before]).split(sizes)
    stood = chances[before].split(sizes)
    width = totals.new_zeros(kept)  # the last one sets it
    whole = [*said, width], [*stood, width]
    logs, entropies = (pad_sequence(parts, batch_first=True)[:-1] for parts in whole)
    return logs, entropies


def _normalizers(
    logits: Float[Tensor, "place token"], temperature: float
) -> tuple[Float[Tensor, " place"], Float[Tensor, " place"]]:
    """`log sum exp(z / T)` of every place, and the entropy without gradients; few vocabularies in float32 at a time."""
    totals, entropies = [], []
    for part in logits.split(CHUNK):
        scaled = part.float() / temperature
        total = scaled.logsumexp(dim=-1)
        with torch.no_grad():
            entropies.append(total - ((scaled - total[:, None]).exp() * scaled).sum(dim=-1))
        totals.append(total)
    return torch.cat(totals), torch.cat(entropies)


def grpo_trainer(
    engine: TransformersEngine,
    adapter: str,
    arguments: Any,
    *,
    rows: Sequence[Mapping[str, Any]],
    reward: Callable[..., list[float | None]],
    log: Callable[[int, Mapping[str, Any]], None],
    write: Callable[[int], list[Draft]] | None,
    tokenizer: Any,
) -> Any:
    """TRL's trainer of an engine's adapter.

    Args:
        engine: holds the model.
        adapter: the one that learns; active, and with gradients.
        arguments: as `trl_arguments`.
        rows: prompts as chats, and whatever the reward wants to know of them, in the order of the training.
        reward: as TRL calls it, once per step.
        log: takes the numbers of every step.
        write: the texts of a step, counted from 0, group after group; None leaves drawing and reading to TRL.
        tokenizer: for TRL; it may change it.
    """
    from datasets import Dataset  # noqa: PLC0415 - heavy, and an extra
    from transformers import PrinterCallback, TrainerCallback  # noqa: PLC0415 - heavy
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: PLC0415 - heavy, and an extra

    class Packed(GRPOTrainer):  # type: ignore[misc]
        """Reads texts by the engine: prompts of a group are mostly the same."""

        def _get_per_token_logps_and_entropies(
            self, _: nn.Module, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *__: Any, **___: Any
        ) -> tuple[Tensor, Tensor, None]:
            seen = attention_mask.bool()
            return *log_probabilities(engine, adapter, input_ids, seen, logits_to_keep, self.temperature), None

    class Numbers(TrainerCallback):  # type: ignore[misc]
        """Hands the trainer's numbers on."""

        def on_log(self, _: Any, state: Any, __: Any, **numbers: Any) -> None:
            if "loss" in numbers["logs"] and state.is_world_process_zero:
                log(state.global_step, numbers["logs"])

    def draw(_: Any, trainer: Any) -> dict[str, Any]:
        """Texts of a step."""
        engine.forget()  # a fused optimizer changes weights without a trace that the engine could see
        written = [] if write is None else write(trainer.state.global_step)
        return {
            "prompt_ids": [job.prompt for job in written],
            "completion_ids": [job.written for job in written],
            "logprobs": None,
        }

    trainer = (GRPOTrainer if write is None else Packed)(
        model=engine.model,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list([dict(row) for row in rows]),
        processing_class=tokenizer,
        callbacks=[Numbers()],
        rollout_func=None if write is None else draw,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
