"""`nsed tune` on a folder of recorded answers: one table, one file of numbers, cells, resume, sweeps."""

import json
import random
import re
from statistics import fmean

import pytest
import torch
from planted_readings import planted_readings, reading_of

from nsed_torch.app.sweep import SweepTable
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.statistics import shown
from nsed_torch.parts.gates import NoteGate
from nsed_torch.parts.round_vote import VOTES, RoundVoteHalting
from nsed_torch.parts.ties import Ties
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import TraceWriter
from nsed_torch.records.transcript import Task
from nsed_torch.traces.episodes import recorded_episodes
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import load_recorded
from nsed_torch.traces.rounds import unroll
from nsed_torch.tuning.trainer import CellTrainer

METHODS = ["oracle", "best_single", "plurality", "consensus_untrained", "consensus_tuned"]
QUICK = ["divisions=2", "training.epochs=3"]


@pytest.fixture
def data(tmp_path):
    """100 questions; `cat` is right nine times in ten, the others follow each other into a wrong answer."""
    draw = random.Random(0)
    folder = tmp_path / "data"
    (folder / "answers").mkdir(parents=True)
    questions, lines = [], {name: [] for name in ("ant", "bee", "cat", "dog")}
    for i in range(100):
        questions.append({"id": f"q{i}", "question": f"What is {i} + 1?", "target": str(i + 1)})
        misled = draw.random() < 0.6
        for name, rows in lines.items():
            right = draw.random() < 0.9 if name == "cat" else not misled
            answer = str(i + 1) if right else str(i - 1)
            rows.append({"id": f"q{i}", "output": f"It is {answer}.", "answer": answer, "correct": right})
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    for name, rows in lines.items():
        (folder / "answers" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_vote_over_all_rounds_goes_back_to_what_was_talked_away(nsed, data):
    misled = (data / "answers" / "ant.jsonl").read_text().splitlines()
    for path in (data / "answers").iterdir():
        after = [json.loads(line) | {"round": 1} for line in misled]  # all of one mind in the end
        path.write_text(path.read_text() + "".join(json.dumps(line) + "\n" for line in after))
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", "all_rounds=true", *QUICK)
    methods = read_json(nsed.folder / "out/metrics.json")["methods"]
    right = {name: method["accuracy"]["mean"] for name, method in methods.items()}
    assert list(methods) == ["oracle", "best_single", "plurality", "all_rounds", *METHODS[3:]]
    assert right["all_rounds"] > right["plurality"] + 0.3
    rule = RoundVoteHalting(nsed.folder / "out/cell")
    assert rule.vote.votes[VOTES.index("came")] < 0  # what the knowing one came to is wrong
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *QUICK)
    assert not (nsed.folder / "out/cell/rounds.safetensors").exists()


def test_tuning_helps_where_one_agent_knows_better(nsed, data):
    # The rule is left out: it needs categories.
    out = nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", "rules=[best_by_category]", *QUICK)
    metrics = read_json(nsed.folder / "out/metrics.json")
    seeds = [nsed.folder / "out" / f"seed_{seed['seed']}" / "result.json" for seed in metrics["seeds"]]
    scores = [read_json(seed)["scores"] for seed in seeds]
    found = Comparison.of(scored(scores), reference="consensus_tuned", by_student=True)
    assert found.to_json().items() <= metrics.items()
    assert list(found.methods) == METHODS
    accuracy = {name: method.accuracy for name, method in found.methods.items()}
    for value in accuracy.values():
        assert value.low <= value.mean <= value.high
        assert shown(value) in out
    assert accuracy["consensus_tuned"].mean > accuracy["plurality"].mean + 0.1
    assert found.reference == "consensus_tuned"
    assert found.paired["plurality"].difference.low > 0
    assert accuracy["consensus_untrained"].mean == accuracy["plurality"].mean
    assert accuracy["oracle"].mean >= max(value.mean for value in accuracy.values())
    assert {seed["best_single"] for seed in metrics["seeds"]} == {"cat"}
    assert out.rstrip().endswith("out/metrics.json")
    log = [json.loads(line) for line in (nsed.folder / "out/seed_1/log.jsonl").read_text().splitlines()]
    assert "gradient" in log[0]


def test_the_saved_cell_learned_from_every_task(nsed, data):
    out = nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *QUICK)
    train, validation = map(int, re.search(r"cell: (\d+) \+ (\d+) tasks", out).groups())
    assert train + validation == 100
    cell = ConsensusCell.from_pretrained(nsed.folder / "out/cell")
    assert cell.agent_names == ("ant", "bee", "cat", "dog")
    assert cell.trust.bias.argmax() == 2
    card = (nsed.folder / "out/cell/README.md").read_text()
    assert "| consensus\\_tuned " in card
    assert "## Tuned on\n\n100 tasks, 4 agents, at most " in card
    assert f"    recordings: {data.name}\n    nsed tune encoder=hashed {' '.join(QUICK)}\n" in card
    assert str(data.parent) not in card  # it may be shown to anybody


