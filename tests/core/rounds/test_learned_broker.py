"""A learned broker of one round, live: whom the question is worth asking, down to one who answers alone."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.evaluation.pages import write_report
from nsed_torch.parts.budget_broker import Budget, BudgetBroker
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.records.transcript import Task, Transcript

KINDS = ("sums", "letters", "words")
TASKS = [Task(f"{kind} {i}", f"{kind}-{i}") for i in range(2) for kind in KINDS]


def learned(scripted, *, proposing=0.0, judging=-1.0, rounds=1):
    """Agent a is worth asking where the question's word is the a-th kind; agents judge at the same worth everywhere."""
    encoder = HashedEncoder(16)
    found = LearnedBroker(scripted.NAMES[:4], rounds=rounds, roles=2, dim=16, encoder=encoder.identity())
    with torch.no_grad():
        found.weight[:, :3, 0, :16] = 4 * encoder.embed(KINDS).double()
        found.bias[..., 0] = proposing - 1
        found.bias[..., 1] = judging
    return found


def build(scripted, broker, **options):
    return scripted.build(agents=4, broker=broker, write=lambda request: f"#{request.seed} yes", **options)


def test_each_question_goes_to_whom_it_is_worth_asking_and_nobody_else(scripted):
    rnn, engine = build(
        scripted, BudgetBroker(learned=learned(scripted, rounds=2), min_proposers=1, min_judges=0), rounds=2
    )
    transcripts = rnn(TASKS).transcripts
    for transcript in transcripts:
        expert = scripted.NAMES[KINDS.index(transcript.task.question.split()[0])]
        for record in transcript.rounds:
            assert (record.proposers, record.voters, record.ratings) == ([expert], [], [])
            assert (record.winner, record.consensus) == (0, [1.0])
        assert transcript.answer == transcript.rounds[-1].proposals[0].text
        assert transcript.stop_reason == "rounds"
        assert transcript.usage.calls == 2
    assert engine.rated == []
    # Alone or in a batch with larger teams: a task's team and transcript are its own.
    assert build(scripted, rnn.broker, rounds=2)[0](TASKS[3:4]).transcripts[0] == transcripts[3]


def test_where_nobody_is_worth_it_the_best_answers_alone(scripted):
    broker = BudgetBroker(learned=learned(scripted, proposing=-9), min_proposers=1, min_judges=0)
    rnn, _ = build(scripted, broker, rounds=1)
    for transcript in rnn(TASKS).transcripts:
        expert = scripted.NAMES[KINDS.index(transcript.task.question.split()[0])]
        assert transcript.rounds[0].proposers == [expert]


def test_teams_of_all_sizes_share_a_batch(scripted):
    uneven = learned(scripted, judging=1.0)
    with torch.no_grad():
        uneven.bias[0, 3, 0] = 2.0  # always proposes too
        uneven.weight[0, :, 1, :16] = -9 * HashedEncoder(16).embed(["sums"])[0]
    rnn, _ = build(scripted, BudgetBroker(learned=uneven, min_proposers=1, min_judges=0), rounds=1)
    together = rnn(TASKS).transcripts
    sizes = {(len(t.rounds[0].proposers), len(t.rounds[0].voters)) for t in together}
    assert sizes == {(2, 0), (2, 4)}
    assert [build(scripted, rnn.broker, rounds=1)[0]([task]).transcripts[0] for task in TASKS] == list(together)


def test_an_answer_of_one_alone_has_a_transcript_and_a_page(scripted, tmp_path):
    rnn, _ = build(scripted, BudgetBroker(learned=learned(scripted), min_proposers=1, min_judges=0), rounds=1)
    (transcript,) = rnn(TASKS[:1]).transcripts
    transcript.save(tmp_path / "transcript.json")
    assert Transcript.load(tmp_path / "transcript.json") == transcript
    assert len(transcript.settings["broker"]) == 12
    page = write_report(tmp_path).read_text()
    assert transcript.answer in page


@settings(max_examples=8)
@given(st.floats(0.1, 4), st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 2**32))
def test_no_budget_is_ever_exceeded(scripted, share, proposing, judging, seed):
    broker = BudgetBroker(
        Budget(tokens=share * 400),
        learned=learned(scripted, proposing=proposing, judging=judging),
        min_proposers=1,
        min_judges=0,
    )
    rnn, _ = build(scripted, broker, seed=seed, max_new_tokens=16, memory_tokens=20)
    for task in TASKS[:3]:
        try:
            (transcript,) = rnn([task]).transcripts
        except InfeasibleBudgetError:
            assert share < 1
            continue
        assert transcript.usage.tokens <= broker.budget.tokens
        assert transcript.rounds


def test_a_broker_of_others_or_of_another_encoder_is_refused(scripted):
    other = learned(scripted)
    other.agents = ("Eve", *other.agents[1:])
    with pytest.raises(ValueError, match=r"^broker: expected agents out of Eve, .*, got Zebulon: leave them out"):
        build(scripted, BudgetBroker(learned=other))
    foreign = learned(scripted)
    foreign.encoder = {"name": "hashed", "dim": 32}
    with pytest.raises(ValueError, match=r'^broker: expected the encoder {"name": "hashed", "dim": 32}, got .*: 16}'):
        build(scripted, BudgetBroker(learned=foreign))


def test_behind_its_last_head_a_task_ends(scripted):
    broker = BudgetBroker(learned=learned(scripted), min_proposers=1, min_judges=0)
    rnn, engine = build(scripted, broker, rounds=5)
    transcripts = rnn(TASKS).transcripts
    assert all((len(t.rounds), t.stop_reason) == (1, "broker") for t in transcripts)
    assert len(engine.generated) == len(TASKS)


def test_a_saved_broker_seats_the_same_agents(scripted, tmp_path):
    path = tmp_path / "broker.safetensors"
    learned(scripted, proposing=0.7).save_pretrained(path)
    runs = [
        build(scripted, BudgetBroker(learned=found, min_proposers=1, min_judges=0), rounds=1)[0](TASKS).transcripts
        for found in (learned(scripted, proposing=0.7), LearnedBroker.from_pretrained(path))
    ]
    assert runs[0] == runs[1]
    assert math.isfinite(dataclasses.asdict(runs[0][0])["usage"]["price"])
