"""A Hugging Face causal language model in this process, held once for all agents that use it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nsed_torch.agents.chat import Chat
from nsed_torch.agents.requests import (
    ContextWindowError,
    GenerateRequest,
    Generation,
    Message,
    RateRequest,
    Rating,
    RatingScale,
)
from nsed_torch.agents.sampling import RowSampler, RowStops

MIN_ANSWER = 16
"""Tokens of answer below which a prompt counts as too long, unless less was asked for."""

BASE = "__base__"
"""peft's name for rows that use no adapter."""


class TransformersEngine(nn.Module):
    """One backbone, its tokenizer and its LoRA adapters, answering whole batches.

    All requests of a call go down in one padded batch, whatever their adapters; every row samples from its own
    seed. Ratings are read from the logits over the scale's labels behind a prefix that is prefilled once a request.

    Args:
        model: a causal language model, or a `PeftModel` around one.
        tokenizer: its tokenizer.
        identity: what tells this backbone from another: name, revision, quantization, dtype.
        adapters: name -> fingerprint of every adapter the model has loaded, or what computes it for one that learns.
        chat_template: None for the tokenizer's own, "plain", or Jinja text.
        context_window: positions the model may use; None takes the model's own limit.
        max_batch: rows of one batch; callers split longer lists.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        identity: Mapping[str, Any],
        adapters: Mapping[str, str | Callable[[], str]] | None = None,
        chat_template: str | None = None,
        context_window: int | None = None,
        max_batch: int = 32,
    ) -> None:
        from transformers import GenerationConfig  # noqa: PLC0415 - heavy, and loaded with the model anyway

        super().__init__()
        self.model = model.eval()
        self.chat = Chat(tokenizer, chat_template)
        self.adapters = dict(adapters or {})
        limit = int(self.model.config.get_text_config().max_position_embeddings)
        self.context_window = min(context_window or limit, limit)
        self.max_batch = max_batch
        self._identity = dict(identity)
        self._labels: dict[tuple[str, ...], list[int]] = {}
        self._stop_ids = _stop_ids(self.model, tokenizer)
        # Only a request's decoding shapes its answer. What the model's authors set would act beside it, and a
        # repetition penalty of theirs would count the padding.
        self.model.generation_config = GenerationConfig(eos_token_id=self._stop_ids, pad_token_id=self._stop_ids[0])

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return torch.device(self.model.device)

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """The backbone's identity with the adapter's fingerprint, the chat template's and the window.

        Raises:
            ValueError: if the adapter is not loaded.
        """
        if adapter is not None and adapter not in self.adapters:
            known = ", ".join(sorted(self.adapters)) or "none"
            raise ValueError(f"expected a loaded adapter, got {adapter!r}: add it to the backbone's adapters ({known})")
        # One that learns is another adapter after every step: calls made before must not answer for it.
        fingerprint = self.adapters[adapter] if adapter else None
        return {
            **self._identity,
            "adapter": fingerprint() if callable(fingerprint) else fingerprint,
            "chat_template": self.chat.fingerprint,
            "context_window": self.context_window,
        }

    def count_tokens(self, text: str) -> int:
        """Length of a text in this model's tokens."""
        return len(self.chat.encode(text))

    def memory_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return int(self.model.get_memory_footprint())

    @torch.no_grad()
    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Answer all requests in one padded batch.

        Raises:
            ContextWindowError: if a prompt leaves fewer than 16 tokens (or the fewer asked for) for the answer.
        """
        if not requests:
            return []
        start = time.perf_counter()
        prompts = [self.chat.ids(r.messages) for r in requests]
        allowances = [
            self._allowance(len(p), r.decoding.max_new_tokens) for p, r in zip(prompts, requests, strict=True)
        ]
        ids, mask = pad(prompts, self._stop_ids[0], side="left")
        stopping = RowStops(allowances, ids.shape[1], self.chat)
        output = self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=max(allowances),
            do_sample=False,
            logits_processor=[RowSampler([r.decoding for r in requests], [r.seed for r in requests], ids.shape[1])],
            stopping_criteria=[stopping],
            **self._adapter_rows([r.adapter for r in requests]),
        )
        written = output[:, ids.shape[1] :].tolist()
        seconds = (time.perf_counter() - start) / len(requests)
        return [
            self._generation(request, len(prompt), row[:allowance], allowance, seconds)
            for request, prompt, row, allowance in zip(requests, prompts, written, allowances, strict=True)
        ]

    @torch.no_grad()
    def rate(self, requests: Sequence[RateRequest]) -> list[Rating]:
        """Rate all requests' candidates: expected value of the scale under the judge's own logits.

        Raises:
            ContextWindowError: if a prompt exceeds the window.
        """
        asked = [r for r in requests if r.candidates]
        if not asked:
            return [Rating(()) for _ in requests]
        start = time.perf_counter()
        logits, lengths = self.rating_logits(asked)
        seconds = (time.perf_counter() - start) / len(asked)
        results = iter(
            self._rating(request, rows, length, seconds)
            for request, rows, length in zip(
                asked, logits.split([len(r.candidates) for r in asked]), lengths, strict=True
            )
        )
        return [next(results) if r.candidates else Rating(()) for r in requests]

    def rating_logits(self, requests: Sequence[RateRequest]) -> tuple[Float[Tensor, "candidate token"], list[int]]:
        """Next-token logits behind every candidate of every request, and the tokens read for each request.

        Each request's longest common token prefix is prefilled once, its cache repeated for the candidates, and the
        rest of each prompt follows as a suffix. Differentiable: `rate` switches gradients off, this does not.
        """
        prompts = [[self.chat.ids(_with_candidate(r, c)) for c in r.candidates] for r in requests]
        for request, rows in zip(requests, prompts, strict=True):
            self._check_window(max(map(len, rows)), f"the rating prompt of agent {request.agent!r}")
        shared = [common_prefix(rows) for rows in prompts]
        owner = torch.tensor([i for i, rows in enumerate(prompts) for _ in rows])
        suffixes = [row[n:] for rows, n in zip(prompts, shared, strict=True) for row in rows]
        cache, prefix_mask = self._prefill([rows[0][:n] for rows, n in zip(prompts, shared, strict=True)], requests)
        cache.batch_select_indices(owner.to(self.device))
        ids, mask = pad(suffixes, self._stop_ids[0], side="right")
        last = mask.sum(dim=1) - 1
        steps, place = last.unique(return_inverse=True)
        output = self.model(
            input_ids=ids.to(self.device),
            attention_mask=torch.cat([prefix_mask[owner], mask], dim=1).to(self.device),
            position_ids=(torch.tensor(shared)[owner, None] + torch.arange(ids.shape[1])).to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=steps.to(self.device),
            **self._adapter_rows([requests[int(i)].adapter for i in owner]),
        )
        read = [n + sum(len(row) - n for row in rows) for rows, n in zip(prompts, shared, strict=True)]
        return output.logits[torch.arange(len(suffixes)), place.to(self.device)], read

    def expected_ratings(self, requests: Sequence[RateRequest]) -> Float[Tensor, "candidate"]:
        """Ratings of every candidate of every request, in order: `rate` for those who want gradients.

        Raises:
            ContextWindowError: if a prompt exceeds the window.
        """
        logits, _ = self.rating_logits(requests)
        rows = logits.split([len(r.candidates) for r in requests])
        return torch.cat([self._verdict(own, r.scale)[0] for own, r in zip(rows, requests, strict=True)])

    def _prefill(
        self, prefixes: list[list[int]], requests: Sequence[RateRequest]
    ) -> tuple[Any, Int[Tensor, "row length"]]:
        from transformers import DynamicCache  # noqa: PLC0415 - heavy, and loaded with the model anyway

        ids, mask = pad(prefixes, self._stop_ids[0], side="left")
        cache = DynamicCache(config=self.model.config.get_text_config())
        self.model(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0).to(self.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
            **self._adapter_rows([r.adapter for r in requests]),
        )
        return cache, mask

    def _rating(
        self, request: RateRequest, logits: Float[Tensor, "candidate token"], read: int, seconds: float
    ) -> Rating:
        values, coverage = self._verdict(logits, request.scale)
        return Rating(
            # A model that overflows has given no rating.
            values=tuple(None if math.isnan(v) else v for v in values.clamp(-1, 1).tolist()),
            coverage=tuple(coverage.nan_to_num().clamp(max=1).tolist()),
            prompt_tokens=read,
            seconds=seconds,
        )

    def _verdict(
        self, logits: Float[Tensor, "candidate token"], scale: RatingScale
    ) -> tuple[Float[Tensor, "candidate"], Float[Tensor, "candidate"]]:
        """Expected value of the scale under the labels' probabilities, and their share of the whole vocabulary's."""
        labels = self._labels.setdefault(scale.labels, [])
        if not labels:
            labels.extend(self.chat.label_ids(scale.labels))
        on_scale = logits.float()[:, labels]
        values = on_scale.softmax(dim=-1) @ torch.tensor(scale.values, device=logits.device)
        return values, (on_scale.logsumexp(dim=-1) - logits.float().logsumexp(dim=-1)).exp()

    def _generation(
        self, request: GenerateRequest, prompt_tokens: int, row: list[int], allowance: int, seconds: float
    ) -> Generation:
        body = list(takewhile(lambda token: token not in self._stop_ids, row))
        text = self.chat.tokenizer.decode(body, skip_special_tokens=True)
        cut = self.chat.stop is not None and self.chat.stop in text
        if cut:
            text = text.split(self.chat.stop)[0]
        asked = request.decoding.max_new_tokens
        shrunk = f"answer allowance shrunk from {asked} to {allowance} tokens to fit the window"
        return Generation(
            text=text.strip(),
            prompt_tokens=prompt_tokens,
            # A stop token counts; a row cut at a heading has none, only the padding of its batch.
            completion_tokens=len(body) if cut else min(len(body) + 1, len(row)),
            finish_reason="stop" if cut or len(body) < len(row) else "length",
            notes=(shrunk,) if allowance < asked else (),
            seconds=seconds,
        )

    def _allowance(self, prompt_tokens: int, asked: int) -> int:
        self._check_window(prompt_tokens + min(asked, MIN_ANSWER), f"a prompt of {prompt_tokens} tokens plus an answer")
        return min(asked, self.context_window - prompt_tokens)

    def _check_window(self, needed: int, what: str) -> None:
        if needed > self.context_window:
            raise ContextWindowError(
                f"{what} needs at least {needed} tokens, the window of {self._identity.get('name', 'the model')} "
                f"is {self.context_window}: shorten the question, lower memory_tokens or raise context_window"
            )

    def _adapter_rows(self, adapters: Sequence[str | None]) -> dict[str, Any]:
        return {"adapter_names": [a or BASE for a in adapters]} if self.adapters else {}


def pad(
    rows: Sequence[Sequence[int]], fill: int, *, side: str
) -> tuple[Int[Tensor, "row length"], Int[Tensor, "row length"]]:
    """Rectangular ids and their 0/1 mask, padded on the "left" or "right"."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), fill)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        where = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, where] = torch.tensor(row)
        mask[i, where] = 1
    return ids, mask


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Length of the longest prefix all rows share that leaves each at least one token."""
    shortest = min(map(len, rows)) - 1
    return next((i for i in range(shortest) if len({row[i] for row in rows}) > 1), shortest)


def _with_candidate(request: RateRequest, candidate: str) -> list[Message]:
    *before, last = request.messages
    return [*before, Message(last.role, last.content + candidate)]


def _stop_ids(model: Any, tokenizer: Any) -> list[int]:
    configured = model.generation_config.eos_token_id
    ids = {tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])} - {None}
    if not ids:
        raise ValueError("expected a tokenizer with an end-of-sequence token, got none")
    return sorted(ids)
