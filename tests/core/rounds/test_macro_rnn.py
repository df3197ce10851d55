"""A whole deliberation: the published formulas, the same transcript for the same seed, memory, halting."""

import itertools
import json
import math
import random
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.round import Observer
from nsed_torch.parts.halting_rules import EvidenceHalting, FatigueHalting
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.records.transcript import Task, Transcript, Usage

TASKS = [Task(f"What is {i} times {i + 2}?", id=f"task {i}") for i in range(4)]


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if key != "seconds"}
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


def run(scripted, tasks=TASKS, **options):
    return list(scripted.build(**options)[0](tasks).transcripts)


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.permutations(TASKS), st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_same_seed_same_transcript(scripted, seed, tasks, group, max_batch, written):
    """For any batch size, any grouping of tasks into calls and any order of them, to the last digit."""
    rating = CritiqueRating() if written else None
    groups = [tasks[i : i + group] for i in range(0, len(tasks), group)]
    together = run(scripted, seed=seed, rating=rating)
    apart = [t for g in groups for t in run(scripted, g, seed=seed, rating=rating, max_batch=max_batch)]
    apart.sort(key=lambda transcript: transcript.task.id)
    assert apart == together
    for one, other in zip(apart, together, strict=True):
        assert without_seconds(json.loads(one.to_json())) == without_seconds(json.loads(other.to_json()))
        assert one.usage.seconds != other.usage.seconds  # so the line above has something to leave out
    other_seed = run(scripted, seed=seed + 1, rating=rating)
    assert all(one.rounds != other.rounds for one, other in zip(together, other_seed, strict=True))


def scalar_round(record, memory, *, leak=0.8, slots=4):
    """The published round in plain Python, on the ratings of a record; memory is (retention, text) strongest first."""
    ballots = []
    for row in record.ratings:
        total = sum(abs(r) for r in row if r is not None)
        ballots.append([math.copysign(math.sqrt(abs(r) / total), r) if r and total else 0.0 for r in row])
    answered = [bool(p.text) for p in record.proposals]
    support = [sum(ballot[j] for ballot in ballots) for j in range(len(answered))]
    weights = [math.exp(s) if a else 0.0 for s, a in zip(support, answered, strict=True)]
    consensus = [w / sum(weights) if sum(weights) else 0.0 for w in weights]
    standing = [s for s, a in zip(support, answered, strict=True) if a]
    close = 1e-9 * max(1, abs(max(standing, default=0)))
    winner = next((j for j, s in enumerate(support) if answered[j] and s >= max(standing) - close), None)
    decisiveness = sum(map(abs, support))
    sure = winner is not None and decisiveness > 1e-9
    controversy = []
    for column in zip(*record.ratings, strict=True):
        counted = [r for r in column if r is not None]
        mean = sum(counted) / len(counted) if counted else 0
        controversy.append(sum((r - mean) ** 2 for r in counted) / len(counted) if counted else 0.0)
    entering = [(c, p.text) for c, p, a in zip(consensus, record.proposals, answered, strict=True) if a]
    memory = [(leak * retention, text) for retention, text in memory] + entering
    return {
        "ballots": ballots,
        "support": support,
        "consensus": consensus,
        "winner": winner,
        "conviction": support[winner] / decisiveness if sure else 0.0,
        "decisiveness": decisiveness,
        "controversy": controversy,
        "all_negative": winner is not None and support[winner] < -1e-9,
    }, sorted(memory, key=lambda slot: -round(slot[0], 9))[:slots]


@settings(max_examples=12)
@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(1, 5))
def test_a_fresh_network_computes_the_published_formulas(scripted, seed, agents, slots):
    for transcript in run(scripted, TASKS[:2], seed=seed, agents=agents, slots=slots, rounds=4):
        memory = []
        for record in transcript.rounds:
            expected, memory = scalar_round(record, memory, slots=slots)
            for name in ("winner", "all_negative"):
                assert getattr(record, name) == expected[name]
            for name in ("support", "consensus", "conviction", "decisiveness", "controversy"):
                assert getattr(record, name) == pytest.approx(expected[name], abs=1e-6)
            for row, ballot in zip(record.ballots, expected["ballots"], strict=True):
                assert row == pytest.approx(ballot, abs=1e-6)
            assert record.trust == pytest.approx([1.0] * agents)
            assert [slot.text for slot in record.memory] == [text for _, text in memory]
            assert [slot.retention for slot in record.memory] == pytest.approx([r for r, _ in memory], abs=1e-6)
            for slot in record.memory:
                assert slot.gate == pytest.approx(1.0 if slot.round == record.index else 0.8)
        winners = [r.proposals[r.winner].text for r in transcript.rounds if r.winner is not None]
        assert transcript.answer == (winners[-1] if winners else "")


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 5))
def test_prompts_show_exactly_the_slots_marked_shown(scripted, seed, memory_tokens, slots):
    rounds = 9
    rnn, engine = scripted.build(3, seed=seed, memory_tokens=memory_tokens, slots=slots, rounds=rounds)
    (transcript,) = rnn(TASKS[:1]).transcripts
    prompts = [engine.generated[i : i + 3] for i in range(0, 3 * rounds, 3)]
    for before, requests in zip([None, *transcript.rounds], prompts, strict=False):
        kept = [slot for slot in before.memory if slot.shown] if before else []
        assert sorted(kept, key=lambda slot: -slot.retention) == kept
        # Fences and all, so that what stands before an agent's persona is read once for all.
        assert len({request.messages[-1].content.split("You are voice")[0] for request in requests}) == 1
        for request in requests:
            texts = scripted.fenced(request.messages[-1].content)
            assert len(texts) == len(kept)
            assert sum(len(text.split()) for text in texts) <= memory_tokens
            for i, (text, slot) in enumerate(zip(texts, kept, strict=True)):
                cut = text.startswith("… ") and i == len(kept) - 1
                assert slot.text.endswith(text[2:]) if cut else text == slot.text


