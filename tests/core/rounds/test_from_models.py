"""A team out of models in memory: it takes what was asked for, and what a newcomer gets wrong is one line."""

import pytest
import torch
from tiny_models import tiny_model, tiny_tokenizer

from nsed_torch import BudgetBroker, ConsensusCell, MacroRNN
from nsed_torch.core.engine import Decoding
from nsed_torch.parts.gates import OpenGate
from nsed_torch.parts.rating_modes import AgreementRating, CritiqueRating
from nsed_torch.parts.votes import BordaVote

SHORT = Decoding(4, 0.7)


@pytest.fixture(scope="module")
def pair():
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    return tiny_model(len(tokenizer), eos_token_id=tokenizer.eos_token_id), tokenizer


def team(pair, **words):
    return MacroRNN.from_models({"ada": pair, "bo": pair}, decoding=SHORT, **words)


def test_everything_obvious_is_taken(pair, capfd):
    rnn = team(pair, personas={"bo": "You doubt."}, rounds=2, gate="none", vote=BordaVote(), rating="agreement", seed=3,
               progress=True, broker=lambda task, rounds: None if rounds else [0])  # fmt: skip
    assert [agent.persona for agent in rnn.cell.ensemble.agents] == ["", "You doubt."]
    assert (rnn.rounds, rnn.cell.seed) == (2, 3)
    assert (type(rnn.cell.consensus.gate), type(rnn.cell.consensus.vote)) == (OpenGate, BordaVote)
    assert isinstance(rnn.cell.rating, AgreementRating)
    again = rnn.with_(broker=None)
    transcript = again("17 or 71?").transcripts[0]
    assert len(transcript.rounds) == 2
    assert "round 2, propose: 2 of 2 calls" in capfd.readouterr().err
    assert team(pair, cell=ConsensusCell(64, 2).double(), rating=CritiqueRating()).cell.consensus.agents == 2
    assert team(pair, broker=BudgetBroker(tokens=90_000), rounds=1)("17 or 71?").transcripts[0].stop_reason == "rounds"


def test_a_text_a_list_and_their_answers(pair):
    rnn = team(pair, rounds=1, rating="agreement")
    alone, several = rnn("17 or 71?"), rnn(["17 or 71?", "7 or 1?"])
    assert isinstance(alone.answer, str)
    assert len(several.answers) == 2
    with pytest.raises(ValueError, match="answer: expected a deliberation on one task, got 2: read answers"):
        _ = several.answer


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"round": 3}, "unexpected argument 'round': did you mean rounds?"),
        ({"consensus": 1}, "unexpected argument 'consensus'"),
        ({"temperature": 0.1}, "from_models: got an unexpected argument 'temperature': "),
        ({"rounds": 0}, "expected at least 1, got 0"),
        ({"gate": "sticky"}, "gate: expected one of learned, notes, leaky, none or one of your own, got 'sticky'"),
        ({"vote": "loudest"}, "vote: expected one of quadratic, .* got 'loudest'"),
        ({"rating": "stars"}, "rating: expected one of verdict, likelihood, critique, agreement or one of your own"),
        ({"personas": {"cy": "You."}}, "personas: expected names out of ada, bo, got cy"),
        ({"cell": ConsensusCell(8, 2)}, "expected a consensus cell of dim=64, got 8"),
        ({"cell": ConsensusCell(64, 2), "gate": "none"}, "expected a cell, or the gate and vote of a fresh one"),
        ({"broker": 3}, "broker: expected an object with team"),
        ({"halting": 3}, "halting"),
        ({"rating": 3}, "rating"),
    ],
)
def test_a_wrong_word_is_one_line(pair, words, line):
    with pytest.raises(ValueError, match=line) as caught:
        team(pair, **words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("models", "line"),
    [
        ({}, r"models: expected \{name: \(model, tokenizer\)\} of one agent or more, got \{\}"),
        (["gpt2"], r"models: expected \{name: \(model, tokenizer\)\}"),
        ({"ada": "gpt2"}, r"models: expected \(model, tokenizer\) for 'ada', got str: load both with transformers"),
        ({"ada": (torch.nn.Linear(1, 1), "gpt2")}, r"expected \(model, tokenizer\) for 'ada', got \['Linear', 'str'\]"),
    ],
)
def test_models_that_are_none_are_one_line(models, line):
    with pytest.raises(ValueError, match=line):
        MacroRNN.from_models(models)
