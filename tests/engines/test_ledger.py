"""What a task's calls had a model compute: every beginning once, beside what an endpoint would bill."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_team import weigh

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.engines.adapters import add_adapter
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.ledger import TokenLedger

AGENTS = [Agent("a", "one"), Agent("b", "one")]

sequences = st.lists(st.tuples(st.sampled_from("xy"), st.lists(st.integers(0, 2), max_size=6)), max_size=12)


def beginnings(rows):
    """Brute force: every different beginning of rows, each a backbone's."""
    return {(backbone, tuple(row[:n])) for backbone, row in rows for n in range(1, len(row) + 1)}


@settings(max_examples=200)
@given(sequences)
def test_new_are_the_beginnings_that_nothing_before_had(rows):
    ledger = TokenLedger()
    for i, (backbone, row) in enumerate(rows):
        other = ledger.copy()
        expected = len(beginnings(rows[: i + 1])) - len(beginnings(rows[:i]))
        assert ledger.enter(backbone, row) == expected == other.enter(backbone, row)


@pytest.fixture
def engine(load_tiny, adapter_folders):
    return load_tiny(adapters=adapter_folders)


def team(engine, log=None):
    return Ensemble({"one": engine}, AGENTS, call_log=log)


def calls(ask, judge):
    """A task's calls of every kind, in their order: those of a round, and then of another that asks again."""
    write = [
        ask("Why so?", seed=i, adapter=adapter) for i, adapter in enumerate([None, None, "poet", "critic", "poet"])
    ]
    rate = [judge(["one", "ones", "two"]), judge(["one"], adapter="poet"), judge([])]
    weighed = [weigh("xyz", "xyw"), weigh("xyz", adapter="critic")]
    return [("generate", write), ("rate", rate), ("measure", weighed), ("generate", [*write[:2], ask("Why not?")])]


def counted(ensemble, phases, ledger, beside=()):
    """Results of phases of calls with a ledger, among those of another task."""
    found, other = [], TokenLedger()
    for what, requests in phases:
        mine = [replace(request, ledger=ledger) for request in requests]
        foreign = [replace(r, ledger=other) for kind, rs in beside if kind == what for r in rs]
        found.append(getattr(ensemble, what)([*foreign, *mine])[len(foreign) :])
    return found


def test_every_beginning_counts_once_for_whoever_reads_it(engine, ask, judge):
    phases, rows = calls(ask, judge), []
    results = counted(team(engine), phases, TokenLedger())
    for (_, requests), answers in zip(phases, results, strict=True):
        for request, result in zip(requests, answers, strict=True):
            before = len(beginnings(rows))
            own = engine.readings(request, result)
            rows += [("one", row) for row in own]
            assert result.computed_tokens == len(beginnings(rows)) - before
            written = getattr(result, "completion_tokens", 0)
            assert result.prompt_tokens + written == sum(map(len, own)) >= result.computed_tokens
    assert [result.computed_tokens for result in results[-1][:2]] == [0, 0]  # asked before
    assert AGENTS[0].charged(results[0][1]).tokens == results[0][1].computed_tokens


def test_samples_of_one_prompt_count_it_once(engine, ask):
    samples = [ask("Why so?", seed=seed, temperature=2.0) for seed in range(5)]
    ((*drawn,),) = counted(team(engine), [("generate", samples)], TokenLedger())
    prompt = len(engine.chat.ids(samples[0].messages))
    written = beginnings(("one", sample.written) for sample in drawn)
    assert len(written) > 10  # they differ
    assert sum(sample.computed_tokens for sample in drawn) == prompt + len(written)
    assert sum(AGENTS[0].charged(sample).billed for sample in drawn) == 5 * prompt + sum(len(s.written) for s in drawn)


