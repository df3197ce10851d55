"""What deliberations tell, on a study's page."""

import pytest

from nsed_torch.evaluation.competence_law import fit_fatigue_law
from nsed_torch.evaluation.insight.team_insight import Law, RoundInsight
from nsed_torch.evaluation.page_insight import judging_table, law_text, rounds_table
from nsed_torch.evaluation.statistics import Estimate, plain

NONE = Estimate(0)


def data(accuracies, *, p_g=0.5, fit=True):
    """What results.json holds of deliberations with these accuracies, a round each, over 1000 tasks."""
    rounds = [
        RoundInsight(r, 1000, Estimate(1000, a, a - 0.1, a + 0.1), 90.4 * r, NONE) for r, a in enumerate(accuracies, 1)
    ]
    law = fit_fatigue_law(list(accuracies), [1000] * len(accuracies)) if fit else None
    notes = () if fit else ("a law needs at least 4 rounds, got 2: record_more",)
    told = {"course": {"rounds": rounds, "law": Law(law, notes)}, "p_g": {"pooled": Estimate(90, p_g, 0.4, 0.6)}}
    told["p_v"] = {"pooled": {"auc": NONE, "sign": Estimate(60, 0.75, 0.7, 0.8)}}
    return {"insight": plain(told)}


def test_rounds_with_their_accuracy_and_tokens():
    assert rounds_table(data([0.5, 0.625], fit=False)).splitlines() == [
        "| round | tasks | accuracy | tokens so far |",
        "| ---: | ---: | ---: | ---: |",
        "| 1 | 1000 | 0.500 [0.400, 0.600] | 90 |",
        "| 2 | 1000 | 0.625 [0.525, 0.725] | 181 |",
    ]


def test_the_law_in_a_sentence():
    found = data([0.54, 0.65, 0.7, 0.72, 0.73])
    fit = found["insight"]["course"]["law"]["fit"]
    text = law_text(found)
    assert text.startswith(f"p\\_g {fit['p_g']:.3f} [{fit['p_g_interval']['low']:.3f}, ")
    assert f"R² {fit['r_squared']:.2f}." in text
    assert text.count("[") == 4
    found["insight"]["course"]["law"]["fit"] |= {"t_opt": None, "t_opt_interval": {"low": 3.0, "high": None}}
    assert "peak in rounds unbounded [3.000, unbounded]" in law_text(found)


def test_no_law_says_why():
    assert law_text(data([0.5, 0.6], fit=False)) == "No law: a law needs at least 4 rounds, got 2: record\\_more."


def test_judges_and_what_came_of_them():
    shown = judging_table({"with | names": data([0.5, 0.625], fit=False), "b": data([0.25], p_g=None, fit=False)})
    assert shown.splitlines() == [
        r"| run | p\_g | p\_v, pairs | p\_v, signs | accuracy | gain over p\_g |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        r"| with \| names | 0.500 [0.400, 0.600] | no score | 0.750 [0.700, 0.800] | 0.625 [0.525, 0.725] | +0.125 |",
        "| b | no score | no score | 0.750 [0.700, 0.800] | 0.250 [0.150, 0.350] |  |",
    ]


def test_results_without_a_deliberation_are_refused():
    with pytest.raises(ValueError, match=r"^expected results with deliberations, got none: take a run with"):
        rounds_table({"insight": None})
