"""What ratings follow besides the truth, by hand and against SciPy."""

import numpy as np
import pytest
from scipy import stats
from team_traces import team, trace, turn

from nsed_torch.agents import Agent, Decoding, Ensemble, HashedEncoder, ScriptedEngine
from nsed_torch.deliberation import MacroRNN, MacroRNNCell
from nsed_torch.evaluation.insight import insight
from nsed_torch.experiments.build import consensus_cell
from nsed_torch.nn import FixedHalting
from nsed_torch.records import Task, Trace

YES, NO = "yes", "no"


def test_calibration_by_hand():
    rows = [[None, -0.8, 1.0, 0.0], [0.5, None, 1.0, 0.1]]
    calibration = insight([trace("one", turn([YES, NO, YES, NO], 0, rows))])["calibration"]
    assert [b["right"].n for b in calibration["bins"]] == [0, 1, 0, 0, 0, 2, 0, 1, 0, 2]
    assert [b["right"].mean for b in calibration["bins"] if b["right"].n] == [0, 0, 1, 1]
    assert [b["rating"] for b in calibration["bins"] if b["right"].n] == [-0.8, 0.05, 0.5, 1.0]
    assert (calibration["bins"][0]["low"], calibration["bins"][0]["high"], calibration["bins"][-1]["high"]) == (
        -1,
        -0.8,
        1,
    )
    # Probabilities 0.1, 0.5 and 0.55 for wrong ones, 0.75 and twice 1 for right ones.
    assert calibration["error"].mean == pytest.approx((0.1 + 0.5 + 0.55 + 0.25) / 6)
    assert calibration["brier"].mean == pytest.approx((0.01 + 0.25 + 0.3025 + 0.0625) / 6)


def every_rating(traces):
    """(judge, length, rating, right, ballot) of all that rate others."""
    ballot = 0
    for one in traces:
        for record, grades in zip(one.transcript.rounds, one.grades, strict=True):
            for voter, row in zip(record.voters, record.ratings, strict=True):
                ballot += 1
                for proposal, rating, right in zip(record.proposals, row, grades, strict=True):
                    if rating is not None and proposal.agent != voter:
                        yield voter, len(proposal.text), rating, right, ballot


def test_length_bias_agrees_with_scipy():
    traces = team(25, 2, seed=1)
    length = insight(traces)["length"]
    voter, characters, rating, right, ballot = map(np.array, zip(*every_rating(traces), strict=True))

    def centred(values):
        return np.array([v - values[ballot == b].mean() for v, b in zip(values, ballot, strict=True)])

    for got, mask in ((length["pooled"], ballot > 0), (length["right"], right), (length["wrong"], ~right)):
        assert got["pearson"].mean == pytest.approx(stats.pearsonr(characters[mask], rating[mask])[0])
        assert got["spearman"].mean == pytest.approx(stats.spearmanr(characters[mask], rating[mask])[0])
        assert got["pearson"].n == mask.sum()
        assert got["pearson"].low < got["pearson"].mean < got["pearson"].high
    x, y = centred(characters), centred(rating)
    assert length["within"]["pearson"].mean == pytest.approx(stats.pearsonr(x, y)[0])
    for name, got in length["judges"].items():
        assert got["pearson"].mean == pytest.approx(stats.pearsonr(x[voter == name], y[voter == name])[0])
        assert got["spearman"].mean == pytest.approx(
            stats.spearmanr(x[voter == name].round(9), y[voter == name].round(9))[0]
        )
    assert list(length["judges"]) == list("abcd")


def test_ballots_of_other_levels_hide_no_bias():
    """A generous judge sees short proposals, a harsh one long ones: pooled, length harms; side by side it helps."""
    generous = turn([NO] * 4, 0, [[None, 0.7, 0.9, None]], texts=["", "." * 2, "." * 4, ""])
    harsh = turn([NO] * 4, 0, [[None, -0.9, -0.7, None]], texts=["", "." * 20, "." * 22, ""])
    length = insight([trace("one", generous), trace("two", harsh)])["length"]
    assert length["pooled"]["pearson"].mean < -0.9
    assert length["within"]["pearson"].mean == pytest.approx(1)
    assert length["within"]["spearman"].mean == pytest.approx(1)


