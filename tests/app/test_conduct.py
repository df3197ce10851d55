"""`nsed conduct` from end to end, on a tiny model with random weights; where it must write lists, it is made to."""

import json
from dataclasses import replace

import pytest

from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.execution import Execution
from nsed_torch.records.outcome import read_outcomes

QUESTION = "Which is larger, 17 or 71?"
LISTS = 'model_id = [2, 0, 7]\nsubtasks = ["Begin now.", "Go on.", "Stop."]\naccess_list = [[], "all", []]'


@pytest.fixture
def conduct(nsed):
    """Runs the verb on the demo's agents; returns what it printed and its execution."""

    def run(*arguments, folder="run"):
        small = ["ensemble=demo", "conductor=smollm2", "conductor.decoding.max_new_tokens=8", "prompts.style=short"]
        out = nsed.ok("conduct", *nsed.tiny, *small, f"output_dir={folder}", *arguments)
        return out, Execution.load(nsed.folder / folder / "conduct.json")

    return run


def the_conductor_writes(monkeypatch, *texts):
    """The engine's own texts, save for the Conductor's calls, which get these one after the other."""
    generations, left = TransformersEngine.generations, iter(texts)

    def scripted(self, requests):
        for done in generations(self, requests):
            yield {i: replace(g, text=next(left)) if requests[i].agent == "conductor" else g for i, g in done.items()}

    monkeypatch.setattr(TransformersEngine, "generations", scripted)


def test_an_untrained_model_says_why_the_default_stands_in(conduct):
    out, execution = conduct(QUESTION, "seed=4")
    (level,) = execution.levels
    assert (level.plan.reasons, level.plan.fallback) == (["no_lists"], True)
    assert [step.worker for step in level.steps] == ["solver"]
    assert (execution.task.question, execution.seed) == (QUESTION, 4)
    assert "workflow 0: models 0 solver, 1 skeptic, 2 explainer\n" in out
    assert "workflow 0: cannot be read, the default stands in: no_lists\n" in out
    assert 'workflow 0: model_id = [0]\nworkflow 0: subtasks = ["Answer the question."]\n' in out
    assert "workflow 0: step 0: solver reads nothing: Answer the question.\n" in out
    assert "\n2 calls, " in out
    assert out.endswith(f"\n{execution.answer}\n")


def test_the_same_command_resumes_without_a_model_call(conduct, nsed, rows, monkeypatch):
    first = conduct(QUESTION)
    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "generations", lambda *_: pytest.fail("a model was asked again"))
        assert conduct(QUESTION) == first
    assert len(rows(nsed.folder / "run/calls.sqlite")) == 2


def test_every_step_is_shown_and_further_workflows_see_the_answer(conduct, monkeypatch):
    the_conductor_writes(monkeypatch, LISTS, "model_id = []\nsubtasks = []\naccess_list = []")
    out, execution = conduct(QUESTION, "recursion=2", "pools.kind=permuted")
    first, second = execution.levels
    assert [(step.worker, step.visible) for step in first.steps] == [(first.pool[2], []), (first.pool[0], [0])]
    assert sorted(first.pool) == ["explainer", "skeptic", "solver"]
    assert second.steps == []
    assert "workflow 0: mended: unknown_worker\n" in out
    assert f"workflow 0: step 1: {first.pool[0]} reads step 0: Go on.\n" in out
    assert "workflow 1: accepts the answer\n" in out
    assert execution.usage.calls == 4


def test_the_whole_ensemble_is_a_worker(conduct, monkeypatch):
    the_conductor_writes(monkeypatch, LISTS.replace("2, 0, 7", "3, 0, 7"))
    out, execution = conduct(QUESTION, "council=true", "rounds=1", "rating=verdict")
    step = execution.levels[0].steps[0]
    assert step.worker == "council"
    assert len(step.transcript.rounds[0].proposals) == 3
    assert "workflow 0: step 0: council reads nothing: Begin now.\n" in out


def test_workflows_are_a_method_of_evaluate(nsed, tiny_model):
    rows = [{"id": f"q{i}", "question": f"How much is {i} + {i}?", "target": 2 * i} for i in range(2)]
    (nsed.folder / "data").mkdir()
    (nsed.folder / "data/questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    methods = "methods=[single,conductor,random_routing]"
    nsed.ok(
        *("evaluate", *nsed.tiny, "tasks=recorded", f"data_dir={nsed.folder / 'data'}", methods, "budget=own"),
        *("+backbone@ensemble.engines.large=smollm2_135m_instruct", "ensemble.engines.large.quantization=none"),
        *(f"ensemble.engines.large.weights.path={tiny_model}", "conductor.backbone=large"),
        *("conductor.decoding.max_new_tokens=8", "method.conductor.recursion=1", "output_dir=run"),
    )
    outcomes = [o for o in read_outcomes(nsed.folder / "run/outcomes.jsonl") if o.method == "conductor"]
    kept = (nsed.folder / "run/executions/conductor.jsonl").read_text().splitlines()
    executions = [Execution.from_line(line, "a line") for line in kept]
    assert [e.task.id for e in executions] == [o.task for o in outcomes] == ["q0", "q1"]
    for outcome, execution in zip(outcomes, executions, strict=True):
        assert (outcome.text, outcome.usage) == (execution.answer, execution.usage)
        assert outcome.note == "single, 1 steps (fallback: no_lists) > accept, 0 steps (fallback: no_lists)"
        assert execution.settings["conductor"]["backbone"] == "large"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "expected a question, got an empty text: pass question='...'"),
        ([QUESTION, "recursion=4"], "expected recursion from 0 to 3, got 4: correct it"),
        (
            [QUESTION, "recursion=1", "+conductor.looks_back=false"],
            "expected no recursion of conductor, which does not look back, got 1: leave it out, or set conductor.looks_back=true",  # noqa: E501 - an error is one line
        ),
        ([QUESTION, "conductor.backbone=large"], "agent 'conductor': expected a backbone out of smollm2, got 'large'"),
        (
            [QUESTION, "conductor.name=solver"],
            "expected agents with different names, got ['solver', 'skeptic', 'explainer', 'solver']",
        ),
    ],
)
def test_faults_are_one_line(nsed, arguments, line):
    assert nsed.fault("conduct", "conductor=smollm2", *nsed.tiny, "output_dir=run", *arguments) == line
