from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_team import AGENTS, Recording, weigh

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Decoding, Generation, Likelihood, Ratings
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Usage


def test_answers_come_in_the_order_of_the_requests_from_each_agents_backbone(ensemble, engines, ask):
    requests = [ask(f"q{i}", agent="abc"[i % 3], seed=i) for i in range(7)]
    got = ensemble.generate(requests)
    assert [g.text for g in got] == [f"{'two' if i % 3 == 2 else 'one'}/{'abc'[i % 3]}/q{i}" for i in range(7)]
    assert engines["one"].batches == [["q0", "q1"], ["q3", "q4"], ["q6"]]
    assert engines["two"].batches == [["q2", "q5"]]


def test_a_second_call_asks_no_engine_and_gives_the_same(ensemble, engines, ask, judge):
    writes, ratings = [ask("q", agent=name) for name in "abc"], [judge(["xy", "?"], agent=name) for name in "ac"]
    first = ensemble.generate(writes), ensemble.rate(ratings)
    asked = [list(engine.batches) for engine in engines.values()]
    assert (ensemble.generate(writes), ensemble.rate(ratings)) == first
    assert [engine.batches for engine in engines.values()] == asked
    assert first[1][0] == Ratings((0.2, None), prompt_tokens=6)


def test_a_file_gives_another_process_equal_results(tmp_path, ask, judge):
    def run():
        fresh = {"one": Recording("one"), "two": Recording("two")}
        with CallLog(tmp_path / "calls.sqlite") as log:
            ensemble = Ensemble(fresh, AGENTS, call_log=log)
            got = ensemble.generate([ask("q", agent="a", max_new_tokens=1)]), ensemble.rate([judge(["?", "x"])])
        return got, sum(len(engine.batches) for engine in fresh.values())

    (first, asked), (second, again) = run(), run()
    assert first == second
    assert (asked, again) == (2, 0)
    assert isinstance(second[0][0], Generation)
    assert isinstance(second[0][0].notes, tuple)
    assert isinstance(second[1][0].values, tuple)


def test_likelihoods_are_calls_of_their_own_kept_in_the_file(tmp_path, ask, judge):
    batch = [weigh("x", "?", agent="a"), weigh("yy", agent="c"), weigh(agent="b", adapter="poet")]
    expected = [Likelihood((0.55, None), 8), Likelihood((0.6,), 4), Likelihood((), 0)]
    for asked in ([["Rate."] * 2], []):
        engines = {"one": Recording("one"), "two": Recording("two")}
        with CallLog(tmp_path / "calls.sqlite") as log:
            ensemble = Ensemble(engines, AGENTS, call_log=log)
            assert ensemble.measure(batch) == expected
            assert engines["one"].batches == asked
            ensemble.rate([judge(["x", "?"])])
            ensemble.generate([ask("Rate.", system="Be fair.")])
            assert len(log) == 5


def test_notes_and_coverage_survive_the_log(judge):
    class Noting(Recording):
        def rate(self, requests):
            return [Ratings((0.1 + 0.2,), (1 / 3,), 7, ("a note",), 1.5) for _ in requests]

        def generate(self, requests):
            return [Generation("é\n", 1, 2, "length", ("shrunk", "twice"), 0.5) for _ in requests]

    ensemble = Ensemble({"one": Noting(), "two": Noting()}, AGENTS)
    for _ in range(2):
        assert ensemble.rate([judge(["x"])]) == [Ratings((0.1 + 0.2,), (1 / 3,), 7, ("a note",))]


def test_what_a_failed_batch_follows_is_kept(ask):
    log = CallLog(None)
    requests = [ask(f"q{i}") for i in range(5)]
    broken = Ensemble({"one": Recording("one", 2, fatal="q3"), "two": Recording("two")}, AGENTS, call_log=log)
    with pytest.raises(RuntimeError, match="out of memory"):
        broken.generate(requests)
    assert len(log) == 2
    mended = Recording("one", 2)
    got = Ensemble({"one": mended, "two": Recording("two")}, AGENTS, call_log=log).generate(requests)
    assert mended.batches == [["q2", "q3"], ["q4"]]
    assert [g.text for g in got] == [f"one/a/q{i}" for i in range(5)]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12), st.integers(1, 4), st.integers(0, 3)
)
def test_progress_rises_to_the_total_whatever_is_cached(ask, asked, max_batch, known):
    ensemble = Ensemble({"one": Recording("one", max_batch), "two": Recording("two", max_batch)}, AGENTS)
    requests = [ask(f"q{i}", agent=name) for name, i in asked]
    ensemble.generate(requests[:known])
    reports = []
    results = ensemble.generate(requests, lambda done, total: reports.append((done, total)))
    assert len(results) == len(requests)
    total = len(set(asked))
    done = [d for d, _ in reports]
    assert {t for _, t in reports} == {total}
    assert (done[0], done[-1]) == (len(set(asked[:known])), total)
    assert done == sorted(set(done))


def test_usage_is_priced_per_million_tokens():
    agent = Agent("a", "one", prompt_price=2.0, completion_price=10.0)
    assert agent.usage(1000, 300, 1.5) == Usage(1, 1000, 300, 0.005)
    assert agent.usage(1000, 300, 1.5).seconds == 1.5
    assert Agent("a", "one").usage(5, 5).price == 0


def test_records_hold_the_whole_identity(ensemble):
    records = ensemble.records()
    assert [(r.name, r.backbone) for r in records] == [("a", "one"), ("b", "one"), ("c", "two")]
    assert records[1].identity == {"name": "one", "adapter": "poet", "revision": 1}
    assert Decoding(**records[0].decoding) == Decoding()


