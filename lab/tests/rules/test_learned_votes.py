"""Rules that scikit-learn fits."""

import dataclasses

import pytest
import torch

from nsed_torch.tuning.rules import decide, known_rules

RULES = known_rules()

pytest.importorskip("sklearn")


def test_two_answers_a_task_make_it_a_logistic_regression(table):
    linear = pytest.importorskip("sklearn.linear_model")
    g = torch.Generator().manual_seed(0)
    right = torch.rand(200, 3, generator=g) < torch.tensor([0.8, 0.6, 0.5])
    episodes = table(["".join("a" if r else "b" for r in row) for row in right.tolist()], task=torch.zeros(200, 1))
    scores = RULES["logistic_vote"](episodes, table(["abb", "a..", ".a.", "..a"]))
    both = right.any(1) & ~right.all(1)
    sign = right[both].double().mul(2).sub(1)
    model = linear.LogisticRegression(fit_intercept=False, tol=1e-8)
    model.fit(torch.cat([sign, -sign]).numpy(), [1] * len(sign) + [0] * len(sign))
    weight = torch.tensor(model.coef_[0])
    torch.testing.assert_close(scores[1:].diagonal(), weight, atol=1e-4, rtol=0)
    torch.testing.assert_close(scores[0], torch.stack([weight[0], *(weight[1:].sum(),) * 2]), atol=1e-4, rtol=0)


def test_copies_share_one_vote(table, drawn):
    """Agents 2, 3 and 4 say what agent 1 says: the vote learns that they are one."""
    rows, golds = drawn(600, skills=(0.75, 0.6), silent=0.0)
    rows = [row + row[1] * 3 for row in rows]
    episodes = table(rows, golds, task=torch.zeros(600, 1))
    train, test = episodes.select(range(400)), episodes.select(range(400, 600))
    share = {
        name: decide(RULES[name], train, test).double().mean()
        for name in ("plurality", "log_odds", "logistic_vote", "boosted_votes")
    }
    assert share["logistic_vote"] > share["log_odds"] + 0.05
    assert share["boosted_votes"] > share["plurality"] + 0.05


def test_a_copy_tells_nothing_new_and_is_not_chosen(table, drawn):
    """Agent 1 says what agent 0 says; agent 2 is worse than they are, but errs otherwise."""
    rows, golds = drawn(400, skills=(0.7, 0.6), silent=0.0)
    episodes = table([row[0] + row for row in rows], golds, task=torch.zeros(400, 1))
    scores = RULES["mutual_information"](episodes, table(["aab", "abc"]))
    assert scores.isfinite().tolist() == [[True, True, True], [True, False, True]]


def test_trees_read_what_the_right_answer_looks_like(table):
    g = torch.Generator().manual_seed(0)
    rows = ["abc" if flip else "bac" for flip in (torch.rand(200, generator=g) < 0.5).tolist()]
    episodes = table(rows, task=torch.zeros(200, 1))
    features = episodes.correct[..., None] + 0.1 * torch.randn(200, 1, 3, 1, generator=g)
    episodes = dataclasses.replace(episodes, features=features.double(), feature_names=("tone",))
    train, test = episodes.select(range(150)), episodes.select(range(150, 200))
    share = {name: decide(RULES[name], train, test).mean() for name in ("boosted_votes", "boosted_reading")}
    assert share["boosted_reading"] == 1 > share["boosted_votes"] + 0.2


def test_trees_learn_what_no_vote_can(table):
    """Agent 0 is right on sums, of which there are more, agent 1 on law."""
    kinds = (["sums", "sums", "law"] * 67)[:200]
    rows = ["abc" if kind == "sums" else "bac" for kind in kinds]
    episodes = table(rows, categories=kinds, task=torch.zeros(200, 1))
    train, test = episodes.select(range(150)), episodes.select(range(150, 200))
    assert decide(RULES["boosted_votes"], train, test).all()
    # A category that training tasks lack is as good as none.
    other = table(rows[:4], categories=["art"] * 4)
    assert RULES["boosted_votes"](train, other).isfinite().all()


@pytest.mark.parametrize("name", ["logistic_vote", "boosted_votes"])
def test_nothing_to_learn_is_plurality(name, table):
    train, test = table(["aa.", "aaa"]), table(["abb", "a.."])
    assert torch.equal(RULES[name](train, test), RULES["plurality"](train, test))
