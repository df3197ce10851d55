"""A broker that learns and remembers: who sits out and comes back, what survives, what a utility changes."""

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.parts.budget_broker import Budget, BudgetBroker, round_costs
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.records.transcript import Task

TASKS = [Task(f"What is {i} times {i + 2}?", id=f"task {i}") for i in range(3)]
ONE = TASKS[:1]


class Clock:
    def __init__(self):
        self.now = 1.8e9

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def telemetry_of(scripted, clock, agents=4):
    return Telemetry(scripted.NAMES[:agents], clock=clock)


def silent(*names):
    """Writes for everybody but these; the list can be changed while a run goes on."""
    return lambda request: "" if request.agent in names else f"#{request.seed}"


def learned(scripted, rounds=3):
    """A broker of four agents in two roles that reads the question: everybody is worth 1 until told apart."""
    encoder = HashedEncoder(16)
    return LearnedBroker(scripted.NAMES[:4], rounds=rounds, roles=2, dim=16, encoder=encoder.identity())


def teams(transcript):
    return [(record.proposers, record.voters) for record in transcript.rounds]


def plain(transcript):
    """Without what the settings say of broker and telemetry."""
    kept = {name: value for name, value in transcript.settings.items() if name not in {"broker", "telemetry"}}
    return dataclasses.replace(transcript, settings=kept)


def test_an_agent_without_answers_sits_out_longer_and_comes_back(scripted, clock):
    zebulon, *others = scripted.NAMES[:4]
    broker = BudgetBroker(telemetry=telemetry_of(scripted, clock))

    def run(seed, write):
        (transcript,) = scripted.build(4, write=write, broker=broker, rounds=2, seed=seed)[0](ONE).transcripts
        return transcript

    first, second = run(1, silent(zebulon)).rounds
    assert first.proposers == [zebulon, *others]
    assert first.notes == [f"{zebulon}: gave no answer"]
    assert second.proposers == second.voters == others
    assert second.notes == [f"{zebulon}: on the bench after 1 failure"]

    clock.now += 299
    assert teams(run(2, silent())) == [(others, others)] * 2
    clock.now += 1
    first, second = run(3, silent(zebulon)).rounds
    assert first.proposers == [zebulon, *others]
    assert second.notes == [f"{zebulon}: on the bench after 2 failures"]

    clock.now += 599  # twice as long after the second failure
    assert teams(run(4, silent())) == [(others, others)] * 2
    clock.now += 1
    transcript = run(5, silent())
    assert teams(transcript) == [([zebulon, *others],) * 2] * 2
    assert transcript.rounds[1].notes == []
    assert broker.telemetry.benched() == {}


def test_failures_of_all_tasks_are_counted_in_the_order_of_the_tasks(scripted, clock):
    zebulon, *_ = scripted.NAMES
    for failing, benched in (("times 3", {}), (TASKS[-1].question, {zebulon: 1})):
        telemetry = telemetry_of(scripted, clock)

        def write(request, failing=failing):
            return "" if request.agent == zebulon and failing in request.messages[-1].content else f"#{request.seed}"

        scripted.build(4, write=write, broker=BudgetBroker(max_proposers=3, telemetry=telemetry), rounds=1)[0](TASKS)
        assert telemetry.benched() == benched  # it answered after it had failed, or failed last


def test_too_few_are_left_so_whoever_is_back_first_is_called(scripted, clock):
    telemetry = telemetry_of(scripted, clock)
    for name in scripted.NAMES[:3]:
        telemetry.failure(name)
        clock.now += 10
    rnn, _ = scripted.build(4, write=silent(), broker=BudgetBroker(min_judges=3, telemetry=telemetry), rounds=2)
    (transcript,) = rnn(ONE).transcripts
    zebulon, quillfeather, oberon, mirabel = scripted.NAMES[:4]
    first, second = transcript.rounds
    assert first.proposers == first.voters == [zebulon, quillfeather, mirabel]
    assert first.notes == [
        f"{zebulon}: called back from the bench after 1 failure, for the others make no team",
        f"{quillfeather}: called back from the bench after 1 failure, for the others make no team",
        f"{oberon}: on the bench after 1 failure",
    ]
    # Who answers is off the bench for good.
    assert second.notes == [f"{oberon}: on the bench after 1 failure"]