def test_it_knows_its_agents_and_the_longest_count(ensemble, engines):
    assert len(ensemble) == 3
    assert ensemble.agent("b") is AGENTS[1]
    assert ensemble.engine(AGENTS[2]) is engines["two"]
    engines["two"].count_tokens = len
    assert ensemble.count_tokens("one two") == 7


@pytest.mark.parametrize(
    ("agents", "text"),
    [
        ([], "expected an ensemble of at least 2 agents, got 0: add agents to it"),
        (AGENTS[:1], "expected an ensemble of at least 2 agents, got 1: add agents to it"),
        ([AGENTS[0], AGENTS[0]], "expected agents with different names, got ['a', 'a']"),
        ([AGENTS[0], Agent("b", "three")], "agent 'b': expected a backbone out of one, two, got 'three'"),
        ([AGENTS[0], Agent("b", "one", adapter="x")], "expected a loaded adapter, got 'x'"),
        ([AGENTS[0], Agent("b", "one", judge_adapter="x")], "expected a loaded adapter, got 'x'"),
        (
            [replace(agent, roles=("judge",)) for agent in AGENTS],
            "expected an agent that may propose, got 3 judges: give one the role proposer",
        ),
    ],
)
def test_an_impossible_ensemble_is_one_line(engines, agents, text, fails):
    with fails(text):
        Ensemble(engines, agents)


@pytest.mark.parametrize(
    ("roles", "shown"),
    [([], "[]"), ("judge", "'judge'"), (["judge", "boss"], "['judge', 'boss']"), (None, "None"), ((1,), "(1,)")],
)
def test_roles_that_there_are_not_are_one_line(roles, shown, fails):
    with fails(f"agent 'a': expected roles out of [proposer, judge], got {shown}: correct them"):
        Agent("a", "one", roles=roles)


def test_roles_and_the_judges_adapter_are_recorded_and_change_no_key(engines, ask, judge):
    """Lists become tuples in one order; calls that were made before answer agents that may do less."""
    agents = [
        replace(AGENTS[0], roles=["judge", "proposer"]),
        replace(AGENTS[1], roles=["proposer"]),
        replace(AGENTS[0], name="c", roles=["judge"], judge_adapter="poet"),
    ]
    log = CallLog(None)
    before = Ensemble(engines, [*AGENTS[:2], replace(AGENTS[0], name="c")], call_log=log)
    asked = [ask("q", agent=name) for name in "abc"], [judge(["x"], agent="c")]
    first = before.generate(asked[0]), before.rate(asked[1])
    ensemble = Ensemble(engines, agents, call_log=log)
    batches = len(engines["one"].batches)
    assert (ensemble.generate(asked[0]), ensemble.rate(asked[1])) == first
    assert len(engines["one"].batches) == batches
    assert agents[0] == AGENTS[0]
    assert ([a.name for a in ensemble.proposers], [a.name for a in ensemble.judges]) == (["a", "b"], ["a", "c"])
    assert [r.roles for r in ensemble.records()] == [["proposer", "judge"], ["proposer"], ["judge"]]
    assert [r.judge_identity for r in ensemble.records()] == [None, None, engines["one"].identity("poet")]
    assert [a.rating_adapter for a in agents] == [None, "poet", "poet"]


@pytest.mark.parametrize("name", ["smollm2.135m", "keys", ""])
def test_a_backbone_name_that_no_submodule_can_bear_is_one_line(tiny, name):
    with pytest.raises(ValueError, match=r"^expected backbone names that can name a submodule, .*: rename it$"):
        Ensemble({name: tiny}, [Agent("a", name), Agent("b", name)])


def test_agents_on_one_backbone_share_its_weights(load_tiny, adapter_folders, ask):
    engine = load_tiny(adapters=adapter_folders)
    agents = [Agent("a", "one"), Agent("b", "one", adapter="poet"), Agent("c", "one", adapter="critic")]
    ensemble = Ensemble({"one": engine, "two": Recording("two")}, [*agents, Agent("d", "two")])
    count = sum(weight.numel() for weight in engine.parameters())
    assert sum(weight.numel() for weight in ensemble.parameters()) == count
    assert set(ensemble.state_dict()) == {f"backbones.one.{name}" for name in engine.state_dict()}
    first = ensemble.generate([ask(agent=a.name, adapter=a.adapter, seed=3, temperature=1.0) for a in agents])
    assert len({g.text for g in first}) == 3

    saved = {name: value.clone() for name, value in ensemble.state_dict().items()}
    with torch.no_grad():
        for weight in ensemble.parameters():
            weight.zero_()
    ensemble.load_state_dict(saved)
    ensemble.call_log = CallLog(None)
    assert first == ensemble.generate([ask(agent=a.name, adapter=a.adapter, seed=3, temperature=1.0) for a in agents])
    assert {weight.dtype for weight in ensemble.to(torch.float64).parameters()} == {torch.float64}
    assert {weight.dtype for weight in engine.parameters()} == {torch.float64}


def test_real_engines_give_through_the_log_what_they_give_directly(tiny, ask, judge):
    agents = [Agent("a", "one"), Agent("b", "one", adapter="poet")]
    requests = [ask("x", agent="a"), ask("yy", agent="b", adapter="poet", temperature=0)]
    ensemble = Ensemble({"one": tiny}, agents)
    for _ in range(2):
        assert ensemble.generate(requests) == tiny.generate(requests)
        (logged,), (direct,) = ensemble.rate([judge(["x", "y"])]), tiny.rate([judge(["x", "y"])])
        assert logged.values == pytest.approx(direct.values, abs=1e-5)