def test_a_vote_may_have_settings_of_its_own(nsed, data):
    vote = "consensus.vote={_target_: nsed_torch.parts.votes.ApprovalVote, threshold: 0.2}"
    nsed.ok(
        "tune",
        f"data_dir={data}",
        "encoder=hashed",
        "output_dir=out",
        vote,
        "divisions=1",
        "training.epochs=1",
        "training.frozen=[vote]",
    )
    assert ConsensusCell.from_pretrained(nsed.folder / "out/cell").vote.threshold.item() == pytest.approx(0.2)


def test_without_a_refit_the_saved_cell_is_the_first_divisions(nsed, data):
    nsed.ok("tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", "refit=false", *QUICK)
    cell = ConsensusCell.from_pretrained(nsed.folder / "out/cell")
    again = ConsensusCell.from_pretrained(nsed.folder / "out/seed_0/cell")
    episodes = recorded_episodes(load_recorded(data), HashedEncoder(64))
    for mine, other in zip(unroll(cell, episodes), unroll(again, episodes), strict=True):
        assert torch.equal(mine, other)
    assert "consensus\\_tuned" in (nsed.folder / "out/cell/README.md").read_text()


def test_resume_goes_on_and_ends_the_same(nsed, data, tmp_path):
    arguments = "tune", f"data_dir={data}", "encoder=hashed", *QUICK, "training.checkpoint=2"
    nsed.ok(*arguments, "output_dir=straight")
    nsed.ok(*arguments, "output_dir=broken")
    # As after a kill in seed 1: no result, a checkpoint from epoch 2, a log that had gone on.
    (tmp_path / "broken/seed_1/result.json").unlink()
    out = nsed.ok(*arguments, "output_dir=broken", "resume=true")
    assert "seed 0: done before" in out
    straight, broken = (read_json(tmp_path / name / "seed_1/result.json") for name in ("straight", "broken"))
    assert straight == broken
    fault = nsed.fault(*arguments, "output_dir=broken", "resume=true", "consensus.gate=none")
    assert "expected to go on with this run, got another's (consensus.gate 'learned' is now 'none'): choose" in fault


@pytest.mark.parametrize("mode", [[], ["-m", "consensus.vote=quadratic,plurality"]])
def test_the_same_command_again_trains_nothing(nsed, data, tmp_path, monkeypatch, mode):
    arguments = (
        "tune",
        f"data_dir={data}",
        "encoder=hashed",
        "output_dir=out",
        "divisions=1",
        "training.epochs=3",
        *mode,
    )
    nsed.ok(*arguments)
    monkeypatch.setattr(CellTrainer, "_train_epoch", lambda _: pytest.fail("trained again"))
    tables = {path: path.read_bytes() for path in tmp_path.glob("out/**/README.md")}
    assert tables
    assert "seed 0: done before" in nsed.ok(*arguments)
    assert {path: path.read_bytes() for path in tables} == tables
    trained = []
    monkeypatch.setattr(CellTrainer, "_train_epoch", lambda trainer: trained.append(trainer) or {"objective": 0.0})
    nsed.ok(*arguments, "consensus.gate=none")  # in place of what the other left
    assert trained
    trained.clear()
    nsed.ok(*arguments, "consensus.gate=none", "resume=false")
    assert trained


def test_a_sweep_ends_with_one_table(nsed, data, tmp_path):
    out = nsed.ok(
        "tune", "-m", f"data_dir={data}", "encoder=hashed", "consensus.vote=quadratic,plurality",
        "consensus.gate=learned,none", "waves=2", "output_dir=sweep", "divisions=1", "training.epochs=2",
    )  # fmt: skip
    data, first = read_json(tmp_path / "sweep/sweep.json"), read_json(tmp_path / "sweep/0/metrics.json")
    assert (
        list(data["methods"])
        == list(data["against"])
        == [
            f"consensus.vote={voting} consensus.gate={gate}"
            for voting in ("quadratic", "plurality")
            for gate in ("learned", "none")
        ]
    )
    assert data["reference"] == "consensus.vote=quadratic consensus.gate=learned"
    tuned = data["methods"][data["reference"]]["accuracy"]
    assert tuned == first["methods"]["consensus_tuned"]["accuracy"]
    assert tuned["interval"] == "Student"
    assert data["against"][data["reference"]] == first["paired"]["consensus_untrained"]
    assert "minus consensus_untrained" in out
    assert (tmp_path / "sweep/sweep.csv").is_file()
    assert out.rstrip().endswith("sweep/sweep.md")


