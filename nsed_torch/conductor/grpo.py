"""TRL's GRPO on an engine: the engine writes the texts and reads them packed, TRL does everything else.

What TRL 1.16 makes of a reward that is None: it counts neither for its group's mean nor for its standard deviation, and
its advantage is 0. Its text still counts where the loss is averaged over texts, so that a masked text shrinks a step as
one without signal does. A group's deviation is that of a sample (n - 1), and 1e-4 is added to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nsed_torch.agents import TransformersEngine
from nsed_torch.agents.decode_loop import Draft
from nsed_torch.agents.readings import CHUNK


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
    found, entropies = (pad_sequence(parts, batch_first=True)[:-1] for parts in whole)
    return found, entropies


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
    told: Callable[[int, Mapping[str, Any]], None],
    write: Callable[[int], list[Draft]] | None,
    tokenizer: Any,
) -> Any:
    """TRL's trainer of an engine's adapter.

    Args:
        engine: holds the model.
        adapter: the one that learns; active, and with gradients.
        arguments: as `trl_arguments`.
        rows: prompts as chats, and whatever the reward wants to know of them, in the order of the training.
        reward: as TRL calls it, once a step.
        told: hears the numbers of every step.
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

    class Told(TrainerCallback):  # type: ignore[misc]
        """Hands the trainer's numbers on."""

        def on_log(self, _: Any, state: Any, __: Any, **numbers: Any) -> None:
            if "loss" in numbers["logs"] and state.is_world_process_zero:
                told(state.global_step, numbers["logs"])

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
        callbacks=[Told()],
        rollout_func=None if write is None else draw,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
