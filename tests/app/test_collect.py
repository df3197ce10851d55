"""`nsed collect`: a folder of graded traces that any later run can read, kept through kills."""

import importlib.util
import json
import os
import re
import sys

import pytest

from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import read_json
from nsed_torch.records.trace import read_traces
from nsed_torch.traces.load import load_traces

QUESTIONS = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": 2 * i} for i in range(2)]
FILES = ("traces.jsonl", "embeddings.safetensors", "collect.json")


@pytest.fixture
def questions(nsed):
    path = nsed.folder / "questions.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in QUESTIONS))
    return f"questions={path}"


def test_it_writes_traces_and_goes_on_without_a_model(nsed, questions, monkeypatch):
    words = [*nsed.tiny, questions, "rounds=1", "output_dir=run"]
    nsed.ok("collect", *words, "limit=1")
    some = (nsed.folder / "run/traces.jsonl").read_bytes()
    out = nsed.ok("collect", *words)
    assert "2 of 2 tasks" in out
    for row in ("2 tasks, 12 calls", "answer after round 1", "skeptic, round 1", "oracle, any proposal"):
        assert row in out
    files = {name: (nsed.folder / "run" / name).read_bytes() for name in FILES}
    assert files["traces.jsonl"].startswith(some)

    traces = list(read_traces(nsed.folder / "run"))
    assert [trace.transcript.task.target for trace in traces] == ["0", "2"]
    episodes = load_traces(nsed.folder / "run")
    assert episodes.embeddings.shape == (2, 1, 3, 64)
    assert episodes.agents == ("solver", "skeptic", "explainer")
    about = read_json(nsed.folder / "run/collect.json")
    assert about["encoder"] == {"name": "hashed", "dim": 64}
    assert [agent["name"] for agent in about["agents"]] == list(episodes.agents)
    assert about["settings"]["halting"] == traces[0].transcript.settings["halting"]
    assert about["counts"]["tasks"] == 2
    assert about["counts"]["usage"]["calls"] == 12

    for name in ("generations", "ratings"):
        monkeypatch.setattr(TransformersEngine, name, lambda *_: pytest.fail("a model was asked again"))
    nsed.ok("collect", *words, "batch_tasks=1")
    assert {name: (nsed.folder / "run" / name).read_bytes() for name in FILES} == files


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "expected a file of questions, got none: pass questions=FILE"),
        (["questions=nowhere.jsonl"], "nowhere.jsonl: cannot be read ("),
        (["questions=bad.jsonl"], "bad.jsonl:2: expected an object with question and answer, got {'id': '2'}"),
        (["questions=bad.jsonl", "limit=few"], "limit: expected a whole number or null, got 'few'"),
        (["questions=good.jsonl", "limit=0"], "limit: expected a value of at least 1, got 0"),
        (["questions=good.jsonl", "batch_tasks=0"], "batch_tasks: expected a value of at least 1, got 0"),
        (["questions=good.jsonl", "tasks.math_verify=true"], "expected math-verify for math_verify=true"),
        (["questions=good.jsonl", "rounds=0"], "rounds: expected a value of at least 1, got 0"),
        (["question=Why"], "unknown setting 'question'; did you mean 'questions'?"),
        (
            ["tasks=riddles"],
            "could not find 'tasks/riddles'; available: ",
        ),
        (["tasks=reasoning_gym"], "expected reasoning-gym for generated tasks"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, monkeypatch, arguments, line):
    good = json.dumps({"id": 1, "question": "?", "target": "1"})
    (nsed.folder / "good.jsonl").write_text(good + "\n")
    (nsed.folder / "bad.jsonl").write_text(good + '\n{"id": 2}\n')
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "math_verify" else find_spec(name))
    assert nsed.fault("collect", *nsed.tiny, "output_dir=run", *arguments).startswith(line)
    assert not (nsed.folder / "run/traces.jsonl").exists()


