"""Halting rules in a whole deliberation of scripted agents."""

import random

from nsed_torch.agents import Agent, Ensemble, HashedEncoder, ScriptedEngine
from nsed_torch.deliberation import MacroRNN, MacroRNNCell
from nsed_torch.experiments.build import consensus_cell
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


def test_any_rule_that_reads_convictions_works():
    class Bare:
        rounds = 4

        def reasons(self, convictions):
            return ["bare" if convictions.shape[1] == 2 else "" for _ in convictions]

    assert {t.stop_reason for t in network(Bare())(TASKS).transcripts} == {"bare"}
    transcripts = network(FatigueHalting(rounds=8, k=0.9, beta=0.03))(TASKS).transcripts
    assert {(t.stop_reason, len(t.rounds)) for t in transcripts} == {("fatigue", 2)}
