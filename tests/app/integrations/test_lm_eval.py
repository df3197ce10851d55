"""A team in the Language Model Evaluation Harness: the real package, tasks of local files."""

import functools
import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.tasks import TaskManager  # noqa: E402

from nsed_torch.app.integrations.lm_eval import HarnessModel, main, mixture  # noqa: E402
from nsed_torch.core.engine import Likelihood  # noqa: E402

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
{rest}
"""
WRITTEN = """\
output_type: generate_until
doc_to_target: "{{target}}"
generation_kwargs: {until: [], do_sample: false}
metric_list: [{metric: exact_match}]
"""
CHOSEN = """\
output_type: multiple_choice
doc_to_choice: ["0", "2", "4", "6"]
doc_to_target: "{{target}}"
metric_list: [{metric: acc}]
"""


@pytest.fixture
def harness(questions_file, tmp_path, monkeypatch):
    """Runs a task of the questions' file: (name of the task, its YAML) -> results."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))

    def run(kind, model):
        (tmp_path / f"{kind}.yaml").write_text(
            TASK.format(name=kind, file=questions_file, rest={"written": WRITTEN, "chosen": CHOSEN}[kind])
        )
        tasks = TaskManager(include_path=str(tmp_path), include_defaults=False)
        return lm_eval.simple_evaluate(
            model, tasks=[kind], task_manager=tasks, log_samples=True, bootstrap_iters=0, cache_requests=False
        )

    return run


def test_it_answers_as_nsed_evaluate_does_on_the_same_questions(harness, settings, evaluated):
    results = harness("written", HarnessModel(**settings))
    answers = {sample["doc"]["id"]: sample["resps"][0][0] for sample in results["samples"]["written"]}
    assert answers == {name: transcript.answer for name, transcript in evaluated(settings).items()}
    assert len(set(answers.values())) > 1


def test_stop_strings_end_an_answer(settings):
    model = HarnessModel(**settings)

    def answer(until):
        request = SimpleNamespace(args=("How much is 1 + 1?", {"until": until}), doc={"id": "q1"})
        return model.generate_until([request])[0]

    whole = answer(["", "not there"])
    assert len(whole) > 2
    assert answer([whole[2:], whole[1:]]) == whole[:1]
    assert answer(whole[2:]) == whole[:2]


def test_choices_are_those_of_the_members_mixture(harness, settings):
    model = HarnessModel(**settings)
    samples = harness("chosen", model)["samples"]["chosen"]
    assert len(samples) == 4
    cell = model.door.rnn.cell
    for sample in samples:
        # By hand: every member's own log-probabilities, token by token, from its model's logits.
        (engine,) = cell.ensemble.engines.values()
        for choice, (log, _) in zip(("0", "2", "4", "6"), sample["filtered_resps"], strict=True):
            members = []
            for agent in cell.ensemble.agents:
                chat = cell.prompts.propose(
                    sample["doc"]["question"], memory=(), critiques=(), persona=agent.persona, seed=0
                )
                (turn,) = engine.chat.turns(chat, [choice])
                with torch.no_grad():
                    logits = engine.model(torch.tensor([turn.ids])).logits[0].double().log_softmax(-1)
                said = sum(logits[i - 1, turn.ids[i]] for i in range(turn.start, len(turn.ids)))
                members.append(said + logits[-1, list(engine.stop_ids)].logsumexp(0))
            expected = torch.stack(members).logsumexp(0) - math.log(len(members))
            assert float(log) == pytest.approx(expected.item(), abs=1e-4)


def test_trust_weighs_the_members_of_a_mixture():
    logs = torch.tensor([[0.5, 0.5], [0.1, math.nan], [0.9, 0.9]], dtype=torch.float64).log()
    mixed = mixture(logs, torch.tensor([3.0, 1.0, -2.0])).exp()
    assert mixed.tolist() == pytest.approx([(3 * 0.5 + 0.1) / 4, 0.5])
    alike = mixture(logs, torch.tensor([-1.0, -1.0, 0.0])).exp()
    assert alike.tolist() == pytest.approx([0.5, 0.7])
    with pytest.raises(ValueError, match="expected a likelihood of every text by some judge, got none"):
        mixture(torch.full((2, 1), math.nan), torch.ones(2))


def test_old_logs_and_texts_that_are_no_questions_are_refused_in_a_line(settings, monkeypatch):
    model = HarnessModel(**settings)
    with pytest.raises(ValueError, match=r"expected questions, got texts alone.*choose other tasks$"):
        model.loglikelihood_rolling([])
    with pytest.raises(ValueError, match=r"leave out --apply_chat_template$"):
        _ = model.tokenizer_name

    request = SimpleNamespace(args=("How much is 1 + 1?", " 2"))
    old = lambda self, requests: [Likelihood((0.5,)) for _ in requests]  # noqa: E731
    monkeypatch.setattr(type(model.door.rnn.cell.ensemble), "measure", old)
    with pytest.raises(ValueError, match=r"older call log: pass calls=NEWFILE$"):
        model.loglikelihood([request])


def test_its_own_command_line_knows_the_model(settings, questions_file, tmp_path, monkeypatch, capsys):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/written.yaml").write_text(TASK.format(name="written", file=questions_file, rest=WRITTEN))
    words = [
        *("--model", "nsed", "--model_args", json.dumps({**settings, "rounds": 1}), "--tasks", "written"),
        *("--include_path", tmp_path / "tasks", "--limit", "2", "--output_path", tmp_path / "out"),
    ]
    monkeypatch.setattr(sys, "argv", ["lm_eval", *map(str, words)])
    # Thousands of tasks of its own would be indexed twice.
    monkeypatch.setattr("lm_eval.tasks.TaskManager", functools.partial(TaskManager, include_defaults=False))
    assert main() == 0
    assert "exact_match" in capsys.readouterr().out
    (file,) = (tmp_path / "out").rglob("results_*.json")
    config = json.loads(file.read_text())["config"]
    assert config["team"]["rounds"] == 1
    assert config["usage"]["calls"] > 0

    monkeypatch.setattr(sys, "argv", ["lm_eval", *map(str, words[:3]), "ensemble=nobody", *map(str, words[4:8])])
    assert main() == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("nsed lm_eval: ")
    assert "Could not find 'ensemble/nobody'" in error