SCRIPT = """
import os, random, signal, sys, time
from pathlib import Path

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.traces.equality import Equality
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.traces.collecting import collect
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.halting import FixedHalting
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task

RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"How much is {i} times 7?", f"q{i}", str(7 * i)) for i in range(6))
GRADED = GradedTasks(TASKS, AnswerGrader(RULE), RULE.identity())


class Slow(ScriptedEngine):
    '''Takes a moment a call, and leaves a byte for every finished one.'''

    def __init__(self, made):
        def judge(request, candidate):
            return random.Random(f"{request.seed}{candidate}").random()

        super().__init__(lambda request: f"The answer is {request.seed % 40}.", judge, max_batch=BATCH)
        self.made = made

    def generate(self, requests):
        return [self.slowly(super(Slow, self).generate, request) for request in requests]

    def rate(self, requests):
        return [self.slowly(super(Slow, self).rate, request) for request in requests]

    def slowly(self, call, request):
        start = time.perf_counter()
        time.sleep(0.002)
        (result,) = call([request])
        with self.made.open("a") as file:
            file.write(".")
        object.__setattr__(result, "seconds", time.perf_counter() - start)
        return result


def run(folder):
    folder.mkdir(exist_ok=True)
    with CallLog(folder / "calls.sqlite") as log:
        agents = [Agent(name, "slow") for name in ("ada", "ben", "cleo")]
        ensemble = Ensemble({"slow": Slow(folder / "made.txt")}, agents, call_log=log)
        cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), seed=5)
        collect(MacroRNN(cell, halting=FixedHalting(2)), GRADED, folder, batch_tasks=2)


straight, broken = map(Path, sys.argv[1:])
if (pid := os.fork()) == 0:
    run(broken)
    os._exit(0)
while not (broken / "made.txt").exists() or (broken / "made.txt").stat().st_size < 40:
    time.sleep(0.0005)
os.kill(pid, signal.SIGKILL)
print(os.WTERMSIG(os.waitpid(pid, 0)[1]), (broken / "made.txt").stat().st_size)
print((broken / "traces.jsonl").read_bytes().count(b"\\n"), (broken / "embeddings.safetensors").exists())
run(broken)
run(straight)
"""

BATCH = 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_killed_run_goes_on_and_ends_as_a_straight_one(tmp_path, plain_python):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    done = plain_python(SCRIPT.replace("BATCH", str(BATCH)), straight, broken)
    assert done.returncode == 0, done.err
    signal, before, lines, finished = done.out.split()
    assert (signal, finished) == ("9", "False")
    assert 0 < int(lines) < 6  # a batch of tasks was on disk, the last was not
    calls = 6 * 2 * (3 + 3)
    assert 40 <= int(before) < calls
    assert (straight / "made.txt").stat().st_size == calls
    assert (broken / "made.txt").stat().st_size <= calls + BATCH  # the batch in flight is all that was lost
    with CallLog(broken / "calls.sqlite") as log:
        assert len(log) == calls

    def without_seconds(folder, name):
        data = (folder / name).read_bytes()
        assert name != "traces.jsonl" or len(set(re.findall(rb'"seconds": [0-9.e-]+', data))) > 10
        return re.sub(rb'"seconds": [0-9.e-]+', b"", data)

    for name in FILES:
        assert without_seconds(broken, name) == without_seconds(straight, name)
    assert len(list(read_traces(broken))) == 6


def test_runs_that_share_a_file_of_calls_make_none_twice(nsed, tmp_path):
    shared = f"calls={tmp_path / 'shared' / 'calls.sqlite'}"
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"id": "a", "question": "1 + 1?", "target": "2"}\n')
    for folder in ("one", "two"):
        nsed.ok("collect", *nsed.tiny, f"questions={questions}", "rounds=1", shared, f"output_dir={folder}")
        assert not (tmp_path / folder / "calls.sqlite").exists()
    made = [trace.transcript.rounds[0].usage for f in ("one", "two") for trace in read_traces(tmp_path / f)]
    # Seconds are those of the call that was made, so a call made again would differ.
    assert made[0].seconds == made[1].seconds > 0


def test_answers_that_an_agent_annotates_are_graded_too(nsed):
    (nsed.folder / "sets/darkbench").mkdir(parents=True)
    row = {"id": "sneaking-001", "pattern": "sneaking", "prompt": "Hello."}
    (nsed.folder / "sets/darkbench/darkbench_660.jsonl").write_text(json.dumps(row) + "\n")
    nsed.ok("collect", *nsed.tiny, "tasks=darkbench", "data_dir=sets", "rounds=1", "output_dir=run")
    (trace,) = read_traces(nsed.folder / "run")
    assert len(trace.grades[0]) == 3