def test_a_sweep_is_compared_with_the_baseline_that_is_named(nsed, data, tmp_path):
    words = (
        "tune",
        "-m",
        f"data_dir={data}",
        "encoder=hashed",
        "consensus.vote=quadratic,plurality",
        "consensus.gate=learned,none",
        "output_dir=sweep",
    )
    words = (*words, "divisions=1", "training.epochs=2")
    nsed.ok(*words, "baseline=consensus.gate=none consensus.vote=plurality")
    found = read_json(tmp_path / "sweep/sweep.json")
    assert found["reference"] == "consensus.vote=plurality consensus.gate=none"
    assert "sweep/sweep.md" in nsed.ok(*words, "baseline=consensus.gate=none")
    assert read_json(tmp_path / "sweep/sweep.json")["reference"] == "consensus.vote=quadratic consensus.gate=none"
    out = nsed.ok(*words, "baseline=consensus.gate=leaky")
    assert "got consensus.gate=leaky: all are compared with the first" in out
    assert read_json(tmp_path / "sweep/sweep.json")["reference"] == "consensus.vote=quadratic consensus.gate=learned"


def test_a_sweeper_is_told_the_objective(nsed, data, tmp_path, monkeypatch):
    told = []
    ended = lambda self, config, job_return, **_: told.append(job_return._return_value)  # noqa: E731
    monkeypatch.setattr(SweepTable, "on_job_end", ended)
    words = (
        "tune",
        "-m",
        f"data_dir={data}",
        "encoder=hashed",
        "consensus.vote=quadratic,token",
        "output_dir=sweep",
        "divisions=1",
    )
    words = (*words, "training.epochs=2")
    nsed.ok(*words)
    nsed.ok(*words, "objective=methods.oracle.accuracy.mean")
    metrics = [read_json(tmp_path / f"sweep/{job}/metrics.json")["methods"] for job in (0, 1)]
    assert told == [one[name]["accuracy"]["mean"] for name in ("consensus_tuned", "oracle") for one in metrics]
    line = nsed.fault(*words, "objective=methods.oracles.accuracy.mean")
    assert line.startswith("objective: expected the name of a number in ")
    assert line.endswith("did you mean 'methods.oracle.accuracy.mean'?")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["data_dir=nowhere"], "check data_dir"),
        ([], "pass data_dir=DIR"),
        (["divisions=0"], "divisions: expected a value of at least 1, got 0"),
        (["agents=[ant,eel]"], "expected agents out of ant, bee, cat, dog, got eel"),
        (["consensus.vote=loudest"], "vote: expected one of quadratic"),
        (
            ["consensus.vote={_target_: nowhere.Vote}"],
            "_target_: expected one of nsed_torch.app.config.instantiate.CONSTRUCTORS",
        ),
        (["consensus.vote={threshold: 0.2}"], "or one of your own, got {'threshold': 0.2}"),
        (
            ["consensus.vote={_target_: nsed_torch.core.engine.Decoding}"],
            "or one of your own, got Decoding(max_new",
        ),
        (["training.patience=0"], "patience: expected a value of at least 1, got 0"),
        (["training.patients=3"], "unknown setting 'training.patients'; did you mean 'training.patience'?"),
        (["fractions=[0.5,0.5,0.5]"], "three fractions of at least 0 that sum to 1"),
        (["ties=last"], "expected ties=first or ties=lot or ties=accuracy, got ties=last"),
        (["protocol.without=[ant]"], "expected no protocol.without for recorded answers"),
        (["waves=9"], "expected rounds from 1 to the number of agents, 4, got 9"),
    ],
)
def test_faults_are_one_line(nsed, data, arguments, complaint):
    given = [] if not arguments or arguments[0].startswith("data_dir") else [f"data_dir={data}", "encoder=hashed"]
    assert complaint in nsed.fault("tune", *given, *arguments)


NAMES = ("ann", "bob", "cyd")


