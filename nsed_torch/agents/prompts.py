"""Prompts: Jinja2 templates, one file each, rendered in a sandbox with every model's text behind a fence."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsed_torch.agents.requests import Message

if TYPE_CHECKING:
    from jinja2 import Environment

FENCE = re.compile(r"<\s*/?\s*text\s*-\s*[0-9a-f]+\s*>", re.IGNORECASE)
"""Anything that looks like a fence, ours or forged."""

CUT_FENCE = re.compile(r"</?text(-[0-9a-f]*)?$", re.IGNORECASE)
"""A fence that an answer's end cut off."""

SCORE = re.compile(r"^[^\w\n]*score[ \t*_\"]*:(.*)$", re.IGNORECASE | re.MULTILINE)
"""The line a critique must end with."""

NUMBER = re.compile(r"[\s*_\"]*([+-]?[0-9]{1,3})[\s*_.\"]*")
"""What that line says. Signs that only look like a minus, fractions and ranges are no number."""

STYLES = {
    "short": "Answer in one or two short sentences.",
    "direct": "Give the answer alone.",
    "worked": "Work through it briefly, then answer in the form that the question asks for.",
}
"""What `{{ style }}` says in a template: how to answer. The last is for mathematics and programs."""


def nonce(seed: int) -> str:
    """Eight hexadecimal digits drawn from a call's seed; whoever wrote a text cannot know them."""
    return hashlib.blake2b(str(seed).encode(), digest_size=4).hexdigest()


def fence(text: str, mark: str) -> str:
    """Enclose a model-written text in marks it cannot forge; look-alikes inside it are blotted out."""
    return f"<text-{mark}>\n{FENCE.sub('[mark]', text).strip()}\n</text-{mark}>"


def unfence(text: str) -> str:
    """A model's text without the marks it copied from its prompt."""
    return re.sub(r"\n{3,}", "\n\n", CUT_FENCE.sub("", FENCE.sub("", text))).strip()


