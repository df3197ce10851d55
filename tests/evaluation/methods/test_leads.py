"""The best single agent, chosen without looking."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from nsed_torch.evaluation.run_methods import best_single, cross_fitted_leads
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage
from nsed_torch.traces.splits import place

AGENTS = ("ann", "bob", "cid")
VERDICTS = [Verdict.RIGHT, Verdict.WRONG, Verdict.NOT_RUN]


def outcome(agent, task, verdict, group=None):
    return Outcome(f"single:{agent}", task, group or task, "", "4", "is 4", verdict, Usage(1, 2, 3), "short")


def grid(rows):
    """A row of verdicts a task, an entry an agent; two tasks ask one question."""
    return [
        outcome(agent, f"t{i}", verdict, group=f"g{i // 2}")
        for i, row in enumerate(rows)
        for agent, verdict in zip(AGENTS, row, strict=True)
    ]


rows = st.lists(st.tuples(*[st.sampled_from(VERDICTS)] * 3), min_size=1, max_size=24)


@given(rows, st.integers(0, 99), st.integers(2, 6), st.data())
def test_a_tasks_own_question_never_chooses_its_lead(rows, seed, folds, data):
    i = data.draw(st.integers(0, len(rows) - 1))
    changed = list(rows)
    changed[i] = data.draw(st.tuples(*[st.sampled_from(VERDICTS)] * 3))
    leads = cross_fitted_leads(grid(rows), AGENTS, folds, seed)
    again = cross_fitted_leads(grid(changed), AGENTS, folds, seed)
    same_question = [f"t{k}" for k in (i - i % 2, i - i % 2 + 1) if k < len(rows)]
    assert list(leads) == [f"t{k}" for k in range(len(rows))]
    assert all(leads[task] == again[task] for task in same_question)


@given(rows, st.integers(0, 99))
def test_a_lead_has_the_best_mean_of_the_other_folds(rows, seed):
    leads = cross_fitted_leads(grid(rows), AGENTS, 3, seed)
    for task, lead in leads.items():
        fold = [int(place(f"g{i // 2}", seed) * 3) for i in range(len(rows))]
        others = [row for row, f in zip(rows, fold, strict=True) if f != fold[int(task[1:])]]
        means = []
        for j in range(3):
            scores = [row[j].score for row in others if row[j] is not Verdict.NOT_RUN]
            means.append(sum(scores) / len(scores) if scores else -1)
        assert lead == AGENTS[means.index(max(means))]


def test_other_methods_and_other_agents_are_passed_over():
    right = [outcome("cid", f"t{i}", Verdict.RIGHT) for i in range(20)]
    wrong = [outcome("ann", f"t{i}", Verdict.WRONG) for i in range(20)]
    foreign = [dataclasses.replace(o, method="debate") for o in right] + [outcome("eve", "t99", Verdict.RIGHT)]
    leads = cross_fitted_leads(foreign + wrong + right, AGENTS)
    assert leads == {f"t{i}": "cid" for i in range(20)}


def test_one_question_or_no_score_leaves_the_first_agent():
    alone = [outcome("ann", "t", Verdict.WRONG), outcome("bob", "t", Verdict.RIGHT)]
    assert cross_fitted_leads(alone, AGENTS) == {"t": "ann"}
    unscored = [outcome("bob", f"t{i}", Verdict.NOT_RUN) for i in range(9)]
    assert set(cross_fitted_leads(unscored, AGENTS).values()) == {"ann"}
    assert cross_fitted_leads([], AGENTS) == {}


def test_the_best_single_agents_outcomes_bear_a_name_of_their_own():
    outcomes = grid([(Verdict.RIGHT, Verdict.WRONG, Verdict.WRONG)] * 2)
    chosen = best_single(outcomes, {"t1": "bob", "t0": "ann"})
    assert [(o.method, o.task, o.verdict, o.note) for o in chosen] == [
        ("best_single", "t1", Verdict.WRONG, "by bob; short"),
        ("best_single", "t0", Verdict.RIGHT, "by ann; short"),
    ]
    assert dataclasses.replace(chosen[1], method="single:ann", note="short") == outcomes[0]
