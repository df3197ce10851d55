"""Every kind of file that is read, every field by every wrong thing: right, or a ValueError of one line."""

import copy
import dataclasses
import gzip
import hashlib
import json
import random
import shutil
import struct

import pytest
import safetensors.torch
import torch
from saved_cells import NAMES, OwnVote, cell_of, with_part
from team_traces import team

from nsed_torch.app.config.paths import check_yaml
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.evaluation.run_folder import Run
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.parts.features import feature_names
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.parts.round_vote import RoundVote
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.questions.graded import file_tasks
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import read_bytes
from nsed_torch.records.outcome import Outcome, Verdict, read_outcomes
from nsed_torch.records.trace import EMBEDDINGS, TRACES
from nsed_torch.records.transcript import Transcript, Usage
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.recorded import load_recorded

CASES = 2000
FEW = 300
"""How many of them are tried in every run of the suite."""

WRONG = [
    *(None, True, False, -1, 0, 7, 2.5, -0.0, 1e308, -1e308, 10**30, "", "x", "7", "\x1b[31m", "\x00", "../../x"),
    *([], {}, [[]], {"a": 1}, [None], ["x"] * 3, "@NaN", "@1e999", "@-Infinity", "@" + "9" * 5000, "@" + "[" * 5000),
    *("@" + '{"a":' * 5000, '@"\\ud800"', "@'x'", "@[1,]", "é" * 70_000, "gone", "twice", "turned", "longer"),
]
FILES = ["empty", "half", "noise", "utf-16", "missing", "folder", "link to itself", "link to a device", "doubled"]
TRACE_LINES = [dataclasses.replace(trace) for trace in team(2, 2, 3)]
OUTCOMES = [
    Outcome(method, f"q{i}", f"q{i}", "easy", "4", "It is 4.", Verdict.RIGHT if i else Verdict.WRONG, Usage(1, 8, 2))
    for method in ("deliberation", "single:a")
    for i in range(3)
]


def lines(records):
    return "".join(record.to_line() for record in records)


def whole_traces(folder):
    (folder / TRACES).write_text(lines(TRACE_LINES))
    tensors = {}
    for trace in TRACE_LINES:
        count, name = sum(len(r.proposals) for r in trace.transcript.rounds), trace.transcript.task.id
        tensors |= {f"{name}/task": torch.ones(2), f"{name}/proposals": torch.ones(count, 2)}
    (folder / EMBEDDINGS).write_bytes(safetensors.torch.save(tensors))


def whole_cell(folder):
    cell_of(calibration=True).save_pretrained(folder, agent_names=NAMES)


def whole_broker(folder):
    LearnedBroker(["a", "b"], rounds=1).save_pretrained(folder / "broker.safetensors")


def whole_sets(folder):
    ConformalSets(0.9, ["law"]).save_pretrained(folder)


def whole_telemetry(folder):
    Telemetry(["a", "b"]).save(folder / "telemetry.json")


