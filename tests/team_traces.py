"""Graded traces made by hand or at random, for tests of whatever reads them. The right answer is "yes"."""

import random

from hypothesis import strategies as st

from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import AgentRecord, Proposal, Round, Task, Transcript, Usage

AGENTS = "abcdefgh"


def turn(answers, winner=0, ratings=None, *, texts=None, tokens=10):
    """A round by the first agents: final answers, and rows of ratings of the first voters."""
    names = list(AGENTS[: len(answers)])
    texts = texts or [answer or "" for answer in answers]
    ratings = ratings or []
    return answers, Round(
        index=0,
        proposers=names,
        voters=names[: len(ratings)],
        proposals=[Proposal(name, text, "stop") for name, text in zip(names, texts, strict=True)],
        ratings=ratings,
        vote_mask=[[r is not None for r in row] for row in ratings],
        ballots=[[0.0] * len(names) for _ in ratings],
        trust=[1.0] * len(ratings),
        support=[0.0] * len(names),
        consensus=[0.0] * len(names),
        winner=winner,
        all_negative=False,
        conviction=0.0,
        decisiveness=0.0,
        controversy=[0.0] * len(names),
        memory=[],
        usage=Usage(1, tokens, 0),
    )


def trace(name, *turns, backbones="", seed=0, settings=None):
    """Turns one after the other; agents are known where their backbones are given, a letter each."""
    agents = [AgentRecord(agent, backbone, "", {}, {}) for agent, backbone in zip(AGENTS, backbones, strict=False)]
    rounds = [Round(**(vars(record) | {"index": i})) for i, (_, record) in enumerate(turns, start=1)]
    usage = Usage.sum(record.usage for record in rounds)
    transcript = Transcript(Task("?", name), agents, rounds, "", "rounds", usage, seed, settings or {})
    answers = [list(given) for given, _ in turns]
    return Trace(transcript, [[answer == "yes" for answer in row] for row in answers], answers)


def team(tasks, rounds, agents=4, *, seed=0):
    """A plausible run: some questions are easy, the winner is mostly followed, long proposals are liked."""
    draw = random.Random(seed)
    return [_deliberation(draw, f"task {i}", rounds, agents) for i in range(tasks)]


def _deliberation(draw, name, rounds, agents):
    easy = draw.betavariate(1.2, 1)
    answers = ["yes" if draw.random() < easy else draw.choice(("no", "maybe")) for _ in range(agents)]
    turns = []
    for _ in range(draw.randint(max(1, rounds - 2), rounds)):
        texts = ["." * draw.randint(20, 400) for _ in answers]
        ratings = [
            [None if i == j or draw.random() < 0.05 else _rating(draw, answers[j], texts[j]) for j in range(agents)]
            for i in range(agents)
        ]
        heard = [sum(row[j] or 0 for row in ratings) for j in range(agents)]
        winner = heard.index(max(heard))
        turns.append(turn(answers, winner, ratings, texts=texts, tokens=draw.randint(500, 900)))
        answers = [answers[winner] if draw.random() < 0.4 else answer for answer in answers]
    return trace(name, *turns, backbones="xxyyzzuu"[:agents], seed=7)


def _rating(draw, answer, text):
    value = (0.3 if answer == "yes" else -0.1) + 0.001 * len(text) + draw.gauss(0, 0.35)
    return round(min(1.0, max(-1.0, value)), 9)


@st.composite
def some_traces(draw):
    """One to four deliberations of any shape, whoever rates whatever."""
    rating = st.sampled_from([None, -1.0, -0.4, -0.2, 0.0, 0.2, 0.2, 0.6, 1.0])
    traces = []
    for i in range(draw(st.integers(1, 4))):
        turns = []
        for _ in range(draw(st.integers(1, 3))):
            size = draw(st.integers(1, 3))
            answers = draw(st.lists(st.sampled_from(["yes", "no", "maybe", None]), min_size=size, max_size=size))
            texts = [draw(st.sampled_from(["", "short", "a longer text"])) for _ in answers]
            ratings = draw(st.lists(st.lists(rating, min_size=size, max_size=size), max_size=size))
            winner = draw(st.none() | st.integers(0, size - 1))
            turns.append(turn(answers, winner, ratings, texts=texts))
        traces.append(trace(f"task {i}", *turns, backbones=draw(st.sampled_from(["", "xxy"]))))
    return traces
