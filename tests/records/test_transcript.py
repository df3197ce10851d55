"""A transcript that was saved is the transcript that is loaded."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.records.transcript import AgentRecord, Critique, MemorySlot, Proposal, Round, Task, Transcript, Usage

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 10**6)
WORDS = st.text(max_size=8)
FILLED = WORDS.map(lambda word: f"?{word}")
SETTINGS = st.dictionaries(WORDS, st.none() | WORDS | COUNTS | NUMBERS | st.lists(WORDS, max_size=2), max_size=2)
AMOUNTS = st.floats(0, 1e300)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, AMOUNTS, AMOUNTS)


def few(items):
    return st.lists(items, max_size=2)


ROUNDS = st.builds(
    Round,
    index=COUNTS,
    proposers=few(WORDS),
    voters=st.lists(WORDS, min_size=1, max_size=2),
    proposals=st.lists(st.builds(Proposal, WORDS, WORDS, WORDS, USAGES), min_size=1, max_size=2),
    ratings=few(few(st.none() | st.floats(-1, 1))),
    vote_mask=few(few(st.booleans())),
    ballots=few(few(NUMBERS)),
    trust=few(NUMBERS),
    support=few(NUMBERS),
    consensus=few(NUMBERS),
    winner=st.sampled_from([None, 0]),
    all_negative=st.booleans(),
    conviction=NUMBERS,
    decisiveness=NUMBERS,
    controversy=few(NUMBERS),
    memory=few(st.builds(MemorySlot, WORDS, WORDS, COUNTS, NUMBERS, NUMBERS, st.booleans())),
    critiques=few(st.builds(Critique, st.just(0), st.just(0), WORDS)),
    notes=few(WORDS),
    usage=USAGES,
    classes=few(st.integers(-1, 3)),
)
TRANSCRIPTS = st.builds(
    Transcript,
    task=st.builds(Task, FILLED, FILLED, st.none() | WORDS, st.none() | WORDS),
    agents=few(st.builds(AgentRecord, WORDS, WORDS, WORDS, SETTINGS, SETTINGS, NUMBERS, NUMBERS)),
    rounds=few(ROUNDS),
    answer=WORDS,
    stop_reason=WORDS,
    usage=USAGES,
    seed=st.integers(),
    settings=SETTINGS,
)


def example():
    usage = Usage(calls=2, prompt_tokens=30, completion_tokens=12, price=0.5, seconds=1.5)
    one_round = Round(
        index=1,
        proposers=["a", "b"],
        voters=["a", "b"],
        proposals=[Proposal("a", "17", "stop", usage), Proposal("b", "71", "length")],
        ratings=[[None, 0.5], [-1.0, None]],
        vote_mask=[[False, True], [True, False]],
        ballots=[[0.0, 1.0], [-1.0, 0.0]],
        trust=[1.0, 1.0],
        support=[-1.0, 1.0],
        consensus=[0.12, 0.88],
        winner=1,
        all_negative=False,
        conviction=0.5,
        decisiveness=2.0,
        controversy=[0.0, 0.0],
        memory=[MemorySlot("71", "b", 1, 0.88, 1.0, shown=True)],
        critiques=[Critique(0, 1, "right")],
        usage=usage,
    )
    agent = AgentRecord("a", "smol", "terse", {"revision": "1"}, {"temperature": 0.7})
    return Transcript(Task("17 or 71?"), [agent], [one_round], "71", "rounds", usage, seed=0)


@settings(max_examples=30)
@given(transcript=TRANSCRIPTS)
def test_saved_is_loaded(tmp_path_factory, transcript):
    path = tmp_path_factory.mktemp("run") / "transcript.json"
    transcript.save(path)
    loaded = Transcript.load(path)
    assert loaded == transcript
    assert loaded.to_json() == transcript.to_json() == path.read_text(encoding="utf-8").removesuffix("\n")


def test_equality_ignores_seconds_and_nothing_else():
    one = example()
    slow = dataclasses.replace(one, usage=dataclasses.replace(one.usage, seconds=99.0))
    dear = dataclasses.replace(one, usage=dataclasses.replace(one.usage, price=99.0))
    assert one == slow
    assert one != dear


def test_whole_numbers_load_as_floats_where_floats_belong(tmp_path):
    path = tmp_path / "t.json"
    dataclasses.replace(example(), usage=Usage(price=1)).save(path)  # type: ignore[arg-type]
    assert type(Transcript.load(path).usage.price) is float


def test_usage_sums():
    assert Usage.sum([]) == Usage()
    total = Usage.sum([Usage(1, 2, 3, 0.5, 1.0), Usage(10, 20, 30, 1.5, 2.0)])
    assert dataclasses.astuple(total) == (11, 22, 33, 2.0, 3.0, 55)
    assert total.tokens == total.billed == 55


def test_computed_tokens_sum_beside_those_billed_which_stand_for_them_where_nobody_says():
    total = Usage(1, 20, 5, computed_tokens=7) + Usage(1, 20, 5)
    assert (total.tokens, total.billed) == (7 + 25, 50)
    assert Usage(1, 20, 5, computed_tokens=0).tokens == 0


def test_records_written_before_tokens_were_computed_are_read_as_billed(tmp_path):
    data = dataclasses.asdict(example())
    usages = [data["usage"], *(record["usage"] for record in data["rounds"])]
    assert all(usage.pop("computed_tokens") == usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
    (tmp_path / "t.json").write_text(json.dumps(data))
    assert Transcript.load(tmp_path / "t.json") == example()


def test_unknown_fields_are_dropped_and_defaults_fill_in(tmp_path):
    path = tmp_path / "t.json"
    data = dataclasses.asdict(example())
    data["invented_later"] = data["rounds"][0]["invented_later"] = {"x": 1}
    del data["settings"], data["rounds"][0]["notes"]
    path.write_text(json.dumps(data))
    assert Transcript.load(path) == example()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: d.update(schema_version=1), "expected a transcript of schema version 2, got 1"),
        (lambda d: d.pop("schema_version"), "schema version 2, got None"),
        (lambda d: d.pop("answer"), "not a transcript .*answer"),
        (lambda d: d["rounds"][0].pop("support"), "not a transcript .*support"),
        (lambda d: d.update(rounds="many"), "expected list, got 'many'"),
        (lambda d: d.update(task=["17 or 71?"]), "expected dict, got"),
        (lambda d: d.update(seed="0"), "expected int, got '0'"),
        (lambda d: d["rounds"][0].update(support=[None, 1.0]), "expected float, got 'None'"),
        (lambda d: d["rounds"][0].update(vote_mask=[[1]]), "expected bool, got '1'"),
        (lambda d: d["task"].update(question=" "), "expected a question"),
    ],
)
def test_what_is_no_transcript_is_one_line_with_the_file(tmp_path, change, complaint):
    path = tmp_path / "t.json"
    data = dataclasses.asdict(example())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=complaint) as error:
        Transcript.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_truncated_file_and_other_json(tmp_path):
    path = tmp_path / "t.json"
    example().save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"t\.json: not valid JSON"):
        Transcript.load(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="expected dict, got"):
        Transcript.load(path)