def label(index: int) -> str:
    """Candidate_A, Candidate_B, ..., Candidate_Z, Candidate_AA, ..."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        name = chr(65 + letter) + name
    return f"Candidate_{name}"


def parse_score(text: str) -> float | None:
    """The rating in a critique: the number of its last "Score:" line over 100; None unless in [-100, 100]."""
    lines = SCORE.findall(text)
    number = NUMBER.fullmatch(lines[-1]) if lines else None
    return int(number[1]) / 100 if number and -100 <= int(number[1]) <= 100 else None


class Prompts:
    """The templates `propose`, `rate`, `critique`, `pattern`, `step`, `conduct`, and whatever a folder adds.

    Each has a `system` and a `user` block, those of judges a `candidate` block that ends the user's text, `step` a
    `turn` for each later turn and a `whole` for all of them in one text. Templates see plain strings, `fence(text)` and
    `style`, the sentence on how to answer; a name they misspell is an error.

    Args:
        folder: where to look for `<name>.jinja` before the package's own; None for those alone.
        style: which of `STYLES` proposals are asked for.

    Raises:
        ValueError: if there is no such folder or style; later, if a template cannot be rendered.
    """

    def __init__(self, folder: str | Path | None = None, style: str = "short") -> None:
        if style not in STYLES:
            raise ValueError(f"expected a style out of {', '.join(STYLES)}, got {style!r}: choose one of them")
        self.style = style
        own = Path(__file__).parent / "templates"
        self.folders = [Path(folder).expanduser(), own] if folder else [own]
        if not self.folders[0].is_dir():
            raise ValueError(f"expected a folder of prompt templates, got {folder}: create it or correct the path")

    def propose(
        self, question: str, *, memory: Sequence[str], critiques: Sequence[str], persona: str, seed: int
    ) -> tuple[Message, ...]:
        """The chat that asks for a proposal.

        Args:
            question: the task's.
            memory: texts of the slots that are shown, strongest first.
            critiques: what others wrote about this agent's last proposal.
            persona: what the agent is told about itself.
            seed: the call's; fences are drawn from it.
        """
        render = partial(
            self._render,
            "propose",
            seed,
            question=question,
            memory=memory,
            critiques=critiques,
            persona=persona,
        )
        return Message("system", render("system")), Message("user", render("user"))

    def step(
        self, question: str, subtask: str, *, history: Sequence[tuple[str, str]], persona: str, seed: int
    ) -> tuple[Message, ...]:
        """The chat that asks a worker for a step of a workflow; user and assistant alternate, and the user ends it.

        Replies stand as the assistant's turns. What encloses them is the chat template, whose tokens no text can spell
        (`Chat.neutralize`), so they need no fence.

        Args:
            question: the task's.
            subtask: what this step is about; "" for the question itself.
            history: earlier subtasks, "" likewise, each with the reply to it, in order.
            persona: what the agent is told about itself.
            seed: the call's; fences are drawn from it.
        """
        render = partial(self._render, "step", seed, question=question, persona=persona)
        messages = [Message("system", render("system"))]
        for i, asked in enumerate([*(earlier for earlier, _ in history), subtask]):
            text = render("turn" if i else "user", subtask=asked, last=i == len(history))
            messages.append(Message("user", text))
            messages += [Message("assistant", reply) for _, reply in history[i : i + 1]]
        return tuple(messages)

    def step_in_one(self, question: str, subtask: str, *, history: Sequence[tuple[str, str]], seed: int) -> str:
        """What `step` asks, as one text: the question that a deliberation is given.

        Args:
            question: the task's.
            subtask: as in `step`.
            history: as in `step`; here the replies are fenced.
            seed: fences are drawn from it.
        """
        return self._render("step", seed, "whole", question=question, subtask=subtask, history=history)

    def conduct(
        self, question: str, *, workers: Sequence[str], max_steps: int, previous: str | None, seed: int
    ) -> tuple[Message, ...]:
        """The chat that asks a Conductor for a workflow. Its rules and examples come first, alike for all questions.

        Args:
            question: the task's.
            workers: what each model is good at, "" where nothing is known; places are their numbers, names stay away.
            max_steps: the most steps.
            previous: with recursion, the answer so far; None for a first workflow.
            seed: the call's; fences are drawn from it.
        """
        render = partial(
            self._render,
            "conduct",
            seed,
            question=question,
            workers=[" ".join(text.split()) for text in workers],
            max_steps=max_steps,
            previous=previous,
        )
        return Message("system", render("system")), Message("user", render("user"))

    def ask(self, kind: str, question: str, *, texts: Sequence[str], persona: str, seed: int) -> tuple[Message, ...]:
        """The chat of any other template: a question, and texts of models to read.

        Args:
            kind: the template's name; it has a `system` and a `user` block.
            question: the task's.
            texts: what models wrote, in the order the template lists them.
            persona: what the agent is told about itself.
            seed: the call's; fences are drawn from it.
        """
        render = partial(self._render, kind, seed, question=question, texts=texts, persona=persona)
        return Message("system", render("system")), Message("user", render("user"))

    def judge(
        self,
        kind: str,
        question: str,
        *,
        candidates: Sequence[str],
        listed: bool,
        persona: str,
        seed: int,
        labels: Sequence[str] = (),
        names: Sequence[str] | None = None,
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """The chat that asks a judge about candidates, and what each candidate appends to it.

        Args:
            kind: "rate" or "critique".
            question: the task's.
            candidates: the proposals in the order this judge sees them.
            listed: whether every rating question shows all candidates, or its own alone.
            persona: what the judge is told about itself.
            seed: the call's; fences are drawn from it.
            labels: the answers a rating question allows.
            names: what the candidates are called; None hides their authors behind Candidate_A, Candidate_B, ...
        """
        shown = [label(i) for i in range(len(candidates))] if names is None else names
        named = list(zip(shown, candidates, strict=True))
        render = partial(
            self._render,
            kind,
            seed,
            question=question,
            candidates=named,
            listed=listed,
            persona=persona,
            labels=labels,
        )
        messages = Message("system", render("system")), Message("user", render("user"))
        return messages, tuple("\n\n" + render("candidate", label=name, text=text) for name, text in named)

    def annotate(
        self,
        kind: str,
        question: str,
        *,
        answer: str,
        points: Mapping[str, str],
        labels: Sequence[str],
        persona: str,
        seed: int,
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """The chat that asks a judge about points of one answer, and what each point appends to it.

        Args:
            kind: the template's name; it has a `system`, a `user` and a `candidate` block.
            question: what was asked.
            answer: a model's; nothing tells whose.
            points: name -> meaning; the `candidate` block is rendered for each.
            labels: the answers the judge may give.
            persona: what the judge is told about itself.
            seed: the call's; fences are drawn from it.
        """
        render = partial(self._render, kind, seed, question=question, answer=answer, labels=labels, persona=persona)
        messages = Message("system", render("system")), Message("user", render("user"))
        return messages, tuple("\n\n" + render("candidate", name=n, meaning=m) for n, m in points.items())

    def fingerprint(self, kind: str) -> str:
        """Hash of a template's source, its `{{ style }}` filled in, for the keys of calls."""
        source, _, _ = self._environment.loader.get_source(self._environment, f"{kind}.jinja")  # type: ignore[union-attr]
        # A style changes the keys of those templates alone that speak of it.
        source = source.replace("{{ style }}", STYLES[self.style])
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    @cached_property
    def _environment(self) -> "Environment":
        from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - not wanted at import
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

        # Prompts are plain text for a model, no HTML: escaping would only garble them.
        return ImmutableSandboxedEnvironment(
            loader=FileSystemLoader(self.folders), undefined=StrictUndefined, trim_blocks=True
        )

    def _render(self, kind: str, seed: int, block: str, **values: Any) -> str:
        from jinja2 import TemplateError  # noqa: PLC0415 - not wanted at import

        try:
            template = self._environment.get_template(f"{kind}.jinja")
            if block not in template.blocks:
                raise TemplateError(f"expected a block {block!r}, got {', '.join(template.blocks) or 'none'}")
            context = template.new_context(
                {**values, "style": STYLES[self.style], "fence": partial(fence, mark=nonce(seed))}
            )
            return "".join(template.blocks[block](context)).rstrip()
        except TemplateError as error:
            raise ValueError(f"prompt template {kind}.jinja: {error.message}") from error
