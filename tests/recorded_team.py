"""Recorded agents as an ensemble, which deliberates like a live one."""

import re

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Decoding, Engine, Generation, Ratings
from nsed_torch.core.prompts import unfence
from nsed_torch.traces.equality import Equality

FENCED = re.compile(r"([^\n]+):\n<text-([0-9a-f]+)>\n(.*?)\n</text-\2>", re.DOTALL)
"""A candidate under its label, as judges are shown it."""


class RecordedEngine(Engine):
    """Proposes what was recorded, and rates by agreement with the judge's own answer: +1 or -1, None without one.

    A task is known by its question, which is part of no other.
    """

    max_batch = 1024

    def __init__(self, recorded, equality=None):
        classes = (equality or Equality()).classes(recorded.answers).tolist()
        self.digest, self.agents = recorded.digest, recorded.agents
        self.questions = [task.question.strip() for task in recorded.tasks]
        self.said = [list(zip(*row, strict=True)) for row in zip(recorded.outputs, classes, strict=True)]

    def identity(self, adapter):
        return {"name": "recorded", "digest": self.digest}

    def told(self, request):
        """Everybody's text and class of answer on the task, and the place of who is asked."""
        prompt = request.messages[-1].content
        (row,) = (said for question, said in zip(self.questions, self.said, strict=True) if question in prompt)
        return row, self.agents.index(request.agent)

    def generate(self, requests):
        rows = [row[agent] for row, agent in map(self.told, requests)]
        texts = [text if number >= 0 else "" for text, number in rows]
        counts = [
            (self.count_prompt(r.messages), self.count_tokens(text)) for r, text in zip(requests, texts, strict=True)
        ]
        return [Generation(text, *count) for text, count in zip(texts, counts, strict=True)]

    def rate(self, requests):
        return [Ratings(self.agreement(r), prompt_tokens=self.count_prompt(r.messages, r.candidates)) for r in requests]

    def agreement(self, request):
        row, agent = self.told(request)
        own, numbers = row[agent][1], {unfence(text): number for text, number in row}
        ratings = []
        for asked in request.candidates:
            shown = FENCED.findall(request.messages[-1].content + "\n" + asked)
            (text,) = (text for label, _, text in shown if label in asked.splitlines()[-1])
            ratings.append(None if own < 0 else 1.0 if numbers[text] == own else -1.0)
        return tuple(ratings)


def ensemble_of(recorded, equality=None, *, call_log=None):
    """Each agent's answer allowance is its longest output, so that budgets bound what it may cost."""
    longest = recorded.tokens.amax(0).ceil().long().clamp(min=1).tolist()
    agents = [
        Agent(name, "recorded", decoding=Decoding(max_new_tokens=tokens))
        for name, tokens in zip(recorded.agents, longest, strict=True)
    ]
    return Ensemble({"recorded": RecordedEngine(recorded, equality)}, agents, call_log=call_log)