def test_prompts_and_state_do_not_grow_with_rounds(scripted):
    rounds, slots = 12, 3
    options = {"agents": 3, "slots": slots, "memory_tokens": 30, "rounds": rounds}
    rnn, engine = scripted.build(write=lambda r: f"#{r.seed} " + "word " * (r.seed % 20), **options)
    (transcript,) = rnn(TASKS[:1]).transcripts
    assert [len(record.memory) for record in transcript.rounds] == [slots] * rounds
    frames = set()
    for request in engine.generated[3:]:
        text = request.messages[-1].content
        shown = scripted.fenced(text)
        assert 1 <= len(shown) <= slots
        # All that is not memory, and the two marks around each text of it, is the same in every round.
        frames.add((request.agent, len(text.split()) - sum(len(t.split()) + 2 for t in shown)))
    assert len(frames) == 3


def test_texts_that_are_equal_are_shown_once(scripted):
    rnn, engine = scripted.build(3, write=lambda request: "seventy-one", rounds=2)
    (transcript,) = rnn(TASKS[:1]).transcripts
    assert [slot.shown for slot in transcript.rounds[0].memory] == [True, False, False]
    assert [scripted.fenced(r.messages[-1].content) for r in engine.generated[3:]] == [["seventy-one"]] * 3


def test_greedy_agents_whose_memory_stays_are_not_asked_again(scripted):
    rnn, engine = scripted.build(3, write=lambda r: f"says {r.agent}", temperature=0, shuffled=False, rounds=8)
    (transcript,) = rnn(TASKS[:1]).transcripts
    assert len(engine.generated) <= 12  # the order of what is kept changes for some rounds
    assert {r.usage.calls for r in transcript.rounds} == {6}
    assert transcript.rounds[-1].proposals == transcript.rounds[-2].proposals


def test_who_writes_a_fence_down_has_it_changed(scripted):
    def write(request):
        marks = re.findall(r"<text-([0-9a-f]+)>", request.messages[-1].content)
        return f"{request.agent} saw {marks[0]}" if marks else f"{request.agent} saw nothing"

    rnn, engine = scripted.build(3, write=write, rounds=6)
    rnn(TASKS[:1])
    shown = [re.findall(r"<text-([0-9a-f]+)>", request.messages[-1].content) for request in engine.generated[3:]]
    told = [" ".join(scripted.fenced(request.messages[-1].content)) for request in engine.generated[3:]]
    assert any("saw" in text and "nothing" not in text for text in told)
    assert not any(mark in text for marks, text in zip(shown, told, strict=True) for mark in marks)


def test_evidence_stops_tasks_one_by_one_and_leaves_the_others_alone(scripted):
    """In some tasks all judges prefer the same answer, in others their ratings are noise."""
    tasks = [Task(f"{kind} {i}", id=f"{kind} {i}") for i in range(3) for kind in ("easy", "hard")]

    def judge(request, candidate):
        if "easy" in request.messages[-1].content:
            return 1.0 if int(scripted.judged(request, candidate)) % 5 == 0 else 0.01
        return random.Random(f"{request.seed}{candidate}").uniform(-1, 1)

    options = {"write": lambda r: str(r.seed), "judge": judge}
    options["halting"] = EvidenceHalting(rounds=7, min_rounds=2, effort=0.3)
    together = run(scripted, tasks, **options)
    assert together == [t for task in tasks for t in run(scripted, [task], **options)]
    lengths = {t.task.id: len(t.rounds) for t in together}
    assert len(set(lengths.values())) >= 3, lengths
    for transcript in together:
        assert transcript.stop_reason == ("rounds" if len(transcript.rounds) == 7 else "evidence")
        assert len(transcript.rounds) >= 2
    assert {t.stop_reason for t in together} == {"rounds", "evidence"}


def test_a_fixed_number_of_rounds(scripted):
    for rounds in (1, 5):
        for transcript in run(scripted, rounds=rounds):
            assert [record.index for record in transcript.rounds] == [*range(1, rounds + 1)]
            assert transcript.stop_reason == "rounds"
            assert transcript.usage == Usage.sum(record.usage for record in transcript.rounds)


