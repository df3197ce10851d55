"""p_g, p_v and the gain by hand, as the insight of traces measures them, and how they go together."""

import numpy as np
import pytest
import torch
from polls import drawn, poll, scores
from team_traces import team

from nsed_torch.agents import HashedEncoder
from nsed_torch.data import load_traces
from nsed_torch.evaluation.insight import insight
from nsed_torch.evaluation.members.sub_teams import ALL, gains, polled, rules, spearman, sub_teams
from nsed_torch.records import TraceWriter

N = None


def measured(tasks, **options):
    teams = sub_teams(len(tasks.agents))
    quadratic = {"quadratic": rules(tasks.task.shape[1], len(tasks.agents), ["quadratic"])["quadratic"]}
    return gains(tasks, teams, scores(tasks, quadratic, teams), **options)


def test_by_hand():
    # a is right, b and c are wrong. c prefers a's to b's; b likes a's and c's alike; a sees no right one.
    ratings = [[N, 0.3, -0.9], [0.5, N, 0.5], [1.0, -1.0, N]]
    rows, _ = measured(poll([["yes", "no", "no"], ["yes", "no", "no"]], [ratings, [[N] * 3] * 3]), strata={})
    quadratic = {row.agents: row for row in rows}
    assert set(quadratic) == {("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")}
    everybody = quadratic["a", "b", "c"]
    assert (everybody.stratum, everybody.tasks, everybody.pairs) == (ALL, 2, 2)
    assert everybody.p_g == pytest.approx(1 / 3)
    assert everybody.p_v == pytest.approx((1 + 0.5) / 2)
    # The first task goes to a; in the second, which nobody rated, yes and no tie.
    assert everybody.gain == pytest.approx((1 + 1 / 2) / 2 - 1 / 3)
    # b and c say the same, whatever they think of each other: there is nothing to decide, and nothing to gain.
    assert quadratic["b", "c"].gain == 0
    # Alone with c, a is rated 1 by c and rates c below 0; the second task is a tie.
    assert quadratic["a", "c"].gain == pytest.approx((1 + 0.5) / 2 - 0.5)
    assert (quadratic["a", "c"].p_v, quadratic["a", "c"].pairs) == (None, 0)


def test_p_g_and_p_v_are_those_of_insight(tmp_path):
    traces = team(40, 1, 4)
    writer = TraceWriter(tmp_path)
    writer.add(traces)
    writer.finish(HashedEncoder(8).embed)
    whole = insight(traces)
    rows, _ = measured(polled(load_traces(tmp_path)))
    everybody = next(row for row in rows if len(row.agents) == 4)
    assert everybody.p_g == pytest.approx(whole["p_g"]["pooled"].mean)
    assert everybody.p_v == pytest.approx(whole["p_v"]["pooled"]["auc"].mean)
    assert everybody.pairs == whole["p_v"]["pooled"]["auc"].n


def test_strata_part_the_tasks_and_add_up():
    tasks = drawn(60)
    rows, _ = measured(tasks)
    assert {row.stratum for row in rows} == {ALL, "even", "odd"}
    for whole in (row for row in rows if row.stratum == ALL):
        parts = [r for r in rows if (r.vote, r.agents) == (whole.vote, whole.agents) and r.stratum != ALL]
        assert sum(part.tasks for part in parts) == whole.tasks == 60
        assert sum(part.pairs for part in parts) == whole.pairs
        assert sum(part.tasks * part.gain for part in parts) / 60 == pytest.approx(whole.gain)
    named, _ = measured(tasks, strata={tasks.ids[0]: "one", tasks.ids[1]: "two"})
    assert [(r.stratum, r.tasks) for r in named if r.agents == tasks.agents] == [
        (ALL, 60),
        ("one", 1),
        ("two", 1),
    ]


def test_one_stratum_alone_is_all_tasks():
    rows, correlations = measured(drawn(20, agents=3), strata={"even-0": "x"})
    assert {row.stratum for row in rows} == {ALL}
    assert {c.over for c in correlations} == {"teams"}


def test_gains_rise_with_p_v_where_some_judges_know_and_others_do_not():
    # Agents are equally often right; c and d can tell, a and b cannot.
    g = torch.Generator().manual_seed(2)
    right = torch.rand(300, 4, generator=g) < 0.5
    tells = torch.tensor([0.0, 0.0, 0.8, 1.6])[:, None]
    ratings = (torch.rand(300, 4, 4, generator=g) * 2 - 1) * 0.3 + 0.4 * tells * (2.0 * right[:, None] - 1)
    tasks = poll([["yes" if r else "no" for r in row] for row in right], ratings.tolist())
    _, correlations = measured(tasks)
    rho = {c.over: c.rho for c in correlations}
    teams, strata = rho["teams"], rho["teams and strata"]
    # Two members never see a right and a wrong proposal side by side; five teams are larger.
    assert (teams.n, strata.n) == (5, 10)
    assert strata.low <= strata.mean <= strata.high
    assert strata.mean > 0.4
    assert strata.low > 0
    assert measured(tasks)[1] == correlations


def test_spearman_needs_something_to_rank():
    x = np.array([1.0, 2.0, 3.0, np.nan])
    assert spearman(x, np.array([5.0, 7.0, 9.0, 0.0])) == pytest.approx(1)
    assert spearman(x, np.array([5.0, 5.0, 5.0, 0.0])) is None
    assert spearman(x[:2], x[:2]) is None
    assert spearman(x, np.array([5.0, 7.0, np.nan, 1.0])) is None
