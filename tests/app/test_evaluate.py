"""`nsed evaluate`: one command from questions to tables, the same whatever was killed and however many processes."""

import json
import os
import re

import pytest
from omegaconf import OmegaConf
from team_traces import trace as graded_trace
from team_traces import turn
from tiny_models import save_tiny_encoder

from nsed_torch.app.verbs import evaluate as verb
from nsed_torch.app.verbs.evaluate import labelled_accuracy
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.engines.sentence_encoder import SentenceEncoder
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.evaluation.comparison import Comparison, MethodResult
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.parts.ties import Ties
from nsed_torch.records.files import read_json
from nsed_torch.records.outcome import read_outcomes
from nsed_torch.records.trace import TraceWriter, read_traces
from nsed_torch.records.transcript import Task, Usage

QUESTIONS = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": 2 * i} for i in range(3)]
METHODS = ("deliberation", "single:solver", "single:skeptic", "single:explainer", "best_single", "plurality")
METHODS += ("self_consistency", "self_correction", "best_of_n", "self_moa", "moa", "debate")


@pytest.fixture
def questions(nsed):
    folder = nsed.folder / "data"
    folder.mkdir()
    (folder / "questions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in QUESTIONS))
    return ["tasks=recorded", f"data_dir={folder}"]


@pytest.mark.parametrize(
    ("names", "rounds", "tasks", "plots"),
    [("ab", 2, 2, ["cost", "rounds"]), ("a", 2, 2, ["rounds"]), ("ab", 1, 2, ["cost"]), ("a", 135, 1, [])],
)
def test_no_plot_has_one_point_or_one_task(monkeypatch, names, rounds, tasks, plots, tmp_path):
    drawn = []
    monkeypatch.setattr(verb, "plot_cost", lambda *_: drawn.append("cost"))
    monkeypatch.setattr(verb, "plot_rounds", lambda *_: drawn.append("rounds"))
    methods = {name: MethodResult(tasks, Estimate(tasks, 0.5), {}, Usage(), {}) for name in names}
    found = {"course": {"rounds": [{}] * rounds}, "tasks": tasks}
    verb.draw_plots(Comparison("a", methods, {}), found, tmp_path)
    assert drawn == plots


@pytest.mark.usefixtures("plots")
def test_one_command_writes_everything_and_again_without_a_model(nsed, questions, monkeypatch):
    longer = [word.replace("max_new_tokens=4", "max_new_tokens=8") for word in nsed.tiny]  # samples fill the budget
    words = [*longer, *questions, "rounds=2", "limit=2", "output_dir=run"]
    out = nsed.ok("evaluate", *words)
    folder = nsed.folder / "run"
    results = read_json(folder / "results.json")
    assert tuple(results["methods"]) == METHODS
    assert all(m["tasks"] == 2 for m in results["methods"].values())
    outcomes = read_outcomes(folder / "outcomes.jsonl")
    assert [(o.method, o.task) for o in outcomes] == [(m, t) for m in METHODS for t in ("q0", "q1")]
    tokens = {o.task: o.usage.tokens for o in outcomes if o.method == "deliberation"}
    assert all(o.usage.tokens > 0 for o in outcomes)
    grown = [o for o in outcomes if o.method in {"plurality", "self_consistency"}]
    assert all(o.usage.tokens <= tokens[o.task] for o in grown)
    assert any(o.usage.tokens > tokens[o.task] / 2 for o in grown)
    traces = list(read_traces(folder))
    assert [t.transcript.task.id for t in traces] == ["q0", "q1"]
    assert results["insight"]["tasks"] == 2
    assert results["provenance"]["config"]["rounds"] == 2
    assert results["provenance"]["seeds"] == {"seed": 0}
    for name in ("tables/results.md", "tables/results.csv", "report.html", "plots/rounds.png"):
        assert (folder / name).stat().st_size > 0, name
    for said in ("deliberation: 2 of 2 tasks", "plurality: 2 of 2 tasks", "self_consistency", "accuracy"):
        assert said in out

    before = {path: path.read_bytes() for path in folder.rglob("*") if path.suffix in {".json", ".jsonl", ".md"}}
    for name in ("generations", "ratings"):
        monkeypatch.setattr(TransformersEngine, name, lambda *_: pytest.fail("a model was asked again"))
    monkeypatch.setattr(verb, "draw_plots", lambda *_: None)
    nsed.ok("evaluate", *words, "batch_tasks=1")
    again = {path: path.read_bytes() for path in before}
    changed = [path.name for path in before if before[path] != again[path]]
    assert sorted(changed) == ["results.json", "run.json"]  # the config it tells of: batch_tasks
    old, new = (json.loads(data[folder / "results.json"]) for data in (before, again))
    for part in ("provenance", "timings"):
        old.pop(part), new.pop(part)
    assert old == new


def test_what_votes_anew_over_recorded_calls_embeds_nothing(nsed, questions, monkeypatch):
    encoder = ["encoder=minilm", f"encoder.weights.path={save_tiny_encoder(nsed.folder)}", "encoder.device=cpu"]
    words = [*nsed.tiny, *encoder, *questions, "rounds=2", "limit=2", "methods=[deliberation]"]
    files = "traces.jsonl", "embeddings.safetensors"

    def made(name, *more):
        nsed.ok("evaluate", *words, f"output_dir={name}", *more)
        return [re.sub(rb'"seconds": [0-9.e-]+', b"", (nsed.folder / name / file).read_bytes()) for file in files]

    with monkeypatch.context() as before:
        before.setattr("nsed_torch.app.build.logged", lambda encoder, log: encoder)
        expected = made("before")
    recorded = f"calls={nsed.folder / 'before/calls.sqlite'}"
    assert made("alone") == made("first", recorded) == expected
    monkeypatch.setattr(SentenceEncoder, "embed", lambda *_: pytest.fail("a text was embedded again"))
    assert made("again", recorded) == expected


def test_texts_in_pieces_are_read_over_rounds_and_at_once(nsed):
    left_out = [f"~tasks.families.{name}" for name in ("hidden_profile", "last", "first", "before", "chains", "swaps")]
    needles = [f"tasks.families.needles.{option}" for option in ("pieces=3", "statements=1", "needles=1")]
    words = [*nsed.tiny, "tasks=reading", "+method=readers", *left_out, *needles, "tasks.size=2", "rounds=1"]
    words.append("output_dir=run")
    readers = ["cut", "retrieval", "retrieved_memory", "overwriting", "oracle_memory"]
    methods = f"methods=[deliberation, plurality, debate, {', '.join(readers)}]"
    out = nsed.ok("evaluate", *words, methods, "dry_run=true")
    for reader in readers:
        assert re.search(rf"{reader}\W+[0-9,]+\W+[0-9,]+", out), out
    out = nsed.ok("evaluate", *words, methods)
    folder = nsed.folder / "run"
    traces = list(read_traces(folder))
    assert [len(t.transcript.rounds) for t in traces] == [4, 4]
    assert all(answers == [None] * 3 for t in traces for answers in t.answers[:3])
    assert [len(t.needed) for t in traces] == [4, 4]
    notes = {o.method: o.note for o in read_outcomes(folder / "outcomes.jsonl") if o.method in readers}
    assert notes == dict(
        zip(readers, ["pieces: 3 of 3", "pieces: 3 of 3", "notes: 3", "rewritten: 3 times", "notes: 1"], strict=True)
    )
    assert read_json(folder / "results.json")["provenance"]["config"]["tasks"]["size"] == 2
    assert "accuracy" in out
    assert "expected no inputs" in nsed.fault("evaluate", *words[:-1], "protocol.unit=step", "output_dir=other")


def test_steps_are_summed_up_in_a_line_a_task_and_some_take_no_part(nsed, questions, monkeypatch):
    steps = ["protocol.unit=step", "rating=agreement", "consensus.slots=1", "protocol.without=[explainer]", "rounds=2"]
    words = [*nsed.tiny, *questions, *steps, "methods=[deliberation,single]", "limit=2"]
    out = nsed.ok("evaluate", *words, "output_dir=run")
    for task in ("q0", "q1"):
        assert re.search(
            rf"^{task}: \d steps elected, somebody outvoted in \d; the answer is wrong$", out, re.MULTILINE
        )
    for trace in read_traces(nsed.folder / "run"):
        assert all(record.proposers == ["solver", "skeptic"] for record in trace.transcript.rounds)
    assert any(o.method == "single:explainer" for o in read_outcomes(nsed.folder / "run/outcomes.jsonl"))
    fault = nsed.fault("evaluate", *words, "broker=knapsack", "output_dir=other")
    assert "expected agents to leave out of solver, skeptic, explainer, and no broker, got without=['explain" in fault


def test_questions_of_ones_own_are_a_benchmark(nsed, questions):
    file = nsed.folder / "data/questions.jsonl"
    words = [f"questions={file}", "tasks.prompt=Give a number.", "output_dir=run"]
    nsed.ok("evaluate", *nsed.tiny, *words, "methods=[deliberation]", "rounds=1", "limit=2")
    (first, second) = read_traces(nsed.folder / "run")
    assert (first.transcript.task.id, first.transcript.task.target) == ("q0", "0")
    assert second.transcript.task.question == "How much is 1 + 1?\n\nGive a number."
    assert "pass questions=FILE, or tasks=NAME" in nsed.fault("evaluate")
    assert "got both: remove one" in nsed.fault("evaluate", f"questions={file}", "tasks=gsm8k")


def test_a_dry_run_tells_cost_and_hours_and_loads_no_model(nsed, questions, monkeypatch):
    loading = "transformers.AutoModelForCausalLM.from_pretrained", "sentence_transformers.SentenceTransformer"
    for name in loading:
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("a model was loaded"))
    words = [*nsed.tiny, "encoder=minilm", *questions, "dry_run=true", "output_dir=run"]

    def costs(*more):
        out = nsed.ok("evaluate", *words, *more)
        assert "3 tasks" in out
        rows = {m: re.search(rf"\b{m}\W+([0-9,]+)\W+([0-9,]+).*│\W+([0-9,.]+)\W+0\.00\W*\n", out) for m in told}
        return {name: [float(cell.replace(",", "")) for cell in row.groups()] for name, row in rows.items()}

    told = ("deliberation", "single", "debate", "all")
    slow, fast = costs("expect.speeds={read: 1, written: 1}"), costs("expect.speeds={read: 2, written: 2}")
    for name, (calls, tokens, hours) in slow.items():
        assert calls > 0
        assert hours == pytest.approx(tokens / 3600, abs=0.01)
        assert fast[name] == [calls, tokens, pytest.approx(hours / 2, abs=0.01)]
    assert not (nsed.folder / "run/results.json").exists()
    assert "expected an adapter out of none, got 'x'" in nsed.fault(
        "evaluate", *words, "+ensemble.agents.solver.adapter=x"
    )


