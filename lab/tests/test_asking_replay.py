"""A learned broker decides live as it does on the answers it was fitted to."""

import copy
import random

import pytest
import torch
from recorded_team import ensemble_of

from nsed_lab.asking import fit_on_partial_teams, replay, without_questions
from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.parts.budget_broker import Budget, BudgetBroker
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task
from nsed_torch.traces.episodes import recorded_episodes
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.traces.rounds import Rounds

NAMES = ("ada", "bob", "cyd", "dan")


def planted(tasks: int = 60, seed: int = 0) -> RecordedAnswers:
    """Four agents that are right more or less often; one answer in ten is missing."""
    draw = random.Random(seed)
    rows, outputs = [], []
    for _ in range(tasks):
        row = [draw.choices([1, 2, 3, None], [chance, 1, 1, 0.4])[0] for chance in (6, 4, 2, 1)]
        rows.append(tuple(None if answer is None else str(answer) for answer in row))
        texts = [
            f"{name} says {'so ' * draw.randint(0, 30)}answer is {answer}"
            for name, answer in zip(NAMES, row, strict=True)
        ]
        # Whole tokens, so that live and recorded costs are equal.
        outputs.append(tuple("x" * (-len(text) % 4) + text if row[i] else "" for i, text in enumerate(texts)))
    return RecordedAnswers(
        tasks=tuple(Task(f"What is question {i} of {tasks}?", f"q{i}", "1") for i in range(tasks)),
        agents=NAMES,
        answers=tuple(rows),
        outputs=tuple(outputs),
        correct=torch.tensor([[answer == "1" for answer in row] for row in rows]),
        answered=torch.tensor([[answer is not None for answer in row] for row in rows]),
        parameters=torch.ones(4, dtype=torch.float64),
        digest="planted",
    )


def rounds_of(recorded: RecordedAnswers) -> Rounds:
    return without_questions(Rounds.of(recorded_episodes(recorded, HashedEncoder(16))))


def drawn(seed: int) -> LearnedBroker:
    """Heads drawn at random, so that every number it may read makes a difference."""
    broker = LearnedBroker(NAMES, rounds=4)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in broker.parameters():
            parameter.normal_(0, 1.0)
        broker.habits.copy_(torch.tensor([[3.0, 3.5, 4.0, 4.5], [0.3, 0.4, 0.5, 0.6]]))
    return broker


def live(
    recorded: RecordedAnswers, cell: ConsensusCell, broker: BudgetBroker, order=(0, 1, 2, 3), **options
) -> MacroRNN:
    """The recorded agents, in some order, as a team that deliberates."""
    team = recorded.select(range(len(recorded)), order)
    encoder = HashedEncoder(16)
    ensemble = ensemble_of(team, **options)
    own = copy.deepcopy(cell)
    with torch.no_grad():
        own.trust.bias.copy_(cell.trust.bias[list(order)])
    macro = MacroRNNCell(ensemble, encoder, own, answers=GradersAnswers(AnswerGrader()))
    return MacroRNN(macro, halting=FixedHalting(9), broker=broker)


@pytest.fixture(scope="module")
def recorded() -> RecordedAnswers:
    return planted()


@pytest.fixture(scope="module")
def cell(recorded: RecordedAnswers) -> ConsensusCell:
    return fit_on_partial_teams(rounds_of(recorded), torch.arange(40), torch.arange(40, 60), steps=40)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_live_it_asks_the_same_agents_and_elects_the_same_answer(recorded, cell, seed, order, tmp_path) -> None:
    broker = drawn(seed)
    outcome = replay(broker, cell, rounds_of(recorded))
    assert 1 < outcome.asked.sum(1).double().mean() < 4
    broker.save_pretrained(tmp_path / "broker.safetensors")
    loaded = LearnedBroker.from_pretrained(tmp_path / "broker.safetensors")
    transcripts = live(recorded, cell, BudgetBroker(learned=loaded), order)(recorded.tasks).transcripts
    for i, transcript in enumerate(transcripts):
        asked = {NAMES[a] for a in outcome.asked[i].nonzero()[:, 0].tolist()}
        assert set(transcript.rounds[-1].proposers) == asked
        assert [len(record.proposers) for record in transcript.rounds] == list(range(1, len(asked) + 1))
        written = [p.usage.completion_tokens for record in transcript.rounds for p in record.proposals]
        assert sum(written) == outcome.cost[i]
        assert transcript.stop_reason == ("broker" if transcript.answer else "no_answers")
        said = AnswerGrader().extract(transcript.task, transcript.answer) if transcript.answer else None
        assert (said is not None and Equality().equal(said, "1")) == bool(outcome.right[i])


