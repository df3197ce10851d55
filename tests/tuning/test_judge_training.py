"""Judges learn through the vote, and nothing else does."""

import dataclasses
import functools
import json
import math
import re

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.engine import RateRequest
from nsed_torch.core.functional import quadratic_vote
from nsed_torch.engines.adapters import adapter_parameters, add_adapter, save_adapter
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.tuning.judge_training import JudgeTrainer, contested, give_adapters, surprise, verdict_loss
from nsed_torch.tuning.logs import FileLog

ADAM = functools.partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.0)


def hide(table, *places):
    """The table with some answers missing."""
    answered = table.answered.clone()
    for place in places:
        answered[place] = False
    return dataclasses.replace(table, answered=answered, correct=table.correct & answered)


def weights(trainer):
    return {name: value.detach().clone() for name, value in trainer.engines["tiny"].state_dict().items()}


def test_training_lowers_the_loss_and_raises_every_accuracy_on_held_out_tasks(toy, tmp_path):
    trainer, test = toy.trainer(), toy.table(16, seed=2)
    before = trainer.evaluate(test)
    log = tmp_path / "log" / "judges.jsonl"
    kept = trainer.fit(
        toy.table(), toy.table(8, seed=1), optimizer=ADAM, steps=16, batch=4, every=4, log=FileLog(log).write
    )
    after = trainer.evaluate(test, batch=5)
    assert kept > 0
    assert after.loss.mean() < before.loss.mean() - 0.3
    assert before.pairs.mean() < 0.7
    assert after.pairs.mean() > 0.95
    assert after.signs.mean() > max(0.85, before.signs.mean())
    assert after.consensus.mean() > max(0.95, before.consensus.mean())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 17))
    assert all(set(line["gradient"]) == {"ann", "bob"} and min(line["gradient"].values()) > 0 for line in steps)
    tried = {line["step"]: line["validation_loss"] for line in lines if "validation_loss" in line}
    assert list(tried) == [0, 4, 8, 12, 16]
    assert kept == min(tried, key=tried.get)
    assert_close(trainer.evaluate(toy.table(8, seed=1), batch=4).loss.mean().item(), tried[kept])


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_nothing_but_the_judges_adapters_learns(toy, quantization):
    trainer = toy.trainer(quantization, bystander=True)
    before = weights(trainer)
    trainer.fit(toy.table(4), toy.table(2, seed=1), optimizer=ADAM, steps=2, batch=2, every=1)
    for name, value in weights(trainer).items():
        own = "lora_" in name and (".ann." in name or ".bob." in name)
        assert own or torch.equal(value, before[name]), name
    engine = trainer.engines["tiny"]
    trainer.loss(toy.table(2)).backward()
    for name, parameter in engine.named_parameters():
        own = "lora_" in name and (".ann." in name or ".bob." in name)
        moved = parameter.grad is not None and bool(parameter.grad.any())
        assert moved == own, name


def test_a_judges_ratings_depend_on_its_own_adapter_alone(toy):
    trainer = toy.trainer()
    engine = trainer.engines["tiny"]
    own = {name: list(adapter_parameters(engine, name).values()) for name in ("ann", "bob")}
    ratings = trainer.ratings(toy.table(2))
    for v, (name, other) in enumerate((("ann", "bob"), ("bob", "ann"))):
        mine = torch.autograd.grad(ratings[:, v].sum(), own[name], retain_graph=True)
        others = torch.autograd.grad(ratings[:, v].sum(), own[other], retain_graph=True, allow_unused=True)
        assert any(slope.any() for slope in mine)
        assert not any(slope is not None and slope.any() for slope in others)


def test_ratings_are_those_of_a_deliberation_and_blind_to_order(toy):
    trainer, table = toy.trainer(), hide(toy.table(5), (1, 0), (3, 2))
    ratings = trainer.ratings(table)
    assert torch.equal(ratings.isnan(), ~table.answered[:, None].expand_as(ratings))
    for v, judge in enumerate(trainer.ensemble.agents):
        for i, task in enumerate(table.tasks):
            texts = [table.outputs[i][j] for j in range(3) if table.answered[i, j]]
            messages, candidates = trainer.prompts.judge(
                "rate", task.question, candidates=texts, listed=False, persona=judge.persona, seed=0, labels="YN"
            )
            request = RateRequest(judge.name, messages, candidates, trainer.rating.scale, adapter=judge.adapter)
            (rating,) = trainer.ensemble.rate([request])
            assert ratings[i, v][table.answered[i]].tolist() == pytest.approx(rating.values, abs=1e-5)
    turned = dataclasses.replace(
        table,
        outputs=tuple(row[::-1] for row in table.outputs),
        answered=table.answered.flip(1),
        correct=table.correct.flip(1),
    )
    assert_close(trainer.ratings(turned, index=7).flip(2), ratings, atol=1e-5, rtol=0, equal_nan=True)


