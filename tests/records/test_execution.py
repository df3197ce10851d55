"""An execution that was saved is the execution that is loaded, and what is none is refused in one line."""

import dataclasses
import json

import pytest

from nsed_torch.records.execution import Execution, Failure, Level, PlanRecord, StepRecord
from nsed_torch.records.transcript import Task, Transcript, Usage


def step(response="17", failure=None, **rest):
    return StepRecord("ant", "Count.", [], [3, 4], response, failure, **rest)


def example(*levels):
    first = [step(usage=Usage(1, 7, 2)), step("18", usage=Usage(2, 9, 4))]
    return Execution(Task("Why?"), [], [Level(["ant"], "model_id = [0, 0]", first), *levels], 0)


def test_saved_is_loaded(tmp_path):
    inside = Transcript(Task("Why?"), [], [], "17", "rounds", Usage(), seed=0)
    plan = PlanRecord("as written", ["mended"], fallback=True, usage=Usage(1, 5, 5, 0.5, 1.0))
    steps = [step("", Failure.WINDOW, notes=["too long"]), step("18", transcript=inside, attempts=2)]
    execution = example(Level(["ant", "team"], "model_id = [0, 1]", steps, plan))
    execution.save(tmp_path / "execution.json")
    assert Execution.load(tmp_path / "execution.json") == execution
    (tmp_path / "e.jsonl").write_text(execution.to_line() + example().to_line(), encoding="utf-8")
    assert list(Execution.read_lines(tmp_path / "e.jsonl")) == [execution, example()]


def test_the_last_step_of_the_last_level_with_steps_answers():
    accepted = example(Level(["ant"], "", []))
    assert (accepted.answer, accepted.failure, accepted.disturbed) == ("18", None, False)
    assert accepted.usage == Usage(3, 16, 6)
    failed = example(Level(["ant"], "", [step("", Failure.EMPTY, usage=Usage(1, 1, 0))]))
    assert (failed.answer, failed.failure, failed.disturbed) == ("", Failure.EMPTY, False)
    assert failed.usage == Usage(4, 17, 6)


@pytest.mark.parametrize("kind", Failure)
def test_a_broken_engine_disturbs_wherever_it_broke(kind):
    execution = example(Level(["ant"], "", [step("", kind), step()]))
    assert execution.failure is None
    assert execution.disturbed == (kind is Failure.ENGINE)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.update(schema_version=2), "expected an execution of schema version 1, got 2"),
        (lambda d: d.pop("levels"), "not an execution .*levels"),
        (lambda d: d.update(levels=[]), "expected a first level with steps, got none"),
        (lambda d: d["levels"][0].update(steps=[]), "expected a first level with steps, got none"),
        (lambda d: d["levels"][0]["steps"][0].update(failure="tired"), "'tired' is not a valid Failure"),
        (lambda d: d["levels"][0]["steps"][0].update(response=""), "expected a response or a failure, got '' and None"),
        (lambda d: d["levels"][0]["steps"][0].update(failure="empty answer"), "got '17' and empty answer"),
        (lambda d: d["levels"][0]["steps"][0].update(attempts="1"), "expected int, got '1'"),
        (
            lambda d: d["levels"][0]["steps"][0]["transcript"].update(schema_version=7),
            "expected a transcript of schema version 2, got 7",
        ),
    ],
)
def test_what_is_no_execution_is_one_line_with_its_place(change, complaint):
    inside = Transcript(Task("Why?"), [], [], "17", "rounds", Usage(), seed=0)
    execution = example()
    execution.levels[0].steps[0] = dataclasses.replace(execution.levels[0].steps[0], transcript=inside)
    data = json.loads(execution.to_line())
    assert Execution.from_data({**data, "invented_later": 1}, "e.jsonl:1") == execution
    change(data)
    with pytest.raises(ValueError, match=f"^e.jsonl:1: .*{complaint}") as error:
        Execution.from_line(json.dumps(data), "e.jsonl:1")
    assert "\n" not in str(error.value)


def test_other_json_and_no_json():
    for line in ("[]", "{"):
        with pytest.raises(ValueError, match=r"^e\.jsonl:3: "):
            Execution.from_line(line, "e.jsonl:3")
