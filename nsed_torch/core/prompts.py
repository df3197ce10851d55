"""Prompts: Jinja2 templates, one file each, rendered in a sandbox with every model's text behind a fence."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsed_torch.core.engine import Message
from nsed_torch.records.lookalikes import one_line, replaced

if TYPE_CHECKING:
    from jinja2 import Environment

FENCE = re.compile(r"<\s*+(?:/\s*+)?t\s*+e\s*+x\s*+t\s*+-\s*+[0-9a-f][0-9a-f\s]*+>")
"""Anything that looks like a fence, ours or forged, as `lookalikes.skeleton` spells it; blanks hide none."""

CUT_FENCE = re.compile(r"</?text(-[0-9a-f]*)?$")
"""A fence that an answer's end cut off."""

SCORE = re.compile(r"^[^\w\n]*score[ \t*_\"]*:(.*)$", re.IGNORECASE | re.MULTILINE)
"""The line a critique must end with."""

NUMBER = re.compile(r"[\s*_\"]*([+-]?[0-9]{1,3})[\s*_.\"]*")
"""What that line says. Signs that only look like a minus, fractions and ranges are no number."""

FINISHED = "Answer: "
"""What a step begins with where nothing is left to do; the answer follows."""

NOTHING = "nothing"
"""What a note says where a piece is of no use; such a note is no proposal."""

STYLES = {
    "short": "Answer in one or two short sentences.",
    "direct": "Give the answer alone.",
    "worked": "Work through it briefly, then answer in the form that the question asks for.",
}
"""What `{{ style }}` says in a template: how to answer. The last is for mathematics and programs."""


def nonce(seed: int) -> str:
    """Eight hexadecimal digits drawn from the seed of a call or a task; whoever has not read them cannot know them."""
    return hashlib.blake2b(str(seed).encode(), digest_size=4).hexdigest()


def unseen(seed: int, texts: Sequence[str]) -> int:
    """The first seed, counted from this one, whose nonce stands in none of the texts: who read it has not used it."""
    return next(s for s in count(seed) if not any(nonce(s) in text for text in texts))


def fence(text: str, mark: str) -> str:
    """Enclose a model-written text in marks it cannot forge; look-alikes inside it are blotted out."""
    return f"<text-{mark}>\n{replaced(FENCE, text, '[mark]').strip()}\n</text-{mark}>"


def unfence(text: str) -> str:
    """A model's text without the marks it copied from its prompt."""
    while (bare := replaced(FENCE, text, "")) != text:  # taking one out may leave another
        text = bare
    return re.sub(r"\n{3,}", "\n\n", replaced(CUT_FENCE, text, "")).strip()


def finished(step: str) -> str | None:
    """The answer in a step that says that nothing is left to do; None in any other."""
    opening = FINISHED.strip()
    return step.removeprefix(opening).strip() if step.startswith(opening) else None