def test_a_dry_run_fetches_nothing(nsed, questions, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(nsed.folder / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(nsed.folder / "empty"))
    monkeypatch.setattr("nsed_torch.engines.weights._from_hub", lambda *_: pytest.fail("the Hub was asked"))
    monkeypatch.setattr("nsed_torch.engines.weights._from_wheels", lambda *_: pytest.fail("the index was asked"))
    absent = "ensemble.engines.smollm2.weights.name=absent", "ensemble.engines.smollm2.weights.repo=no/body"
    out = nsed.ok("evaluate", *questions, *absent, "dry_run=true", "output_dir=run")
    assert "weights absent are not here: four characters count as a token" in out
    told = re.search(r"memory: ([0-9.]+) GB of weights here \(smollm2 ([0-9.]+) GB, encoder 0.09 GB\)", out)
    assert float(told[1]) == pytest.approx(float(told[2]) + 0.09, abs=0.011)
    assert re.search(r"deliberation\W+[0-9,]+\W+[0-9,]+", out), out


def test_a_sweep_names_folders_by_their_settings_and_skips_what_is_complete(nsed, questions):
    words = [*nsed.tiny, *questions, "limit=1", "methods=[deliberation]", "output_dir=sweep"]
    out = nsed.ok("evaluate", "-m", *words, "rounds=1,2")
    jobs = sorted(path.parent.name for path in (nsed.folder / "sweep").glob("*/results.json"))
    assert len(jobs) == 2
    assert all(re.fullmatch(r"[0-9a-f]{10}", job) for job in jobs)
    assert re.search(r"rounds=1\b.*\n(.*\n)*.*rounds=2\b", out)
    assert "rounds=2" in (nsed.folder / "sweep/sweep.md").read_text()
    times = {job: (nsed.folder / f"sweep/{job}/results.json").stat().st_mtime_ns for job in jobs}
    out = nsed.ok("evaluate", "-m", *words, "rounds=1,2,3")
    assert out.count("complete already") == 2
    assert len(list((nsed.folder / "sweep").glob("*/results.json"))) == 3
    assert times == {job: (nsed.folder / f"sweep/{job}/results.json").stat().st_mtime_ns for job in jobs}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["methods=[plurallity]"], "methods: expected names out of deliberation, single, best_single, plurality"),
        (["methods=[]"], "methods: expected one or more different names, got []"),
        (["methods=[single,single]"], "methods: expected one or more different names"),
        (["methods=[plurality]"], "budget=equal_tokens needs deliberation among the methods"),
        (["budget=all"], "expected budget=equal_tokens or budget=own, got budget=all"),
        (["ids=[q9]"], "expected ids of 3 tasks, such as 'q0', got 'q9'"),
        (["ties=last"], "expected ties=first or ties=lot or ties=accuracy, got ties=last"),
        (["ties=accuracy"], "ties=accuracy: expected traces to learn accuracies from, got none: set labels=DIR"),
        (
            ["ties=first", "labels=traces"],
            "expected ties=accuracy with labels, got ties=first: set it, or remove labels",
        ),
        (["methods=[router]", "budget=own"], "router: expected the file that nsed fit-broker wrote, got none"),
        (["epochs=0"], "epochs: expected a value of at least 1, got 0"),
        (["batch_tasks=0"], "batch_tasks: expected a value of at least 1, got 0"),
        (["max_failures=-1"], "max_failures: expected a value of at least 0, got -1"),
        (
            ["data_dir=nowhere"],
            "expected questions in one of nowhere/questions.jsonl, nowhere/questions.jsonl.gz, got none",
        ),
        (["tasks=riddles"], "could not find 'tasks/riddles'; available: "),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, questions, arguments, line):
    assert nsed.fault("evaluate", *nsed.tiny, *questions, "output_dir=run", *arguments).startswith(line)