def traces(folder, tasks=50, first=0):
    """Three rounds of scripted agents: bob is mostly right; ann can tell, the other two rate at random."""

    def write(request):
        draw = random.Random(request.seed)
        number = int(re.search(r"How much is (\d+)", request.messages[-1].content)[1])
        right = draw.random() < (0.8 if request.agent == "bob" else 0.3)
        return f"({request.seed}) Answer: {7 * number + (not right)}"

    def judge(request, candidate):
        draw = random.Random(f"{request.seed} {candidate}")
        if request.agent != "ann":
            return draw.uniform(-1, 1)
        number = int(re.search(r"How much is (\d+)", request.messages[-1].content)[1])
        said = re.search(r"Answer: (\d+)", candidate) or re.search(
            rf"{re.search('Candidate_[A-Z]+', candidate)[0]}.*?Answer: (\d+)", request.messages[-1].content, re.DOTALL
        )
        return draw.uniform(0.2, 1) * (1 if int(said[1]) == 7 * number else -1)

    members = [Agent(name, "scripted", decoding=Decoding(max_new_tokens=8)) for name in NAMES]
    ensemble = Ensemble({"scripted": ScriptedEngine(write, judge)}, members)
    grader = AnswerGrader(Equality(math_verify=False))
    pooled = GradersAnswers(grader)
    cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), answers=pooled)
    questions = tuple(Task(f"How much is {i} times 7?", f"q{i}", str(7 * i)) for i in range(first, tasks))
    graded = GradedTasks(questions, grader, {})
    writer = TraceWriter(folder)
    with torch.no_grad():
        found = graded.traces(MacroRNN(cell)(questions).transcripts)
    writer.add(found)
    writer.finish(cell.encoder.embed)
    return found


def test_traces_are_tuned_on_like_recorded_answers(nsed):
    found = traces(nsed.folder / "traces")
    nsed.ok(
        *(
            "tune",
            "data_dir=traces",
            "output_dir=out",
            "divisions=5",
            "training.epochs=6",
            "optimizer=adam",
            "optimizer.lr=0.2",
        ),
        *("consensus.gate=notes", "consensus.calibration=true"),
    )
    metrics = read_json(nsed.folder / "out/metrics.json")["methods"]
    elected = [trace.grades[-1][trace.transcript.rounds[-1].winner] for trace in found]
    assert metrics["consensus_untrained"]["accuracy"]["mean"] == pytest.approx(sum(elected) / len(elected))
    assert metrics["oracle"]["accuracy"]["mean"] == pytest.approx(
        sum(any(map(any, t.grades)) for t in found) / len(found)
    )
    assert metrics["consensus_tuned"]["accuracy"]["mean"] > metrics["consensus_untrained"]["accuracy"]["mean"]
    cell = ConsensusCell.from_pretrained(nsed.folder / "out/cell")
    assert cell.agent_names == NAMES
    assert isinstance(cell.gate, NoteGate)
    assert (cell.calibration.scale != 1).any()
    line = nsed.fault("tune", "data_dir=traces", "agents=[ann,bob]")
    assert line == "traces: expected no agents for traces, whose rounds are as they were held"


def test_ties_by_lot_and_a_team_without_a_member(nsed):
    found = traces(nsed.folder / "traces", tasks=20)
    out = nsed.ok(
        *("tune", "data_dir=traces", "output_dir=out", "divisions=5", "training.epochs=1", "refit=false"),
        *("ties=lot", "protocol.without=[bob]"),
    )
    assert " ".join(Ties.LOT.note.split()) in " ".join(out.split())
    metrics = read_json(nsed.folder / "out/metrics.json")
    assert metrics["ties"] == "lot"
    # Of two who are left any two answers tie.
    shares = [fmean(t.grades[-1][i] for i in (0, 2)) for t in found]
    assert metrics["methods"]["plurality"]["accuracy"]["mean"] == pytest.approx(fmean(shares))
    assert ConsensusCell.from_pretrained(nsed.folder / "out/cell").agent_names == NAMES
    assert "without: expected agents out of ann, bob, cyd, got eve" in nsed.fault(
        "tune", "data_dir=traces", "protocol.without=[eve]"
    )


def test_several_folders_of_traces_are_one(nsed, data):
    traces(nsed.folder / "some", tasks=20)
    traces(nsed.folder / "more", tasks=40, first=20)
    out = nsed.ok("tune", "data_dir=[some,more]", "output_dir=out", "divisions=2", "training.epochs=2")
    assert "40 tasks, 3 agents" in out
    line = nsed.fault("tune", f"data_dir=[some,{data}]")
    assert line == f"{data}: expected traces in each of several folders, got no traces.jsonl: pass one kind"
    assert "expected every task in one record" in nsed.fault("tune", "data_dir=[some,some]")


