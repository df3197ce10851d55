"""Endings by likelihood: what every method chooses of one question."""

import json

import pytest

from nsed_lab.studies.endings import checked, chosen, question, run
from nsed_torch.app.door import Door
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Likelihood

ENDINGS = ["bakes.", "eats a hat.", "sleeps."]
ROW = {"ind": 7, "activity_label": "Baking", "ctx": "A cook", "endings": ENDINGS, "label": 1}
TEXTS = tuple(sorted(ROW["endings"]))  # as they are measured: bakes, eats, sleeps


def of(*values, lengths=(2, 4, 2)):
    return Likelihood(values, prompt_tokens=10, lengths=lengths)


def answers(*measured):
    members = [Agent(f"m{i}", "one") for i in range(len(measured))]
    return {one.method: one for one in chosen(ROW, members, TEXTS, measured)}


def test_a_member_takes_the_ending_of_the_largest_mean_likelihood():
    found = answers(of(0.5, 0.6, 0.1), of(0.7, 0.2, 0.1))
    assert [found[f"single:m{i}"].answer for i in range(2)] == ["eats a hat.", "bakes."]
    assert [found[f"single:m{i}"].score for i in range(2)] == [1.0, 0.0]


def test_a_tie_counts_by_lot():
    found = answers(of(0.5, 0.6, 0.1), of(0.7, 0.2, 0.1))
    assert found["plurality"].by_lot == 0.5
    assert answers(of(0.5, 0.6, 0.1))["plurality"].by_lot is None


def test_mixture_and_product_differ_where_one_member_rules_an_ending_out():
    found = answers(of(0.3, 0.9, 0.1), of(0.3, 0.01, 0.1))
    assert found["mixture"].answer == "eats a hat."  # half of 0.9 to the power of 4, over four tokens, is 0.76
    assert found["product"].answer == "bakes."
    assert found["mixture"].usage.billed == 20


def test_what_is_asked():
    assert question(ROW) == "How does this go on?\nBaking: A cook"


@pytest.mark.parametrize("damage", ["label", "endings", "ctx"])
def test_a_damaged_line_is_named(damage):
    assert checked(json.dumps(ROW), "FILE:1") == ROW
    with pytest.raises(ValueError, match="FILE:3: expected ind, activity_label, ctx, endings and the label of one"):
        checked(json.dumps(ROW | {damage: 7}), "FILE:3")


@pytest.mark.weights
def test_members_are_asked_with_real_weights(tmp_path):
    door = Door({"ensemble": "experts", "prompts.style": "direct"})
    found = run([ROW], door)
    assert [one.method for one in found][-3:] == ["mixture", "product", "plurality"]
    assert len(found) == 8
