"""`nsed fit-broker` from traces to table, JSON, plot and a broker that runs live."""

import json
import re
from typing import Any

import pytest
import torch

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import TraceWriter, read_traces
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.rounds import Rounds

TRACES = ("data_dir=traces", "output_dir=out", "divisions=2", "ridges=[3.0]", "prices=[0.0]", "budgets=[0.15,0.4,1.0]")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A folder for what is collected once."""
    return tmp_path_factory.mktemp("raw")


@pytest.fixture
def collected(nsed, raw):
    """What the tiny model said to 24 questions, graded as if the solver knew of sums and the skeptic of the rest."""
    if not (raw / "run").exists():
        questions = [
            {"id": f"q{i}", "question": f"{'sum' if i % 2 else 'word'} number {i}", "target": str(i)} for i in range(24)
        ]
        (raw / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
        nsed.ok("collect", *nsed.tiny, f"questions={raw}/questions.jsonl", "rounds=1", f"output_dir={raw}/run")
    writer = TraceWriter(nsed.folder / "traces")
    traces = list(read_traces(raw / "run"))
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
        (["ridges=[]"], "expected ridges above 0, got []"),
        (["prices=[-1.0]"], "prices: expected a value of at least 0, got [-1.0]"),
        (["divisions=0"], "divisions: expected a value of at least 1, got 0"),
        (["data_dir="], "pass data_dir=DIR"),
        ([], "traces: expected traces of nsed collect, got answers"),
        (["prizes=3"], "unknown setting 'prizes'; did you mean 'prices'? nsed fit-broker --cfg job lists all"),
    ],
)
def test_faults_are_one_line(nsed, overrides, fault):
    (nsed.folder / "traces").mkdir()
    assert fault in nsed.fault("fit-broker", *TRACES, *overrides)


def test_a_tuned_cell_elects_where_it_has_not_learned(nsed: Any, collected: Any) -> None:
    nsed.ok("tune", "data_dir=traces", "output_dir=tuned", "divisions=2", "training.epochs=1")
    line = nsed.fault("fit-broker", *TRACES, "divisions=3", "cell=tuned")
    assert line.startswith("tuned/seed_2: expected a cell that was tested on the same tasks")
    line = nsed.fault("fit-broker", *TRACES, "fractions=[0.5,0.2,0.3]", "cell=tuned")
    assert line.startswith("tuned/seed_0: expected a cell that was tested on the same tasks")
    assert "judging in [0, 1], got 2" in nsed.fault("fit-broker", *TRACES, "judging=2.0")
