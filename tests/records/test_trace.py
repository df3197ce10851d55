"""Traces on disk: what was written is read, a repeated run mends the folder, and faults name file and line."""

import dataclasses
import json
import os
import re

import pytest
import torch

from nsed_torch.records.files import write_json
from nsed_torch.records.trace import ABOUT, EMBEDDINGS, TRACES, Trace, TraceWriter, read_embeddings, read_traces
from nsed_torch.records.transcript import AgentRecord, Proposal, Round, Task, Transcript, Usage


def trace(name, text="17 Ω\n\u2028"):
    one_round = Round(
        index=1,
        proposers=["a", "b"],
        voters=["a", "b"],
        proposals=[Proposal("a", text, "stop"), Proposal("b", "", "length")],
        ratings=[[None, None], [-1.0, None]],
        vote_mask=[[False, False], [True, False]],
        ballots=[[0.0, 0.0], [-1.0, 0.0]],
        trust=[1.0, 1.0],
        support=[-1.0, 0.0],
        consensus=[1.0, 0.0],
        winner=0,
        all_negative=True,
        conviction=-1.0,
        decisiveness=1.0,
        controversy=[0.0, 0.0],
        memory=[],
        usage=Usage(4, 5, 6, 0.0, 0.25),
    )
    agents = [AgentRecord(agent, "scripted", "", {}, {}) for agent in "ab"]
    transcript = Transcript(Task(f"How much is {name}?", name, "17"), agents, [one_round], text, "rounds", Usage(), 0)
    return Trace(transcript, [[True, False]], [["17", None]])


def embed(texts):
    return torch.tensor([[float(len(text)), float(sum(map(ord, text)))] for text in texts]).reshape(-1, 2)


def collect(folder, batches):
    writer = TraceWriter(folder)
    for batch in batches:
        writer.add(batch)
    writer.finish(embed)
    write_json(folder / ABOUT, {"seed": 0})
    return {name: (folder / name).read_bytes() for name in (TRACES, EMBEDDINGS, ABOUT)}


ALL = [trace("one"), trace("two/task"), trace("three", "other")]


def test_what_is_written_is_read(tmp_path):
    collect(tmp_path, [ALL[:2], ALL[2:]])
    assert list(read_traces(tmp_path)) == ALL
    lines = (tmp_path / TRACES).read_bytes().removesuffix(b"\n").split(b"\n")
    assert [json.loads(line)["answers"] for line in lines] == [[["17", None]]] * 3
    embeddings = read_embeddings(tmp_path)
    assert set(embeddings) == {"one", "two/task", "three"}
    task, proposals = embeddings["three"]
    assert task.tolist() == embed(["How much is three?"])[0].tolist()
    assert proposals.tolist() == embed(["other", ""]).tolist()
    assert task.dtype == torch.float32


@pytest.mark.parametrize("at", range(0, 4000, 397))
def test_a_run_cut_anywhere_is_mended_by_repeating_it(tmp_path, at):
    straight = collect(tmp_path / "straight", [ALL])
    broken = tmp_path / "broken"
    TraceWriter(broken).add(ALL[:2])
    (broken / TRACES).write_bytes(straight[TRACES][:at])
    assert collect(broken, [[one] for one in ALL]) == straight


def test_a_finished_folder_is_left_alone(tmp_path):
    before = collect(tmp_path, [ALL])
    stamps = {name: (tmp_path / name).stat().st_mtime_ns for name in (TRACES, EMBEDDINGS)}
    assert collect(tmp_path, [ALL]) == before
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in stamps} == stamps


def test_another_run_replaces_from_the_first_difference_and_drops_what_no_longer_fits(tmp_path):
    collect(tmp_path, [ALL])
    other = trace("two/task", "changed")
    writer = TraceWriter(tmp_path)
    writer.add(ALL[:1])
    assert len((tmp_path / TRACES).read_bytes().splitlines()) == 3
    writer.add([other])
    assert list(read_traces(tmp_path)) == [ALL[0], other]
    with pytest.raises(ValueError, match=r"embeddings\.safetensors: there is no such file; run the same nsed collect"):
        read_embeddings(tmp_path)
    assert not (tmp_path / ABOUT).exists()
    writer.finish(embed)
    assert read_embeddings(tmp_path)["two/task"][1].tolist() == embed(["changed", ""]).tolist()


def test_fewer_tasks_leave_fewer_lines(tmp_path):
    collect(tmp_path / "few", [ALL[:1]])
    collect(tmp_path, [ALL])
    assert collect(tmp_path, [ALL[:1]]) == collect(tmp_path / "few", [ALL[:1]])


def broken_line(change):
    data = json.loads(ALL[1].to_line())
    change(data)
    return json.dumps(data)


FAULTS = {
    "not valid JSON": '{"schema_version": 2,',
    "not a trace (expected dict, got '[]')": "[]",
    "not a trace (transcript: rounds: expected list, got 'x')": broken_line(lambda d: d.update(rounds="x")),
    "expected at least one round": broken_line(lambda d: d.update(rounds=[])),
    "expected grades of [2] proposals a round, got [[True]]": broken_line(lambda d: d.update(grades=[[True]])),
    "grades: expected bool, got '1'": broken_line(lambda d: d.update(grades=[[1, 0]])),
    "missing 1 required positional argument: 'grades'": broken_line(lambda d: d.pop("grades")),
    "answers: expected list, got 'no'": broken_line(lambda d: d.update(answers="no")),
    "round 1: expected 2 voters' ratings and vote_mask of 2": broken_line(lambda d: d["rounds"][0]["ratings"].pop()),
    "expected every task once, got 'one' again": ALL[0].to_line().strip(),
}


@pytest.mark.parametrize(("complaint", "line"), FAULTS.items())
def test_a_bad_line_is_named(tmp_path, complaint, line):
    (tmp_path / TRACES).write_text(ALL[0].to_line() + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(complaint.strip())) as error:
        list(read_traces(tmp_path))
    assert str(error.value).startswith(f"{tmp_path / TRACES}:2: ")
    assert "\n" not in str(error.value)


def test_a_bad_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"traces\.jsonl: cannot be read \(No such file or directory\)"):
        list(read_traces(tmp_path / "nowhere"))
    (tmp_path / TRACES).touch()
    with pytest.raises(ValueError, match=r"traces\.jsonl: expected traces, got an empty file"):
        list(read_traces(tmp_path))
    (tmp_path / EMBEDDINGS).write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"embeddings\.safetensors: not readable as embeddings"):
        read_embeddings(tmp_path)


def test_a_trace_is_checked_when_made():
    with pytest.raises(ValueError, match="expected grades"):
        dataclasses.replace(ALL[0], grades=[])


def test_a_trace_is_on_disk_when_it_was_added(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def fsync(number):
        synced.append(os.fstat(number).st_size)
        sync(number)

    monkeypatch.setattr("os.fsync", fsync)
    line = trace("a")
    TraceWriter(tmp_path).add([line])
    assert synced == [len(line.to_line().encode())]
