"""Rules that scikit-learn fits."""

import pytest
import torch

from nsed_torch.tuning.rules import RULES, decide

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
