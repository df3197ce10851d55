"""Models of crowds, by crowd-kit."""

import pytest
import torch

from nsed_torch.tuning.rules import decide, known_rules

RULES = known_rules()

pytest.importorskip("crowdkit")
CROWD = ("dawid_skene", "dawid_skene_graded", "one_coin_dawid_skene", "wawa", "zero_based_skill", "mace")


@pytest.mark.parametrize("name", CROWD)
@pytest.mark.parametrize("labels", [False, True])
def test_independent_agents_are_told_apart(name, labels, table, drawn):
    rows, golds = drawn(400, skills=(0.95, 0.9, 0.4, 0.4, 0.4, 0.4), silent=0.05)
    episodes = table(rows, golds, labels=labels, task=torch.zeros(400, 1))
    train, test = episodes.select(range(300)), episodes.select(range(300, 400))
    share = {which: decide(RULES[which], train, test).double().mean() for which in (name, "plurality")}
    assert share[name] >= share["plurality"]


@pytest.mark.parametrize("name", ["dawid_skene", "dawid_skene_graded"])
def test_only_the_graded_one_reads_grades(name, table, drawn):
    rows, golds = drawn(120)
    episodes = table(rows, golds, labels=True)
    train, test = episodes.select(range(80)), episodes.select(range(80, 120))
    before = RULES[name](train, test)
    train.correct.zero_()
    assert torch.equal(RULES[name](train, test), before) == (name == "dawid_skene")


def test_known_labels_overrule_a_majority_that_is_always_wrong(table):
    # Three agents repeat one error in three; only grades tell that agent 0 is right.
    rows, golds = ["abbb", "bccc", "cddd", "daaa"] * 30, "abcd" * 30
    episodes = table(rows, golds, labels=True, task=torch.zeros(120, 1))
    train, test = episodes.select(range(100)), episodes.select(range(100, 120))
    assert decide(RULES["dawid_skene_graded"], train, test).all()
    assert not decide(RULES["dawid_skene"], train, test).any()
