"""The settings of GRPO, and what TRL asks of an engine that reads texts packed.

What TRL 1.16 makes of a reward that is None: it counts neither for its group's mean nor for its standard deviation, and
its advantage is 0. Its text still counts where the loss is averaged over texts, so that a masked text shrinks a step as
one without signal does. A group's deviation is that of a sample (n - 1), and 1e-4 is added to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nsed_torch.engines.readout import CHUNK
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.extras import missing


@dataclass(frozen=True, kw_only=True)
class GRPO:
    """How a Conductor learns; the values for adapters of small models are those of `conf/grpo/small.yaml`.

    Published (the Conductor, arXiv 2512.04388): GRPO without a KL term; a group's advantages are (r - mean) / std of
    its rewards; tokens are averaged over a text, texts over the step; temperature 1; AdamW with betas 0.9 and 0.999,
    cosine, 3% warm-up; ratios clipped at 0.2; 200 steps of 4 questions. Groups of 64, texts of 1024 tokens and a rate
    of 1e-6 were published for all weights of a model of 7B. Rewards of first texts count 0.25 with recursion.

    Raises:
        ValueError: if a number is out of range, or options are given beside `packed`.
    """

    steps: int  # of the optimizer; 0 leaves the Conductor as it begins, after a warm start if there is one
    questions: int  # per step
    rollouts: int  # texts per question, one group
    chunk: int  # texts in one pass of the gradient; less takes less memory and more time
    max_new_tokens: int  # of a text
    temperature: float  # at which texts are drawn, and their probabilities taken
    learning_rate: float  # at its highest
    warmup: float  # share of the steps in which the rate rises, before it falls as a cosine
    weight_decay: float
    clip: float  # ratios of new to old probabilities count within 1 - clip and 1 + clip
    max_norm: float  # gradients of larger norm are scaled to it
    save_steps: int  # between two checkpoints
    # Share of a step's questions whose groups learn to look back as well: half of such a group are first texts, the
    # other half answer what each of those came to, and the group's advantages are taken over both (published: half of
    # each batch, 20 steps from a trained Conductor).
    recursion: float
    first: float  # what rewards of first texts count there
    sieve: int  # questions looked at before, of which those are learned from whose texts differ; 0: all, unseen
    step_price: float  # of a right answer's reward, for every step behind the first; published: 0
    seed: int  # of questions, pools and texts
    # Texts are written by the engine and read in packed rows, what prompts have in common once; every text draws from a
    # seed of its own. False leaves both to TRL, which several processes and vLLM need.
    packed: bool
    options: Mapping[str, Any]  # of TRL's `GRPOConfig`, such as use_vllm

    def __post_init__(self) -> None:
        sizes = (self.questions, self.chunk, self.max_new_tokens, self.save_steps)
        if min(self.steps, self.sieve) < 0 or min(sizes) < 1 or self.rollouts < 2:
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
    """TRL's `GRPOConfig` for an engine's model and checkpoints in a folder; `settings.options` win.

    Raises:
        ValueError: if TRL is not installed, or the texts of a step do not part evenly into the processes there are.
    """
    try:
        from accelerate import PartialState  # noqa: PLC0415 - heavy
        from trl.trainer.grpo_config import GRPOConfig  # noqa: PLC0415 - heavy, and an extra
    except ImportError as error:
        raise ValueError(missing("trl", "training a Conductor", "conductor", error)) from error
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
    """`log softmax(z / T)` of the last `kept` tokens of texts, and entropies in nats, without gradients; 0 at padding.

    Prompts are padded to the left, what was written to the right. Texts are read in one packed row, what they have in
    common once; the numbers, and gradients, are those of each text alone.
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
