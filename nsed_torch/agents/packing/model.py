"""A causal language model that reads packed tokens."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nsed_torch.agents.packing.attention import NAME, ForestPlan, Plan, Probe, StepPlan, packed_attention, unreadable
from nsed_torch.agents.packing.forest import Forest, Root, plant
from nsed_torch.agents.packing.lora import MixedLora
from nsed_torch.agents.packing.prefixes import PrefixCache
from nsed_torch.agents.packing.products import computing, exact_product, thin_products
from nsed_torch.agents.packing.slots import Slots


class PackedModel:
    """Reads tokens of any sequences and adapters in one row, without padding.

    The model is a causal language model or a `PeftModel` around one; other layers than softmax attention over all or
    the last tokens, and adapters other than plain LoRA, are a ValueError. Keys and values of up to `prefix_tokens` stay
    from call to call.
    """

    def __init__(self, model: Any, prefix_tokens: int) -> None:
        self.model = model
        self.base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.prefixes = PrefixCache(prefix_tokens)
        self._weights: tuple[tuple[int, int], ...] = ()
        self._users = 0
        self._closing = ExitStack()
        base, name = self.base, type(self.base).__name__
        kinds = set(getattr(base.config.get_text_config(), "layer_types", None) or ())
        kinds -= {"full_attention", "sliding_attention"}
        if kinds or base._is_stateful:
            raise unreadable(name, ", ".join(sorted(kinds)) or "a state of its own")
        if not (base._supports_attention_backend and base._can_set_attn_implementation()):
            raise unreadable(name, "an attention of its own")
        _register()
        probe = Probe()
        with torch.no_grad(), self.opened():
            self._forward(probe, [0], [0], [None], [0])
        if probe.layers != list(range(base.config.get_text_config().num_hidden_layers)):
            raise unreadable(name, f"other layers beside its attention in {probe.layers}")

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Ready to compute: adapters mixed, thin products the fast way round, prefixes of other weights gone.

        May be opened again while it is open, and closes when the last user is done. Only in between may it be asked
        for logits, and the wrapped model not be called otherwise; then that is as it was before.
        """
        if not self._users:
            self._open()
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._closing.close()

    def _open(self) -> None:
        weights = tuple((p.data_ptr(), p._version) for p in self.model.parameters())
        if weights != self._weights:
            self.prefixes.clear()
            self._weights = weights
        with ExitStack() as parts:
            self._lora = parts.enter_context(MixedLora(self.model).applied())
            parts.enter_context(thin_products(self.model))
            parts.callback(self.base.set_attn_implementation, self.base.config._attn_implementation)
            self.base.set_attn_implementation(NAME)
            # transformers passes a mask of four axes on as it is; the plan says who sees whom.
            self._mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.base.device)
            self._closing = parts.pop_all()

    def read(
        self,
        sequences: Sequence[Sequence[int]],
        adapters: Sequence[str | None],
        slots: Slots | None = None,
        rows: Sequence[int] = (),
    ) -> Float[Tensor, "sequence token"]:
        """Next-token logits behind every sequence.

        Common prefixes of sequences with the same adapter are read once, kept ones not at all. Differentiable with
        respect to weights that require gradients; then nothing kept is used. Keys and values of whole sequences are
        left in these rows of `slots`.
        """
        forest = plant(sequences, self._roots(sequences, adapters))
        return self._read(forest, forest.ends, slots, rows)

    def follow(
        self, sequences: Sequence[Sequence[int]], adapters: Sequence[str | None], starts: Sequence[int]
    ) -> tuple[Float[Tensor, "place token"], list[list[int]]]:
        """Next-token logits behind every token of sequences, from a start of each on; otherwise as `read`.

        Logits come once for tokens that sequences share, and for each sequence the rows that are its tokens'.
        """
        # What is kept has no logits, so it may reach no further than to the start.
        roots = self._roots([s[: start + 1] for s, start in zip(sequences, starts, strict=True)], adapters)
        forest = plant(sequences, roots)
        places = forest.places(starts)
        wanted = sorted({place for own in places for place in own})
        order = {place: row for row, place in enumerate(wanted)}
        return self._read(forest, wanted), [[order[place] for place in own] for own in places]

    def step(
        self, tokens: Sequence[int], positions: Sequence[int], adapters: Sequence[str | None], slots: Slots
    ) -> Float[Tensor, "row token"]:
        """Next-token logits of rows that each read one more token."""
        plan = StepPlan(slots, torch.tensor(positions, device=self.base.device))
        return self._forward(plan, tokens, positions, adapters, range(len(tokens)))

    @contextmanager
    def exact(self, tokens: Sequence[int]) -> Iterator[None]:
        """While open, logits are float32, and those of some tokens are not rounded to a model's half precision."""
        head = self.base.get_output_embeddings()
        head = getattr(head, "base_layer", head)
        half = type(head) is nn.Linear and head.weight.dtype in (torch.bfloat16, torch.float16)
        with computing([head] if half else [], partial(exact_product, tokens)):
            yield

    def _roots(self, sequences: Sequence[Sequence[int]], adapters: Sequence[str | None]) -> list[Root]:
        learning = torch.is_grad_enabled()
        return [Root(a) for a in adapters] if learning else self.prefixes.match(sequences, adapters)

    def _read(
        self, forest: Forest, ends: Sequence[int], slots: Slots | None = None, rows: Sequence[int] = ()
    ) -> Float[Tensor, "end token"]:
        try:
            kept = None if torch.is_grad_enabled() else self.prefixes.keep(forest)
            plan = ForestPlan(forest, self.prefixes, self.base.device, kept=kept, slots=slots, rows=rows)
            return self._forward(plan, forest.tokens, forest.positions, forest.adapters, ends)
        except BaseException:
            self.prefixes.clear()  # places may be taken that were never filled
            raise

    def _forward(
        self,
        plan: Plan,
        tokens: Sequence[int],
        positions: Sequence[int],
        adapters: Sequence[str | None],
        ends: Sequence[int],
    ) -> Float[Tensor, "end token"]:
        self._lora.select(adapters, ends)
        output = self.base(
            input_ids=self._row(tokens),
            position_ids=self._row(positions),
            attention_mask=self._mask,
            use_cache=False,
            logits_to_keep=self._row(ends)[0],
            nsed_plan=plan,
        )
        logits: Tensor = output.logits[0]
        return logits

    def _row(self, values: Sequence[int]) -> Int[Tensor, "1 token"]:
        return torch.tensor([list(values)], device=self.base.device)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - heavy
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
