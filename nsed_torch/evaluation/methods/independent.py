"""Methods whose agents never read each other: one answer, a vote on answers, the answer that a judge likes best."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import call_seed, check_answered
from nsed_torch.core.ratings import MARKUP, JudgeQuestion, JudgeReply, most_usage
from nsed_torch.evaluation.methods.method import Answer, Attempt, Panel, Tied
from nsed_torch.evaluation.methods.sizing import Growth, Trail, answers
from nsed_torch.parts.learned_broker import Heard, LearnedBroker
from nsed_torch.questions.graders import Grader
from nsed_torch.records.transcript import Task


@dataclass(frozen=True)
class Single:
    """One answer of one agent: its proposal in round 1 of a deliberation. It has one size, whatever the budget."""

    agent: str

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` if the ensemble has no such agent that may propose."""
        agent = panel.proposer(self.agent)
        return [Answer(draft.text, draft.usage) for draft in panel.propose([(task, agent) for task in tasks])]


@dataclass(frozen=True)
class Router:
    """One answer of the agent that a broker finds worth most by the question. It has one size, whatever the budget.

    `nsed fit-broker` on traces writes the router that goes with it, `OUT/broker/router.safetensors`: a logistic
    regression an agent on the question's embedding, learned from the labels that `nsed tune` learns from. What the
    encoder computes is not counted, as it is not in a deliberation.
    """

    led: ClassVar[bool] = False
    learned: str  # the file

    def __post_init__(self) -> None:
        if not self.learned:
            raise ValueError(
                "router: expected the file that nsed fit-broker wrote, got none: set method.router.learned"
            )

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` for a broker of other agents or another encoder."""
        if panel.encoder is None:
            raise ValueError("router: expected an encoder to read questions by, got none: build the panel with one")
        broker, agents = LearnedBroker.from_pretrained(self.learned), panel.ensemble.proposers
        broker.check([agent.name for agent in agents], panel.encoder.identity())
        columns = [broker.agents.index(agent.name) for agent in agents]
        with torch.no_grad():
            question = panel.encoder.embed([task.question for task in tasks]) if broker.dim else None
            worth = broker(0, Heard.nothing(len(tasks), len(broker.agents)), question)[:, columns, 0]
        chosen = [agents[i] for i in worth.argmax(1).tolist()]
        drafts = panel.propose(list(zip(tasks, chosen, strict=True)))
        return [Answer(draft.text, draft.usage, f"by {draft.agent.name}") for draft in drafts]


@dataclass(frozen=True)
class Plurality:
    """The commonest final answer of all agents, each with as many votes as samples.

    With one sample each it votes on the proposals of round 1 of a deliberation. Smallest form: one sample of every
    agent. Which answers are the same, the grader says; which are right it does not. `samples` are those of every
    agent, without a budget.
    """

    samples: int = 1
    temperature: float | None = None  # of every sample; None is the agent's own
    everybody: ClassVar[bool] = True  # whether all agents vote, or the lead alone

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`."""
        trails = Growth(panel, self.samples, self.everybody, self.temperature).trails(tasks, budgets)
        return [elected(panel.grader, t, t.drafts) for t in trails]


@dataclass(frozen=True)
class SelfConsistency(Plurality):
    """The commonest final answer of the lead's samples.

    Published: Wang et al. 2022 (arXiv 2203.11171), the unweighted majority vote over sampled chains of thought. Ties
    by `functional.ties` are our reading. Smallest form: one sample, which is also all that a lead at temperature 0
    gives: such a one takes a `temperature` for its samples.
    """

    samples: int = 5
    everybody: ClassVar[bool] = False


@dataclass(frozen=True)
class BestOf:
    """Best of N by a judge: the lead's samples, of which another agent's highest rating wins.

    Best-of-N is published with trained verifiers (Cobbe et al. 2021, arXiv 2110.14168); an agent of the ensemble in
    their place, rating as judges of a deliberation do, is our reading. The judge sees the different texts once each, in
    an order shuffled by its seed. Texts without a rating lose against those with one; texts that are rated alike tie.
    Smallest form: one sample, unjudged. Without a named judge, or where it is the lead itself, the next agent of the
    ensemble after the lead that may judge rates.
    """

    samples: int = 5
    judge: str | None = None

    def __call__(self, panel: Panel, tasks: Sequence[Task], budgets: Sequence[int] | None = None) -> list[Answer]:
        """Answer all tasks, as `Method`; a `ValueError` if there is no judge of that name, or none beside the lead."""
        judges = {task.id: self._judge(panel, task) for task in tasks}

        def closing(trail: Trail) -> float:
            judge, texts = judges[trail.task.id], _different(trail)
            longest = max((draft.text for draft in trail.drafts), key=len)
            question = JudgeQuestion(judge, panel.question(trail.task, judge), (*texts, longest), 0)
            most = most_usage(panel.rating, panel.prompts, panel.ensemble.engine(judge), question)
            return most.tokens + 2 * MARKUP * len(question.candidates)

        trails = Growth(panel, self.samples, closing=closing).trails(tasks, budgets)
        several = [trail for trail in trails if len(_different(trail)) > 1]
        questions = {trail.task.id: _question(panel, trail, judges[trail.task.id]) for trail in several}
        replies = panel.rating.rate(panel.ensemble, panel.prompts, list(questions.values()))
        check_answered(replies)
        judged = dict(zip(questions, zip(questions.values(), replies, strict=True), strict=True))
        return [_rated_best(trail, *judged.get(trail.task.id, (None, None))) for trail in trails]

    def _judge(self, panel: Panel, task: Task) -> Agent:
        lead, agents = panel.lead(task), panel.ensemble.agents
        named = lead if self.judge is None else panel.judge(self.judge)
        if named != lead:
            return named
        after = agents.index(lead) + 1
        judges = [agent for agent in (*agents[after:], *agents[:after]) if agent in panel.ensemble.judges]
        if judges[:1] in ([], [lead]):
            raise ValueError(f"expected a judge beside the lead {lead.name!r}, got none: give an agent the role judge")
        return judges[0]


def elected(grader: Grader, trail: Trail, drafts: Sequence[Attempt], *notes: str) -> Answer:
    """The first text of the largest class of equal final answers, with a note on its votes.

    Texts without a final answer do not vote; of classes of one size the one that was named first stands first. If
    nobody gave a final answer, the first text that says anything is handed in.
    """
    classes = grader.classes(trail.task, [grader.extract(trail.task, draft.text) for draft in drafts])
    # A counter keeps the order of appearance.
    votes = Counter(number for number in classes if number >= 0)
    most = max(votes.values(), default=0)
    tied = [
        Tied(drafts[classes.index(number)].text, _authors(drafts, [kind == number for kind in classes]))
        for number, count in votes.items()
        if count == most
    ]
    text = tied[0].text if tied else next(iter(answers(drafts)), "")
    return trail.answer(text, f"votes: {most} of {len(drafts)}", *notes, tied=tied)


def _authors(drafts: Sequence[Attempt], said: Sequence[bool]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(draft.agent.name for draft, counts in zip(drafts, said, strict=True) if counts))


def _different(trail: Trail) -> list[str]:
    """The texts that say anything, each once, in the order of the samples."""
    return list(dict.fromkeys(answers(trail.drafts)))


def _question(panel: Panel, trail: Trail, judge: Agent) -> JudgeQuestion:
    seed = call_seed(panel.seed, trail.task.id, 1, judge.name, "best_of")
    texts = _different(trail)
    random.Random(seed).shuffle(texts)  # noqa: S311 - fairness, not secrecy
    return JudgeQuestion(judge, panel.question(trail.task, judge), tuple(texts), seed, ledger=trail.ledger)


def _rated_best(trail: Trail, question: JudgeQuestion | None, reply: JudgeReply | None) -> Answer:
    texts, samples = _different(trail), f"samples: {len(trail.drafts)}"
    if question is None or reply is None:
        return trail.answer(texts[0] if texts else "", samples, "unjudged")
    ratings = dict(zip(question.candidates, reply.ratings, strict=True))
    known = {text: rating for text, rating in ratings.items() if rating is not None}
    most = max(known.get(text, -math.inf) for text in texts)
    level = [text for text in texts if known.get(text, -math.inf) == most]
    tied = [Tied(text, _authors(trail.drafts, [draft.text == text for draft in trail.drafts])) for text in level]
    rated = f"rated {most:.2f}" if known else "no rating"
    notes = samples, f"{rated} by {question.judge.name}", *reply.notes
    return trail.answer(level[0], *notes, closing=reply.usage, tied=tied)
