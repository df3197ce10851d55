"""Votes with one weight an agent against their closed forms."""

import itertools
import math

import torch

from nsed_lab.rules.weighted_votes import options
from nsed_torch.tuning.rules import decide, known_rules

RULES = known_rules()


def test_plurality_counts(table):
    test = table(["aab.", "abcd"])
    assert RULES["plurality"](test, test).tolist() == [[2, 2, 1, -math.inf], [1, 1, 1, 1]]


def test_log_odds_are_the_closed_form(table):
    # Accuracies 3/4, 1/2 and 1/4 of four options.
    train = table(["aab", "abc", "acd", "baa"], labels=True)
    test = table(["abb", "a..", ".a.", "..a"], labels=True)
    weight = [math.log(3 * p / (1 - p)) for p in (3 / 4, 2 / 4, 1 / 4)]
    expected = [[weight[0], weight[1] + weight[2], weight[1] + weight[2]]]
    scores = RULES["log_odds"](train, test)
    torch.testing.assert_close(scores[:1], torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(scores[1:].diagonal(), torch.tensor(weight, dtype=torch.float64))
    # The best agent overrules the two others together, who have the plurality.
    assert decide(RULES["log_odds"], train, test)[0]
    assert not decide(RULES["plurality"], train, test)[0]


def test_a_perfect_record_has_a_bounded_weight(table):
    train = table(["ab", "ab"], labels=True)
    scores = RULES["log_odds"](train, table(["ab"]))
    torch.testing.assert_close(scores[0], torch.tensor([49, 1 / 49], dtype=torch.float64).log())


def test_options_are_shared_labels_or_the_most_answers(table):
    assert options(table(["ab.", "cd."], labels=True)) == 4
    assert options(table(["ab.", "cd.", "efg"])) == 3
    assert options(table(["aa.", "bb."])) == 2


def test_agreement_tells_accuracies_where_errors_are_independent(table, drawn):
    skills = (0.9, 0.75, 0.6, 0.5, 0.35)
    rows, golds = drawn(6000, skills=skills, silent=0.05)
    train = table(rows, golds, labels=True, task=torch.zeros(6000, 1))
    alone = table(["a....", ".a...", "..a..", "...a.", "....a"], "bbbbb", labels=True)
    weight = torch.tensor([math.log(3 * p / (1 - p)) for p in skills], dtype=torch.float64)
    found = RULES["optimal_weight"](train, alone).diagonal()
    torch.testing.assert_close(found, weight, atol=0.25, rtol=0)
    # Grades play no part in it.
    train.correct.zero_()
    assert torch.equal(RULES["optimal_weight"](train, alone).diagonal(), found)


def test_inverse_surprising_popularity_is_its_definition(table):
    """On answers that are symmetric in the labels, by counting: votes less those expected had others said otherwise."""
    base = ["aaab", "aabc", "abbc", "aaba", "abca"]
    letters, pool = "abc", 4
    rows = [
        "".join(dict(zip(letters, to, strict=True))[x] for x in row)
        for row in base
        for to in itertools.permutations(letters)
    ]
    train = table(rows, labels=True)
    test = table(["aabc", "abba", "cabc"], labels=True)

    def chance(i, said, j, given):
        those = [row for row in rows if row[j] == given]
        return sum(row[i] == said for row in those) / len(those)

    def advantage(row, said):
        total = 0.0
        for i in range(pool):
            others = [j for j in range(pool) if j != i]
            otherwise = [chance(i, said, j, t) for j in others for t in letters if t != row[j]]
            total += (row[i] == said) - sum(otherwise) / len(otherwise)
        return total

    expected = torch.tensor([[advantage(row, x) for x in row] for row in ("aabc", "abba", "cabc")]).double()
    scores = RULES["surprising_popularity"](train, test)
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1], atol=1e-6, rtol=0)


def test_surprising_popularity_decides_ties_for_those_who_agree_with_others(table):
    # Agents 0 and 1 agree with each other and the third often, agent 3 with nobody.
    train = table(["aaab", "bbbc", "aacb", "aaab"], "dddd", labels=True)
    scores = RULES["surprising_popularity"](train, table(["..ab", "a..b"], labels=True))
    assert scores[0, 2] > scores[0, 3]
    assert scores[1, 0] > scores[1, 3]


def test_pseudo_labels_share_ties(table):
    # Two agents always differ: each is the elected one half of the time, however often.
    train = table(["ab", "ba", "ab"], labels=True)
    scores = RULES["optimal_weight_pseudo"](train, table(["ab"], labels=True))
    torch.testing.assert_close(scores, torch.zeros_like(scores))