def noted(text: str) -> str:
    """What a note says: the text, or "" where it says that there is nothing, however that is written."""
    return "" if text.strip(" \t\n.,:;!\"'`*_()").casefold() == NOTHING else text


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
    """The templates `propose`, `rate`, `weigh`, `critique`, `pattern`, `step`, `work`, `read`, `conduct`, and others.

    Each has a `system` and a `user` block, those of judges a `candidate` block that ends the user's text, `step` a
    `turn` for each later turn and a `whole` for all of them in one text, `work` that alone, `read` a `whole`, an
    `at_once` and a `rewrite`. Templates see plain strings, `fence(text)` and `style`, the sentence on how to answer; a
    name they misspell is an error. A `persona` is what an agent is told about itself; fences are drawn from the call's
    `seed`. A `folder` is searched for `<name>.jinja` before the package's own; the style is one of `STYLES`. A folder
    or style that is not there, or later a template that cannot be rendered, is a ValueError.
    """

    def __init__(self, folder: str | Path | None = None, style: str = "short") -> None:
        if style not in STYLES:
            raise ValueError(f"expected a style out of {', '.join(STYLES)}, got {style!r}: choose one of them")
        self.style = style
        shipped = Path(__file__).parent / "templates"
        self.folders = [Path(folder).expanduser(), shipped] if folder else [shipped]
        if not self.folders[0].is_dir():
            raise ValueError(f"expected a folder of prompt templates, got {folder}: create it or correct the path")

    def propose(
        self, question: str, *, memory: Sequence[str], critiques: Sequence[str], persona: str, seed: int
    ) -> tuple[Message, ...]:
        """The chat that asks for a proposal: `memory` strongest first, `critiques` of this agent's last proposal."""
        return self.chat("propose", seed, question=question, memory=memory, critiques=critiques, persona=persona)

    def step(
        self, question: str, subtask: str, *, history: Sequence[tuple[str, str]], persona: str, seed: int
    ) -> tuple[Message, ...]:
        """The chat that asks a worker for a step of a workflow; user and assistant alternate, and the user ends it.

        Earlier replies stand as the assistant's turns. What encloses them is the chat template, whose tokens no text
        can spell (`Chat.neutralize`), so they need no fence. A subtask of "" is the question itself.
        """
        render = partial(self.render, "step", seed, question=question, persona=persona)
        messages = [Message("system", render("system"))]
        for i, asked in enumerate([*(earlier for earlier, _ in history), subtask]):
            text = render("turn" if i else "user", subtask=asked, last=i == len(history))
            messages.append(Message("user", text))
            messages += [Message("assistant", reply) for _, reply in history[i : i + 1]]
        return tuple(messages)

    def work(self, question: str, work: Sequence[str], *, seed: int) -> str:
        """What a round that is a step asks, in a question's place: what comes behind the `work`, its last text newest.

        Without any, what the work begins with. The answer to it is the next text of the work, or one behind "Answer:"
        where nothing is left to do.
        """
        return self.render("work", seed, "whole", question=question, work=work)

    def read(self, question: str, *, memory: Sequence[str], piece: str, seed: int) -> str:
        """What a round that reads asks, in a question's place: a note of a piece, beside the `memory`, strongest first.

        A note says what the piece adds, or `NOTHING`. Without a piece, what a judge is asked who read none.
        """
        return self.render("read", seed, "whole", question=question, memory=memory, piece=piece)

    def read_at_once(self, question: str, *, pieces: Sequence[str], seed: int) -> str:
        """What is asked, in a question's place, of who reads all pieces in one prompt."""
        return self.render("read", seed, "at_once", question=question, pieces=pieces)

    def rewrite(self, question: str, *, memory: str, piece: str, seed: int) -> str:
        """What is asked, in a question's place, of who writes its memory anew at each piece; "" where it has none."""
        return self.render("read", seed, "rewrite", question=question, memory=memory, piece=piece)

    def step_in_one(self, question: str, subtask: str, *, history: Sequence[tuple[str, str]], seed: int) -> str:
        """What `step` asks, as one text with fenced replies: the question that a deliberation is given."""
        return self.render("step", seed, "whole", question=question, subtask=subtask, history=history)

    def conduct(
        self,
        question: str,
        *,
        workers: Sequence[str],
        max_steps: int,
        previous: str | None,
        seed: int,
        persona: str = "",
        kind: str = "conduct",
        fault: str = "",
    ) -> tuple[Message, ...]:
        """The chat that asks a Conductor for a workflow. Its rules and examples come first, alike for all questions.

        `workers` tells what each model is good at, "" where nothing is known; places are their numbers, names stay
        away. `previous` is, with recursion, the answer so far. A `persona` stands in place of rules and examples, 290
        tokens, for who has learned them. `conduct_by_prompt` is the `kind` for who has learned nothing: JSON, rules and
        examples in any case. There `fault` says what was wrong with a first reply.
        """
        described = [" ".join(text.split()) for text in workers]
        values = {"workers": described, "max_steps": max_steps, "previous": previous, "persona": persona}
        return self.chat(kind, seed, question=question, fault=" ".join(fault.split()), **values)

    def ask(self, kind: str, question: str, *, texts: Sequence[str], persona: str, seed: int) -> tuple[Message, ...]:
        """The chat of any other template: a question, and texts of models in the order the template lists them."""
        return self.chat(kind, seed, question=question, texts=texts, persona=persona)

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

        `kind` is "rate", "weigh" for notes, or "critique". Where the candidates are `listed`, every rating question
        shows all of them, in this order, else its own alone. `labels` are the answers that a rating question allows,
        `names` what the candidates are called; None hides authors behind Candidate_A, Candidate_B, ...
        """
        shown = [label(i) for i in range(len(candidates))] if names is None else names
        named = list(zip(shown, candidates, strict=True))
        values = {"question": question, "listed": listed, "persona": persona, "labels": labels}
        return self.chat(kind, seed, candidates=named, **values), tuple(
            "\n\n" + self.render(kind, seed, "candidate", candidates=named, **values, label=name, text=text)
            for name, text in named
        )

    def fingerprint(self, kind: str) -> str:
        """Hash of a template's source, its `{{ style }}` filled in, for the keys of calls."""
        source, _, _ = self._environment.loader.get_source(self._environment, f"{kind}.jinja")  # type: ignore[union-attr]
        # A style changes the keys of those templates alone that speak of it.
        source = source.replace("{{ style }}", STYLES[self.style])
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    def block(self, kind: str, seed: int, block: str, values: Mapping[str, Any]) -> str:
        """A block of a template, rendered in this process; raises whatever the template stumbles over."""
        from jinja2 import TemplateError  # noqa: PLC0415 - not wanted at import

        template = self._environment.get_template(f"{kind}.jinja")
        if block not in template.blocks:
            raise TemplateError(f"expected a block {block!r}, got {', '.join(template.blocks) or 'none'}")
        own = {"style": STYLES[self.style], "fence": partial(fence, mark=nonce(seed))}
        return "".join(template.blocks[block](template.new_context({**values, **own}))).rstrip()

    @cached_property
    def _environment(self) -> "Environment":
        from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - not wanted at import
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

        # Prompts are plain text for a model, no HTML: escaping would only garble them.
        loader = FileSystemLoader(self.folders)
        return ImmutableSandboxedEnvironment(loader=loader, undefined=StrictUndefined, trim_blocks=True)

    def chat(self, kind: str, seed: int, **values: Any) -> tuple[Message, ...]:
        """The chat of a template, whose variables are these values."""
        return tuple(Message(role, self.render(kind, seed, role, **values)) for role in ("system", "user"))

    def render(self, kind: str, seed: int, block: str, **values: Any) -> str:
        """One block of a template."""
        asked: dict[str, Any] = {"kind": kind, "seed": seed, "block": block, "values": values}
        if len(self.folders) == 1:  # ours
            return self.block(**asked)
        from nsed_torch.records.rendering import BadTemplateError, rendered  # noqa: PLC0415 - not wanted at import

        try:
            return rendered("prompt", folder=str(self.folders[0].absolute()), style=self.style, asked=asked)
        except BadTemplateError as error:
            remedy = "" if error.kind else ": correct it"
            raise ValueError(f"prompt template {kind}.jinja: {one_line(error)}{remedy}") from error
