"""What every rule promises, and how all of them are decided."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from nsed_torch.tuning.rules import decide, known_rules

RULES = known_rules()

PERMUTATION = (3, 0, 4, 1, 2)
BARE = {"best_single", "best_by_category", "plurality", "log_odds", "optimal_weight", "optimal_weight_pseudo"}
BARE |= {"surprising_popularity", "fallback"}
ROUTERS = {"best_single", "best_by_category", "knn_router", "logistic_router"}
SOME = {*ROUTERS, "mutual_information"}  # of the pool are heard


def needs(name):
    """Skips rules of the extra where it is not installed."""
    if name not in BARE:
        pytest.importorskip("sklearn")
        pytest.importorskip("crowdkit")


@pytest.fixture(scope="module", params=[False, True], ids=["classes", "labels"])
def pools(request, table, drawn):
    """The same training and test tasks with the pool in two orders."""
    rows, golds = drawn(200)
    rows[-1] = "....."
    categories = ["odd" if i % 2 else "even" for i in range(200)]
    task = torch.nn.functional.normalize(
        torch.randn(200, 6, generator=torch.Generator().manual_seed(1)).double(), dim=1
    )

    features = torch.randn(200, 1, 5, 2, generator=torch.Generator().manual_seed(2)).double()

    def parts(order):
        names = tuple("abcde"[i] for i in order)
        episodes = table(
            ["".join(row[i] for i in order) for row in rows],
            golds,
            agents=names,
            labels=request.param,
            categories=categories,
            task=task,
        )
        episodes = dataclasses.replace(episodes, features=features[:, :, list(order)], feature_names=("one", "two"))
        return episodes.select(range(140)), episodes.select(range(140, 200))

    return parts(range(5)), parts(PERMUTATION)


@pytest.fixture(scope="module")
def scored(pools):
    """Scores of a rule on the pool in its first order, computed once."""
    done = {}

    def scores(name):
        needs(name)
        if name not in done:
            done[name] = RULES[name](*pools[0])
        return done[name]

    return scores


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_the_pool_changes_nothing(name, pools, scored):
    one = decide(lambda *_: scored(name), *pools[0])
    two = decide(RULES[name], *pools[1])
    assert torch.equal(one, two)
    assert one.any()


@pytest.mark.parametrize("name", RULES)
def test_equal_answers_score_equally_and_silence_scores_nothing(name, pools, scored):
    answers, scores = pools[0][1].by_agent(), scored(name)
    assert scores.shape == answers.answered.shape
    assert torch.isneginf(scores[~answers.answered]).all()
    assert not scores.isnan().any()
    if name not in SOME:
        assert scores[answers.answered].isfinite().all()
    same = (answers.classes[:, :, None] == answers.classes[:, None, :]) & answers.answered[:, :, None]
    assert torch.equal(scores[:, :, None].expand_as(same)[same], scores[:, None, :].expand_as(same)[same])


@pytest.mark.parametrize("name", RULES)
def test_grades_of_test_tasks_are_not_read(name, pools, scored):
    train, test = pools[0]
    blind = test.select(range(len(test)))
    blind.correct.zero_()
    assert torch.equal(RULES[name](train, blind), scored(name))


@pytest.mark.parametrize("name", RULES)
def test_every_rule_does_without_categories_or_right_answers(name, table):
    needs(name)
    bare = table(["ab", "ba", "bb", "a.", ".."], "ccccc")
    if name == "best_by_category":
        with pytest.raises(ValueError, match="expected categories for the rule best_by_category"):
            RULES[name](bare, bare)
        return
    scores = RULES[name](bare, bare)
    assert torch.isneginf(scores[4]).all()
    assert not decide(RULES[name], bare, bare).any()


def test_ties_go_to_the_most_accurate_agent_then_to_the_first_by_name(table):
    test = table(["aab", "bba", "bab", "..."])
    best_last, equal = table(["bba", "bba"]), table(["aaa"])
    level = torch.where(test.by_agent().answered, 1.0, -torch.inf).double()
    assert decide(lambda *_: level, best_last, test).tolist() == [False, True, False, False]
    assert decide(lambda *_: level, equal, test).tolist() == [True, False, False, False]
    # A rounding error decides nothing; a difference does.
    level[0, 0] += 1e-7
    level[1, 0] += 1e-12
    assert decide(lambda *_: level, best_last, test).tolist() == [True, True, False, False]


def test_the_libraries_are_imported_when_a_rule_is_used(monkeypatch, table):
    code = "import sys, nsed_lab.rules; sys.exit(bool({'sklearn', 'crowdkit', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    train = table(["ab", "ba"])
    for name, module, package in (
        ("knn_router", "sklearn.neighbors", "scikit-learn"),
        ("logistic_vote", "sklearn.linear_model", "scikit-learn"),
        ("boosted_votes", "sklearn.ensemble", "scikit-learn"),
        ("wawa", "crowdkit.aggregation", "crowd-kit"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ValueError, match=rf"expected {package} for the rule .*\[recorded\]"):
            RULES[name](train, train)
