"""Agents that say again what they once said: recorded answers behind the protocol that live models speak."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nsed_torch.agents.lookalikes import replaced
from nsed_torch.agents.prompts import FENCE, Prompts, unfence
from nsed_torch.agents.requests import (
    Engine,
    GenerateRequest,
    Generation,
    Likelihood,
    LikelihoodRequest,
    Message,
    RateRequest,
    Rating,
)

_FENCED = re.compile(r"([^\n]+):\n<text-([0-9a-f]+)>\n(.*?)\n</text-\2>", re.DOTALL)
"""A candidate under its label as the `rate` template shows it; marks inside a text were blotted out, so none can be
forged."""


@dataclass(frozen=True)
class Recording:
    """What an agent once wrote on a task."""

    text: str
    answer: int  # class of its answer: equal answers, equal numbers. Below 0 where it gave none


class ReplayEngine(Engine):
    """Speaks for recorded agents: proposes what they wrote, and rates by agreement of answers.

    A proposal request is answered with the recorded text, whole, whatever its decoding says, round after round; an
    agent without an answer to the task says "". A rating is +1 where the candidate's answer is in the class of the
    judge's own recorded answer, -1 where it is in another one, None where the judge gave none or nobody recorded that
    text (our reading of ratings by `agreement`); the likelihood of a text is 1, 0 or None in the same cases. The task
    is known by its question, found in the prompt.

    `questions` are by task id and all different, `recordings` by agent and task id, which may be missing. `identity`,
    JSON values among them the files' hash, tells these recordings from others in the keys of calls.
    """

    max_batch = 1024

    def __init__(
        self,
        questions: Mapping[str, str],
        recordings: Mapping[str, Mapping[str, Recording]],
        *,
        identity: Mapping[str, Any],
    ) -> None:
        self._recordings = recordings
        self._identity = dict(identity)
        self._ids = {question.strip(): task for task, question in questions.items()}
        if not questions or len(self._ids) < len(questions):
            twice = next((task for task, text in questions.items() if self._ids[text.strip()] != task), "none")
            raise ValueError(
                f"expected recorded questions, all different, got another one like task {twice!r}: leave it out"
            )
        self._width = min(map(len, self._ids))
        self._starts: dict[str, list[str]] = defaultdict(list)
        for question in sorted(self._ids, key=len, reverse=True):
            self._starts[question[: self._width]].append(question)
        self._answers: dict[str, dict[str, int]] = defaultdict(dict)
        for answers in recordings.values():
            for task, recording in answers.items():
                self._answers[task].setdefault(_shown(recording.text), recording.answer)
        self._critique = Prompts().fingerprint("critique")

    def identity(self, adapter: str | None) -> dict[str, Any]:
        """What the recordings are called and hash to; recorded agents have no adapter."""
        if adapter is not None:
            raise ValueError(f"expected no adapter for recorded agents, got {adapter!r}: remove it")
        return {"name": "replay", **self._identity}

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Generation]:
        """The recorded texts; a ValueError for an agent or question without recordings, or for a critique."""
        return [self._generate(request) for request in requests]

    def rate(self, requests: Sequence[RateRequest]) -> list[Rating]:
        """Agreement of the candidates' answers with the judge's own; faults as `generate`."""
        return [
            Rating(
                self._agreement(request, _candidates(request), otherwise=-1.0),
                prompt_tokens=self.count_prompt(request.messages, request.candidates),
            )
            for request in requests
        ]

    def measure(self, requests: Sequence[LikelihoodRequest]) -> list[Likelihood]:
        """Whether the judge's own answer is that of each text; faults as `generate`."""
        return [
            Likelihood(
                self._agreement(request, map(_shown, request.texts), otherwise=0.0),
                self.count_prompt(request.messages, request.texts),
            )
            for request in requests
        ]

    def _generate(self, request: GenerateRequest) -> Generation:
        if request.template == self._critique:
            raise ValueError(
                "expected recorded agents to rate by agreement, got a request for a critique: use rating=verdict"
            )
        _, recording = self._look_up(request)
        text = recording.text if recording and recording.answer >= 0 else ""
        return Generation(text, self.count_prompt(request.messages), self.count_tokens(text))

    def _agreement(
        self, request: RateRequest | LikelihoodRequest, texts: Iterable[str], otherwise: float
    ) -> tuple[float | None, ...]:
        """1 for texts with the judge's own answer, `otherwise` for others; None where either is no answer."""
        task, recorded = self._look_up(request)
        own = recorded.answer if recorded else -1
        answers = [self._answers[task].get(text, -1) if text else -1 for text in texts]
        return tuple(None if min(own, a) < 0 else 1.0 if a == own else otherwise for a in answers)

    def task(self, messages: Sequence[Message]) -> str:
        """The id of the task a prompt is about: the first recorded question in it, the longest that starts there."""
        text = messages[-1].content
        for start in range(len(text) - self._width + 1):
            for question in self._starts.get(text[start : start + self._width], ()):
                # A question stands for itself: "1+1?" is not part of "11+1?".
                alone = not text[start - 1 : start].isalnum() and not text[start + len(question) :][:1].isalnum()
                if alone and text.startswith(question, start):
                    return self._ids[question]
        raise ValueError(f"expected a prompt with one of {len(self._ids)} recorded questions, got {text[:80]!r}")

    def _look_up(self, request: GenerateRequest | RateRequest | LikelihoodRequest) -> tuple[str, Recording | None]:
        """The task's id, and what the agent wrote on it."""
        task = self.task(request.messages)
        if request.agent not in self._recordings:
            known = ", ".join(self._recordings)
            raise ValueError(f"expected an agent out of {known}, got {request.agent!r}: rename it")
        return task, self._recordings[request.agent].get(task)


def _candidates(request: RateRequest) -> Iterator[str]:
    """The texts that a judge is asked about, each under the label that its question ends with; "" for no text."""
    listed = _FENCED.findall(request.messages[-1].content)[-len(request.candidates) :]
    for place, asked in enumerate(request.candidates):
        label, _, text = next(iter(_FENCED.findall(asked) or listed[place:]), ("", "", ""))
        yield text if label in asked else ""


def _shown(text: str) -> str:
    """A text as a judge's prompt shows it."""
    return replaced(FENCE, unfence(text), "[mark]").strip()
