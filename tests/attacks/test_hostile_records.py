"""Damaged and forged files: what is read is what was written, or one line says what is wrong."""

import copy
import dataclasses
import json
import math

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from team_traces import team

from nsed_torch import ConsensusCell, Transcript
from nsed_torch.records.outcome import Outcome
from nsed_torch.records.trace import EMBEDDINGS, TRACES, Trace
from nsed_torch.traces.load import load_traces

TRACE = team(1, 3)[0]
LINE = json.loads(TRACE.to_line())
ODD = [
    *(None, True, -1, 99, 7.0, 1e308, "", "../../x", "\ud800", [], {}, [[]], {"a": 1}),
    *("1e999", "-1e999", "1" + "0" * 400, "[" * 5000),  # as they stand in the file
]


def places(node, path=()):
    """Paths to everything in a JSON tree."""
    yield path
    for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(item, (*path, key))


def forged(path, value):
    """The line with another value at a place, or without it."""
    data = copy.deepcopy(LINE)
    node = data
    for key in path[:-1]:
        node = node[key]
    if value == "gone":
        del node[path[-1]]
    else:
        node[path[-1]] = "@value@" if isinstance(value, str) and value[:1] in "[1-" and len(value) > 3 else value
    return json.dumps(data).replace('"@value@"', value if isinstance(value, str) else "")


PLACES = [path for path in places(LINE) if path]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from([*ODD, "gone"]))
def test_a_forged_trace_is_a_trace_or_one_line(path, value):
    read, fault = None, ""
    try:
        read = Trace.from_line(forged(path, value), "traces.jsonl:1")
    except ValueError as error:
        fault = str(error)
    if read is None:
        assert fault.startswith("traces.jsonl:1: not ")
        assert "\n" not in fault
        return
    for record in read.transcript.rounds:
        assert record.winner is None or 0 <= record.winner < len(record.proposals)
        numbers = [r for row in record.ratings for r in row if r is not None]
        assert all(-1 <= r <= 1 for r in numbers)
        assert all(map(math.isfinite, (*record.support, *record.consensus, *record.trust, record.conviction)))
    json.dumps(dataclasses.asdict(read), allow_nan=False)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("rounds", 0, "ratings", 0, 1), 7.0, r"expected ratings in \[-1, 1\], got 7\.0"),
        (("rounds", 0, "ratings", 0, 1), "1e999", "expected a finite number, got inf"),
        (("rounds", 0, "conviction"), "1" + "0" * 400, "expected a finite number, got 1000"),
        (("usage", "prompt_tokens"), -1_000_000, "usage: expected numbers of at least 0"),
        (("rounds", 0, "usage", "price"), -0.5, "usage: expected numbers of at least 0"),
        (("usage", "computed_tokens"), -2, "usage: expected numbers of at least 0"),
        (("rounds", 0, "winner"), 99, "expected a winner below 4 or none, got 99"),
        (("rounds", 0, "winner"), -1, "expected a winner below 4 or none, got -1"),
    ],
)
def test_what_no_vote_can_be_is_refused(path, value, complaint):
    with pytest.raises(ValueError, match=complaint):
        Trace.from_line(forged(path, value), "t")


def test_a_critique_of_nobody_is_refused():
    data = copy.deepcopy(LINE)
    for wrong in ({"voter": 99, "proposal": 0}, {"voter": 0, "proposal": -1}):
        data["rounds"][0]["critiques"] = [{**wrong, "text": "good"}]
        with pytest.raises(ValueError, match="expected critiques and sets of its voters and proposals"):
            Trace.from_data(data, "t")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "NaN", "\x00", "[" * 10_000, '{"schema_version": 2}'])
@pytest.mark.parametrize("kind", [Transcript, Trace, Outcome])
def test_any_text_is_a_record_or_one_line(text, kind):
    with pytest.raises(ValueError, match=r"^where: (?!.*\n)"):
        kind.from_line(text, "where")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_one_line(data):
    with pytest.raises(ValueError, match=r"^where: "):
        Trace.from_line(data, "where")


def test_embeddings_that_are_no_numbers_are_refused(tmp_path):
    (tmp_path / TRACES).write_text(TRACE.to_line())
    count, name = sum(len(r.proposals) for r in TRACE.transcript.rounds), TRACE.transcript.task.id
    tensors = {f"{name}/task": torch.zeros(2), f"{name}/proposals": torch.zeros(count, 2)}
    tensors[f"{name}/proposals"][0, 1] = math.nan
    (tmp_path / EMBEDDINGS).write_bytes(safetensors.torch.save(tensors))
    with pytest.raises(ValueError, match="not readable as embeddings \\(expected finite numbers"):
        load_traces(tmp_path)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["ratings", "embeddings", "task"])
def test_numbers_that_are_none_leave_every_gradient_finite(bad, where):
    draw = torch.Generator().manual_seed(0)
    cell = ConsensusCell(4, 3).double()
    cell.trust.weight.data.fill_(0.3)
    cell.backing.data.fill_(0.2)
    given = {
        "embeddings": torch.randn(1, 3, 4, dtype=torch.float64, generator=draw),
        "ratings": torch.rand(1, 3, 3, dtype=torch.float64, generator=draw),
        "vote_mask": ~torch.eye(3, dtype=torch.bool)[None],
        "task": torch.randn(1, 4, dtype=torch.float64, generator=draw),
        "authors": torch.tensor([[0, 1, 2]]),
    }
    given[where].view(-1)[1] = bad
    for name in ("embeddings", "ratings", "task"):
        given[name].requires_grad_()
    _, state = cell(**given)
    output, state = cell(**given, state=state)
    (output.consensus[0, 0] + state.hidden().sum()).backward()
    grads = [*(given[name].grad for name in ("embeddings", "ratings")), *(p.grad for p in cell.parameters())]
    assert all(grad.isfinite().all() for grad in grads if grad is not None)
    assert output.consensus.isfinite().all()


def test_a_rating_that_is_no_number_was_not_given():
    cell = ConsensusCell(2, 3)
    embeddings, task = torch.eye(3)[None, :, :2], torch.ones(1, 2)
    ratings, mask = torch.tensor([[[0.0, 0.5, 0.1], [0.2, 0.0, 0.9], [-0.4, 0.3, 0.0]]]), ~torch.eye(3).bool()[None]
    forged, without = ratings.clone(), mask.clone()
    forged[0, 0, 1], without[0, 0, 1] = math.inf, False
    for a, b in zip(cell(embeddings, forged, mask, task)[0], cell(embeddings, ratings, without, task)[0], strict=True):
        assert torch.equal(a, b)