def whole_questions(folder):
    rows = [{"id": f"q{i}", "question": f"{i} + 1?", "target": str(i + 1), "category": "sums"} for i in range(3)]
    rows[0]["inputs"] = ["a piece", {"a": "another"}]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def whole_works(folder):
    """A line of each kind that says how its answer comes about."""
    rows = [
        {"id": "s", "question": "Count.", "start": "0", "goal": "2", "steps": ["0 1", "0 1 2"], "answer": "0 1 2"},
        {"id": "h", "question": "Sum?", "hops": [{"subtask": "1+1?", "reply": "2"}, {"subtask": "+1?", "reply": 3}]},
        {"id": "n", "question": "Who?", "inputs": ["It is ant.", {"a": "No."}], "answer": "ant"},
    ]
    rows[1] |= {"answer": 3, "category": "sums"}
    rows[1]["hops"][1] |= {"kind": "plus", "reads": True}
    rows[2]["needed"] = [{"text": "It is ant.", "piece": 1, "until": 2}, "No."]
    (folder / "works.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def whole_answers(folder):
    """Recorded answers of two rounds, with ratings, one file of them compressed."""
    (folder / "answers").mkdir()
    asked = [{"id": f"q{i}", "question": f"{i}?", "target": str(i), "category": "sums"} for i in range(2)]
    said = [{"output": "It is 1.", "answer": "1", "characters": 400}, {"output": "2", "answer": 2}]
    rows = [{"id": f"q{i}", "round": r, "correct": i == r, **said[r]} for i in range(2) for r in range(2)]
    rated = [{"id": "q1", "round": r, "judge": "ant", "candidate": "bee", "rating": r - 0.5} for r in range(2)]
    texts = ["".join(json.dumps(row) + "\n" for row in part) for part in (asked, rows, rated)]
    (folder / "questions.jsonl").write_text(texts[0])
    (folder / "answers/ant.jsonl").write_text(texts[1])
    (folder / "answers/bee.jsonl.gz").write_bytes(gzip.compress(texts[1].encode(), mtime=0))
    (folder / "ratings.jsonl").write_text(texts[2])
    (folder / "agents.json").write_text('{"ant": {"parameters_b": 8}, "bee": {"parameters_b": null}}')


def whole_votes(folder):
    RoundVote(feature_names(("answer",))).save_pretrained(folder)


def whole_own(folder):
    with_part("vote", OwnVote()).save_pretrained(folder, agent_names=NAMES)


def whole_run(folder):
    (folder / "outcomes.jsonl").write_text(lines(OUTCOMES))
    (folder / "results.json").write_text(json.dumps({"ties": "lot", "seed": 1, "settings": {"rounds": 2}}))
    (folder / TRACES).write_text(lines(TRACE_LINES))


def whole_config(folder):
    (folder / "mine.yaml").write_text('{"rounds": 2, "agents": {"a": {"persona": "calm"}}, "list": [1, 2]}')


def whole_log(folder):
    with CallLog(folder / "calls.sqlite") as log:
        log.put({"a": {"text": "4"}})


def read_log(folder):
    with CallLog(folder / "calls.sqlite") as log:
        return log.get(["a"])


def read_telemetry(folder):
    found = Telemetry(["a", "b"])
    found.load(folder / "telemetry.json")
    return found.benched()


def sound_module(module):
    assert all(value.isfinite().all() for value in module.state_dict().values())


def sound_episodes(episodes):
    shown = [getattr(episodes, field.name) for field in dataclasses.fields(episodes)]
    assert not any(torch.isinf(value).any() for value in shown if torch.is_tensor(value) and value.is_floating_point())


def sound_records(records):
    for record in records if isinstance(records, list) else [records]:
        json.dumps(dataclasses.asdict(record), allow_nan=False, ensure_ascii=False).encode()


def sound_tasks(graded):
    ids = [task.id for task in graded.tasks]
    assert len(set(ids)) == len(ids)
    sound_records(list(graded.tasks))


def sound_answers(recorded):
    for part in (recorded, *recorded.later):
        sound_records(list(part.tasks))
        json.dumps([part.answers, part.outputs], ensure_ascii=False).encode()
        assert part.ratings is None or part.ratings.nan_to_num().abs().le(1).all()
        assert not any(values.isinf().any() for values in (part.lengths, part.tokens, part.parameters))


def sound_run(run):
    sound_records([outcome for task in run.tasks for outcome in task.outcomes])
    for task in run.tasks:
        assert (task.question, task.tags, task.stratum, task.tokens, task.sources) is not None


def fine(result):
    """Anything."""


KINDS = {
    "traces": (whole_traces, load_traces, sound_episodes, TRACES),
    "embeddings": (whole_traces, load_traces, sound_episodes, EMBEDDINGS),
    "transcript": (
        lambda folder: TRACE_LINES[0].transcript.save(folder / "transcript.json"),
        lambda folder: Transcript.load(folder / "transcript.json"),
        sound_records,
        "transcript.json",
    ),
    "outcomes": (whole_run, lambda folder: read_outcomes(folder / "outcomes.jsonl"), sound_records, "outcomes.jsonl"),
    "run": (whole_run, Run.load, sound_run, "results.json"),
    "run's outcomes": (whole_run, Run.load, sound_run, "outcomes.jsonl"),
    "cell": (whole_cell, ConsensusCell.from_pretrained, sound_module, "config.json"),
    "weights": (whole_cell, ConsensusCell.from_pretrained, sound_module, "model.safetensors"),
    "broker": (
        whole_broker,
        lambda folder: LearnedBroker.from_pretrained(folder / "broker.safetensors"),
        sound_module,
        "broker.safetensors",
    ),
    "sets": (whole_sets, ConformalSets.from_pretrained, sound_module, "conformal.safetensors"),
    "telemetry": (whole_telemetry, read_telemetry, fine, "telemetry.json"),
    "questions": (
        whole_questions,
        lambda folder: file_tasks(str(folder / "questions.jsonl"), math_verify=False),
        sound_tasks,
        "questions.jsonl",
    ),
    "works": (
        whole_works,
        lambda folder: file_tasks(str(folder / "works.jsonl"), math_verify=False),
        sound_tasks,
        "works.jsonl",
    ),
    "answers": (whole_answers, load_recorded, sound_answers, "answers/ant.jsonl"),
    "packed answers": (whole_answers, load_recorded, sound_answers, "answers/bee.jsonl.gz"),
    "answered questions": (whole_answers, load_recorded, sound_answers, "questions.jsonl"),
    "ratings": (whole_answers, load_recorded, sound_answers, "ratings.jsonl"),
    "sizes": (whole_answers, load_recorded, sound_answers, "agents.json"),
    "votes": (whole_votes, RoundVote.from_pretrained, sound_module, "rounds.safetensors"),
    "own parts": (
        whole_own,
        lambda folder: ConsensusCell.from_pretrained(folder, vote=OwnVote()),
        sound_module,
        "config.json",
    ),
    "config": (whole_config, lambda folder: check_yaml(folder / "mine.yaml"), fine, "mine.yaml"),
    "call log": (whole_log, read_log, fine, "calls.sqlite"),
}


def places(node, path=()):
    """Paths to everything in a JSON tree."""
    yield path
    for key, item in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(item, (*path, key))


def changed(tree, path, wrong):
    """A JSON text with another value at a place."""
    tree = copy.deepcopy(tree)
    node = tree
    for key in path[:-1]:
        node = node[key]
    raw, old = "", node[path[-1]]
    if wrong == "gone":
        del node[path[-1]]
    elif wrong == "twice":
        node[path[-1]] = "@here@"
        key, kept = json.dumps(path[-1]), json.dumps(old)
        raw = f"{kept}, {key}: 7" if isinstance(node, dict) else f"{kept}, {kept}"
    elif wrong in ("turned", "longer"):
        if isinstance(old, list):
            node[path[-1]] = old[::-1] if wrong == "turned" else [*old, *old]
        elif isinstance(old, str):
            node[path[-1]] = old[::-1] if wrong == "turned" else old * 1000
        else:
            node[path[-1]] = -old if wrong == "turned" and isinstance(old, int | float) else [old]
    elif isinstance(wrong, str) and wrong.startswith("@"):
        node[path[-1]], raw = "@here@", wrong[1:]
    else:
        node[path[-1]] = wrong
    return json.dumps(tree).replace('"@here@"', raw)


def spoiled(path, act, draw):
    """A file as a whole replaced."""
    data = path.read_bytes()
    path.unlink()
    if act == "folder":
        path.mkdir()
    elif act == "link to itself":
        path.symlink_to(path)
    elif act == "link to a device":  # an endless one would be read until memory ends, were it not refused
        path.symlink_to("/dev/null")
    elif act != "missing":
        others = {
            "empty": b"",
            "half": data[: draw.randrange(len(data))],
            "noise": draw.randbytes(500),
            "utf-16": data.decode("latin-1").encode("utf-16"),
            "doubled": data + data,
        }
        path.write_bytes(others[act])


def header_of(data):
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def tried(folder, kind, choice, draw):
    """Spoil one thing of a kind of file and read it; what is wrong about what comes of it, "" for nothing."""
    whole, read, sound, name = KINDS[kind]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    whole(folder)
    path = folder / name
    if choice in FILES:
        what = choice
        spoiled(path, choice, draw)
    elif name.endswith(".safetensors"):
        tree, body = header_of(path.read_bytes())
        place, wrong = draw.choice([p for p in places(tree) if p]), draw.choice(WRONG)
        what = f"{place}: {str(wrong)[:40]!r}"
        text = changed(tree, place, wrong).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    elif name.endswith((".sqlite", ".gz")):
        data = bytearray(path.read_bytes())
        place = draw.randrange(len(data))
        data[place] = draw.randrange(256)
        what = f"byte {place}"
        path.write_bytes(data)
    else:
        rows = path.read_text().splitlines() if name.endswith(".jsonl") else [path.read_text()]
        number = draw.randrange(len(rows))
        tree = json.loads(rows[number])
        place, wrong = draw.choice([p for p in places(tree) if p]), draw.choice(WRONG)
        what = f"line {number}, {place}: {str(wrong)[:40]!r}"
        rows[number] = changed(tree, place, wrong)
        path.write_text("\n".join(rows) + "\n")
    if name == "model.safetensors" and path.is_file() and not path.is_symlink():
        config = json.loads((folder / "config.json").read_text())
        config["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "config.json").write_text(json.dumps(config))
    try:
        sound(read(folder))
    except ValueError as error:
        said = str(error)
        return "" if "\n" not in said and len(said) < 2000 and said.isprintable() else f"{kind}, {what}: {said[:200]!r}"
    except Exception as error:
        return f"{kind}, {what}: {type(error).__name__}: {str(error)[:200]}"
    return ""


def choices(count, seed):
    """Kinds one after the other, now and then with a whole file replaced, each of those at least once."""
    draw = random.Random(seed)
    every = [(kind, act) for kind in KINDS for act in FILES]
    some = [(kind, "") for _ in range(count) for kind in KINDS][: count - len(every)]
    return draw, [*every, *some][:count]


def report(folder, count, seed):
    draw, picked = choices(count, seed)
    return [wrong for kind, act in picked if (wrong := tried(folder, kind, act, draw))]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_as_it_is_written(tmp_path, kind):
    whole, read, sound, _ = KINDS[kind]
    whole(tmp_path)
    sound(read(tmp_path))


def test_some_wrong_files_are_right_or_one_line(tmp_path):
    assert report(tmp_path / "it", FEW, 1) == []


@pytest.mark.attack
def test_2000_wrong_files_are_right_or_one_line(tmp_path):
    assert report(tmp_path / "it", CASES, 2) == []


def test_a_device_is_no_file(tmp_path):
    (tmp_path / "it").symlink_to("/dev/null")
    with pytest.raises(OSError, match="not a file"):
        read_bytes(tmp_path / "it")
