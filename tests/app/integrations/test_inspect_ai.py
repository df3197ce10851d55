"""A team in inspect_ai: the real package, samples of local files."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai.dataset import Sample, json_dataset  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402
from inspect_ai.scorer import match  # noqa: E402

from nsed_torch.app.integrations.inspect_ai import Desk, nsed_deliberate  # noqa: E402
from nsed_torch.records.transcript import Task, Transcript, Usage  # noqa: E402

QUESTIONS = [{"id": f"q{i}", "question": f"How much is {i} + {i}?"} for i in range(4)]  # those of the file
ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("ignore")  # streams of the package that it leaves open


@pytest.fixture
def answered(questions_file, tmp_path):
    """What a task of the questions' file comes to: id -> sample of the log."""

    def run(**how):
        def sample(record):
            return Sample(id=record["id"], input=record["question"], target=record["target"])

        task = inspect_ai.Task(json_dataset(str(questions_file), sample), scorer=match())
        (log,) = inspect_ai.eval(task, log_dir=str(tmp_path / "logs"), display="none", **how)
        assert log.status == "success", log.error
        return {f"{sample.id}~{sample.epoch}": sample for sample in log.samples}

    return run


def test_the_solver_answers_as_nsed_evaluate_does_and_keeps_the_transcript(answered, settings, evaluated):
    samples = answered(model="mockllm/model", solver=nsed_deliberate(**settings), epochs=2)
    native = evaluated(settings)
    assert len(native) == 4
    for name, transcript in native.items():
        sample = samples[f"{name}~1"]
        assert sample.output.completion == transcript.answer
        assert sample.messages[-1].text == transcript.answer
        kept = Transcript.from_line(json.dumps(sample.store["nsed"]), "store")
        assert kept.task.id == name
        for ours, theirs in zip(kept.rounds, transcript.rounds, strict=True):
            assert [p.text for p in ours.proposals] == [p.text for p in theirs.proposals]
            assert ours.winner == theirs.winner
            assert ours.support == pytest.approx(theirs.support, abs=1e-4)  # of other batches
        assert sample.output.usage.total_tokens == transcript.usage.billed
    again = {name: sample.output.completion for name, sample in samples.items() if name.endswith("~2")}
    assert {name.removesuffix("~2"): text for name, text in again.items()} != {n: t.answer for n, t in native.items()}


def test_the_model_answers_as_nsed_evaluate_does_to_questions_named_by_their_text(answered, settings, evaluated):
    model = get_model("nsed/demo", **{key: value for key, value in settings.items() if key != "ensemble"})
    samples = answered(model=model, epochs=2)
    hashed = {sha256(record["question"].encode()).hexdigest()[:16]: record["id"] for record in QUESTIONS}
    native = evaluated(settings, lambda record: next(name for name, own in hashed.items() if own == record["id"]))
    native = {hashed[name]: transcript.answer for name, transcript in native.items()}
    for epoch in (1, 2):
        assert {name: samples[f"{name}~{epoch}"].output.completion for name in native} == native
    assert len(set(native.values())) > 1


class Team:
    """Answers by a question's first letter; some it cannot."""

    def __init__(self, settings):
        self.batches = []

    def deliberate(self, asked):
        self.batches.append(sorted(asked))
        if any("broken" in question for _, question in asked):
            raise ValueError("too long")
        return [Transcript(Task(q, n or q), [], [], q[0], "rounds", Usage(), 0) for n, q in asked]


def test_a_desk_gathers_what_waits_and_spares_others_what_fails(monkeypatch):
    monkeypatch.setattr("nsed_torch.app.integrations.inspect_ai.Door", Team)
    desk = Desk({})
    asked = [("1", "ant"), ("1", "bee"), ("2", "cat"), ("2", "cat"), ("", "broken"), ("", "dog")]

    async def ask():
        busy = threading.Event()
        desk._thread.submit(busy.wait)  # until everybody waits
        waiting = [asyncio.ensure_future(desk.ask(*one)) for one in asked]
        while len(desk._waiting) < len(asked):
            await asyncio.sleep(0.01)
        busy.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    told = asyncio.run(ask())
    desk.close()
    assert [str(t) if isinstance(t, Exception) else t.answer for t in told] == ["a", "b", "c", "c", "too long", "d"]
    assert desk.door.batches[0] == [("", "broken"), ("", "dog"), ("1", "ant"), ("2", "cat")]
    assert desk.door.batches[1:5] == [[one] for one in desk.door.batches[0]]  # one by one
    assert desk.door.batches[5:] == [[("1", "bee")]]


def test_tools_are_refused_and_faults_of_settings_are_lines(settings):
    with pytest.raises(ValueError, match="expected one of a team's, got one of a run's: the tool writes"):
        get_model("nsed/demo", output_dir="x")
    with pytest.raises(ValueError, match=r"^.*Could not find 'ensemble/nobody'"):
        get_model("nsed/nobody")
    model = get_model("nsed/demo", **{key: value for key, value in settings.items() if key != "ensemble"})
    with pytest.raises(ValueError, match="expected no tools"):
        asyncio.run(model.api.generate([], [object()], None, None))


def test_the_entry_point_makes_both_known(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = tmp_path / "doors-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: doors\nVersion: 1\n")
    lines = [f"{name} = {value}\n" for name, value in project["entry-points"]["inspect_ai"].items()]
    (about / "entry_points.txt").write_text("[inspect_ai]\n" + "".join(lines))
    probe = """
from inspect_ai.model import get_model
from inspect_ai._util.registry import registry_lookup
print(registry_lookup("solver", "nsed_torch/nsed_deliberate").__name__)
try:
    get_model("nsed/nobody")
except ValueError as error:
    print(error)
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=env, check=False)
    assert "nsed_deliberate\nIn 'deliberate': Could not find" in done.stdout, done.stderr
