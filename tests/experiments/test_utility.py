"""`nsed tune utility=true` from collected traces to a broker that `nsed deliberate` and `nsed evaluate` use."""

import json
import re

import pytest
import torch
from nsed_torch.experiments.utility import UtilitySettings
from nsed_torch.training.seats import RecordedSeats

from nsed_torch.agents import HashedEncoder
from nsed_torch.data import load_traces
from nsed_torch.nn import LearnedBroker
from nsed_torch.records import TraceWriter, read_json, read_traces

QUICK = ["seeds=2", "training.epochs=1", "teams.ridges=[3.0]", "teams.prices=[0.0]", "teams.budgets=[0.15,0.4,1.0]"]


@pytest.fixture
def collected(nsed):
    """What the tiny model said to 24 questions, graded as if the solver knew of sums and the skeptic of the rest."""
    questions = [
        {"id": f"q{i}", "question": f"{'sum' if i % 2 else 'word'} number {i}", "gold": str(i)} for i in range(24)
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
    out = nsed.ok("tune", "data_dir=traces", "output_dir=out", "utility=true", *QUICK)
    found = read_json(nsed.folder / "out/teams.json")
    assert "broker, seed 1: ridges 3 and 3 chosen on" in out
    assert set(found["curves"]) == {"learned broker", "fixed team", "random team", "oracle"}
    learned, fixed, _, oracle = found["curves"].values()
    assert [point["budget"] for point in learned] == [0.15, 0.4, 1.0]
    # One proposer is enough, for the question tells which; no fixed team of that size knows both kinds.
    assert learned[0]["accuracy"]["mean"] > 0.9
    assert learned[0]["cost"] < 0.15
    assert learned[0]["accuracy"]["mean"] > fixed[0]["accuracy"]["mean"] + 0.2
    assert all(
        point["accuracy"]["mean"] <= best["accuracy"]["mean"] for point, best in zip(learned, oracle, strict=True)
    )
    assert f"{learned[0]['accuracy']['mean']:.4f}" in out
    full = sum(trace.transcript.rounds[0].usage.tokens for trace in collected) / 24
    assert [len(seed["policies"]) for seed in found["seeds"]] == [3, 3]
    assert found["full_team_tokens"] == pytest.approx(full, rel=0.2)
    assert (nsed.folder / "out/teams.png").read_bytes().startswith(b"\x89PNG")

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
            "tune", "data_dir=traces", f"output_dir={name}", "utility=true", *QUICK, "seeds=1", "teams.cell=fresh",
            "teams.judging=0.5",
        )  # fmt: skip
    for name in ("teams.json", "broker/0.40.safetensors"):
        assert (nsed.folder / "one" / name).read_bytes() == (nsed.folder / "two" / name).read_bytes()
    found = read_json(nsed.folder / "one/teams.json")
    assert (found["cell"], found["judging"]) == ("fresh", 0.5)


def costs_add_up(folder, first):
    """A full team takes what the round took, and each proposal what is recorded of it, in whatever order."""
    episodes = load_traces(folder)
    seats = RecordedSeats.of(episodes)
    torch.testing.assert_close(seats.cost(seats.there), episodes.cost[:, 0])
    tokens = [proposal.usage.tokens for proposal in first.proposals]
    assert seats.tokens[0, :, 0].tolist() == tokens
    turned = episodes.sorted_by(torch.tensor([0.0, 1.0, 2.0])).proposal_cost
    assert turned[0, 0].tolist() == tokens[::-1]


def test_a_broker_without_its_file_or_of_others_is_one_line(nsed, tmp_path):
    arguments = "deliberate", "Why?", *nsed.tiny, "output_dir=out", "broker=learned"
    assert nsed.fault(*arguments) == "broker: expected one that nsed tune saved, got none: pass broker.learned=FILE"
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
    ("settings", "fault"),
    [
        ({"budgets": []}, r"^expected budgets above 0, got \[\]$"),
        ({"ridges": [0.0]}, r"^expected ridges above 0, got \[0.0\]$"),
        ({"prices": [-1.0]}, r"^expected prices of at least 0, got \[-1.0\]$"),
        ({"judging": 1.5}, r"^expected judging in \[0, 1\], got 1.5$"),
    ],
)
def test_bad_settings(settings, fault):
    with pytest.raises(ValueError, match=fault):
        UtilitySettings(**settings)