def test_the_vote_is_the_published_one_and_a_missing_answer_counts_as_deleted(toy):
    trainer, table = toy.trainer(), toy.table(4)
    ratings = trainer.ratings(table).detach()
    consensus, winner = trainer.vote(ratings, table)
    support = (ratings / ratings.abs().sum(-1, keepdim=True)).abs().sqrt().mul(ratings.sign()).sum(1)
    assert_close(consensus, support.softmax(-1))
    assert torch.equal(winner, support.argmax(-1))
    fewer = hide(table, *((i, 2) for i in range(4)))
    masked, _ = trainer.vote(ratings.masked_fill(~fewer.answered[:, None], math.nan), fewer)
    deleted, _ = trainer.vote(ratings[:, :, :2], table.select(range(4), [0, 1]))
    assert_close(masked[:, :2], deleted)
    assert not masked[:, 2].any()


def test_scores_are_what_one_counts_by_hand(toy):
    trainer = toy.trainer()
    table = contested(hide(toy.table(12), (0, 0), (1, 1), (2, 2), (5, 0)))
    scores, ratings = trainer.evaluate(table, batch=5), trainer.ratings(table).detach().tolist()
    for i, (right, there) in enumerate(zip(table.correct.tolist(), table.answered.tolist(), strict=True)):
        for v in range(2):
            good = [ratings[i][v][j] for j in range(3) if there[j] and right[j]]
            bad = [ratings[i][v][j] for j in range(3) if there[j] and not right[j]]
            pairs = [float(g > b) + (g == b) / 2 for g in good for b in bad]
            assert scores.pairs[i, v] == pytest.approx(sum(pairs) / len(pairs))
            signs = [g > 0 for g in good] + [b < 0 for b in bad]
            assert scores.signs[i, v] == pytest.approx(sum(signs) / len(signs))
    consensus, winner = trainer.vote(torch.tensor(ratings), table)
    assert scores.consensus.tolist() == [float(table.correct[i, w]) for i, w in enumerate(winner.tolist())]
    share = [sum(p for p, r in zip(*pair, strict=True) if r) for pair in zip(consensus, table.correct, strict=True)]
    assert scores.loss.tolist() == pytest.approx([-math.log(p) for p in share])


def test_the_loss_has_right_gradients_through_votes():
    torch.manual_seed(0)
    ratings = (torch.rand(3, 2, 4, dtype=torch.float64) * 2 - 1).requires_grad_(True)
    correct = torch.tensor([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]], dtype=torch.bool)
    there = torch.ones(3, 4, dtype=torch.bool)
    there[2, 3] = False
    cell = ConsensusCell(1, 2, slots=1).double()

    def loss(ratings):
        zeros = torch.zeros(3, 4, 1, dtype=torch.float64)
        mask = there[:, None].expand_as(ratings)
        output, _ = cell(zeros, ratings, mask, zeros[:, 0], proposal_mask=there)
        return surprise(output.consensus, correct)

    assert torch.autograd.gradcheck(loss, (ratings,))
    (slope,) = torch.autograd.grad(loss(ratings).sum(), ratings)
    assert not slope[2, :, 3].any()
    assert slope[:, :, :3].abs().min() > 0


def test_a_loss_without_hope_is_finite():
    assert surprise(torch.tensor([[1.0, 0.0]]), torch.tensor([[False, True]])).isfinite().all()


def test_training_that_does_not_help_leaves_the_judges_as_they_were(toy):
    trainer = toy.trainer()
    before = weights(trainer)
    climbing = functools.partial(torch.optim.SGD, lr=0.5, maximize=True)
    steps = []
    kept = trainer.fit(
        toy.table(8), toy.table(8, seed=1), optimizer=climbing, steps=9, batch=4, every=1, patience=2,
        report=steps.append,
    )  # fmt: skip
    assert kept == 0
    assert len(steps) == 3  # the start, and two that were no better
    after = weights(trainer)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_same_seed_trains_the_same_judges(toy):
    trained = []
    for seed in (0, 0, 1):
        trainer = toy.trainer(seed=seed)
        trainer.fit(toy.table(6), toy.table(2, seed=1), optimizer=ADAM, steps=2, batch=2, every=2, patience=9)
        trained.append(trainer.ratings(toy.table(2, seed=3)).detach())
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[2])


def test_a_trained_judge_rates_the_same_from_its_folder(toy, tmp_path):
    trainer, table = toy.trainer(), toy.table(3, seed=3)
    trainer.fit(toy.table(4), toy.table(2, seed=1), optimizer=ADAM, steps=2, batch=2, every=2)
    folders = {name: str(tmp_path / name) for name in ("ann", "bob")}
    for name, folder in folders.items():
        save_adapter(trainer.engines["tiny"], name, folder)
    agents = [Agent(name, "tiny", persona=name, adapter=name) for name in folders]
    ensemble = give_adapters(Ensemble({"tiny": toy.engine(adapters=folders)}, agents), targets=())
    again = JudgeTrainer(ensemble, rating=trainer.rating, prompts=trainer.prompts)
    # What an adapter that learns no more read may be kept, what another read is read anew.
    torch.testing.assert_close(again.ratings(table), trainer.ratings(table).detach(), atol=1e-6, rtol=0)


