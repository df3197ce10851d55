"""A halting rule that reads hidden states, in a whole deliberation of scripted agents."""

import random

import pytest
import torch
from nsed_torch.nn.learned_halting import LearnedHalting

from nsed_torch.agents import Agent, Ensemble, HashedEncoder, ScriptedEngine
from nsed_torch.deliberation import MacroRNN, MacroRNNCell
from nsed_torch.experiments.build import consensus_cell
from nsed_torch.nn import FixedHalting
from nsed_torch.nn.halting import FatigueHalting
from nsed_torch.records import Task

DIM = 16
TASKS = [Task(f"What is {i} times {i + 2}?", id=f"task {i}") for i in range(4)]
WORDS = ["red", "blue", "seven", "eleven", "because", "therefore", "left", "right"]


def write(request):
    return " ".join(random.Random(request.seed).choices(WORDS, k=6))


def judge(request, candidate):
    return random.Random(f"{request.seed} {len(candidate)}").uniform(-1, 1)


def network(halting):
    agents = [Agent(name, "scripted") for name in ("Oberon", "Mirabel", "Zebulon")]
    ensemble, encoder = Ensemble({"scripted": ScriptedEngine(write, judge)}, agents), HashedEncoder(DIM)
    return MacroRNN(MacroRNNCell(ensemble, encoder, consensus_cell(dim=DIM, agents=3)), halting=halting)


class Recording(LearnedHalting):
    """Keeps what it was shown."""

    def reasons(self, convictions, hidden):
        self.shown = [*getattr(self, "shown", []), (convictions, hidden)]
        return super().reasons(convictions, hidden)


def steered(seed=0):
    """A head that stops some tasks early."""
    halting = Recording(DIM, rounds=5).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        halting.weight.copy_(4 * torch.randn(DIM + 2, generator=generator, dtype=torch.float64))
        halting.bias.fill_(-1.0)
    return halting


def test_an_untrained_head_changes_nothing():
    learned = network(LearnedHalting(DIM, rounds=3))(TASKS).transcripts
    fixed = network(FixedHalting(3))(TASKS).transcripts
    assert [t.rounds for t in learned] == [t.rounds for t in fixed]
    assert {t.stop_reason for t in learned} == {"rounds"}


def test_it_is_shown_the_hidden_state_after_every_round():
    halting = steered()
    rnn = network(halting)
    (transcript,) = rnn(TASKS[:1]).transcripts
    convictions, hidden = halting.shown[-1]
    assert hidden.shape == (1, len(transcript.rounds), DIM)
    assert convictions[0].tolist() == pytest.approx([r.conviction for r in transcript.rounds], abs=1e-6)
    for record, state in zip(transcript.rounds, hidden[0], strict=True):
        slots = rnn.cell.encoder.embed([slot.text for slot in record.memory]).double()
        retention = torch.tensor([slot.retention for slot in record.memory], dtype=torch.float64)
        torch.testing.assert_close(state, retention @ slots / retention.sum(), atol=1e-6, rtol=0)


def test_tasks_stop_at_rounds_of_their_own_as_if_each_were_alone():
    together = network(steered())(TASKS).transcripts
    alone = [network(steered())([task]).transcripts[0] for task in TASKS]
    assert list(together) == alone
    assert len({len(t.rounds) for t in together}) > 1
    assert "learned" in {t.stop_reason for t in together}


def test_a_head_of_another_width_is_refused_before_any_call():
    with pytest.raises(ValueError, match=f"expected a halting rule of dim={DIM}, got 5: build it with dim={DIM}"):
        network(LearnedHalting(5, rounds=3))


def test_rules_that_read_convictions_alone_work_as_before():
    class Bare:
        rounds = 4

        def reasons(self, convictions):
            return ["bare" if convictions.shape[1] == 2 else "" for _ in convictions]

    assert {t.stop_reason for t in network(Bare())(TASKS).transcripts} == {"bare"}
    transcripts = network(FatigueHalting(rounds=8, k=0.9, beta=0.03))(TASKS).transcripts
    assert {(t.stop_reason, len(t.rounds)) for t in transcripts} == {("fatigue", 2)}