def test_accuracies_of_labelled_traces_decide_ties(tmp_path):
    writer = TraceWriter(tmp_path / "labels")
    turns = [turn([answer, "yes", "no"], ratings=[[None, 0.5, 0.5]] * 3) for answer in ("yes", "no")]
    writer.add([graded_trace(f"q{i}", one, backbones="xxx") for i, one in enumerate(turns)])
    writer.finish(HashedEncoder(8).embed)
    agents = {name: {"backbone": "scripted"} for name in "abc"}
    engines = {"scripted": {"_target_": "nowhere"}}
    cfg = OmegaConf.create({"labels": str(tmp_path / "labels")})
    cfg.ensemble = {"agents": agents, "engines": engines}
    assert labelled_accuracy(cfg, Ties.ACCURACY, [Task("Which?", "new")]) == {"a": 0.5, "b": 1.0, "c": 0.0}
    with pytest.raises(
        ValueError, match="labels: expected traces of other questions than are asked, got 1, such as 'q'"
    ):
        labelled_accuracy(cfg, Ties.ACCURACY, [Task("?", "q"), Task("Which?", "new")])
    cfg.ensemble.agents.dora = {"backbone": "scripted"}
    with pytest.raises(ValueError, match="labels: expected agents out of a, b, c, got dora: collect with it"):
        labelled_accuracy(cfg, Ties.ACCURACY, [])


