"""A causal language model that reads packed tokens."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import chain
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nsed_torch.engines.packing.attention import NAME, ForestPlan, Plan, Probe, StepPlan, packed_attention, unreadable
from nsed_torch.engines.packing.forest import NOTE, READER, Forest, Kept, Link, plant, reader_of
from nsed_torch.engines.packing.heard import Span, Tags, positions
from nsed_torch.engines.packing.lora import MixedLora, Stacks
from nsed_torch.engines.packing.prefixes import PrefixCache
from nsed_torch.engines.packing.products import computing, exact_product, thin_products
from nsed_torch.engines.packing.slots import Slots


class PackedModel:
    """Reads tokens of any sequences and adapters in one row, without padding.

    The model is a causal language model or a `PeftModel` around one; other layers than softmax attention over all or
    the last tokens, and adapters other than plain and activated LoRA, are a ValueError. Sequences are `readings`. Keys
    and values of up to `prefix_tokens` stay from call to call.
    """

    def __init__(self, model: Any, prefix_tokens: int) -> None:
        self.model = model
        self.base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.prefixes = PrefixCache(prefix_tokens)
        self._readers: list[str | None] = [None]
        self._weights: dict[str | None, list[tuple[int, int]]] = {}
        self._stacks: Stacks = {}
        self._tags = Tags()
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
            self._forward(probe, [0], [0], [0])
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

    def forget(self) -> None:
        """Free what is kept from earlier calls."""
        self.prefixes.clear()
        self._tags.clear()

    def make_room(self) -> None:
        """Forget all where notes were heard in so many ways that tags run short and nobody is using them."""
        if self._tags.crowded and not self._users:
            self.forget()

    def _open(self) -> None:
        self._tags.clear_live()
        weights = self._versions()
        if weights != self._weights:
            self._lora = MixedLora(self.model, self._stacks)  # moves adapters once, ahead of a look at where they are
            weights = self._versions()
        if weights[None] != self._weights.get(None):
            self.prefixes.clear()
        for reader, adapter in enumerate(self._readers):
            if adapter and weights.get(adapter) != self._weights.get(adapter):
                self.prefixes.forget(reader)
        self._weights = weights
        with ExitStack() as parts:
            parts.enter_context(self._lora.applied())
            parts.enter_context(thin_products(self.model))
            parts.callback(self.base.set_attn_implementation, self.base.config._attn_implementation)
            self.base.set_attn_implementation(NAME)
            # transformers passes a mask of four axes on as it is; the plan says who sees whom.
            self._mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.base.device)
            self._closing = parts.pop_all()

    def readings(
        self, tokens: Sequence[int], adapter: str | None, notes: Sequence[Span] = (), *, beside: bool = False
    ) -> list[int]:
        """A sequence's tokens, each with who reads it: the adapter, or the bare model; and with how `notes` are heard.

        Notes side by side see what stands before the first, and themselves, from the same position on; what stands
        behind sees all.
        An activated adapter (aLoRA, Greenewald et al. 2025, arXiv 2504.12397) reads from the last place where its
        invocation tokens stand; what lies before is the bare model's, and so is all of a sequence without them.
        """
        if notes:
            return self._tags.mark(self.readings(tokens, adapter), notes, beside)
        if adapter is None:
            return list(tokens)
        if adapter not in self._readers:
            self._readers.append(adapter)
        mark, start = self._readers.index(adapter) * READER, 0
        config = getattr(self.base, "peft_config", {}).get(adapter)
        if invocation := list(getattr(config, "alora_invocation_tokens", None) or ()):
            start = last_place(tokens, invocation)
        return [*tokens[:start], *(token + mark for token in tokens[start:])]

    def read(
        self, sequences: Sequence[Sequence[int]], slots: Slots | None = None, rows: Sequence[int] = ()
    ) -> Float[Tensor, "sequence token"]:
        """Next-token logits behind every sequence.

        What sequences have in common is read once, what is kept not at all. Differentiable with respect to weights that
        require gradients; then nothing is used that they have a part in. Keys and values of whole sequences are left in
        these rows of `slots`.
        """
        forest = self._plant(sequences, sequences)
        return self._read(forest, forest.ends, slots, rows)

    def follow(
        self, sequences: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> tuple[Float[Tensor, "place token"], list[list[int]]]:
        """Next-token logits behind every token of sequences, from a start of each on; otherwise as `read`.

        Logits come once for tokens that sequences share, and for each sequence the rows that are its tokens'.
        """
        # What is kept has no logits, so it may reach no further than to the start.
        forest = self._plant(sequences, [s[: start + 1] for s, start in zip(sequences, starts, strict=True)])
        places = forest.places(starts)
        wanted = sorted({place for own in places for place in own})
        order = {place: row for row, place in enumerate(wanted)}
        return self._read(forest, wanted), [[order[place] for place in own] for own in places]

    def step(
        self,
        readings: Sequence[Sequence[int]],
        positions: Sequence[int],
        slots: Slots,
        prompts: Sequence[Sequence[int]] = (),
    ) -> Float[Tensor, "place token"]:
        """Next-token logits behind every token of rows that each read some more, from a place on.

        `prompts` are the sequences that the rows began with, where notes of them are heard in part.
        """
        counts = [len(row) for row in readings]
        heard = [self._tags.heard(prompt, self.base.device) for prompt in prompts]
        plan = StepPlan(slots, positions, counts, self.base.device, heard)
        shifts = [self._shift(prompt) for prompt in prompts] or [0] * len(counts)
        firsts = [place - shift for place, shift in zip(positions, shifts, strict=True)]
        places = [first + i for first, count in zip(firsts, counts, strict=True) for i in range(count)]
        return self._forward(plan, list(chain.from_iterable(readings)), places, range(len(places)))

    @contextmanager
    def exact(self, tokens: Sequence[int]) -> Iterator[None]:
        """While open, logits are float32, and those of some tokens are not rounded to a model's half precision."""
        head = self.base.get_output_embeddings()
        head = getattr(head, "base_layer", head)
        half = type(head) is nn.Linear and head.weight.dtype in (torch.bfloat16, torch.float16)
        with computing([head] if half else [], partial(exact_product, tokens)):
            yield

    def _plant(self, sequences: Sequence[Sequence[int]], beginnings: Sequence[Sequence[int]]) -> Forest:
        """The layout of a pass; of kept tokens only what lies within the beginnings is not read again."""
        if all(max(sequence, default=0) < NOTE for sequence in sequences):
            return plant(sequences, self._kept(beginnings))
        links = [self._tags.links(sequence) for sequence in sequences]
        told = [positions(sequence, self._tags) for sequence in sequences]
        return plant(sequences, self._kept(beginnings, links), told, links)

    def _shift(self, prompt: Sequence[int]) -> int:
        """By how much the positions behind a prompt lie below its places."""
        return len(prompt) - 1 - positions(prompt, self._tags)[-1]

    def _kept(
        self, sequences: Sequence[Sequence[int]], links: Sequence[Sequence[Link] | None] | None = None
    ) -> list[Kept]:
        """What sequences begin with that is kept; where weights learn, only what none of them has a part in."""
        if not torch.is_grad_enabled():
            return self.prefixes.match(sequences, links)
        if any(p.requires_grad and owner(name) is None for name, p in self.model.named_parameters()):
            return [()] * len(sequences)
        learning = {owner(name) for name, p in self.model.named_parameters() if p.requires_grad}
        told = links or [None] * len(sequences)
        frozen = [self._frozen(s, own, learning) for s, own in zip(sequences, told, strict=True)]
        begun = [s[:n] for s, n in zip(sequences, frozen, strict=True) if n]
        if begun and self.prefixes.capacity:
            with torch.no_grad():
                self.read(begun)
        return self.prefixes.match([s[: n + 1] for s, n in zip(sequences, frozen, strict=True)], links)

    def _frozen(self, sequence: Sequence[int], links: Sequence[Link] | None, learning: Collection[str | None]) -> int:
        """How many tokens a sequence begins with that nothing which learns has a part in."""
        readers = {i for i, name in enumerate(self._readers) if name in learning}
        most = len(sequence) if links is None else len(links)
        return next(
            (
                i
                for i, reading in enumerate(sequence[:most])
                if reader_of(reading) in readers or (links is None and self._tags.learns(reading))
            ),
            most,
        )

    def _versions(self) -> dict[str | None, list[tuple[int, int]]]:
        """By adapter, None for the bare model, what changes when its weights do."""
        versions: dict[str | None, list[tuple[int, int]]] = {None: []}
        for name, parameter in self.model.named_parameters():
            versions.setdefault(owner(name), []).append((parameter.data_ptr(), parameter._version))
        return versions

    def _read(
        self, forest: Forest, ends: Sequence[int], slots: Slots | None = None, rows: Sequence[int] = ()
    ) -> Float[Tensor, "end token"]:
        try:
            kept = None if torch.is_grad_enabled() else self.prefixes.keep(forest)
            plan = ForestPlan(
                forest, self.prefixes, self.base.device, kept=kept, slots=slots, rows=rows, tags=self._tags
            )
            return self._forward(plan, forest.readings, forest.positions, ends)
        except BaseException:
            self.prefixes.clear()  # places may be taken that were never filled
            raise

    def _forward(
        self, plan: Plan, readings: Sequence[int], positions: Sequence[int], ends: Sequence[int]
    ) -> Float[Tensor, "end token"]:
        readers, tokens = zip(*(divmod(reading % NOTE, READER) for reading in readings), strict=True)
        self._lora.select([self._readers[reader] for reader in readers], ends)
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


@cache
def owner(parameter: str) -> str | None:
    """The LoRA adapter that a parameter belongs to, by its name; None for the bare model's."""
    found = re.search(r"\.lora_\w+\.([^.]+)", parameter)
    return found[1] if found else None


def last_place(tokens: Sequence[int], part: Sequence[int]) -> int:
    """Where a part begins in tokens for the last time; behind all of them where it does not."""
    width = len(part)
    found = (i for i in range(len(tokens) - width, -1, -1) if list(tokens[i : i + width]) == list(part))
    return next(found, len(tokens))


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - heavy
    from transformers.masking_utils import sdpa_mask  # noqa: PLC0415

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