def test_a_bench_never_ends_what_the_budget_would_pay_for(scripted, clock):
    """All cheap agents sit out: the dear ones cannot be paid, so as many as need be come back."""
    telemetry = telemetry_of(scripted, clock)

    class Heavy(scripted.Recorder):
        def memory_bytes(self):
            return 5 * 2**30

    engines = {"light": scripted.Recorder(silent(), scripted.judge), "heavy": Heavy(silent(), scripted.judge)}
    options = {"engines": engines, "backbones": ["light", "light", "heavy", "heavy"], "rounds": 1}
    for name in scripted.NAMES[:2]:
        telemetry.failure(name)
        clock.now += 10
    broker = BudgetBroker(Budget(memory=4), telemetry=telemetry)
    (transcript,) = scripted.build(4, broker=broker, **options)[0](ONE).transcripts
    assert transcript.rounds[0].proposers == list(scripted.NAMES[:2])
    broker = BudgetBroker(Budget(tokens=1), telemetry=telemetry)
    with pytest.raises(InfeasibleBudgetError, match="expected tokens of at least"):
        scripted.build(4, broker=broker, **options)[0](ONE)


def test_telemetry_is_on_disk_after_every_round_and_survives_a_restart(scripted, clock, tmp_path):
    path = tmp_path / "deep" / "telemetry.json"
    zebulon, *others = scripted.NAMES[:4]

    def killed(request):
        if path.exists():
            raise KeyboardInterrupt
        return silent(zebulon)(request)

    telemetry = telemetry_of(scripted, clock)
    rnn, _ = scripted.build(4, write=killed, broker=BudgetBroker(telemetry=telemetry, telemetry_file=path))
    with pytest.raises(KeyboardInterrupt):
        rnn(ONE)
    restarted = telemetry_of(scripted, clock)
    restarted.load(path)
    assert restarted.records == telemetry.records
    rnn, _ = scripted.build(4, write=silent(), broker=BudgetBroker(telemetry=restarted, telemetry_file=path), rounds=1)
    assert teams(rnn(ONE).transcripts[0]) == [(others, others)]


def test_what_an_agent_is_worth_decides_who_is_seated(scripted):
    """Seats for two proposers and three judges go to the first ones, until agents are told apart."""
    broker = learned(scripted, rounds=1)
    with torch.no_grad():
        broker.bias[0, 2:, 0] = 2.0  # propose well
        broker.bias[0, 1, 1] = -2.0  # worth less than nothing as a judge
    options = {"write": silent(), "prices": (1.0, 1.0), "rounds": 1}
    seats = {"max_proposers": 2, "max_judges": 3}
    assert teams(scripted.build(4, broker=BudgetBroker(**seats), **options)[0](ONE).transcripts[0]) == [
        (list(scripted.NAMES[:2]), list(scripted.NAMES[:3]))
    ]
    zebulon, _, oberon, mirabel = scripted.NAMES[:4]
    rnn, _ = scripted.build(4, broker=BudgetBroker(**seats, learned=broker), **options)
    assert teams(rnn(ONE).transcripts[0]) == [([oberon, mirabel], [zebulon, oberon, mirabel])]
    # A role's least number is kept even so.
    rnn, _ = scripted.build(4, broker=BudgetBroker(min_judges=4, learned=broker), **options)
    assert len(rnn(ONE).transcripts[0].rounds[0].voters) == 4


def test_tasks_tell_agents_apart(scripted):
    """Each question has a specialist."""
    questions = HashedEncoder(16).embed([task.question for task in TASKS])
    broker = learned(scripted, rounds=1)
    with torch.no_grad():
        # Agent i + 1 is worth more the more a question is like number i and unlike the others.
        broker.weight[0, 1:, 0, :16] = torch.linalg.pinv(questions.double()).T
    seats = {"min_proposers": 1, "max_proposers": 1}
    rnn, _ = scripted.build(4, broker=BudgetBroker(**seats, learned=broker), write=silent(), rounds=1)
    seated = [transcript.rounds[0].proposers for transcript in rnn(TASKS).transcripts]
    assert seated == [[name] for name in scripted.NAMES[1:4]]


def test_what_was_heard_reaches_the_utilities(scripted):
    """Whoever was asked is worth less in the next round."""
    broker = learned(scripted, rounds=3)
    with torch.no_grad():
        broker.weight[1:, range(4), 0, range(16, 20)] = -0.5
    rnn, _ = scripted.build(4, write=silent(), broker=BudgetBroker(max_proposers=2, learned=broker))
    (transcript,) = rnn(ONE).transcripts
    zebulon, quillfeather, oberon, mirabel = scripted.NAMES[:4]
    first, second = [zebulon, quillfeather], [oberon, mirabel]
    assert [record.proposers for record in transcript.rounds] == [first, second, first]


def test_questions_are_embedded_once_a_run_for_the_broker(scripted, monkeypatch):
    embedded = []
    embed = HashedEncoder.embed
    monkeypatch.setattr(HashedEncoder, "embed", lambda self, texts: embedded.extend(texts) or embed(self, texts))
    counts = []
    for broker in (BudgetBroker(), BudgetBroker(learned=learned(scripted))):
        scripted.build(4, broker=broker)[0](TASKS)
        counts.append(sum(text == TASKS[0].question for text in embedded))
        embedded.clear()
    assert counts[1] == counts[0] + 1