SCRIPT = """
import os, random, signal, socket, sys, time
from pathlib import Path

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.traces.equality import Equality
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.evaluation.methods.independent import SelfConsistency
from nsed_torch.evaluation.methods.interactive import Debate
from nsed_torch.app.verbs import evaluate as verb
from nsed_torch.app.processes import this_shard
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.halting import FixedHalting
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task

verb.draw_plots = lambda *_: None  # seconds a run
RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"How much is {i} times 7?", f"q{i}", str(7 * i)) for i in range(8))
GRADED = GradedTasks(TASKS, AnswerGrader(RULE), RULE.identity())


class Slow(ScriptedEngine):
    '''Takes a moment a call, and leaves a byte for every finished one.'''

    def generate(self, requests):
        time.sleep(0.002 * len(requests))
        results = super().generate(requests)
        with (FOLDER[0] / "made.txt").open("a") as file:
            file.write("." * len(requests))
        return results


def write(request):
    return f"The answer is {7 * (request.seed % 9)}."


def judge(request, candidate):
    return random.Random(f"{request.seed}{candidate}").uniform(-1, 1)


FOLDER = []


def run(folder):
    FOLDER[:] = [folder]
    folder.mkdir(exist_ok=True)
    shard = this_shard({})
    (folder / f"process_{shard.rank}_of_{shard.size}").touch()
    with CallLog(folder / "calls.sqlite") as log:
        agents = [Agent(name, "slow") for name in ("ada", "ben", "cleo")]
        ensemble = Ensemble({"slow": Slow(write, judge, max_batch=4)}, agents, call_log=log)
        cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), seed=5)
        names = ["deliberation", "single", "best_single", "self_consistency", "debate"]
        methods = {"self_consistency": SelfConsistency(), "debate": Debate()}
        rnn = MacroRNN(cell, halting=FixedHalting(2))
        contested = verb.evaluate(rnn, GRADED, methods, folder, names=names, batch_tasks=3, shard=shard)
    if shard.rank == 0:
        verb.write_run(folder, contested, GRADED, {"seed": 5})


def made(folder):
    file = folder / "made.txt"
    return file.stat().st_size if file.exists() else 0


def forked(folder, **environment):
    if (child := os.fork()) == 0:
        os.environ.update(environment)
        run(folder)
        os._exit(0)
    return child


straight, broken, shared = map(Path, sys.argv[1:])
for calls in (30, 31, 50):
    enough = made(broken) + calls
    child = forked(broken)
    while made(broken) < enough:
        time.sleep(0.0005)
    os.kill(child, signal.SIGKILL)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), (broken / "results.json").exists())
run(broken)
run(straight)
# What `torchrun` tells its processes; on CPUs `accelerate launch` starts one process, whatever it is told.
with socket.create_server(("127.0.0.1", 0)) as free:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
both = [forked(shared, RANK=rank, LOCAL_RANK=rank, **sizes, **meeting) for rank in "01"]
assert [os.waitpid(child, 0)[1] for child in both] == [0, 0]
"""


