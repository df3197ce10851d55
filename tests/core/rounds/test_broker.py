"""Who takes part under a budget, and that no budget is ever exceeded."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.app.build import consensus_cell
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.ratings import MARKUP, VerdictRating
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import full_team
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.parts.budget_broker import Budget, BudgetBroker, round_costs
from nsed_torch.parts.rating_modes import CritiqueRating, LikelihoodRating
from nsed_torch.records.transcript import Task, Usage

TASK = Task("Which is larger, 17 or 71?")
MODES = [
    VerdictRating(),
    VerdictRating(listed=False),
    CritiqueRating(),
    CritiqueRating(listed=False),
    LikelihoodRating(),
]


def chatter(request):
    """Fills every allowance, with marks that look like fences."""
    return " ".join([f"w{request.seed % 1000}", "<text-ab>", "</", "text-12", ">"] * 60)


def build(scripted, broker, **options):
    options = {"write": chatter, "max_new_tokens": 20, "rounds": 4, "prices": (3.0, 7.0), **options}
    return scripted.build(4, broker=broker, **options)


def full_round(scripted, **options):
    """The most that a round of everybody costs, as a Usage of so much money and so many tokens."""
    rnn, _ = build(scripted, None, **options)
    money, tokens, memory = round_costs(TASK, rnn.cell, proposers=4).sum((0, 1)).tolist()
    assert memory == 0
    return money, tokens


@settings(max_examples=15)
@given(
    st.floats(0.2, 6),
    st.floats(0.2, 6),
    st.sampled_from(MODES),
    st.integers(0, 60),
    st.integers(0, 2),
    st.integers(0, 2**32),
)
def test_budgets_are_never_exceeded(scripted, money, tokens, mode, memory_tokens, min_judges, seed):
    options = {"rating": mode, "memory_tokens": memory_tokens, "seed": seed}
    most_money, most_tokens = full_round(scripted, **options)
    budget = Budget(money=money * most_money, tokens=tokens * most_tokens)
    rnn, _ = build(scripted, BudgetBroker(budget, min_judges=min_judges), **options)
    try:
        (transcript,) = rnn([TASK]).transcripts
    except InfeasibleBudgetError:
        assert min(money, tokens) < 0.9
        return
    assert transcript.usage.price <= budget.money * (1 + 1e-12)
    assert transcript.usage.tokens <= budget.tokens
    assert 1 <= len(transcript.rounds) <= 4
    assert transcript.stop_reason == ("rounds" if len(transcript.rounds) == 4 else "budget")
    for record in transcript.rounds:
        assert len(record.proposers) >= 2
        assert len(record.voters) >= min_judges


def test_the_most_is_what_a_full_round_takes(scripted):
    """With a full memory and full answers the bound is near, so a budget is not wasted on caution."""
    for mode in MODES:
        _, tokens = full_round(scripted, rating=mode, memory_tokens=40)
        rnn, _ = build(scripted, None, rating=mode, memory_tokens=40)
        (transcript,) = rnn([TASK]).transcripts
        used = [record.usage.tokens for record in transcript.rounds]
        # Markup, which scripted agents do not have, weighs most where likelihoods are read: least is read there.
        assert 0.35 * tokens < max(used) <= tokens


def test_the_most_counts_the_marks_around_critiques_and_memory(scripted):
    """With a tokenizer that spells marks out, as real ones do."""

    class Spelling(scripted.Recorder):
        def count_tokens(self, text):
            return len(re.findall(r"\w+|[^\w\s]", text))

    def write(request):
        return " ".join([f"w{request.seed % 1000}", *["word"] * 19])

    rating = CritiqueRating(decoding=Decoding(max_new_tokens=20))
    options = {"rating": rating, "memory_tokens": 80, "engine": Spelling(write, None)}
    rnn, _ = build(scripted, None, **options)
    most = round_costs(TASK, rnn.cell, proposers=4)[:, :, 1].tolist()
    for record in rnn([TASK]).transcripts[0].rounds[1:]:
        for proposal, (proposing, _) in zip(record.proposals, most, strict=True):
            assert 0.7 * proposing < proposal.usage.tokens <= proposing
        # Scripted engines have no chat markup, so the bound holds without what it allows for that.
        judged = record.usage.tokens - sum(proposal.usage.tokens for proposal in record.proposals)
        assert judged <= sum(judging - 2 * MARKUP * 4 for _, judging in most)


def test_teams_shrink_and_then_the_task_stops_with_what_it_has(scripted):
    _, tokens = full_round(scripted)
    rnn, _ = build(scripted, BudgetBroker(Budget(tokens=2 * tokens)), rounds=20)
    (transcript,) = rnn([TASK]).transcripts
    sizes = [len(record.proposers) + len(record.voters) for record in transcript.rounds]
    assert sizes[0] == 8
    assert sizes == sorted(sizes, reverse=True)
    assert 4 <= sizes[-1] < 8
    assert transcript.stop_reason == "budget"
    assert transcript.answer == transcript.rounds[-1].proposals[transcript.rounds[-1].winner].text
    assert transcript.settings["budget"] == {"money": None, "tokens": 2 * tokens, "memory": None}


def test_one_tasks_budget_does_not_touch_the_others(scripted):
    """Tasks of one batch stop at different rounds, each as it would alone."""
    tasks = [Task("Why? " * (1 + 40 * i), id=str(i)) for i in range(3)]
    _, tokens = full_round(scripted)
    broker = BudgetBroker(Budget(tokens=4 * tokens))
    together = list(build(scripted, broker, rounds=8)[0](tasks).transcripts)
    assert together == [build(scripted, broker, rounds=8)[0]([task]).transcripts[0] for task in tasks]
    assert len({len(t.rounds) for t in together}) > 1


def heavy(scripted, gib):
    class Heavy(scripted.Recorder):
        def memory_bytes(self):
            return int(gib * 2**30)

    return Heavy(chatter, scripted.judge, name=f"{gib} GiB")


@pytest.mark.parametrize(("resource", "amount"), [("money", 1e-5), ("tokens", 100), ("memory", 0.5)])
def test_a_budget_too_small_for_any_team_names_the_resource(scripted, resource, amount):
    rnn, engine = build(scripted, BudgetBroker(Budget(**{resource: amount})), engine=heavy(scripted, 1.5))
    with pytest.raises(InfeasibleBudgetError) as caught:
        rnn([TASK])
    (line,) = str(caught.value).splitlines()
    needed = re.fullmatch(rf".*expected {resource} of at least ([0-9.e+-]+) \(got {amount:g}\); .*", line)
    assert not any(other in line for other in {"money", "tokens", "memory"} - {resource})
    assert engine.generated == []
    # The advice works.
    broker = BudgetBroker(Budget(**{resource: float(needed[1])}))
    (transcript,) = build(scripted, broker, engine=heavy(scripted, 1.5))[0]([TASK]).transcripts
    assert len(transcript.rounds[0].proposers) >= 2


def test_memory_is_charged_once_a_backbone(scripted):
    engines = {"light": heavy(scripted, 1), "large": heavy(scripted, 5)}
    backbones = ["large", "light", "large", "light"]

    def proposers(memory):
        rnn, _ = build(scripted, BudgetBroker(Budget(memory=memory)), engines=engines, backbones=backbones, rounds=1)
        return rnn([TASK]).transcripts[0].rounds[0].proposers

    assert proposers(6) == list(scripted.NAMES[:4])
    assert proposers(5.9) == [scripted.NAMES[1], scripted.NAMES[3]]
    assert proposers(1) == [scripted.NAMES[1], scripted.NAMES[3]]


def test_most_and_least_numbers_of_a_role_are_kept(scripted):
    rnn, _ = build(scripted, BudgetBroker(max_proposers=2, min_judges=0, max_judges=0), rounds=2)
    (transcript,) = rnn([TASK]).transcripts
    assert [(len(r.proposers), len(r.voters)) for r in transcript.rounds] == [(2, 0)] * 2
    rnn, _ = build(scripted, BudgetBroker(max_proposers=9), rounds=1)
    assert len(rnn([TASK]).transcripts[0].rounds[0].proposers) == 4


def test_what_is_left_never_falls_below_zero_and_is_not_rounded_up():
    budget = Budget(money=0.1, tokens=2**24 + 1)
    money, tokens, memory = budget.left(Usage(price=0.0)).tolist()
    assert (money, tokens, memory) == (0.1, 2**24 + 1, math.inf)
    assert budget.left(Usage(price=0.1 + 1e-17, prompt_tokens=2**25)).tolist() == [0, 0, math.inf]
    assert Budget(money=0.3).left(Usage(price=0.1 + 0.2)).tolist()[0] == 0


@pytest.mark.parametrize("value", [-1, -1e-9, math.nan, "ten"])
def test_a_budget_that_is_no_amount_is_refused(value):
    for name in ("money", "tokens", "memory"):
        with pytest.raises(ValueError, match=rf"^expected a {name} budget of at least 0, or null for no limit, got "):
            Budget(**{name: value})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"min_proposers": 0}, "broker: expected 1 <= min_proposers <= max_proposers, got 0 and None"),
        ({"max_proposers": 1}, "broker: expected 1 <= min_proposers <= max_proposers, got 2 and 1"),
        ({"min_judges": -1}, "broker: expected 0 <= min_judges <= max_judges, got -1 and None"),
        ({"min_judges": 3, "max_judges": 2}, "broker: expected 0 <= min_judges <= max_judges, got 3 and 2"),
    ],
)
def test_a_broker_for_a_team_of_nobody_is_refused(options, line):
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        BudgetBroker(**options)


def test_a_budget_is_given_whole_or_by_its_limits():
    assert BudgetBroker(tokens=9000, money=2).budget == Budget(tokens=9000, money=2)
    for faulty in ({"budget": Budget(), "tokens": 1}, {"seconds": 1}):
        with pytest.raises(
            ValueError, match=r"^broker: expected a budget, or limits out of money, tokens, memory, got"
        ):
            BudgetBroker(**faulty)
    with pytest.raises(ValueError, match=r"expected a tokens budget of at least 0"):
        BudgetBroker(tokens=-1)


def test_a_team_larger_than_the_ensemble_is_refused(scripted):
    rnn, _ = build(scripted, BudgetBroker(min_judges=5))
    with pytest.raises(ValueError, match=r"^broker: expected min_judges of at most 4, the ensemble's, got 5$"):
        rnn([TASK])


def test_the_most_counts_the_names_that_judges_see_and_their_own_answers(scripted):
    """Answers fill their allowance, so the bound without names and own answers would be too low."""
    long = "the right honourable member for Mirabel"
    engine = scripted.Recorder(lambda request: "word " * 99, lambda request, candidate: 0.5)
    members = [Agent(name, "scripted", decoding=Decoding(max_new_tokens=5)) for name in (long, "Oberon", "Zebulon")]
    ensemble, encoder = Ensemble({"scripted": engine}, members), HashedEncoder(16)

    def most(**switches):
        cell = MacroRNNCell(
            ensemble, encoder, consensus_cell(dim=16, agents=3), rating=VerdictRating(), protocol=Protocol(**switches)
        )
        judging = round_costs(TASK, cell, proposers=3)[:, 1, 1]
        return cell, judging - 2 * MARKUP * 3

    cell, bound = most(diagonal_mask=False, anonymous=False)
    cell([TASK], [full_team(ensemble)], cell.start([TASK]), index=1)
    read = [rating.prompt_tokens for rating in ScriptedEngine.rate(engine, engine.rated)]
    assert all(used <= limit for used, limit in zip(read, bound.tolist(), strict=True))
    assert all(used > limit for used, limit in zip(read, most()[1].tolist(), strict=True))