def test_no_answers_at_all(scripted):
    rnn, engine = scripted.build(3, write=lambda request: "", rounds=2)
    (transcript,) = rnn(TASKS[:1]).transcripts
    assert (transcript.answer, transcript.stop_reason) == ("", "no_answers")
    for record in transcript.rounds:
        assert record.winner is None
        assert record.memory == []
        assert record.consensus == [0, 0, 0]
        assert record.vote_mask == [[False] * 3] * 3
    assert not any(request.candidates for request in engine.rated)


def test_an_answer_outlives_a_round_without_answers(scripted):
    def write(request):
        return "" if scripted.fenced(request.messages[-1].content) else "once"

    (transcript,) = run(scripted, TASKS[:1], write=write, rounds=2)
    assert transcript.rounds[1].winner is None
    assert (transcript.answer, transcript.stop_reason) == ("once", "rounds")


@pytest.mark.parametrize("tasks", [[], [TASKS[0], TASKS[0]]])
def test_tasks_need_different_ids(scripted, tasks):
    with pytest.raises(ValueError, match=r"^expected tasks with different ids, got \["):
        run(scripted, tasks)


def test_an_observer_hears_of_everything_in_order(scripted):
    heard = []

    class Ear(Observer):
        def on_phase(self, phase, index, done, total):
            heard.append((phase, index, done, total))

        def on_round(self, task, record):
            heard.append((task.id, record))

        def on_end(self, transcript):
            heard.append(transcript)

    rnn, _ = scripted.build(3, rounds=2, max_batch=4)
    deliberation = rnn(TASKS, observer=Ear())
    assert heard[-4:] == list(deliberation.transcripts)
    rounds = [item for item in heard if isinstance(item, tuple) and len(item) == 2]
    assert rounds == [(t.task.id, t.rounds[i]) for i in range(2) for t in deliberation.transcripts]
    phases = [item for item in heard if isinstance(item, tuple) and len(item) == 4]
    grouped = {key: [p[2:] for p in group] for key, group in itertools.groupby(phases, key=lambda p: p[:2])}
    assert list(grouped) == [("propose", 1), ("rate", 1), ("propose", 2), ("rate", 2)]
    assert all(steps == [(0, 12), (4, 12), (8, 12), (12, 12)] for steps in grouped.values())


def test_an_observer_hears_of_a_task_that_is_over_while_others_go_on(scripted):
    heard = []

    class FirstStopsEarly:
        rounds = 3

        def reasons(self, convictions):
            early = len(convictions) == len(TASKS)
            return [
                "early" if early and i == 0 else "" for i in range(len(convictions))
            ]  # and leaves the cap to others

    class Ear(Observer):
        def on_round(self, task, record):
            heard.append((task.id, record.index))

        def on_end(self, transcript):
            heard.append((transcript.task.id, transcript.stop_reason))

    rnn, _ = scripted.build(3, halting=FirstStopsEarly())
    deliberation = rnn(TASKS, observer=Ear())
    first, *others = (task.id for task in TASKS)
    assert heard[len(TASKS)] == (first, "early")
    assert heard[-len(others) :] == [(name, "rounds") for name in others]
    assert heard.index((first, "early")) < heard.index((others[0], 2))
    assert [t.task.id for t in deliberation.transcripts] == [task.id for task in TASKS]


@pytest.mark.parametrize("rating", [CritiqueRating(), VerdictRating()])
def test_a_transcript_says_what_shaped_the_run_and_survives_the_disk(scripted, tmp_path, rating):
    rnn, _ = scripted.build(3, memory_tokens=77, rating=rating, prices=(1.0, 2.0))
    transcripts = rnn(TASKS[:1]).transcripts
    (transcript,) = transcripts
    transcript.save(tmp_path / "transcript.json")
    assert Transcript.load(tmp_path / "transcript.json") == transcript
    assert transcript.settings["memory_tokens"] == 77
    assert transcript.settings["rating"]["mode"] == type(rating).__name__
    assert transcript.settings["parameters"]["gate.weight"] == [0.0] * 4
    assert [agent.name for agent in transcript.agents] == list(scripted.NAMES[:3])
    usage = transcript.usage
    assert usage.price == pytest.approx((usage.prompt_tokens + 2 * usage.completion_tokens) / 1e6)


def test_its_parameters_are_the_consensus_cells(scripted):
    """The network's own parameters are those of the consensus cell, in float64; scripted agents have none."""
    rnn, _ = scripted.build(3)
    names = {name for name, _ in rnn.named_parameters()}
    assert names == {f"cell.consensus.{name}" for name, _ in rnn.cell.consensus.named_parameters()}
    assert {parameter.dtype for parameter in rnn.parameters()} == {torch.float64}


def test_any_rule_that_reads_convictions_works(scripted):
    class Bare:
        rounds = 4

        def reasons(self, convictions):
            return ["bare" if convictions.shape[1] == 2 else "" for _ in convictions]

    for reason, halting in (("bare", Bare()), ("fatigue", FatigueHalting(rounds=8, k=0.9, beta=0.03))):
        assert {(t.stop_reason, len(t.rounds)) for t in run(scripted, halting=halting)} == {(reason, 2)}