def without_timings(folder):
    results = read_json(folder / "results.json")
    del results["timings"]
    seconds = re.compile(rb'"seconds": [0-9.e-]+')
    lines = [seconds.sub(b"", (folder / name).read_bytes()) for name in ("outcomes.jsonl", "traces.jsonl")]
    return json.dumps(results), *lines


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_killed_three_times_or_shared_by_two_processes_it_ends_as_a_straight_run(tmp_path, plain_python):
    straight, broken, shared = (tmp_path / name for name in ("straight", "broken", "shared"))

    done = plain_python(SCRIPT, straight, broken, shared, has=["nsed_torch.app.verbs.evaluate", "accelerate"])
    assert (done.returncode, done.out.split()) == (0, ["9", "False"] * 3), done.err
    calls, batch = (straight / "made.txt").stat().st_size, 4
    assert calls > 30 + 31 + 50 + 3 * batch
    assert calls <= (broken / "made.txt").stat().st_size <= calls + 3 * batch  # only batches in flight were lost
    assert without_timings(broken) == without_timings(straight)

    assert sorted(path.name for path in shared.glob("process_*")) == ["process_0_of_2", "process_1_of_2"]
    assert (shared / "made.txt").stat().st_size == calls  # no call was made twice
    assert without_timings(shared) == without_timings(straight)
