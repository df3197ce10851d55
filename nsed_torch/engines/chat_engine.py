"""What engines have in common whose model and tokenizer are here, whatever computes its tokens."""

from collections.abc import Callable, Sequence
from typing import Any

from nsed_torch.core.engine import (
    Engine,
    GenerateRequest,
    Generation,
    LikelihoodRequest,
    RateRequest,
    allowance,
    check_window,
    shrunk,
)
from nsed_torch.core.thoughts import unanswered
from nsed_torch.engines.chat import Chat, Turn
from nsed_torch.engines.packing.heard import Span

Fingerprint = str | Callable[[], str]


class ChatEngine(Engine):
    """Requests as token ids of a chat template, and written token ids as answers."""

    chat: Chat
    adapters: dict[str, Fingerprint]  # by name; what computes it for one that learns
    stop_ids: list[int]  # tokens that end a turn
    context_window: int
    _identity: dict[str, Any]  # of the backbone

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """The backbone's identity with the adapter's fingerprint, the chat template's and the window."""
        if adapter is not None:
            self.check_adapter(adapter)
        # One that learns is another adapter after every step: calls made before must not answer for it.
        fingerprint = self.adapters[adapter] if adapter else None
        return {
            **self._identity,
            "adapter": fingerprint() if callable(fingerprint) else fingerprint,
            "chat_template": self.chat.fingerprint,
            "context_window": self.context_window,
        }

    def check_adapter(self, name: str) -> None:
        """Refuse the name of an adapter that is not loaded."""
        if name not in self.adapters:
            known = ", ".join(sorted(self.adapters)) or "none"
            raise ValueError(f"expected a loaded adapter, got {name!r}: add it to the backbone's adapters ({known})")

    def count_tokens(self, text: str) -> int:
        """Length of a text in this model's tokens."""
        return len(self.chat.encode(text))

    def rating_prompts(self, request: RateRequest) -> list[list[int]]:
        """Token ids of the prompt of each candidate; one that exceeds the window is a ContextWindowError."""
        return [ids for ids, _ in self._rating_chats(request)]

    def _rating_chats(self, request: RateRequest) -> list[tuple[list[int], tuple[Span, ...]]]:
        texts = [self.chat.text(request.about(candidate)) for candidate in request.candidates]
        rows = [self.chat.heard(text, request.notes) for text in texts]
        longest = max((len(ids) for ids, _ in rows), default=0)
        check_window(longest, f"the rating prompt of agent {request.agent!r}", *self._window)
        return rows

    def _turns(self, request: LikelihoodRequest) -> list[Turn]:
        """Token ids of the chat with each text; one that exceeds the window is a ContextWindowError."""
        turns = self.chat.turns(request.messages, request.texts, request.notes)
        longest = max((len(turn.ids) for turn in turns), default=0)
        check_window(longest, f"an answer as agent {request.agent!r} would have given it", *self._window)
        return turns

    def _allowed(self, request: GenerateRequest, prompt: Sequence[int]) -> int:
        """Tokens that an answer may have; a prompt that leaves too few is a ContextWindowError."""
        return allowance(len(prompt), request.decoding.max_new_tokens, *self._window)

    def _answer(
        self, request: GenerateRequest, read: int, written: Sequence[int], allowed: int, seconds: float
    ) -> Generation:
        """An answer that has ended, without what ended it: a stop token, or the next turn of a plain template."""
        stopped = written[-1] in self.stop_ids
        text = self.chat.tokenizer.decode(written[: -1 if stopped else None], skip_special_tokens=True)
        cut = self.chat.stop is not None and self.chat.stop in text
        parted = self.chat.parted(text.split(self.chat.stop)[0] if cut else text)
        notes = shrunk(request.decoding.max_new_tokens, allowed)
        notes += unanswered(parted, allowed, cut=not (cut or stopped))
        counts, reason = (read, len(written)), "stop" if cut or stopped else "length"
        return Generation(parted.answer, *counts, reason, notes, seconds, written=tuple(written))

    @property
    def _window(self) -> tuple[int, str]:
        return self.context_window, self._identity.get("name", "the model")


def stop_tokens(configured: int | list[int] | None, tokenizer: Any) -> list[int]:
    """Tokens that end a turn: the tokenizer's end, and what a model's generation settings name."""
    ids = {tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])} - {None}
    if not ids:
        raise ValueError("expected a tokenizer with an end-of-sequence token, got none")
    return sorted(ids)
