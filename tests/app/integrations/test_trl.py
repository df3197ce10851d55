"""A frozen team as a reward: what it gives completions, and an adapter that learns from it by TRL."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from nsed_torch.app.integrations.trl import consensus_reward, supports
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine

QUESTION = "How much is 1 + 1?"


def scripted_cell(judge):
    """Two judges and one who only proposes, for whom `judge` rates."""
    engine = ScriptedEngine(lambda request: "2", judge)
    agents = [Agent("ant", "tiny"), Agent("bee", "tiny", roles=("proposer",)), Agent("cat", "tiny")]
    rating = VerdictRating(listed=False)  # so that a candidate is its text
    return MacroRNNCell(
        Ensemble({"tiny": engine}, agents), HashedEncoder(8), ConsensusCell(8, 3).double(), rating=rating
    )


def test_it_is_the_quadratic_vote_of_the_judges_with_their_trust():
    ratings = {"ant": {"two": 0.9, "three": -0.3, "four": None}, "cat": {"two": 0.5, "three": 0.5, "four": -1.0}}

    def judge(request, candidate):
        return next(rating for text, rating in ratings[request.agent].items() if text in candidate)

    cell = scripted_cell(judge)
    with torch.no_grad():
        cell.consensus.trust.bias[2] = 1.0  # cat counts twice
        found = supports(cell, {QUESTION: ["three", "four", "two"], "Nobody said anything?": []})
    ant = {"two": math.sqrt(0.9 / 1.2), "three": -math.sqrt(0.3 / 1.2), "four": 0.0}
    cat = {"two": 0.5, "three": 0.5, "four": -math.sqrt(0.5)}
    assert found == {(QUESTION, text): pytest.approx(ant[text] + 2 * cat[text]) for text in ("three", "four", "two")}


def test_completions_are_judged_among_those_of_their_prompt(settings):
    reward = consensus_reward(**settings)
    texts = ["2", "three", " 2 ", "", "four"]
    others = ["7", "2"]
    given = reward(prompts=[QUESTION] * 5 + ["How much is 5 + 2?"] * 2, completions=texts + others, target=[0] * 7)
    assert given[0] == given[2]
    assert given[3] == -3.0
    assert all(-3 <= value <= 3 for value in given)
    assert given[:5] == pytest.approx(reward([QUESTION] * 5, texts), abs=1e-5)
    chats = [[{"role": "user", "content": QUESTION}]] * 5, [[{"role": "assistant", "content": text}] for text in texts]
    assert reward(*chats) == pytest.approx(given[:5], abs=1e-5)
    alone = reward([QUESTION] * 2, ["2", "three"])
    assert alone != pytest.approx(given[:2], abs=1e-3)  # other rivals, another vote


def test_judges_must_rate_what_they_did_not_say(settings):
    with pytest.raises(ValueError, match="got rating=agreement: choose another rating"):
        consensus_reward(**{**settings, "rating": "agreement"})


@pytest.mark.filterwarnings("ignore")  # of the trainer's libraries
def test_an_adapter_learns_from_it_and_the_team_does_not(settings, tiny_weights, tmp_path, monkeypatch):
    pytest.importorskip("trl")
    from nsed_lab.studies import team_reward

    built = []
    monkeypatch.setattr(
        team_reward, "consensus_reward", lambda **own: built.append(consensus_reward(**own)) or built[0]
    )
    own = {"model": str(tiny_weights), "steps": "2", "questions": "1", "completions": "2"}
    before = [path.read_bytes() for path in sorted(tiny_weights.iterdir())]
    rewards = team_reward.train(tmp_path / "out", [QUESTION, "How much is 5 + 2?"], {**settings, **own})
    assert len(rewards) == 2
    assert rewards == json.loads((tmp_path / "out/rewards.json").read_text())
    weights = load_file(tmp_path / "out/adapter_model.safetensors")
    assert any(tensor.abs().max() > 0 for name, tensor in weights.items() if "lora_B" in name)  # they begin at 0
    assert [path.read_bytes() for path in sorted(tiny_weights.iterdir())] == before