def test_only_judges_learn_each_with_the_adapter_it_rates_with(toy):
    engine = toy.engine()
    add_adapter(engine, "verdicts", targets=["q_proj"])
    agents = [
        Agent("ann", "tiny", roles=("proposer",)),
        Agent("bob", "tiny", judge_adapter="verdicts"),
        Agent("eve", "tiny", roles=("judge",)),
    ]
    ensemble = give_adapters(Ensemble({"tiny": engine}, agents), targets=["q_proj"])
    assert set(engine.adapters) == {"verdicts", "eve"}
    assert [(agent.adapter, agent.rating_adapter) for agent in ensemble.agents] == [
        (None, None),
        (None, "verdicts"),
        ("eve", "eve"),
    ]
    plain = toy.trainer()
    trainer = JudgeTrainer(ensemble, rating=plain.rating, prompts=plain.prompts)
    assert set(trainer.parameters) == {"bob", "eve"}
    table = toy.table(3)
    assert trainer.ratings(table).shape == (3, 2, 3)
    assert trainer.evaluate(table).pairs.shape == (3, 2)
    trainer.loss(table).backward()
    for name in ("verdicts", "eve"):
        assert sum(p.grad.abs().sum() for p in adapter_parameters(engine, name).values() if p.grad is not None) > 0
    mute = Ensemble({"tiny": engine}, [dataclasses.replace(a, roles=("proposer",)) for a in agents])
    with pytest.raises(ValueError, match=r"^expected an agent that may judge, got none: give one the role judge$"):
        JudgeTrainer(mute, rating=plain.rating, prompts=plain.prompts)


def test_only_tasks_with_right_and_wrong_answers_are_contested(toy):
    table = toy.table(4, count=2)
    right = table.correct.clone()
    right[0], right[1] = True, False
    table = hide(dataclasses.replace(table, correct=right), (2, int(right[2].int().argmax())))
    assert [task.id for task in contested(table).tasks] == ["0-3"]


def test_faults_are_one_line(toy):
    scripted = Ensemble({"s": ScriptedEngine(lambda r: "x", None)}, [Agent("a", "s"), Agent("b", "s")])
    line = "agent 'a': expected a judge on a model in this process, got ScriptedEngine: choose an ensemble of"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}"):
        give_adapters(scripted, targets=())
    trainer = toy.trainer()
    with pytest.raises(ValueError, match=r"^agent 'a': expected a judge with an adapter; see give_adapters$"):
        JudgeTrainer(scripted, rating=trainer.rating, prompts=trainer.prompts)
    with pytest.raises(ValueError, match=r"^expected contested tasks, got 2 to train on, 0 to choose by$"):
        trainer.fit(toy.table(2), toy.table(2).select([]), optimizer=ADAM, steps=1)


def test_the_verdict_loss_is_cross_entropy_and_leaves_missing_ratings_out():
    ratings = torch.tensor([[[0.5, -0.2, math.nan]], [[1.0, -1.0, 0.0]]], dtype=torch.float64)
    correct = torch.tensor([[True, False, False], [True, False, True]])
    by_hand = [-(math.log(0.75) + math.log(0.6)) / 2, -math.log(0.5) / 3]
    assert verdict_loss(ratings, correct).tolist() == pytest.approx(by_hand)
    given = ratings[:, :, :2].clone().clamp(-0.9, 0.9).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda r: verdict_loss(r, correct[:, :2]), (given,))
    hopeless = torch.tensor([[[-1.0]]])
    assert verdict_loss(hopeless, torch.tensor([[True]])).isfinite().all()


def test_a_judge_that_says_yes_to_all_is_led_back_by_its_own_loss_alone():
    """Ballots know ratings up to a common factor: logits of 9 for a right and 9 for a wrong candidate are a tie."""
    correct = torch.tensor([[True, False]])
    logits = torch.full((1, 1, 2), 9.0, dtype=torch.float64, requires_grad=True)
    ratings = logits.tanh()
    ballots = quadratic_vote(ratings, torch.ones(1, 1, 2, dtype=torch.bool))
    (vote,) = torch.autograd.grad(surprise(ballots.sum(1).softmax(-1), correct).sum(), logits, retain_graph=True)
    (own,) = torch.autograd.grad(verdict_loss(ratings, correct).sum(), logits)
    assert vote.abs().max() < 1e-6
    assert own[0, 0, 1] == pytest.approx(1.0, abs=1e-3)  # down, for the wrong one
    assert abs(own[0, 0, 0]) < 1e-6