def test_called_by_itself_the_broker_gives_the_team_that_a_run_would_seat(scripted, clock):
    worth, telemetry = learned(scripted), telemetry_of(scripted, clock)
    torch.manual_seed(3)
    torch.nn.init.normal_(worth.weight, std=3.0)
    telemetry.failure(scripted.NAMES[1])
    broker = BudgetBroker(max_proposers=2, max_judges=2, learned=worth, telemetry=telemetry)
    rnn, _ = scripted.build(4, write=silent(), broker=broker, rounds=1)
    broker.begin(TASKS, rnn.cell)
    found = [broker.team(task, []) for task in TASKS]
    for team, transcript in zip(found, rnn(TASKS).transcripts, strict=True):
        names = [[scripted.NAMES[a] for a in role] for role in (team.proposers, team.voters)]
        assert teams(transcript) == [tuple(names)]
        assert 1 not in {*team.proposers, *team.voters}


@settings(max_examples=2)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_fresh_parts_change_nothing_while_nobody_fails(scripted, seed, max_batch):
    """Nor does a trained broker depend on how tasks are batched."""
    options = {"write": silent(), "seed": seed}
    without = scripted.build(4, broker=BudgetBroker(max_proposers=3), **options)[0](TASKS).transcripts
    assert not {"broker", "telemetry"} & set(without[0].settings)
    broker = BudgetBroker(max_proposers=3, learned=learned(scripted), telemetry=Telemetry(scripted.NAMES[:4]))
    fresh = scripted.build(4, broker=broker, **options)[0](TASKS).transcripts
    assert {"broker", "telemetry"} <= set(fresh[0].settings)
    assert [plain(t) for t in fresh] == [plain(t) for t in without]

    worth = learned(scripted)
    torch.manual_seed(seed)
    torch.nn.init.normal_(worth.weight)
    broker = BudgetBroker(max_proposers=3, learned=worth)
    together = scripted.build(4, broker=broker, **options)[0](TASKS).transcripts
    alone = [scripted.build(4, broker=broker, max_batch=max_batch, **options)[0]([t]).transcripts[0] for t in TASKS]
    assert list(together) == alone
    assert [teams(t) for t in alone] != [teams(t) for t in without]


def test_same_telemetry_at_the_start_same_transcripts(scripted, clock):
    def run():
        telemetry = telemetry_of(scripted, clock)
        telemetry.failure(scripted.NAMES[3])
        return scripted.build(4, broker=BudgetBroker(telemetry=telemetry), rounds=4)[0](TASKS).transcripts

    once = run()
    assert once == run()
    assert any("on the bench" in note for t in once for record in t.rounds for note in record.notes)


@settings(max_examples=10)
@given(st.floats(0.3, 4), st.integers(0, 2**32))
def test_budgets_are_kept_with_utilities_and_benches(scripted, share, seed):
    worth = learned(scripted, rounds=4)
    torch.manual_seed(seed)
    torch.nn.init.normal_(worth.weight, std=3.0)
    options = {"prices": (3.0, 7.0), "max_new_tokens": 20, "seed": seed, "rounds": 4}
    bare, _ = scripted.build(4, **options)
    money, tokens, _ = round_costs(ONE[0], bare.cell, proposers=4).sum((0, 1)).tolist()
    budget = Budget(money=share * money, tokens=share * tokens)
    broker = BudgetBroker(budget, learned=worth, telemetry=Telemetry(scripted.NAMES[:4]))
    rnn, _ = scripted.build(4, broker=broker, **options)
    try:
        (transcript,) = rnn(ONE).transcripts
    except InfeasibleBudgetError:
        assert share < 0.9
        return
    assert transcript.usage.price <= budget.money * (1 + 1e-12)
    assert transcript.usage.tokens <= budget.tokens
    assert all(min(map(len, team)) >= 2 for team in teams(transcript))


def test_telemetry_of_another_team_is_refused(scripted):
    expected = "telemetry of ('Zebulon', 'Quillfeather', 'Oberon')"
    line = f"broker: expected {expected}, got one of ('Oberon', 'Zebulon'): build it so"
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        scripted.build(3, broker=BudgetBroker(telemetry=Telemetry(["Oberon", "Zebulon"])))


def test_a_utility_that_is_no_number_is_refused_and_a_file_needs_telemetry(scripted, tmp_path):
    worth = learned(scripted)
    with torch.no_grad():
        worth.bias[0] = math.nan
    with pytest.raises(ValueError, match=r"^broker: expected finite utilities, got nan or inf"):
        scripted.build(4, broker=BudgetBroker(learned=worth))[0](ONE)
    with pytest.raises(ValueError, match=r"^broker: expected telemetry to save in .*, got none: pass telemetry too$"):
        BudgetBroker(telemetry_file=tmp_path / "telemetry.json")
