"""The same weights the way a loop over agents uses them: one model call per answer, one per rating."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    RateRequest,
    Ratings,
)
from nsed_torch.engines.packing.products import computing
from nsed_torch.engines.readout import likelihood, log_likelihoods
from nsed_torch.engines.transformers_engine import TransformersEngine


class PlainEngine(Engine):
    """An engine without any batching, packing or reuse, around the weights of one that has it; LoRA is peft's."""

    max_batch = 1

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine = engine

    def identity(self, adapter: str | None) -> Mapping[str, Any]:
        """The engine's, and that it is used plainly."""
        return {**self.engine.identity(adapter), "scheduling": "plain"}

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens."""
        return self.engine.count_tokens(text)

    def memory_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return self.engine.memory_bytes()

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """Answer requests one after the other, each by transformers' `generate`."""
        answers = []
        for request in requests:
            start = time.perf_counter()
            read = len(self.engine.chat.ids(request.messages))
            (written,) = write_together(self.engine, [request])
            text = self.engine.chat.tokenizer.decode(written, skip_special_tokens=True).strip()
            answers.append(Generation(text, read, len(written), seconds=time.perf_counter() - start))
        return answers

    @torch.no_grad()
    def rate(self, requests: Sequence[RateRequest]) -> list[Ratings]:
        """Rate candidates one after the other, each by a forward pass over its whole prompt."""
        ratings, model = [], self.engine.model
        for request in requests:
            start = time.perf_counter()
            prompts = self.engine.rating_prompts(request)
            with speaking(model, request.adapter):
                logits = torch.cat([model(input_ids=self._row(ids), logits_to_keep=1).logits[0] for ids in prompts])
            taken = time.perf_counter() - start
            ratings.append(self.engine.rating_from(request, logits, sum(map(len, prompts)), taken))
        return ratings

    @torch.no_grad()
    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Measure texts one after the other, each by a forward pass over its whole chat."""
        measured, model = [], self.engine.model
        for request in requests:
            start, logs = time.perf_counter(), []
            turns = self.engine.chat.turns(request.messages, request.texts)
            with speaking(model, request.adapter):
                for turn in turns:
                    places = len(turn.ids) - turn.start + 1
                    logits = model(input_ids=self._row(turn.ids), logits_to_keep=places).logits[0]
                    logs += log_likelihoods(logits, [range(places)], [turn], self.engine.stop_ids).tolist()
            taken = time.perf_counter() - start
            measured.append(likelihood(logs, sum(len(turn.ids) for turn in turns), taken))
        return measured

    def _row(self, ids: Sequence[int]) -> Int[Tensor, "1 token"]:
        return torch.tensor([list(ids)], device=self.engine.device)


def write_together(engine: TransformersEngine, requests: Sequence[GenerateRequest]) -> list[list[int]]:
    """Tokens of some requests' answers by one call of transformers' `generate`; they share adapter and decoding."""
    with speaking(engine.model, requests[0].adapter):
        return _written(engine, requests)


def write_mixed(engine: TransformersEngine, requests: Sequence[GenerateRequest]) -> list[list[int]]:
    """As `write_together`, with an adapter a request: peft's mixed batch, which computes each adapter's rows apart."""
    names = [request.adapter or "__base__" for request in requests]
    return _written(engine, requests, adapter_names=names)


def _written(engine: TransformersEngine, requests: Sequence[GenerateRequest], **options: Any) -> list[list[int]]:
    from transformers import GenerationConfig  # noqa: PLC0415 - heavy

    decoding = requests[0].decoding
    draws = {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": 0} if decoding.temperature else {}
    ids, mask = left_padded([engine.chat.ids(request.messages) for request in requests])
    # What a call leaves open, transformers takes from the model's own settings: its stop tokens above all.
    authors, engine.model.generation_config = engine.model.generation_config, GenerationConfig()
    try:
        output = engine.model.generate(
            input_ids=ids.to(engine.device),
            attention_mask=mask.to(engine.device),
            max_new_tokens=decoding.max_new_tokens,
            do_sample=bool(decoding.temperature),
            eos_token_id=engine.stop_ids or None,
            pad_token_id=0,
            **draws,
            **options,
        )
    finally:
        engine.model.generation_config = authors
    rows: list[list[int]] = output[:, ids.shape[1] :].tolist()
    return rows


@torch.no_grad()
def decode_bare(engine: TransformersEngine, requests: Sequence[GenerateRequest]) -> None:
    """The bare loop: the base model at the same batch, likeliest tokens, transformers' cache, nothing else.

    Prompts are padded on the left and read in one pass; LoRA layers stand aside.
    """
    from transformers import DynamicCache  # noqa: PLC0415 - heavy

    model = engine.model.get_base_model() if hasattr(engine.model, "get_base_model") else engine.model
    ids, mask = (t.to(engine.device) for t in left_padded([engine.chat.ids(r.messages) for r in requests]))
    cache = DynamicCache(config=model.config.get_text_config())
    lora = [module for module in model.modules() if hasattr(module, "lora_A")]
    with computing(lora, lambda layer, x: layer.base_layer(x)):
        for _ in range(requests[0].decoding.max_new_tokens):
            positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            logits = model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            ).logits
            ids = logits[:, -1].argmax(dim=-1, keepdim=True)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "row length"], Int[Tensor, "row length"]]:
    """Rectangular ids and their 0/1 mask."""
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@contextmanager
def speaking(model: Any, adapter: str | None) -> Iterator[None]:
    """While open, the whole model uses one adapter, or none, as peft switches it."""
    if not hasattr(model, "peft_config"):
        yield
        return
    learns = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        if adapter is None:
            with model.disable_adapter():
                yield
        else:
            model.set_adapter(adapter)
            yield
    finally:
        # peft decides anew what learns whenever it switches.
        for parameter, flag in learns:
            parameter.requires_grad_(flag)
