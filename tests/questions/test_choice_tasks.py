"""GPQA, MMLU and HellaSwag: rows of files and of the Hub become the same questions; what is sealed stays so."""

import csv
import io
import json
import re
import struct
import zipfile
import zlib

import pytest

from nsed_torch.questions.choice_tasks import gpqa, hellaswag, mmlu
from nsed_torch.records.outcome import Verdict

LETTERS = "ABCD"
MMLU = [
    {"id": f"anatomy/{i}", "subject": "anatomy", "question": f"{i} {{a}}?", "choices": list("wxyz"), "answer": i % 4}
    for i in range(6)
]
MMLU.append({"id": "law/0", "subject": "law", "question": "Law?", "choices": ["1", "2", "3", "4"], "answer": 3})
SWAG = [
    {
        "ind": 24,
        "activity_label": "Roof shingle removal",
        "ctx": "[header] How to remove. [step] A man is sitting on a roof. he",
        "label": 3,
        "endings": ["is using wrap [title] now.", "is ripping.", "is holding.", "starts pulling."],
        "source_id": "activitynet~v_-JhWjGDPHMY",
        "split": "val",
    }
]
GPQA = [
    {
        "Question": f"Secret question {i}?\u2028Really? ",
        "Correct Answer": f"right secret {i}\n",
        **{f"Incorrect Answer {j}": f"wrong secret {i}{j}" for j in (1, 2, 3)},
        "High-level domain": "Physics",
        "Record ID": f"rec{i}",
    }
    for i in range(4)
]


def listed(question):
    """The options of a question, by letter."""
    return dict(re.findall(r"^([A-D])\) (.*)$", question, re.MULTILINE))


def test_mmlu_asks_with_options_in_an_order_of_the_seeds(write):
    folder = write("mmlu/mmlu_test.jsonl.gz", MMLU)
    graded = mmlu(data_dir=folder)
    assert [task.id for task in graded.tasks] == [row["id"] for row in MMLU]
    assert graded.strata["law/0"] == "law"
    for row, task in zip(MMLU, graded.tasks, strict=True):
        options = listed(task.question)
        assert task.question == (
            f"{row['question']}\n\n" + "\n".join(f"{letter}) {options[letter]}" for letter in LETTERS)
            + "\n\nAnswer with the letter of the right option."
        )  # fmt: skip
        assert sorted(options.values()) == sorted(row["choices"])
        assert options[task.target] == row["choices"][row["answer"]]
        assert graded.grader.extract(task, f"Answer: {options[task.target]}") == task.target
        assert graded.grader.grade([(task, task.target)]) == [Verdict.RIGHT]
    assert mmlu(data_dir=folder).tasks == graded.tasks
    assert mmlu(data_dir=folder, seed=1).tasks != graded.tasks
    assert graded.identity["seed"] == 0
    assert mmlu(data_dir=folder, prompt="Which?").tasks[0].question.endswith("\n\nWhich?")


def test_mmlu_from_the_hub_has_the_same_ids_and_questions(write, hub):
    calls = hub([{name: value for name, value in row.items() if name != "id"} for row in MMLU])
    assert mmlu().tasks == mmlu(data_dir=write("mmlu/mmlu_test.jsonl.gz", MMLU)).tasks
    ((args, kwargs),) = calls
    assert args == ("cais/mmlu", "all")
    assert kwargs["split"] == "test"
    assert re.fullmatch("[0-9a-f]{40}", kwargs["revision"])


@pytest.mark.parametrize("answer", [4, -1, "x", None])
def test_a_right_option_that_is_not_there_is_a_fault_of_its_row(write, answer):
    folder = write("mmlu/mmlu_test.jsonl.gz", [MMLU[0] | {"answer": answer}])
    with pytest.raises(ValueError, match=r"mmlu_test.jsonl.gz:1: expected a (right option|whole number)"):
        mmlu(data_dir=folder)


def test_hellaswag_asks_how_a_text_goes_on(write, hub):
    graded = hellaswag(data_dir=write("hellaswag/hellaswag_val_1000.jsonl", SWAG))
    (task,) = graded.tasks
    assert task.id == "24-activitynet:v_-JhWjGDPHMY"
    assert task.question.startswith(
        "Which option continues the text best?\n\n"
        "Roof shingle removal: How to remove. A man is sitting on a roof. he\n\nA) "
    )
    options = listed(task.question)
    assert "is using wrap now." in options.values()
    assert options[task.target] == "starts pulling."
    assert graded.strata == {task.id: "Roof shingle removal"}
    calls = hub([SWAG[0] | {"label": "3"}])
    assert hellaswag().tasks == graded.tasks
    assert calls[0][0] == ("Rowan/hellaswag", None)
    assert calls[0][1]["split"] == "validation"