def test_it_ends_a_task_in_the_first_round_and_asks_everybody_at_most_once(recorded, cell) -> None:
    broker = LearnedBroker(NAMES, rounds=4)
    (transcript,) = live(recorded, cell, BudgetBroker(learned=broker))(recorded.tasks[:1]).transcripts
    assert [r.proposers for r in transcript.rounds] == [list(NAMES[: k + 1]) for k in range(4)]
    assert [r.standing for r in transcript.rounds] == [list(NAMES[:k]) for k in range(4)]
    assert replay(broker, cell, rounds_of(recorded)).asked.all()
    with torch.no_grad():
        broker.bias.fill_(-1.0)  # nobody is worth it, but somebody answers
    (transcript,) = live(recorded, cell, BudgetBroker(learned=broker))(recorded.tasks[:1]).transcripts
    assert [r.proposers for r in transcript.rounds] == [["ada"]]
    assert transcript.stop_reason == "broker"
    assert replay(broker, cell, rounds_of(recorded)).asked.sum() == len(recorded)


def test_a_budget_binds(recorded, cell) -> None:
    """It asks as long as what is left pays for the most that joining may take."""
    for share in (0.9, 1.5, 3.0):
        free = live(recorded, cell, BudgetBroker(learned=LearnedBroker(NAMES, rounds=4)))
        tokens = share * max(t.usage.tokens for t in free(recorded.tasks).transcripts) / 2
        broker = BudgetBroker(Budget(tokens=tokens), learned=LearnedBroker(NAMES, rounds=4))
        try:
            transcripts = live(recorded, cell, broker)(recorded.tasks[:5]).transcripts
        except InfeasibleBudgetError:
            assert share < 1
            continue
        for transcript in transcripts:
            assert transcript.usage.tokens <= tokens
            assert transcript.stop_reason in ({"budget"} if len(transcript.rounds) < 4 else {"broker"})
            assert len(transcript.rounds) > 1 or share < 3


def test_of_those_that_it_can_pay_the_most_worthy_joins(recorded, cell) -> None:
    broker = LearnedBroker(NAMES, rounds=4)
    with torch.no_grad():
        broker.bias[0, :, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    rnn = live(recorded, cell, BudgetBroker(Budget(money=1e9), learned=broker))
    rnn.broker.begin(recorded.tasks[:1], rnn.cell)
    team = rnn.broker.team(recorded.tasks[0], [])
    assert (team.proposers, team.voters, team.standing) == ((3,), (), ())
    dear = rnn.broker._joining_costs(recorded.tasks[0], [], 1)[:, 0, 0]
    budget = Budget(money=float(dear.sort().values[1]) * 1.0000001)
    rnn = live(recorded, cell, BudgetBroker(budget, learned=broker))
    best = max((i for i in range(4) if dear[i] <= budget.money), key=lambda i: i)
    rnn.broker.begin(recorded.tasks[:1], rnn.cell)
    assert rnn.broker.team(recorded.tasks[0], []).proposers == (best,)


def test_it_goes_on_from_the_call_log(recorded, cell, tmp_path) -> None:
    with CallLog(tmp_path / "calls.sqlite") as log:
        once = live(recorded, cell, BudgetBroker(learned=drawn(1)), call_log=log)(recorded.tasks[:9]).transcripts
        rnn = live(recorded, cell, BudgetBroker(learned=drawn(1)), call_log=log)
        rnn.cell.ensemble.engines["recorded"].generate = None  # nobody is asked again
        assert rnn(recorded.tasks[:9]).transcripts == once


def test_a_team_may_be_some_of_the_brokers_agents_and_nobody_else(recorded, cell) -> None:
    broker, everybody = drawn(2), live(recorded, cell, None)
    few = recorded.select(range(len(recorded)), [3, 1])
    macro = MacroRNNCell(ensemble_of(few), HashedEncoder(16), ConsensusCell(16, 2).double())
    for transcript in MacroRNN(macro, halting=FixedHalting(9), broker=BudgetBroker(learned=broker))(
        few.tasks[:9]
    ).transcripts:
        assert set(transcript.rounds[-1].proposers) <= {"dan", "bob"}
    broker.agents = (*NAMES[:3], "eve")
    with pytest.raises(
        ValueError, match=r"^broker: expected agents out of ada, bob, cyd, eve, got dan: leave them out"
    ):
        MacroRNN(everybody.cell, broker=BudgetBroker(learned=broker))
