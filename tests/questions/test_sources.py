"""Rows from files and from the Hub: the same tasks, an identity, and faults in one line that show no text."""

import gzip
import hashlib
import json
import re
import sys

import pytest

from nsed_torch.questions import math_tasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.questions.sources import Hub, Row, Rows, hub_tasks, parse_rows, read_rows
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

HUB = Hub("someone/something", "v1", "main", "train")
ROWS = [{"question": "one\u2028two\u0085three"}, {"question": "four"}]


@pytest.mark.parametrize("file", ["sums/rows.jsonl", "sums/rows.jsonl.gz"])
def test_lines_end_with_a_newline_alone_and_the_bytes_are_fingerprinted(write, tmp_path, file):
    source = read_rows("sums", file, HUB, write(file, ROWS))
    assert [row.values for row in source.rows] == ROWS
    assert source.rows[1].where == f"{tmp_path / file}:2"
    assert source.identity == {"file": file, "sha256": hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()}


@pytest.mark.parametrize("data_dir", [None, ""])
def test_no_data_dir_means_the_hub_at_its_revision(hub, data_dir):
    calls = hub(ROWS)
    source = read_rows("sums", "sums/rows.jsonl", HUB, data_dir)
    assert calls == [(("someone/something", "main"), {"split": "train", "revision": "v1"})]
    assert [row.values for row in source.rows] == ROWS
    assert source.rows[1].where == "someone/something@v1, row 1"
    assert source.identity == {"repo": "someone/something", "revision": "v1", "config": "main", "split": "train"}


def test_files_of_a_repository_with_a_script_are_read_as_json_without_what_is_left_out(hub):
    calls = hub([{"question": "four", "secret": "pickle"}])
    source = read_rows("sums", "", Hub("a/b", "v1", files=("x.jsonl", "y.jsonl"), without=("secret", "other")), None)
    urls = ["hf://datasets/a/b@v1/x.jsonl", "hf://datasets/a/b@v1/y.jsonl"]
    assert calls == [(("json",), {"data_files": urls, "split": "train"})]
    assert [row.values for row in source.rows] == [{"question": "four"}]
    assert source.identity["files"] == ["x.jsonl", "y.jsonl"]


def test_the_real_library_reads_a_folder_as_a_dataset(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="the extra `bench` is not installed")
    row = {"unique_id": "test/a/1.json", "problem": "1 + 1?", "answer": "2", "subject": "Algebra", "level": 1}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    monkeypatch.setattr(math_tasks, "MATH500", Hub(str(tmp_path), "main"))
    graded = math_tasks.math500()
    assert [(task.id, task.target) for task in graded.tasks] == [("test/a/1.json", "2")]


OWN = [
    {"name": "a", "asked": "1 + 1?", "right": 2, "kind": "sum"},
    {"name": "b", "asked": "2 + 2?", "right": 4, "kind": "sum"},
]


@pytest.mark.parametrize("file", ["own.jsonl", "own.csv", "own.parquet", "folder/test.jsonl"])
def test_a_set_of_one_s_own_is_what_the_real_library_reads(tmp_path, file):
    datasets = pytest.importorskip("datasets", reason="the extra `bench` is not installed")
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    table = datasets.Dataset.from_list(OWN)
    {"jsonl": table.to_json, "csv": table.to_csv, "parquet": table.to_parquet}[path.suffix[1:]](path)
    repo = str(path if path.parent == tmp_path else path.parent)
    graded = hub_tasks(repo, "asked", "right", id="name", stratum="kind", prompt="Say it.", math_verify=False)
    assert [(task.id, task.question, task.target) for task in graded.tasks] == [
        ("a", "1 + 1?\n\nSay it.", "2"),
        ("b", "2 + 2?\n\nSay it.", "4"),
    ]
    assert graded.strata == {"a": "sum", "b": "sum"}
    assert graded.verdicts([(graded.tasks[0], "2"), (graded.tasks[0], "3")]) == [Verdict.RIGHT, Verdict.WRONG]
    assert [task.id for task in hub_tasks(repo, "asked", "right").tasks] == ["test-0", "test-1"]


