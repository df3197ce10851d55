"""An execution that was saved is the execution that is loaded, and what is none is refused in one line."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.records import Execution, Task, Transcript, Usage
from nsed_torch.records.execution import Failure, Level, StepRecord
from nsed_torch.records.transcript import AgentRecord

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 10**6)
WORDS = st.text(max_size=8)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, NUMBERS, NUMBERS)
TRANSCRIPTS = st.builds(
    Transcript,
    task=st.builds(Task, st.just("Why?"), st.just("a/1")),
    agents=st.just([]),
    rounds=st.just([]),
    answer=WORDS,
    stop_reason=WORDS,
    usage=USAGES,
    seed=COUNTS,
)


def few(items, least=0):
    return st.lists(items, min_size=least, max_size=2)


def steps(response, failure):
    return st.builds(
        StepRecord,
        worker=WORDS,
        subtask=WORDS,
        visible=few(COUNTS),
        message_tokens=few(COUNTS),
        response=response,
        failure=failure,
        attempts=COUNTS,
        notes=few(WORDS),
        usage=USAGES,
        transcript=st.none() | TRANSCRIPTS,
    )


STEPS = steps(st.text(min_size=1, max_size=8), st.none()) | steps(st.just(""), st.sampled_from(Failure))
LEVELS = st.tuples(
    st.builds(Level, few(WORDS), WORDS, few(STEPS, 1)), few(st.builds(Level, few(WORDS), WORDS, few(STEPS)))
)
EXECUTIONS = st.builds(
    Execution,
    task=st.builds(Task, st.just("Why?"), st.just("a"), st.none() | WORDS),
    agents=few(st.builds(AgentRecord, WORDS, WORDS, WORDS, st.just({}), st.just({"temperature": 0.7}))),
    levels=LEVELS.map(lambda levels: [levels[0], *levels[1]]),
    seed=st.integers(),
    settings=st.dictionaries(WORDS, COUNTS, max_size=2),
)


def step(response="17", failure=None, **rest):
    return StepRecord("ant", "Count.", [], [3, 4], response, failure, **rest)


def example(*levels):
    first = [step(usage=Usage(1, 7, 2)), step("18", usage=Usage(2, 9, 4))]
    return Execution(Task("Why?"), [], [Level(["ant"], "model_id = [0, 0]", first), *levels], 0)


@settings(max_examples=30)
@given(EXECUTIONS)
def test_saved_is_loaded(tmp_path_factory, execution):
    path = tmp_path_factory.mktemp("run") / "execution.json"
    execution.save(path)
    assert Execution.load(path) == execution
    line = execution.to_line()
    assert line.count("\n") == 1
    assert Execution.from_line(line, "e.jsonl:1") == execution


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
