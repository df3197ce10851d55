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


def test_length_bias_agrees_with_scipy():
    traces = team(25, 2, seed=1)
    length = insight(traces)["length"]
    rows = [
        (len(proposal.text), rating, right, (number, record.index, voter))
        for number, one in enumerate(traces)
        for record, grades in zip(one.transcript.rounds, one.grades, strict=True)
        for voter, row in zip(record.voters, record.ratings, strict=True)
        for proposal, rating, right in zip(record.proposals, row, grades, strict=True)
        if rating is not None
    ]
    *columns, ballots = zip(*rows, strict=True)
    characters, rating, right = map(np.array, columns)
    ballot = np.array([ballots.index(one) for one in ballots])

    def centred(values):
        return np.array([v - values[ballot == b].mean() for v, b in zip(values, ballot, strict=True)])

    for got, mask in ((length["pooled"], ballot >= 0), (length["right"], right), (length["wrong"], ~right)):
        assert got.mean == pytest.approx(stats.pearsonr(characters[mask], rating[mask])[0])
        assert got.n == mask.sum()
        assert got.low < got.mean < got.high
    assert length["within"].mean == pytest.approx(stats.pearsonr(centred(characters), centred(rating))[0])


def test_ballots_of_other_levels_hide_no_bias():
    """A generous judge sees short proposals, a harsh one long ones: pooled, length harms; side by side it helps."""
    generous = turn([NO] * 4, 0, [[None, 0.7, 0.9, None]], texts=["", "." * 2, "." * 4, ""])
    harsh = turn([NO] * 4, 0, [[None, -0.9, -0.7, None]], texts=["", "." * 20, "." * 22, ""])
    length = insight([trace("one", generous), trace("two", harsh)])["length"]
    assert length["pooled"].mean < -0.9
    assert length["within"].mean == pytest.approx(1)


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
    assert position.mean == pytest.approx(-1)
    assert position.n == 6 * 2 * 4 * 3


def test_a_fixed_order_is_the_proposals():
    rows = [[None, 0.1, 0.2, 0.3], [0.1, None, 0.2, 0.3]]
    settings = {"shuffled": False, "diagonal_mask": True}
    found = insight([trace("one", turn([NO] * 4, 0, rows), settings=settings)])
    assert found["position"].mean == pytest.approx(1)


def test_ratings_of_oneself_are_heard_where_the_mask_is_off_but_do_not_count():
    settings = {"shuffled": False, "diagonal_mask": False}
    found = insight([trace("one", turn([YES, NO, NO], 0, [[0.0, 0.9, -0.1], [0.3, None, 0.2]]), settings=settings)])
    assert found["calibration"]["brier"].n == 4
    # b heard itself between a and c.
    assert found["position"].mean == pytest.approx(stats.pearsonr([-0.5, 0.5, -1, 1], [0.5, -0.5, 0.05, -0.05])[0])