def keystream(password):
    """PKZIP's stream cipher; `zipfile` can read what it seals but not write it."""
    table = [zlib.crc32(bytes([i]), 0xFFFFFFFF) ^ 0xFFFFFFFF for i in range(256)]
    keys = [0x12345678, 0x23456789, 0x34567890]

    def step(crc, byte):
        return (crc >> 8) ^ table[(crc ^ byte) & 0xFF]

    def update(byte):
        keys[0] = step(keys[0], byte)
        keys[1] = ((keys[1] + (keys[0] & 0xFF)) * 134775813 + 1) & 0xFFFFFFFF
        keys[2] = step(keys[2], keys[1] >> 24)

    def seal(byte):
        mask = keys[2] | 2
        sealed = byte ^ (((mask * (mask ^ 1)) >> 8) & 0xFF)
        update(byte)
        return sealed

    for byte in password:
        update(byte)
    return seal


def sealed_zip(name, data, password):
    """A zip with one stored, encrypted file."""
    crc = zlib.crc32(data)
    seal = keystream(password)
    body = bytes(map(seal, bytes(11) + bytes([crc >> 24]) + data))
    sizes = struct.pack("<III", crc, len(body), len(data))
    head = struct.pack("<HHHHH", 20, 1, 0, 0, 33) + sizes + struct.pack("<HH", len(name), 0)
    local = b"PK\x03\x04" + head + name.encode() + body
    central = b"PK\x01\x02" + struct.pack("<H", 20) + head + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode()
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def as_csv(rows):
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue().encode()


def as_jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A function that seals a table as GPQA's archive is; the folder it lies below."""
    monkeypatch.delenv("NSED_GPQA_PASSWORD", raising=False)

    def put(name="gpqa_diamond.jsonl", data=None, password=b"pass"):
        path = tmp_path / "gpqa/gpqa_diamond.zip"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sealed_zip(name, as_jsonl(GPQA) if data is None else data, password))
        return str(tmp_path)

    return put


def test_the_zip_these_tests_write_is_sealed(archive):
    path = archive() + "/gpqa/gpqa_diamond.zip"
    with zipfile.ZipFile(path) as found:
        assert found.read("gpqa_diamond.jsonl", pwd=b"pass") == as_jsonl(GPQA)
        with pytest.raises(RuntimeError, match="password required"):
            found.read("gpqa_diamond.jsonl")


@pytest.mark.parametrize(
    ("name", "data"), [("gpqa_diamond.jsonl", as_jsonl(GPQA)), ("dataset/gpqa_diamond.csv", as_csv(GPQA))]
)
def test_gpqa_is_read_in_memory_and_withheld(archive, monkeypatch, tmp_path, name, data):
    folder = archive(name, data)
    before = sorted(tmp_path.rglob("*"))
    graded = gpqa(data_dir=folder, password="pass")
    assert graded.withheld
    assert [task.id for task in graded.tasks] == ["rec0", "rec1", "rec2", "rec3"]
    assert graded.strata["rec3"] == "Physics"
    for i, task in enumerate(graded.tasks):
        assert task.question.startswith(f"Secret question {i}?\u2028Really?\n\nA) ")
        assert listed(task.question)[task.target] == f"right secret {i}"
    assert "pass" not in json.dumps(graded.identity)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setenv("NSED_GPQA_PASSWORD", "pass")
    assert gpqa(data_dir=folder).tasks == graded.tasks


def test_without_the_password_one_line_says_where_it_is_and_what_the_authors_ask(archive):
    with pytest.raises(ValueError, match="publish it beside their dataset and ask that examples are not revealed; set"):
        gpqa(data_dir=archive())


def test_a_wrong_password_is_one_line(archive):
    folder = archive()
    for password in map(str, range(600)):  # one in 256 gets past the first check
        with pytest.raises(
            ValueError, match="cannot be decrypted; the password in NSED_GPQA_PASSWORD is wrong"
        ) as error:
            gpqa(data_dir=folder, password=password)
        assert "\n" not in str(error.value)


def test_faults_of_gpqa_show_no_text(archive, tmp_path):
    with pytest.raises(ValueError, match=r":2: expected a text in column Incorrect Answer 2, got none") as error:
        gpqa(data_dir=archive(data=as_jsonl([GPQA[0], GPQA[1] | {"Incorrect Answer 2": ""}])), password="pass")
    assert "secret" not in str(error.value).lower()
    with pytest.raises(ValueError, match=r":2: not valid JSON") as error:
        gpqa(data_dir=archive(data=as_jsonl(GPQA[:1]) + b'{"Question": "secret'), password="pass")
    assert "secret" not in str(error.value).lower()
    with pytest.raises(ValueError, match=r"expected gpqa_diamond.jsonl or gpqa_diamond.csv in it, got neither"):
        gpqa(data_dir=archive("other.csv"), password="pass")
    (tmp_path / "gpqa/gpqa_diamond.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"or the archive is damaged"):
        gpqa(data_dir=str(tmp_path), password="pass")


def test_gpqa_on_the_hub_is_gated(hub):
    calls = hub(GPQA)
    assert [task.id for task in gpqa().tasks] == ["rec0", "rec1", "rec2", "rec3"]
    assert calls[0][0] == ("Idavidrein/gpqa", "gpqa_diamond")
    assert calls[0][1]["split"] == "train"
    hub(OSError("gated"))
    with pytest.raises(
        ValueError, match=r"\(gated\); accept its terms on the Hub, run hf auth login, or pass data_dir"
    ):
        gpqa()
