"""Files are whole or absent, and errors say what to do."""

import json
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from nsed_torch.records.files import MOST_LEVELS, parse_json, read_json, to_json, write_files, write_json, write_text

JSON: SearchStrategy = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@given(value=JSON)
def test_json_round_trip(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "value.json"
    write_json(path, value)
    assert read_json(path) == value
    assert path.read_bytes().decode() == to_json(value) + "\n"


def test_text_keeps_every_character_and_makes_folders(tmp_path):
    text = "a\r\nb\n\ttabs, ünïcödé 🦉 and no end"
    path = tmp_path / "new" / "deeper" / "text.txt"
    write_text(path, text)
    assert path.read_bytes() == text.encode()
    assert list(path.parent.iterdir()) == [path]


def test_who_reads_the_old_file_meanwhile_reads_it_to_its_end(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old" * 99_999)  # more than a buffer
    with path.open() as reader:
        assert reader.read(3) == "old"
        write_text(path, "new")
        assert reader.read() == "old" * 99_998
    assert path.read_text() == "new"


def test_permissions_follow_the_umask(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.touch()
    write_text(ours, "x")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize(
    "fault",
    [
        lambda path: write_json(path, {"a": float("nan")}),
        lambda path: write_json(path, {"a": object()}),
        lambda path: write_text(path, "lone \ud800"),
    ],
)
def test_refused_values_leave_the_old_file(tmp_path, fault):
    path = tmp_path / "kept.json"
    write_json(path, 1)
    with pytest.raises((ValueError, TypeError)):
        fault(path)
    assert list(tmp_path.iterdir()) == [path]
    assert read_json(path) == 1


def test_a_failing_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "kept.txt"
    write_text(path, "old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write this file: No space left on device: .*kept\.txt"):
        write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


def test_what_cannot_be_removed_hides_no_failure(tmp_path, monkeypatch):
    def full(_descriptor):
        (left,) = tmp_path.iterdir()
        left.unlink()
        left.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot write this file: No space left on device: .*new\.txt"):
        write_text(tmp_path / "new.txt", "new")


def test_several_files_or_none(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_files({one: b"1", two: b"2"})
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write this file") as caught:
        write_files({one: b"new", tmp_path / "file" / "below": b"", two: b"new"})
    assert caught.value.filename == str(tmp_path / "file" / "below")
    assert (one.read_bytes(), two.read_bytes()) == (b"1", b"2")
    assert len(list(tmp_path.iterdir())) == 3


def test_unwritable_names_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises((NotADirectoryError, FileExistsError)) as below_a_file:
        write_text(tmp_path / "file" / "x.json", "")
    assert below_a_file.value.filename == str(tmp_path / "file" / "x.json")
    with pytest.raises(IsADirectoryError) as onto_a_folder:
        write_text(tmp_path / "folder", "")
    assert onto_a_folder.value.filename == str(tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[NaN]", "NaN is no JSON number"),
        (b"[" * 200_000, "not valid JSON"),
    ],
)
def test_broken_json_is_one_line_with_the_file(tmp_path, content, complaint):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint) as error:
        read_json(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not isinstance(error.value, json.JSONDecodeError)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.json: there is no such file"):
        read_json(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match="cannot be read"):
        read_json(tmp_path)


@pytest.mark.parametrize(("opens", "closes"), ["[]", ('{"a": ', "}")])
def test_json_of_many_levels_is_refused_before_anybody_copies_it(opens, closes):
    whole = opens * MOST_LEVELS + "1" + closes * MOST_LEVELS
    assert parse_json(whole, "it", "mend it")
    assert parse_json(json.dumps([opens * 500]), "it", "mend it")  # within a text
    for depth in (1, *range(100, 900, 7)):
        with pytest.raises(ValueError, match=r"^it: not valid JSON \(.*\); mend it$"):
            parse_json(opens * depth + whole + closes * depth, "it", "mend it")
