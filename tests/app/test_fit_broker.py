"""`nsed fit-broker` from recorded answers or traces to table, JSON, plot and a broker that runs live."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_team import ensemble_of

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.parts.budget_broker import BudgetBroker
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import TraceWriter, read_traces
from nsed_torch.traces.episodes import recorded_episodes
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded
from nsed_torch.traces.rounds import Rounds
from nsed_torch.tuning.broker_fit import replay


def folder(root: Path, parameters: bool = True) -> RecordedAnswers:
    """Three agents and 60 tasks; the dear one is right most often."""
    draw = torch.Generator().manual_seed(0)
    names = [f"q{i}" for i in range(60)]
    lines = [json.dumps({"id": n, "question": f"What is {n}?", "target": "1"}) for n in names]
    (root / "answers").mkdir(parents=True)
    with gzip.open(root / "questions.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    for agent, chance in (("small", 0.6), ("middle", 0.7), ("large", 0.8)):
        right = (torch.rand(60, generator=draw) < chance).tolist()
        rows = [
            {
                "id": n,
                "output": f"{agent} thinks that the answer is {1 if r else 2 + i % 3}",
                "answer": "1" if r else str(2 + i % 3),
                "correct": r,
            }
            for i, (n, r) in enumerate(zip(names, right, strict=True))
        ]
        (root / "answers" / f"{agent}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    facts = {"small": {"parameters_b": 1}, "middle": {"parameters_b": 3}}
    (root / "agents.json").write_text(json.dumps({**facts, "large": {"parameters_b": 8}} if parameters else facts))
    return load_recorded(root)


TRACES = ("data_dir=traces", "output_dir=out", "divisions=2", "ridges=[3.0]", "prices=[0.0]", "budgets=[0.15,0.4,1.0]")
QUICK = (
    "data_dir=data",
    "encoder=hashed",
    "output_dir=out",
    "divisions=2",
    "steps=5",
    "ridges=[3.0,30.0]",
    "budgets=[0.3,1.0]",
)


def test_results_of_recorded_answers_are_written(nsed: Any) -> None:
    folder(nsed.folder / "data")
    told = nsed.ok("fit-broker", *QUICK)
    assert told.rstrip().endswith("out/cost.json")
    assert [f"broker, seed {seed}: ridge" in told for seed in range(3)] == [True, True, False]
    out = nsed.folder / "out"
    found = read_json(out / "cost.json")
    assert (out / "cost.png").read_bytes().startswith(b"\x89PNG")
    assert set(found["curves"]) == {"tuned broker", "static best-k", "static best subset", "random-k", "oracle"}
    for points in found["curves"].values():
        assert [p["budget"] for p in points] == [0.3, 1.0]
        assert all(0 <= p["accuracy"]["mean"] <= 1 for p in points)
    best = [p["accuracy"]["mean"] for p in found["curves"]["oracle"]]
    assert all(p["accuracy"]["mean"] <= best[1] for p in found["curves"]["tuned broker"])
    for share in ("0.30", "1.00"):
        broker = LearnedBroker.from_pretrained(out / "broker" / f"{share}.safetensors")
        assert (broker.rounds, broker.one_by_one, broker.dim) == (len(broker.agents), True, 0)
        cell = ConsensusCell.from_pretrained(out / "broker/cell", agents=broker.agents)
        assert cell.dim == 64


def test_what_is_used_may_learn_from_all_tasks(nsed: Any) -> None:
    folder(nsed.folder / "data")
    quick = "data_dir=data", "encoder=hashed", "divisions=1", "steps=5", "budgets=[0.5]"
    nsed.ok("fit-broker", *quick, "output_dir=first", "refit=false")
    nsed.ok("fit-broker", *quick, "output_dir=whole")
    files = [nsed.folder / name / "broker/0.50.safetensors" for name in ("first", "whole")]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_the_saved_broker_decides_live_as_on_the_recorded_answers(nsed: Any) -> None:
    """From recorded answers to files, with which the same agents are asked of the same team."""
    recorded = folder(nsed.folder / "data")
    told = nsed.ok(
        "fit-broker", "data_dir=data", "encoder=hashed", "divisions=1", "output_dir=out", "budgets=[0.4]", "steps=20"
    )
    out = nsed.folder / "out/broker"
    assert f"broker=learned broker.learned={out}/SHARE.safetensors cell={out}/cell rounds=8\n" in told
    broker = LearnedBroker.from_pretrained(out / "0.40.safetensors")
    team = recorded.select(range(len(recorded)), [recorded.agents.index(name) for name in broker.agents])
    cell = ConsensusCell.from_pretrained(out / "cell", agents=broker.agents)
    macro = MacroRNNCell(ensemble_of(team), HashedEncoder(64), cell, answers=GradersAnswers(AnswerGrader()))
    live = MacroRNN(macro, halting=FixedHalting(3), broker=BudgetBroker(learned=broker))
    with torch.no_grad():
        transcripts = live(team.tasks).transcripts
    outcome = replay(broker, cell, Rounds.of(recorded_episodes(team, HashedEncoder(64))).without_questions())
    assert 1 < float(outcome.asked.sum(1).double().mean()) < 3
    for i, transcript in enumerate(transcripts):
        last = transcript.rounds[-1]
        assert set(last.proposers) == {broker.agents[a] for a in outcome.asked[i].nonzero()[:, 0].tolist()}
        winner = team.agents.index(last.proposers[last.winner or 0])
        assert bool(team.correct[i, winner]) == bool(outcome.right[i])
        assert transcript.stop_reason in {"broker", "rounds"}


@pytest.fixture
def collected(nsed):
    """What the tiny model said to 24 questions, graded as if the solver knew of sums and the skeptic of the rest."""
    questions = [
        {"id": f"q{i}", "question": f"{'sum' if i % 2 else 'word'} number {i}", "target": str(i)} for i in range(24)
    ]
    (nsed.folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    nsed.ok("collect", *nsed.tiny, "questions=questions.jsonl", "rounds=1", "output_dir=raw")
    writer = TraceWriter(nsed.folder / "traces")
    traces = list(read_traces(nsed.folder / "raw"))
    for trace in traces:
        knows = 0 if trace.transcript.task.question.startswith("sum") else 1
        trace.grades[0][:] = [agent == knows for agent in range(3)]
    writer.add(traces)
    writer.finish(HashedEncoder().embed)
    return traces


def test_from_traces_to_a_live_broker(nsed, collected):
    costs_add_up(nsed.folder / "traces", collected[0].transcript.rounds[0])
    nsed.ok("tune", "data_dir=traces", "output_dir=tuned", "divisions=2", "training.epochs=1")
    out = nsed.ok("fit-broker", *TRACES, "cell=tuned")
    found = read_json(nsed.folder / "out/cost.json")
    assert "broker, seed 1: ridge 3 and 3 chosen by" in out
    assert set(found["curves"]) == {"learned broker", "fixed team", "random team", "router", "oracle"}
    learned, fixed, _, router, oracle = found["curves"].values()
    # One call each, of the expert that the question names: the same at every budget.
    assert {point["accuracy"]["mean"] for point in router} == {1.0}
    assert len({point["cost"] for point in router}) == 1
    assert router[0]["cost"] < 0.15
    assert [point["budget"] for point in learned] == [0.15, 0.4, 1.0]
    # One proposer is enough, for the question tells which; no fixed team of that size knows both kinds.
    assert learned[0]["accuracy"]["mean"] > 0.9
    assert learned[0]["cost"] < 0.15
    assert learned[0]["accuracy"]["mean"] > fixed[0]["accuracy"]["mean"] + 0.2
    assert all(
        point["accuracy"]["mean"] <= best["accuracy"]["mean"] for point, best in zip(learned, oracle, strict=True)
    )
    assert f"{learned[0]['accuracy']['mean']:.3f}" in out
    first = [trace.transcript.rounds[0] for trace in collected]
    shared = sum(p.usage.billed - p.usage.tokens for record in first for p in record.proposals)
    full = (sum(record.usage.tokens for record in first) + shared) / 24
    assert [len(seed["policies"]) for seed in found["seeds"]] == [3, 3]
    assert found["full_team_cost"] == pytest.approx(full, rel=0.2)
    assert (nsed.folder / "out/cost.png").read_bytes().startswith(b"\x89PNG")

    utility = nsed.folder / "out/broker/0.15.safetensors"
    assert LearnedBroker.from_pretrained(utility).encoder == {"name": "hashed", "dim": 64}
    live = "broker=learned", f"broker.learned={utility}", "rounds=1"
    for question, expert in (("sum number 7", "solver"), ("word number 8", "skeptic")):
        _, transcript = nsed.deliberate(question, *live, folder=question.split()[0])
        (record,) = transcript["rounds"]
        assert (record["proposers"], record["voters"], record["consensus"]) == ([expert], [], [1])
        assert transcript["answer"] == record["proposals"][0]["text"]
    # The live team took what the offline round was charged for it.
    again = [trace.transcript.task.question for trace in collected].index("word number 8")
    assert (
        transcript["usage"]["prompt_tokens"] == collected[again].transcript.rounds[0].proposals[1].usage.prompt_tokens
    )
    bounded = nsed.fault("deliberate", "sum 7", *nsed.tiny, *live, "broker.budget.tokens=20", "output_dir=none")
    assert re.match(r"broker: no team fits the budgets: expected tokens of at least \d+", bounded)


def test_the_same_command_writes_the_same_bytes(nsed, collected):
    for name in ("one", "two"):
        nsed.ok(
            "fit-broker", *TRACES, f"output_dir={name}", "divisions=1", "judging=0.5",
        )  # fmt: skip
    for name in ("cost.json", "broker/0.40.safetensors"):
        assert (nsed.folder / "one" / name).read_bytes() == (nsed.folder / "two" / name).read_bytes()
    found = read_json(nsed.folder / "one/cost.json")
    assert (found["cell"], found["judging"]) == ("", 0.5)


def costs_add_up(folder, first):
    """A full team takes what the round took, and each proposal what is recorded of it, in whatever order."""
    episodes = load_traces(folder)
    rounds = Rounds.of(episodes)
    torch.testing.assert_close(rounds.cost(rounds.there), episodes.cost[:, 0])
    tokens = [proposal.usage.billed for proposal in first.proposals]
    assert rounds.answer_cost[0].tolist() == tokens
    turned = episodes.sorted_by(torch.tensor([0.0, 1.0, 2.0])).proposal_cost
    assert turned[0, 0].tolist() == tokens[::-1]


def test_a_broker_without_its_file_or_of_others_is_one_line(nsed, tmp_path):
    arguments = "deliberate", "Why?", *nsed.tiny, "output_dir=out", "broker=learned"
    assert (
        nsed.fault(*arguments) == "broker: expected one that nsed fit-broker saved, got none: pass broker.learned=FILE"
    )
    assert "nowhere: expected a learned broker, got none there" in nsed.fault(*arguments, "broker.learned=nowhere")
    for names, line in (
        (("ann", "bob", "cyd"), "broker: expected agents out of ann, bob, cyd, got solver, skeptic, explainer"),
        (("solver", "skeptic", "explainer"), 'broker: expected the encoder {"dim": 8, "name": "hashed"}, got'),
    ):
        broker = LearnedBroker(names, rounds=1, roles=2, dim=8, encoder={"name": "hashed", "dim": 8})
        broker.save_pretrained(tmp_path / "file")
        assert line in nsed.fault(*arguments, "broker.learned=file")
    assert not (nsed.folder / "out/transcript.json").exists()


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["budgets=[0.5,0]"], "expected budgets above 0, got [0.5, 0"),
        (["budgets=[]"], "expected budgets above 0, got []"),
        (["pool=11"], "expected a pool of 1 to 10 agents and steps above 0, got 11 and 5"),
        (["ridges=[]"], "expected ridges above 0, got []"),
        (["prices=[-1.0]"], "prices: expected a value of at least 0, got [-1.0]"),
        (["divisions=0"], "divisions: expected a value of at least 1, got 0"),
        (["data_dir="], "pass data_dir=DIR"),
        (["data_dir=[data,data]"], "expected one folder of recorded answers, got 2: pass them one by one"),
        ([], "expected parameters_b of every agent, got none of large: choose others by agents or max_parameters_b"),
        (["prizes=3"], "unknown setting 'prizes'; did you mean 'prices'? nsed fit-broker --cfg job lists all"),
    ],
)
def test_faults_are_one_line(nsed: Any, overrides: list[str], fault: str) -> None:
    folder(nsed.folder / "data", parameters=False)
    assert fault in nsed.fault("fit-broker", *QUICK, *overrides)


def test_a_tuned_cell_elects_where_it_has_not_learned(nsed: Any, collected: Any) -> None:
    nsed.ok("tune", "data_dir=traces", "output_dir=tuned", "divisions=2", "training.epochs=1")
    line = nsed.fault("fit-broker", *TRACES, "divisions=3", "cell=tuned")
    assert line.startswith("tuned/seed_2: expected a cell that was tested on the same tasks")
    line = nsed.fault("fit-broker", *TRACES, "fractions=[0.5,0.2,0.3]", "cell=tuned")
    assert line.startswith("tuned/seed_0: expected a cell that was tested on the same tasks")
    assert "judging in [0, 1], got 2" in nsed.fault("fit-broker", *TRACES, "judging=2.0")
    assert "expected no agents for traces" in nsed.fault("fit-broker", *TRACES, "agents=[solver]")
