"""A Hugging Face causal language model in this process, held once for all agents that use it."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core.engine import (
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Note,
    RateRequest,
    Ratings,
    Request,
)
from nsed_torch.engines.chat import Chat
from nsed_torch.engines.chat_engine import ChatEngine, Fingerprint, stop_tokens
from nsed_torch.engines.decode_loop import Draft, decode
from nsed_torch.engines.packing.forest import READER, grouped
from nsed_torch.engines.packing.heard import Span
from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.readout import likelihood, log_likelihoods, tokens_read, verdicts

EARLIER_TOKENS = 512
"""Tokens of an adapter's last answers that guesses are looked up in."""


class TransformersEngine(nn.Module, ChatEngine):
    """One backbone, its tokenizer and its LoRA adapters, answering whole batches.

    Requests of any adapters share batches without padding: common prefixes are read once, an answer that ends makes
    room for one that waits, and every answer samples from its own seed. Ratings are read from the logits over the
    scale's labels.

    Args:
        model: a causal language model, or a `PeftModel` around one.
        tokenizer: its tokenizer.
        identity: what tells this backbone from another: name, revision, quantization, dtype.
        adapters: name -> fingerprint of every adapter the model has loaded, or what computes it for one that learns.
        chat_template: None for the tokenizer's own, "plain" for base models, or Jinja text.
        template_options: what the template asks for beside messages, as {enable_thinking: false} of models that think.
        reasoning: marks that a model's thoughts stand between, as ["<think>", "</think>"]; they are no part of an
            answer, though they count as its tokens. None takes those that its tokenizer has.
        context_window: positions the model may use; None takes the model's own limit.
        max_batch: answers written at the same time.
        pass_tokens: prompt tokens read in one pass; a longer prompt is a pass of its own.
        prefix_tokens: prompt tokens whose keys and values may stay from call to call, for prompts that begin alike.
        lookup_tokens: tokens that a row guesses ahead, where its text repeats itself; they change no answer.

    Raises:
        ValueError: for a tokenizer without an end-of-sequence token, or a model with layers other than attention.
    """

    shares_prefixes = True
    weighs = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        identity: Mapping[str, Any],
        adapters: Mapping[str, Fingerprint] | None = None,
        chat_template: str | None = None,
        template_options: Mapping[str, str | bool | int] | None = None,
        reasoning: Sequence[str] | None = None,
        context_window: int | None = None,
        max_batch: int = 32,
        pass_tokens: int = 1024,
        prefix_tokens: int = 2048,
        lookup_tokens: int = 8,
    ) -> None:
        super().__init__()
        self._packed = PackedModel(model.eval(), prefix_tokens)
        self.model = model
        self.chat = Chat(tokenizer, chat_template, template_options, reasoning)
        self.adapters = dict(adapters or {})
        limit = int(self.model.config.get_text_config().max_position_embeddings)
        self.context_window = min(context_window or limit, limit)
        self.max_batch = max_batch
        self.pass_tokens = pass_tokens
        self.lookup_tokens = lookup_tokens
        self._identity = dict(identity)
        self._earlier: dict[str | None, list[int]] = {}  # what each adapter wrote last
        self._last: dict[str | None, int] = {}  # tokens of the last of these answers
        self.stop_ids = stop_tokens(self.model.generation_config.eos_token_id, tokenizer)

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return torch.device(self.model.device)

    def memory_bytes(self) -> int:
        """Bytes of parameters and buffers."""
        return int(self.model.get_memory_footprint())

    def forget(self) -> None:
        """Free what is kept from earlier calls: keys and values, and texts to guess from."""
        self._packed.forget()
        self._earlier.clear()
        self._last.clear()

    def readings(self, request: Request, result: Any) -> list[list[int]]:
        """The sequences of a finished call: prompt and answer, or every candidate's or text's own."""
        if isinstance(request, GenerateRequest):
            prompt = self._sequence(*self.chat.heard(self.chat.text(request.messages), request.notes), request)
            # Who read the prompt's end writes.
            mark = prompt[-1] // READER * READER
            return [[*prompt, *(token + mark for token in result.written)]]
        if isinstance(request, RateRequest):
            return self._rating_sequences(request)
        return [self._sequence(turn.ids, turn.spans, request) for turn in self._turns(request)]

    def _sequence(self, ids: Sequence[int], spans: Sequence[Span], request: Request) -> list[int]:
        """Readings of a prompt, with how its notes are heard."""
        return self._packed.readings(ids, request.adapter, spans, beside=request.beside)

    @torch.no_grad()
    def generations(self, requests: Sequence[GenerateRequest]) -> Iterator[dict[int, Generation]]:
        """Answer all requests and hand the answers out as they end, each under its request's index.

        Raises:
            ContextWindowError: if a prompt leaves fewer than 16 tokens (or the fewer asked for) for the answer.
        """
        for done in self.written(requests):
            yield {draft.index: self._generation(requests[draft.index], draft) for draft in done}

    @torch.no_grad()
    def written(self, requests: Sequence[GenerateRequest]) -> Iterator[list[Draft]]:
        """As `generations`, token by token: for those who learn from what they wrote."""
        drafts = [self._draft(i, request) for i, request in enumerate(requests)]
        with self._packed.opened() as model:
            for done in decode(
                model,
                drafts,
                max_rows=self.max_batch,
                pass_tokens=self.pass_tokens,
                lookup_tokens=self.lookup_tokens,
                ended=self._has_ended,
            ):
                for draft in done:
                    earlier = self._earlier.get(draft.adapter, [])
                    self._earlier[draft.adapter] = [*earlier, *draft.written][-EARLIER_TOKENS:]
                    self._last[draft.adapter] = min(len(draft.written), EARLIER_TOKENS)
                yield done

    @torch.no_grad()
    def ratings(self, requests: Sequence[RateRequest]) -> Iterator[dict[int, Ratings]]:
        """Rate all requests' candidates pass by pass, each rating under its request's index.

        A rating is the expected value of the scale under the judge's own logits.
        """
        yield from ({i: Ratings(())} for i, request in enumerate(requests) if not request.candidates)
        owners = [i for i, request in enumerate(requests) if request.candidates]
        prompts = {i: self._rating_sequences(requests[i]) for i in owners}
        read = {i: tokens_read(rows) for i, rows in prompts.items()}
        firsts = [prompts[i][0] for i in owners]
        for few in grouped(firsts, self.pass_tokens, list(read.values())):
            start = time.perf_counter()
            mine = [owners[k] for k in few]
            logits = self._read([prompts[i] for i in mine], [requests[i] for i in mine])
            seconds = (time.perf_counter() - start) / len(mine)
            yield {
                i: self.rating_from(requests[i], rows, sum(map(len, prompts[i])), seconds)
                for i, rows in zip(mine, logits, strict=True)
            }

    @torch.no_grad()
    def likelihoods(self, requests: Sequence[LikelihoodRequest]) -> Iterator[dict[int, Likelihood]]:
        """Read all requests' texts pass by pass; a request is done, under its index, with the last of its texts."""
        turns = [self._turns(request) for request in requests]
        yield from ({i: Likelihood(())} for i, texts in enumerate(turns) if not texts)
        # Text by text: a pass has logits at every token of its texts, so it should be small though a request is large.
        places = [(i, k) for i, texts in enumerate(turns) for k in range(len(texts))]
        sequences = [self._sequence(turns[i][k].ids, turns[i][k].spans, requests[i]) for i, k in places]
        found: list[dict[int, float]] = [{} for _ in requests]
        seconds = [0.0] * len(requests)
        for few in grouped(sequences, self.pass_tokens):
            start = time.perf_counter()
            mine = [turns[i][k] for i, k in (places[n] for n in few)]
            with self._packed.opened() as model:
                logits, rows = model.follow([sequences[n] for n in few], [t.start - 1 for t in mine])
            logs = log_likelihoods(logits, rows, mine, self.stop_ids).tolist()
            share = (time.perf_counter() - start) / len(few)
            done = {}
            for n, log in zip(few, logs, strict=True):
                i, k = places[n]
                found[i][k] = log
                seconds[i] += share
                if len(found[i]) == len(turns[i]):
                    read = sum(len(turn.ids) for turn in turns[i])
                    lengths = tuple(len(turn.ids) - turn.start + 1 for turn in turns[i])
                    measured = likelihood([found[i][k] for k in sorted(found[i])], read, seconds[i])
                    done[i] = replace(measured, lengths=lengths)
            if done:
                yield done

    def invoked(self, ids: Sequence[int], adapter: str) -> bool:
        """Whether an adapter reads the last of some tokens: a plain one does, an activated one from its invocation."""
        return self._packed.readings(ids, adapter)[-1] >= READER

    def follow(
        self, sequences: Sequence[Sequence[int]], adapters: Sequence[str | None], starts: Sequence[int]
    ) -> tuple[Float[Tensor, "place token"], list[list[int]]]:
        """Next-token logits behind every token of sequences, as `PackedModel.follow`; differentiable."""
        with self._packed.opened() as model:
            return model.follow([model.readings(*one) for one in zip(sequences, adapters, strict=True)], starts)

    def log_likelihoods(
        self, requests: Sequence[LikelihoodRequest], retention: Sequence[Float[Tensor, " note"]] = ()
    ) -> list[Float[Tensor, " text"]]:
        """Mean log-probabilities of the tokens of every request's texts: `measure` with gradients, in one pass.

        Args:
            requests: chats with texts.
            retention: of each request's notes, in their order, in place of what they say; gradients reach it.
        """
        self._packed.make_room()
        with self._packed.opened() as model:
            sequences, turns = [], []
            for i, request in enumerate(requests):
                notes = request.notes
                if retention:
                    notes = tuple(Note(n.text, r) for n, r in zip(notes, retention[i].unbind(), strict=True))  # type: ignore[arg-type]
                own = self._turns(replace(request, notes=notes))
                sequences += [self._sequence(turn.ids, turn.spans, request) for turn in own]
                turns.append(own)
            flat = [turn for own in turns for turn in own]
            logits, rows = model.follow(sequences, [turn.start - 1 for turn in flat])
        return list(log_likelihoods(logits, rows, flat, self.stop_ids).split([len(own) for own in turns]))

    def expected_ratings(self, requests: Sequence[RateRequest]) -> Float[Tensor, "candidate"]:
        """Ratings of every candidate of every request, in order: `rate` with gradients."""
        logits = self._read([self._rating_sequences(request) for request in requests], requests)
        scales = [(request.scale, self.chat.label_ids(request.scale.labels)) for request in requests]
        return torch.cat([verdicts(rows, *scale)[0] for rows, scale in zip(logits, scales, strict=True)])

    def _read(
        self, prompts: Sequence[list[list[int]]], requests: Sequence[RateRequest]
    ) -> list[Float[Tensor, "candidate token"]]:
        """Logits behind every prompt of every request, in one pass; those of the scales' labels are exact."""
        labels = {label for request in requests for label in self.chat.label_ids(request.scale.labels)}
        with self._packed.opened() as model, model.exact(sorted(labels)):
            return list(model.read([row for own in prompts for row in own]).split([len(own) for own in prompts]))

    def _rating_sequences(self, request: RateRequest) -> list[list[int]]:
        return [self._sequence(*heard, request) for heard in self._rating_chats(request)]

    def rating_from(
        self, request: RateRequest, logits: Float[Tensor, "candidate token"], read: int, seconds: float
    ) -> Ratings:
        """The rating that next-token logits behind each candidate's prompt stand for, with the tokens of these."""
        values, coverage = verdicts(logits, request.scale, self.chat.label_ids(request.scale.labels))
        return Ratings(
            # A model that overflows has given no rating.
            values=tuple(None if math.isnan(v) else v for v in values.clamp(-1, 1).tolist()),
            coverage=tuple(coverage.nan_to_num().clamp(max=1).tolist()),
            prompt_tokens=read,
            seconds=seconds,
        )

    def _draft(self, index: int, request: GenerateRequest) -> Draft:
        prompt, spans = self.chat.heard(self.chat.text(request.messages), request.notes)
        allowed, earlier = self._allowed(request, prompt), self._earlier.get(request.adapter, ())
        last = self._last.get(request.adapter, 0)
        draft = Draft(index, prompt, request.adapter, request.decoding, request.seed, allowed, earlier, last)
        draft.spans, draft.beside = spans, request.beside
        return draft

    def _generation(self, request: GenerateRequest, draft: Draft) -> Generation:
        return self._answer(request, len(draft.prompt), draft.written, draft.allowance, draft.seconds)

    def _has_ended(self, draft: Draft) -> bool:
        """At a stop token, at the allowance, or where a plain-template model opens a turn."""
        if draft.written[-1] in self.stop_ids or len(draft.written) >= draft.allowance:
            return True
        return self.chat.stop is not None and self.chat.stop in self.chat.tokenizer.decode(draft.written[-8:])
