"""Rules that take one agent's answer."""

import math

import pytest
import torch

from nsed_torch.tuning.rules import decide, known_rules

RULES = known_rules()


def test_best_single_is_the_agent_most_often_right_before(table, drawn):
    rows, golds = drawn(120, skills=(0.4, 0.7, 0.5))
    episodes = table(rows, golds)
    train, test = episodes.select(range(80)), episodes.select(range(80, 120))
    assert torch.equal(decide(RULES["best_single"], train, test), test.by_agent().right[:, 1])


def test_the_chosen_answer_wins_whoever_else_gives_it(table):
    train = table(["ab", "ab"])
    test = table(["ab", "aa", ".a", "a."])
    inf = math.inf
    assert RULES["best_single"](train, test).tolist() == [[1, 0], [1, 1], [-inf, -inf], [1, -inf]]


def test_gaps_are_filled_from_the_next_best(table):
    train, test = table(["ab.", "ab.", "ba.", ".aa", "a.."]), table(["ab.", ".ab", "..a", "..."])
    assert RULES["fallback"](train, test).argmax(1)[:3].tolist() == [0, 1, 2]
    assert decide(RULES["fallback"], train, test).tolist() == [1, 1, 1, 0]


def test_each_category_has_its_best(table):
    train = table(["ab", "ab", "ba", "ab", "bb"], categories=["sums", "sums", "law", "art", "art"])
    test = table(["ab"] * 4, categories=["sums", "law", "art", "logic"])
    winners = RULES["best_by_category"](train, test).argmax(1)
    assert winners.tolist() == [0, 1, 0, 0]
    # Equally good within a category: the better one of all tasks.
    tied = table(["ba", "ba", "ab"], categories=["sums", "law", "law"])
    assert RULES["best_by_category"](tied, test).argmax(1).tolist()[1] == 1


def test_neighbours_choose_the_agent(table):
    pytest.importorskip("sklearn")
    g = torch.Generator().manual_seed(0)
    kind = torch.randint(2, (120,), generator=g)
    task = torch.nn.functional.normalize(
        torch.eye(2)[kind].double() + 0.1 * torch.randn(120, 2, generator=g).double(), dim=1
    )
    episodes = table(["ba" if k else "ab" for k in kind.tolist()], task=task)
    train, test = episodes.select(range(90)), episodes.select(range(90, 120))
    assert torch.equal(RULES["knn_router"](train, test).argmax(1), kind[90:])
    for name in ("knn_router", "logistic_router"):
        assert decide(RULES[name], train, test).all()
    # With fewer tasks than the fewest neighbours, all of them are.
    few = table(["ab", "ab", "ba"])
    assert RULES["knn_router"](few, few).argmax(1).tolist() == [0, 0, 0]
