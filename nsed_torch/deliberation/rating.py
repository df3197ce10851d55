"""How judges come to their ratings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nsed_torch.agents import (
    Agent,
    Decoding,
    Engine,
    Ensemble,
    GenerateRequest,
    Message,
    Progress,
    Prompts,
    RateRequest,
    RatingScale,
    parse_score,
)
from nsed_torch.records import Usage


class JudgeQuestion(NamedTuple):
    """What one judge is asked: a question and the candidates in the order it sees them.

    `names` are those of the candidates' authors, in the same order; None leaves them unnamed.
    """

    judge: Agent
    text: str
    candidates: tuple[str, ...]
    seed: int
    names: tuple[str, ...] | None = None


class JudgeReply(NamedTuple):
    """What one judge answered, in the order of its question's candidates.

    Ratings are in [-1, 1] or None; critiques are "" where nothing was written.
    """

    ratings: tuple[float | None, ...]
    critiques: tuple[str, ...]
    usage: Usage
    notes: tuple[str, ...] = ()


class RatingMode(Protocol):
    """A way to rate; knows what it costs."""

    @property
    def written_tokens(self) -> int:
        """What a judge writes about a candidate at most."""
        ...

    def rate(
        self,
        ensemble: Ensemble,
        prompts: Prompts,
        questions: Sequence[JudgeQuestion],
        progress: Progress | None = None,
    ) -> list[JudgeReply]:
        """Answer all questions."""
        ...

    def most_tokens(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> tuple[int, int]:
        """Tokens read and written at most for a question, chat markup aside."""
        ...


@dataclass(frozen=True)
class VerdictRating:
    """The judge's expected rating under its own logits over a fixed set of rating tokens (`verdict`).

    One forward pass a judge: candidates share the prefix. Our reading of the published cross-rating, which leaves
    open how a rating is read off a model.

    Args:
        listed: whether a judge sees all candidates beside the one it rates, or that one alone.
        scale: the rating tokens and their values.
    """

    listed: bool = True
    scale: RatingScale = RatingScale()

    @property
    def written_tokens(self) -> int:
        """Nothing: logits are read, not sampled."""
        return 0

    def rate(
        self,
        ensemble: Ensemble,
        prompts: Prompts,
        questions: Sequence[JudgeQuestion],
        progress: Progress | None = None,
    ) -> list[JudgeReply]:
        """Answer all questions: one rating request each."""
        requests = self.requests(prompts, questions)
        return [
            JudgeReply(
                rating.values,
                ("",) * len(rating.values),
                question.judge.usage(rating.prompt_tokens, 0, rating.seconds),
                named(question, rating.notes),
            )
            for question, rating in zip(questions, ensemble.rate(requests, progress), strict=True)
        ]

    def requests(self, prompts: Prompts, questions: Sequence[JudgeQuestion]) -> list[RateRequest]:
        """What the judges' engines are asked, one request a question."""
        template = prompts.fingerprint("rate")
        requests = []
        for question in questions:
            messages, candidates = self._prompt(prompts, question)
            requests.append(
                RateRequest(
                    agent=question.judge.name,
                    messages=messages,
                    candidates=candidates,
                    scale=self.scale,
                    seed=question.seed,
                    adapter=question.judge.rating_adapter,
                    template=template,
                )
            )
        return requests

    def most_tokens(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> tuple[int, int]:
        """The prefix once, every candidate's suffix, nothing written."""
        messages, candidates = self._prompt(prompts, question)
        return count(engine, messages) + sum(map(engine.count_tokens, candidates)), 0

    def _prompt(self, prompts: Prompts, question: JudgeQuestion) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        return prompts.judge(
            "rate",
            question.text,
            candidates=question.candidates,
            listed=self.listed,
            persona=question.judge.persona,
            seed=question.seed,
            labels=self.scale.labels,
            names=question.names,
        )


@dataclass(frozen=True)
class CritiqueRating:
    """Written criticism that ends in a score from -100 to 100, parsed strictly (`critique`).

    A critique without a valid score line leaves no rating; its text still reaches the proposal's author. The scale
    is the one of the published judge's rubric.

    Args:
        listed: whether a judge sees all candidates beside the one it criticises, or that one alone.
        decoding: how critiques are drawn.
    """

    listed: bool = True
    decoding: Decoding = Decoding(max_new_tokens=96, temperature=0.3)

    @property
    def written_tokens(self) -> int:
        """The answer allowance of a critique."""
        return self.decoding.max_new_tokens

    def rate(
        self,
        ensemble: Ensemble,
        prompts: Prompts,
        questions: Sequence[JudgeQuestion],
        progress: Progress | None = None,
    ) -> list[JudgeReply]:
        """Answer all questions: one written critique a candidate, all in one phase."""
        template = prompts.fingerprint("critique")
        requests = []
        for question in questions:
            messages, candidates = self._prompt(prompts, question)
            requests += [
                GenerateRequest(
                    agent=question.judge.name,
                    messages=_append(messages, candidate),
                    decoding=self.decoding,
                    seed=question.seed + i,
                    adapter=question.judge.rating_adapter,
                    template=template,
                )
                for i, candidate in enumerate(candidates)
            ]
        written = iter(ensemble.generate(requests, progress))
        return [self._reply(question, [next(written) for _ in question.candidates]) for question in questions]

    def most_tokens(self, prompts: Prompts, engine: Engine, question: JudgeQuestion) -> tuple[int, int]:
        """Every candidate's whole prompt, and its allowance."""
        messages, candidates = self._prompt(prompts, question)
        read = sum(count(engine, _append(messages, candidate)) for candidate in candidates)
        return read, self.written_tokens * len(candidates)

    def _reply(self, question: JudgeQuestion, written: list) -> JudgeReply:  # type: ignore[type-arg]
        ratings = tuple(parse_score(generation.text) for generation in written)
        failed = sum(rating is None for rating in ratings)
        notes = (
            (f"{failed} of {len(ratings)} critiques by {question.judge.name} ended in no valid score",)
            if failed
            else ()
        )
        usages = (question.judge.usage(g.prompt_tokens, g.completion_tokens, g.seconds) for g in written)
        shrunk = named(question, [note for generation in written for note in generation.notes])
        return JudgeReply(ratings, tuple(g.text for g in written), Usage.sum(usages), notes + shrunk)

    def _prompt(self, prompts: Prompts, question: JudgeQuestion) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        return prompts.judge(
            "critique",
            question.text,
            candidates=question.candidates,
            listed=self.listed,
            persona=question.judge.persona,
            seed=question.seed,
            names=question.names,
        )


def count(engine: Engine, messages: Sequence[Message]) -> int:
    """Tokens of the messages' contents."""
    return sum(engine.count_tokens(message.content) for message in messages)


def named(question: JudgeQuestion, notes: Sequence[str]) -> tuple[str, ...]:
    """Notes that begin with the judge's name."""
    return tuple(f"{question.judge.name}: {note}" for note in notes)


def _append(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    *before, last = messages
    return (*before, Message(last.role, last.content + text))
