"""What a deliberation is foreseen to take is never less than it takes, however its rounds are held."""

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import MARKUP, VerdictRating
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation
from nsed_torch.parts.rating_modes import AgreementRating, CritiqueRating, LikelihoodRating
from nsed_torch.records.transcript import Task

RATINGS = [VerdictRating(), VerdictRating(listed=False), CritiqueRating(), LikelihoodRating(), AgreementRating()]
FORMS = ("plain", "backwards", "counted")
PIECES = ["Bo has the ring. Cy sleeps.", {"0": "Ada has it."}, "so " * 30]


class Marked(ScriptedEngine):
    """Its chats come with as much markup as is foreseen, which would hide what else is not."""

    def count_prompt(self, messages, texts=()):
        return super().count_prompt(messages, texts) + MARKUP * (len(messages) + len(texts))


def team(seed, agents, allowance, slots, rounds, rating, form, protocol, brief):
    """Agents who write between nothing and more than they may, the same now and then, and now and then too long."""

    def write(request):
        draw = random.Random(request.seed)
        if draw.random() < 0.2:
            return draw.choice(["", "nothing", "Answer: 7", "Bo has the ring."])
        most = 2 if brief else draw.choice([2, allowance, allowance + 3])
        words = ["a", "B#e", "77", "90007", str(request.seed)]
        return " ".join(draw.choices(words, k=draw.randint(1, most)))

    def judge(request, candidate):
        draw = random.Random(f"{seed} {request.agent} {candidate}")
        return None if draw.random() < 0.1 else draw.uniform(-1, 1)

    members = [
        Agent(
            f"agent {i}", "s", f"You are {i}.", Decoding(allowance + i), prompt_price=1.0, completion_price=2.0, form=f
        )
        for i, f in enumerate([form, *["plain"] * (agents - 1)])
    ]
    ensemble = Ensemble({"s": Marked(write, judge)}, members)
    consensus = ConsensusCell(16, agents, slots).double()
    cell = MacroRNNCell(ensemble, HashedEncoder(16), consensus, protocol=protocol, rating=rating, seed=seed)
    return MacroRNN(cell, rounds=rounds)


def protocols(unit):
    return st.builds(
        Protocol,
        unit=st.just(unit),
        memory_tokens=st.sampled_from([0, 1, 5, 30, 2000]),
        diagonal_mask=st.booleans(),
        anonymous=st.booleans(),
        shuffled=st.booleans(),
        ahead=st.sampled_from([None, 0.5, 2]),
        shown_from=st.sampled_from([0.0, 0.3]),
        judges=st.sampled_from([None, 1, 2]),
        candidates=st.sampled_from([None, 1, 2]),
        equal_once=st.booleans(),
        verbatim=st.booleans(),
        control=st.sampled_from([None, "ratings"] + ["memory"] * (unit == "answer")),
    )


TEAMS = {
    "seed": st.integers(0, 10**6),
    "agents": st.integers(2, 4),
    "allowance": st.integers(1, 25),
    "slots": st.integers(1, 4),
    "rounds": st.integers(1, 4),
    "rating": st.sampled_from(RATINGS),
    "brief": st.booleans(),
}


def check(rnn, tasks):
    expected = expected_deliberation(rnn, tasks)
    taken = [transcript.usage for transcript in rnn(tasks).transcripts]
    for what in ("calls", "prompt_tokens", "completion_tokens", "computed_tokens", "price"):
        assert getattr(expected, what) >= sum(getattr(usage, what) for usage in taken)


@given(protocol=protocols("step"), form=st.sampled_from(FORMS), words=st.sampled_from([0, 1, 20, 300]), **TEAMS)
@example(
    protocol=Protocol(unit="step", memory_tokens=2000),
    form="plain",
    words=1500,
    seed=0,
    agents=3,
    allowance=20,
    slots=4,
    rounds=4,
    rating=VerdictRating(),
    brief=True,
)
@settings(max_examples=40, deadline=None)
def test_of_steps(protocol, form, words, **options):
    start = " ".join(["word"] * words)
    check(team(form=form, protocol=protocol, **options), [Task("Go on.", str(i), start=start) for i in range(2)])


@example(  # what a memory holds by then is longer than what a round of the fullest texts leaves in it
    protocol=Protocol(memory_tokens=1),
    inputs=PIECES[:1],
    seed=0,
    agents=2,
    allowance=1,
    slots=1,
    rounds=2,
    rating=AgreementRating(),
    brief=False,
)
@given(protocol=protocols("answer"), inputs=st.lists(st.sampled_from(PIECES), max_size=3), **TEAMS)
@settings(max_examples=40, deadline=None)
def test_of_answers_and_readings(protocol, inputs, **options):
    tasks = [Task("Who has the ring?", "read", inputs=tuple(inputs)), Task("And who has not?", "answer")]
    check(team(form="plain", protocol=protocol, **options), tasks)