def test_a_gate_is_fitted_to_readings(nsed):
    planted_readings(nsed.folder / "reading", reading_of(12, 30))
    out = nsed.ok(
        "tune",
        "data_dir=reading",
        "training.loss=memory",
        "training.epochs=3",
        "consensus.gate=notes",
        "consensus.slots=2",
        "divisions=2",
        "output_dir=out",
    )
    metrics = read_json(nsed.folder / "out/metrics.json")
    share, found = metrics["methods"], metrics["found"]["methods"]
    names = ["no_gate", "constant_leak", "most_recent", "random", "consensus_untrained", "consensus_tuned"]
    assert list(share) == list(found) == names
    for measured in (share, found):
        means = {name: measured[name]["accuracy"]["mean"] for name in names}
        assert max(means, key=means.__getitem__) == "consensus_tuned"
    assert 0 < share["no_gate"]["accuracy"]["mean"] < 1
    assert "Share of the last memory on notes that matter with 95% intervals" in " ".join(out.split())
    assert "30 tasks, 2 agents, 12 rounds" in out
    cell, start = ConsensusCell.from_pretrained(nsed.folder / "out/cell"), ConsensusCell(256, 2)
    assert not torch.equal(cell.gate.weight, start.gate.weight)
    assert torch.equal(cell.trust.bias, start.trust.bias.double())
    assert "share of the last memory on notes that matter" in (nsed.folder / "out/cell/README.md").read_text()


def test_a_sweep_of_gates_is_told_by_what_they_keep(nsed):
    planted_readings(nsed.folder / "reading", reading_of(6, 30))
    memory = "training.loss=memory", "training.epochs=2", "divisions=1", "output_dir=sweep"
    nsed.ok("tune", "-m", "data_dir=reading", "consensus.gate=learned,notes", *memory)
    table = (nsed.folder / "sweep/sweep.md").read_text()
    assert "| share of the last memory on notes that matter |" in table
    data, first = (read_json(nsed.folder / "sweep" / name) for name in ("sweep.json", "0/metrics.json"))
    assert list(data["methods"]) == ["consensus.gate=learned", "consensus.gate=notes"]
    assert data["methods"]["consensus.gate=learned"]["accuracy"] == first["methods"]["consensus_tuned"]["accuracy"]


def test_readings_alone_fit_a_gate_and_settings_that_would_count_for_nothing_are_refused(nsed, data):
    traces(nsed.folder / "answers", tasks=8)
    memory = "training.loss=memory"
    line = nsed.fault("tune", "data_dir=answers", memory)
    assert line == "answers: expected traces of tasks with inputs, got none: collect tasks=reading"
    assert "expected traces of tasks=reading" in nsed.fault("tune", f"data_dir={data}", "encoder=hashed", memory)
    planted_readings(nsed.folder / "reading", reading_of(4, 30))
    for setting in ("rules=[all]", "coverage=0.9", "consensus.calibration=true", "training.every_round=true"):
        name = setting.partition("=")[0]
        line = nsed.fault("tune", "data_dir=reading", memory, setting)
        assert line == f"expected no {name} with training.loss=memory, which fits the gate alone: remove it"
    assert "set consensus.gate=notes" in nsed.fault("tune", "data_dir=reading", memory, "consensus.gate=leaky")


def test_a_gate_is_fitted_by_answers_of_a_team(nsed):
    planted_readings(nsed.folder / "reading", reading_of(4, 12))
    team = " ".join(nsed.tiny)
    by_answers = "training.loss=answer", "optimizer=adam", "training.epochs=2", "training.batch=4"
    words = "data_dir=reading", *by_answers, "consensus.gate=notes", "divisions=1", "output_dir=out"
    out = nsed.ok("tune", *words, "training.draws=0", f"team={team}")
    metrics = read_json(nsed.folder / "out/metrics.json")
    assert list(metrics["methods"]) == ["no_gate", "consensus_untrained", "consensus_tuned"]
    chances = {name: own["accuracy"]["mean"] for name, own in metrics["methods"].items()}
    assert all(0 < chance < 1 for chance in chances.values())
    assert chances["consensus_tuned"] != chances["consensus_untrained"]
    assert "Probability of the target, a token" in " ".join(out.split())
    assert ConsensusCell.from_pretrained(nsed.folder / "out/cell").gate.weight.abs().max() > 0
    drawn = nsed.ok("tune", *words, "consensus.slots=2", f"team={team}", "output_dir=drawn")  # notes are shown alike
    assert 2 <= drawn.count(" memories were read\n") <= 20  # in tenths, of the division and of the cell for use
    assert (nsed.folder / "drawn/calls.sqlite").stat().st_size > 0  # a run that is gone on with reads none anew
    line = nsed.fault("tune", *words, "resume=false")
    assert line.endswith("got none: pass team='ensemble=NAME', as for nsed collect")
    assert "with training.loss=answer, got leaky" in nsed.fault("tune", *words, "consensus.gate=leaky")