def test_a_set_of_one_s_own_on_the_hub(hub):
    calls = hub(OWN)
    graded = hub_tasks("me/mine", "asked", "right", revision="v2", config="hard", split="dev")
    assert calls == [(("me/mine", "hard"), {"split": "dev", "revision": "v2"})]
    assert graded.identity["repo"] == "me/mine"
    with pytest.raises(
        ValueError, match=r"^me/mine: expected target to be one of asked, kind, name, right, got 'gold'$"
    ):
        hub_tasks("me/mine", "asked", "gold")
    hub(ConnectionError("no way"))
    with pytest.raises(ValueError, match=r"^me/mine: cannot be read .* or name a folder or file here that datasets"):
        hub_tasks("me/mine", "asked", "right")
    with pytest.raises(ValueError, match=r"got none: pass tasks\.repo=OWNER/NAME, a folder or a file"):
        hub_tasks("", "asked", "right")


def test_without_datasets_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        ValueError, match=r"datasets for someone/something .* pip install .*\[bench\].*, or pass data_dir"
    ):
        read_rows("sums", "", HUB, None)


@pytest.mark.parametrize(("gated", "remedy"), [(False, "check the connection"), (True, "run hf auth login")])
def test_a_hub_that_refuses_is_one_line(hub, gated, remedy):
    hub(ConnectionError("no\nway"))
    with pytest.raises(ValueError, match=rf"^a/b: cannot be read from the Hub \(no way\); .*{remedy}.* data_dir=DIR$"):
        read_rows("sums", "", Hub("a/b", "v1", gated=gated), None)


def test_a_missing_file_names_its_path_and_the_other_source(tmp_path):
    message = f"{tmp_path / 'sums/rows.jsonl'}: there is no such file; put it there, or pass data_dir=null"
    with pytest.raises(ValueError, match=re.escape(message)):
        read_rows("sums", "sums/rows.jsonl", HUB, str(tmp_path))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"a": 1}\n{"secret words', ":2: not valid JSON"),
        (b'\n["secret words"]\n', ":2: expected an object, got list"),
        (b"\xff secret words", ":1: not valid JSON"),
        (b"[" * 100_000, ":1: not valid JSON"),
    ],
)
def test_a_broken_line_is_named_and_not_shown(data, complaint):
    with pytest.raises(ValueError, match=f"^rows{complaint}") as error:
        list(parse_rows(data, "rows"))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(b"{}" * 99, mtime=0)[:-9]], ids=["text", "cut"])
def test_a_broken_archive_is_named(tmp_path, data):
    (tmp_path / "rows.jsonl.gz").write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'rows.jsonl.gz'}: cannot be read")):
        read_rows("sums", "rows.jsonl.gz", HUB, str(tmp_path))


def test_columns_are_read_by_the_first_name_that_holds_something():
    row = Row("here", {"a": None, "b": "text", "n": 7, "m": "-8", "l": ["x"]})
    assert (row.text("a", "b"), row.text("n"), row.number("n"), row.number("m")) == ("text", "7", 7, -8)
    assert (row.texts("l"), row.value("a", "z")) == (["x"], None)


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        (lambda row: row.text("blank"), "a text in column blank, got none"),
        (lambda row: row.text("z", "list"), "a text in column z or list, got list"),
        (lambda row: row.text("true"), "a text in column true, got bool"),
        (lambda row: row.number("secret"), "a whole number in column secret, got str"),
        (lambda row: row.number("true"), "a whole number in column true, got bool"),
        (lambda row: row.texts("empty"), "a list of texts in column empty, got list"),
        (lambda row: row.texts("list"), "a list of texts in column list, got list"),
    ],
)
def test_what_a_row_lacks_is_named_and_what_it_holds_is_not_shown(read, complaint):
    row = Row("here:3", {"blank": " ", "list": [1], "true": True, "secret": "secret words", "empty": []})
    with pytest.raises(ValueError, match=f"^here:3: expected {complaint}; fetch") as error:
        read(row)
    assert "secret words" not in str(error.value)


def test_ids_are_unique_and_there_are_some():
    rows = Rows("sums", (Row("here", {}),), {"repo": "a/b"})
    with pytest.raises(ValueError, match="sums: expected every id once, got 'x' again"):
        rows.graded([(Task("?", "x"), ""), (Task("??", "x"), "")], AnswerGrader())
    with pytest.raises(ValueError, match="sums: expected questions, got none of 1 rows"):
        rows.graded([], AnswerGrader())
    graded = rows.graded([(Task("?", "x"), "easy"), (Task("?", "y"), "")], AnswerGrader(), seed=3)
    assert graded.strata == {"x": "easy"}
    assert graded.identity == {"name": "sums", "repo": "a/b", "seed": 3, **AnswerGrader().identity()}