@pytest.mark.parametrize("kind", ["plain", "activated"])
def test_activated_adapters_share_what_stands_before_them_and_plain_ones_nothing(load_tiny, ask, kind):
    engine = load_tiny()
    chat = ask("A long question of many words?\n\nAnswer now.").messages
    for name in ("ada", "ben"):
        add_adapter(engine, name, invocation=engine.chat.ending("Answer now.") if kind == "activated" else None)
    asked = [ask(chat[0].content, adapter=name, max_new_tokens=1) for name in ("ada", "ben")]
    (both,) = counted(team(engine), [("generate", asked)], TokenLedger())
    whole = len(engine.chat.ids(chat))
    own = len(engine.chat.ending("Answer now.")) if kind == "activated" else whole
    assert [result.computed_tokens for result in both] == [whole + 1, own + 1]
    assert own < whole or kind == "plain"


def test_numbers_depend_on_nothing_but_the_tasks_own_calls(engine, load_tiny, adapter_folders, ask, judge, tmp_path):
    phases = calls(ask, judge)

    def usages(ensemble, beside=()):
        results = counted(ensemble, phases, TokenLedger(), beside)
        return [AGENTS[0].charged(result) for answers in results for result in answers]

    straight = usages(team(engine))
    # Another task's calls in front, with the same prompts, by an adapter used first; rows of one; nothing kept.
    beside = [("generate", [ask("Why so?", adapter="critic"), ask("Why so?")]), ("rate", [judge(["one", "four"])])]
    small = load_tiny(adapters=adapter_folders, max_batch=1, prefix_tokens=0, pass_tokens=8)
    assert usages(team(small), beside) == straight
    # A run that was cut off after one call, and one that makes none anew.
    for _ in range(2):
        with CallLog(tmp_path / "calls.sqlite") as log:
            if not len(log):
                team(engine, log).generate([phases[0][1][2]])
            assert usages(team(load_tiny(adapters=adapter_folders), log)) == straight


def test_a_ledger_is_no_part_of_a_call(engine, ask, judge):
    ensemble = team(engine)
    for request in (ask(), judge(["x"]), weigh("x")):
        kept = replace(request, ledger=TokenLedger())
        assert kept == request
        assert repr(kept) == repr(request)
    ensemble.generate([ask()])
    assert len(ensemble.call_log) == 1
    ensemble.generate([replace(ask(), ledger=TokenLedger())])
    assert len(ensemble.call_log) == 1


def test_older_logs_count_answers_as_new_and_ratings_by_the_rule(engine, ask, judge, tmp_path):
    asked, rated = replace(ask(), ledger=TokenLedger()), replace(judge(["one", "two"]), ledger=TokenLedger())
    fresh = team(engine)
    (answer,), (rating,) = fresh.generate([asked]), fresh.rate([rated])
    log = CallLog(None)
    older = team(engine, log)
    keys = older._keys("generate", [asked]) + older._keys("rate", [rated])
    kept = fresh.call_log.get(keys)
    for value in kept.values():
        del value["computed_tokens"]
        value.pop("written", None)
    kept[keys[1]]["prompt_tokens"] = 1
    log.put(kept)
    again, more = (replace(asked, ledger=TokenLedger()) for _ in range(2))
    more = replace(more, ledger=again.ledger)
    first, second = older.generate([again])[0], older.generate([more])[0]
    assert first == replace(answer, written=())
    assert second.computed_tokens == answer.completion_tokens  # its prompt is known, its answer taken to be another
    assert older.rate([replace(rated, ledger=TokenLedger())]) == [rating]


def test_who_cannot_tell_computes_what_is_billed(ask, judge):
    ensemble = Ensemble({"one": ScriptedEngine(lambda r: "so it is", lambda r, c: 0.5)}, AGENTS)
    ledger = TokenLedger()
    for _ in range(2):
        usage = AGENTS[0].charged(ensemble.generate([replace(ask(), ledger=ledger)])[0])
        assert usage.tokens == usage.billed == 4
        usage = AGENTS[0].charged(ensemble.rate([replace(judge(["x", "y"]), ledger=ledger)])[0])
        assert usage.tokens == usage.billed == 2 * 3
