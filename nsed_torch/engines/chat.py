"""From chat messages to the token ids a model reads."""

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nsed_torch.core.engine import Message, Note
from nsed_torch.core.thoughts import MARKS, Parted, part_thoughts
from nsed_torch.engines.packing.heard import Span
from nsed_torch.records.ledger import common_prefix
from nsed_torch.records.lookalikes import broken, one_line, skeleton
from nsed_torch.records.rendering import BadTemplateError, rendered

PLAIN_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}### {{ message['role'] | capitalize }}:\n{{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant:\n{% endif %}"
)
"""For base models that bring no chat template."""

PLAIN_STOP = "\n###"
"""What a base model writes when it opens another turn of the plain template."""


_SET = {"chat_template", "tokenize", "add_generation_prompt", "continue_final_message", "messages", "conversation"}


class ChatTemplateError(ValueError):
    """A chat template that cannot be rendered."""


class Turn(NamedTuple):
    """A chat and what the assistant says next: all token ids, of which the first `start` are the chat's."""

    ids: list[int]
    start: int
    spans: tuple[Span, ...] = ()  # its notes that are heard in part


class Chat:
    """A tokenizer with its chat template: renders messages so that no text can pose as the template.

    The template is None for the tokenizer's own, "plain" for headed paragraphs, or Jinja text; `options` are what it
    asks for beside messages, as {enable_thinking: false}; `reasoning` are the two marks that a model's thoughts stand
    between, None for those that its tokens or its template have.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: str | None = None,
        options: Mapping[str, str | bool | int] | None = None,
        reasoning: Sequence[str] | None = None,
    ) -> None:
        self.tokenizer, self.options, self.reasoning = tokenizer, dict(options or {}), list(reasoning or ())
        if reasoning is not None and (isinstance(reasoning, str) or len({*self.reasoning} - {""}) != 2):
            raise ValueError(
                f"reasoning: expected what opens and what closes it, got {reasoning!r}: set ['<think>', '</think>']"
            )
        if taken := _SET & set(self.options):
            raise ValueError(
                f"template_options: expected what a template alone reads, got {min(taken)!r}: leave it out"
            )
        self.template = PLAIN_TEMPLATE if template == "plain" else template or tokenizer.chat_template
        if not self.template or not isinstance(self.template, str):
            found = "several" if self.template else "none"
            raise ValueError(f"expected a chat template, the tokenizer has {found}: set chat_template=plain")
        self.stop = PLAIN_STOP if self.template == PLAIN_TEMPLATE else None
        # Added tokens are matched anywhere in a text, so what models and users write must not spell those that steer.
        added = tokenizer.added_tokens_decoder.values()
        steering = {token.content for token in added if token.special or token.content in self.template}
        spelled = {*steering, *tokenizer.all_special_tokens, *([PLAIN_STOP] if self.stop else [])}
        # A space in front of one would undo the break; a tokenizer's normalizer may make one of what only looks alike.
        control = sorted({skeleton(token.strip())[0] for token in spelled})
        self.control = re.compile("|".join(re.escape(token) for token in control if len(token) > 1) or r"(?!)")
        self.takes_system = self._takes_system()
        # A broken template is found here, too, not in the midst of a run.
        spelled_out = {token.content for token in added}
        known = (pair for pair in MARKS if all(mark in spelled_out or mark in self.template for mark in pair))
        self._marks: tuple[str, ...] = tuple(self.reasoning) or next(known, ())
        self._opened = self.text([Message("user", "?")]).rstrip().endswith(self._marks[:1])
        self._labels: dict[tuple[str, ...], list[int]] = {}

    @property
    def fingerprint(self) -> str:
        """Hash of the template, its options and the marks of reasoning, for the keys of calls."""
        options = json.dumps(self.options, sort_keys=True) if self.options else ""
        options += json.dumps(self.reasoning) if self.reasoning else ""
        return hashlib.sha256((self.template + options).encode()).hexdigest()[:16]

    def text(self, messages: Sequence[Message]) -> str:
        """The rendered chat up to where the assistant speaks; a template that fails or does not end is a ValueError."""
        if not self.takes_system:
            messages = merge_system(messages)
        chat = [{"role": m.role, "content": self.neutralize(m.content)} for m in messages]
        if self.template == PLAIN_TEMPLATE:
            plain: str = self.tokenizer.apply_chat_template(
                chat, chat_template=self.template, tokenize=False, add_generation_prompt=True
            )
            return plain
        try:
            options = {**self.tokenizer.special_tokens_map, **self.options}
            return rendered("chat", template=self.template, messages=chat, options=options)
        except BadTemplateError as error:
            said = one_line(f"{error.kind}: {error}" if error.kind else error)
            raise ChatTemplateError(f"chat template: {said}: correct it or set chat_template=plain") from error

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the rendered chat."""
        return self.encode(self.text(messages))

    def ending(self, sentence: str) -> list[int]:
        """Token ids of a sentence that ends what a user says, and of all that the template puts behind it."""
        text = self.text([Message("user", f"?\n\n{sentence}")])
        if sentence not in text:
            raise ValueError(
                f"expected a sentence that the chat template leaves as it is, got {sentence!r}: choose another"
            )
        return self.encode(text[text.rindex(sentence) :])

    def heard(self, text: str, notes: Sequence[Note]) -> tuple[list[int], tuple[Span, ...]]:
        """Token ids of a rendered chat, and which of them are its notes: each from where it begins to the next one."""
        if not notes:
            return self.encode(text), ()
        if not self.tokenizer.is_fast:
            raise ValueError(
                "protocol.memory: expected a fast tokenizer, which knows where tokens stand: set it to shown"
            )
        shown = [self.neutralize(note.text) for note in notes]
        places = sorted((text.find(one), one, note.retention) for one, note in zip(shown, notes, strict=True))
        if places[0][0] < 0:
            raise ValueError(f"expected a chat that shows the note {one_line(places[0][1], 80)!r}: show it")
        ends = [*(start for start, _, _ in places[1:]), places[-1][0] + len(places[-1][1])]
        told = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        starts = [start for start, _ in told["offset_mapping"]]
        spans = [
            Span(bisect_left(starts, start), bisect_left(starts, end), retention)
            for (start, _, retention), end in zip(places, ends, strict=True)
        ]
        return list(told["input_ids"]), tuple(span for span in spans if span.stop > span.start)

    def turns(self, messages: Sequence[Message], texts: Sequence[str], notes: Sequence[Note] = ()) -> list[Turn]:
        """Token ids of the rendered chat with each text as the assistant's next words; its turn is left open.

        Where a tokenizer merges across the seam, a text begins with the first token that the bare chat lacks.
        """
        opening = self.text(messages)
        before = self.encode(opening)
        rows = [self.heard(opening + self.neutralize(text), notes) for text in texts]
        return [Turn(ids, common_prefix(before, ids), spans) for ids, spans in rows]

    def parted(self, text: str) -> Parted:
        """What a model thought, and what it said: nothing, where its thoughts did not end."""
        return part_thoughts(text, self._marks, opened=self._opened) if self._marks else Parted("", text.strip())

    def encode(self, text: str) -> list[int]:
        """Token ids of a text as it stands."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def neutralize(self, text: str) -> str:
        """Break every spelling of a control token by a space behind its first character."""
        return broken(self.control, text)

    def label_ids(self, labels: Sequence[str]) -> list[int]:
        """The one token each label is when the assistant opens its turn with it; more than one is a ValueError."""
        if (known := self._labels.get(tuple(labels))) is not None:
            return known
        opening = self.text([Message("user", "?")])
        before = self.encode(opening)
        ids: list[int] = []
        for label in labels:
            after = self.encode(opening + label)
            if after[:-1] != before:
                raise ValueError(
                    f"expected rating labels of one token each, {label!r} is {after[len(before) :]} for this model: "
                    "choose other labels"
                )
            ids.append(after[-1])
        self._labels[tuple(labels)] = ids
        return ids

    def _takes_system(self) -> bool:
        """Whether the template shows a system's text; one that shows no user's is a ValueError."""
        self.takes_system = True
        if "mark" not in self.text([Message("user", "mark")]):
            raise ValueError("chat template: expected one that shows what users say: set chat_template=plain")
        try:
            return "mark" in self.text([Message("system", "mark"), Message("user", "?")])
        except ChatTemplateError:
            return False


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system text in front of the first user message, for templates that know no system role."""
    if not messages or messages[0].role != "system":
        return list(messages)
    system, first, *rest = messages
    return [Message(first.role, f"{system.content}\n\n{first.content}"), *rest]