@pytest.mark.parametrize("seed", [0, 5])
def test_judges_who_rate_by_position_are_found_out(seed):
    """The judges of a scripted team look at nothing but the candidate's letter, in orders they cannot know."""

    def judge(request, candidate):
        (letter,) = candidate.split("Candidate_")[-1][:1]
        return 0.5 - 0.25 * "ABCD".index(letter)

    engine = ScriptedEngine(lambda request: f"answer {request.seed % 7}", judge)
    agents = [Agent(name, "scripted", decoding=Decoding(max_new_tokens=8)) for name in "abcd"]
    encoder = HashedEncoder(8)
    cell = MacroRNNCell(
        Ensemble({"scripted": engine}, agents), encoder, consensus_cell(dim=8, agents=4, slots=2), seed=seed
    )
    tasks = [Task(f"{i}?", f"t{i}") for i in range(6)]
    found = []
    for transcript in MacroRNN(cell, halting=FixedHalting(2))(tasks).transcripts:
        texts = [[proposal.text for proposal in record.proposals] for record in transcript.rounds]
        found.append(Trace(transcript, [[False] * 4 for _ in texts], texts))
    position = insight(found)["position"]
    assert [(v.mean, v.n) for v in position["means"]] == [(0.5, 48), (0.25, 48), (0.0, 48)]
    assert position["correlation"].mean == pytest.approx(-1)


def test_a_fixed_order_is_the_proposals():
    rows = [[None, 0.1, 0.2, 0.3], [0.1, None, 0.2, 0.3]]
    settings = {"shuffled": False, "diagonal_mask": True}
    position = insight([trace("one", turn([NO] * 4, 0, rows), settings=settings)])["position"]
    assert [v.mean for v in position["means"]] == pytest.approx([0.1, 0.2, 0.3])
    assert position["correlation"].mean == pytest.approx(1)


def test_self_preference_by_hand():
    rows = [[0.9, 0.1, None], [0.3, None, 0.2], [0.5, 0.0, 0.6]]
    settings = {"diagonal_mask": False}
    found = insight([trace("one", turn([YES, NO, NO], 0, rows), settings=settings)])
    # a: 0.9 against 0.4 by others; c: 0.6 against 0.2. Of others, a gives 0.1 and c 0.25.
    assert found["self_preference"]["over_judges"].mean == pytest.approx((0.5 + 0.4) / 2)
    assert found["self_preference"]["over_others"].mean == pytest.approx((0.8 + 0.35) / 2)
    assert found["self_preference"]["over_others"].n == 2
    assert found["calibration"]["brier"].n == 5
    masked = insight([trace("one", turn([YES, NO], 0, [[None, 0.1]]))])
    assert masked["self_preference"] is None


def test_own_positions_are_heard_where_the_mask_is_off():
    rows = [[0.9, 0.1, -0.1]]
    settings = {"shuffled": False, "diagonal_mask": False}
    position = insight([trace("one", turn([NO] * 3, 0, rows), settings=settings)])["position"]
    assert [v.mean for v in position["means"]] == [None, 0.1, -0.1]


def test_agreement_by_hand():
    rows = [
        [None, 0.8, 0.2, 0.4],  # a says yes, as b does
        [0.6, None, 0.0, -0.2],
        [0.1, 0.3, None, -0.5],  # c says no, d maybe
        [0.1, 0.1, 0.1, None],
    ]
    found = insight([trace("one", turn([YES, YES, NO, None], 0, rows), backbones="xyxy")])["agreement"]
    # d has no answer: neither its judgement nor its proposal counts.
    assert found["answer"].mean == pytest.approx((0.8 + 0.6) / 2 - (0.2 + 0.0 + 0.1 + 0.3) / 4)
    assert found["answer_right"].mean == pytest.approx((0.8 + 0.6) / 2 - (0.1 + 0.3) / 2)
    assert found["answer_wrong"].mean is None
    assert found["answer"].n == 6
    assert found["backbone"].mean == pytest.approx(
        (0.2 + -0.2 + 0.1 + 0.1) / 4 - (0.8 + 0.4 + 0.6 + 0.0 + 0.3 - 0.5 + 0.2) / 8
    )
