"""Recorded answers of public repositories: what is read of a clone, and what a hostile file in it is refused for."""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from nsed_torch.records.files import read_json
from nsed_torch.traces import clones
from nsed_torch.traces.public_recordings import SOURCES, make_recorded
from nsed_torch.traces.recorded import load_recorded

GYM = "reasoninggym-paper-experiments/zero-shot/hard"


def choice(number, pred, **other):
    """An answer in the form of MMLU-Pro's files."""
    known = {"question_id": number, "question": f"How many is {number}?", "options": ["few", "many"], "answer": "B"}
    return known | {"category": "counting", "pred": pred, "model_outputs": f"So it is ({pred})."} | other


def packed(value, name="out.json"):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, json.dumps(value))
    return data.getvalue()


def mmlu_pro(root: Path) -> Path:
    folder = root / "eval_results"
    (folder / "big").mkdir(parents=True)
    both = [choice(1, "B"), choice(2, "A"), choice(3, "B")]
    (folder / "model_outputs_small-7B_5shots.zip").write_bytes(packed(both))
    others = [{**choice(1, None), "model_outputs": None, "response": "x" * 5000}, choice(2, "B"), choice(2, "A")]
    reworded = choice(3, "B", options=["few", "very many"])
    (folder / "big" / "counting_result.json").write_text(json.dumps([*others, reworded]))
    (folder / "big" / "counting_summary.json").write_text("{}")
    (root / "LICENSE").write_text("do as you like")
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "refs" / "heads" / "main").write_text("a1" * 20 + "\n")
    return root


def gym(root: Path) -> Path:
    def results(*said):
        rows = [{"question": f"Sort {q}.", "expected_answer": "a", "completions": done} for q, done in said]
        return json.dumps({"name": "sorting", "results": rows})

    def one(answer, score):
        return {"model_answer": answer, "full_model_response": f"<answer>{answer}</answer>", "score": score}

    runs = {
        "maker_tiny-3b_20250101_000000": results(("cb", [one("x", 0.0)]), ("dc", [])),
        "maker_tiny-3b_20250201_000000": results(("cb", [one("a", 1.0), one("b", 0.0)]), ("dc", [])),
        "maker_mix-8x7b_20250101_000000": results(("cb", [one(None, 0.01)]), ("dc", [one("a", 0.99)])),
    }
    for name, text in runs.items():
        (root / GYM / name / "algorithmic").mkdir(parents=True)
        (root / GYM / name / "algorithmic" / "sorting.json").write_text(text)
        (root / GYM / name / "summary.json").write_text("not read")
    return root


HPC = "experiments/linux_single/slurm/results_hpc"
TEAM = f"{HPC}/mmlu/mmlu_Tiny-1B_persona_calm+odd+grim_agents3_rounds3.json"
ASKED = "Can you answer the following question as accurately as possible? Which? A) few, B) many"
ASKED += " Explain your answer, putting the answer in the form (X) at the end of your response."


def talk(*replies):
    """What one agent of a debate was told and said."""
    return [
        {"role": role, "content": text} for reply in replies for role, text in (("user", "?"), ("assistant", reply))
    ]


def debated(root: Path, place=TEAM, asked=ASKED, gold="B", replies=("(A)", "(B)", "so it is (b)"), agents=3) -> Path:
    """A clone with one debate more."""
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {asked: [[talk(*replies)] * agents, gold]}))
    return root


def test_mmlu_pro_becomes_a_folder_that_tune_reads(tmp_path):
    told = []
    about = make_recorded("mmlu_pro", mmlu_pro(tmp_path / "clone"), tmp_path / "out", report=told.append)
    answers = load_recorded(tmp_path / "out")
    assert answers.agents == ("big", "small-7B")
    # Of the third question one agent was shown other options.
    assert [task.id for task in answers.tasks] == ["1", "2"]
    assert answers.tasks[0].question == "How many is 1?\nA. few\nB. many"
    assert (answers.tasks[0].target, answers.tasks[0].category) == ("B", "counting")
    assert answers.answers == ((None, "B"), ("B", "A"))
    assert answers.correct.tolist() == [[False, True], [True, False]]
    assert answers.parameters.tolist()[1] == 7.0
    assert answers.parameters.isnan().tolist() == [True, False]
    assert (answers.lengths[0, 0].item(), len(answers.outputs[0][0])) == (5000, 4000)
    assert told == ["big: 3 answers", "small-7B: 3 answers"]
    assert about == read_json(tmp_path / "out" / "source.json")
    assert (about["commit"], about["license"], about["left_out"]) == ("a1" * 20, "Apache-2.0", 1)
    data = (tmp_path / "clone" / "eval_results" / "big" / "counting_result.json").read_bytes()
    sums = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert about["read"]["eval_results/big/counting_result.json"] == sums
    assert sorted(about["read"]) == [
        "LICENSE",
        "eval_results/big/counting_result.json",
        "eval_results/model_outputs_small-7B_5shots.zip",
    ]
    assert (tmp_path / "out" / "LICENSE").read_text() == "do as you like"


def test_of_reasoning_gym_the_first_completion_of_the_latest_run_counts(tmp_path):
    about = make_recorded("reasoning_gym_hard", gym(tmp_path / "clone"), tmp_path / "out")
    answers = load_recorded(tmp_path / "out")
    assert answers.agents == ("mix-8x7b", "tiny-3b")
    assert answers.answers == ((None, "a"), ("a", None))
    assert answers.correct.tolist() == [[False, True], [True, False]]
    assert answers.parameters.isnan().tolist() == [True, False]  # of experts one by one a name tells no total
    assert {task.category for task in answers.tasks} == {"sorting"}
    assert answers.tasks[0].id == "sorting/" + hashlib.sha256(b"Sort cb.").hexdigest()[:12]
    assert about["commit"] is None
    assert len(about["read"]) == 2  # an earlier run of the same family is not


def test_agents_are_chosen_by_name(tmp_path):
    about = make_recorded("mmlu_pro", mmlu_pro(tmp_path / "clone"), tmp_path / "out", ["small-7B"])
    assert load_recorded(tmp_path / "out").agents == ("small-7B",)
    assert (about["questions"], about["left_out"]) == (3, 0)
    with pytest.raises(ValueError, match=re.escape("agents: expected some of big, small-7B, got huge")):
        make_recorded("mmlu_pro", tmp_path / "clone", tmp_path / "other", ["huge"])


PACKED, LISTED = "eval_results/model_outputs_small-7B_5shots.zip", "eval_results/big/counting_result.json"


@pytest.mark.parametrize(
    ("place", "data", "told"),
    [
        (PACKED, b"PK", "cannot be unpacked"),
        (PACKED, packed([], "a.txt"), "expected one JSON file inside, got 0"),
        (PACKED, packed([choice(1, "B", options=["x" * 4500] * 2)]), "expected at most 8000 bytes inside, got more"),
        (LISTED, b"{}", "expected a list of answers"),
        (LISTED, b"[1]", "answer 1: expected an object, got '1'"),
        (LISTED, json.dumps([choice(1, 3)]).encode(), "expected question_id, question, options, answer"),
        (LISTED, json.dumps([choice(True, "B")]).encode(), "got question_id='True'"),
        (LISTED, json.dumps([choice(1, "B", options=[1])]).encode(), "expected at most 26 texts as options"),
        (LISTED, b'[{"question_id": NaN}]', "not valid JSON"),
        (LISTED, b" " * 9000, "expected at most 8000 bytes, got 9000"),
        (LISTED, json.dumps([choice(9, "B")]).encode(), "that all 2 agents were asked, got none among"),
    ],
)
def test_a_hostile_file_is_one_line_and_nothing_is_written(tmp_path, monkeypatch, place, data, told):
    monkeypatch.setattr(clones, "MOST_BYTES", 8000)
    (mmlu_pro(tmp_path / "clone") / place).write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        make_recorded("mmlu_pro", tmp_path / "clone", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("outside", ["file", "folder"])
def test_links_out_of_the_clone_are_not_followed(tmp_path, outside):
    clone = mmlu_pro(tmp_path / "clone")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a_result.json").write_text(json.dumps([choice(1, "B")]))
    if outside == "file":
        (clone / "eval_results" / "big" / "a_result.json").symlink_to(tmp_path / "secret" / "a_result.json")
    else:
        (clone / "eval_results" / "linked").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="expected a file of the clone itself"):
        make_recorded("mmlu_pro", clone, tmp_path / "out")


def test_halves_of_characters_are_mended(tmp_path):
    clone = mmlu_pro(tmp_path / "clone")
    (clone / LISTED).write_text(json.dumps([choice(1, "B", model_outputs="odd \ud83d end")]))
    make_recorded("mmlu_pro", clone, tmp_path / "out")
    assert load_recorded(tmp_path / "out").outputs[0][0] == "odd \ufffd end"


@pytest.mark.parametrize("score", ["1", True, None])
def test_scores_are_numbers(tmp_path, score):
    clone = gym(tmp_path / "clone")
    path = next((clone / GYM).glob("*tiny*0201*/algorithmic/sorting.json"))
    row = {"question": "Sort cb.", "expected_answer": "a"}
    done = {"model_answer": "a", "full_model_response": "a", "score": score}
    path.write_text(json.dumps({"results": [{**row, "completions": [done]}]}))
    if score is None:
        make_recorded("reasoning_gym_hard", clone, tmp_path / "out")
        assert not load_recorded(tmp_path / "out").correct[0, 1]
        return
    with pytest.raises(ValueError, match="result 1: expected model_answer, full_model_response, score"):
        make_recorded("reasoning_gym_hard", clone, tmp_path / "out")


@pytest.mark.parametrize("head", ["ref: ../../../etc/passwd", "ref: refs/heads/../../../secret", "zz" * 20])
def test_a_commit_is_not_read_from_elsewhere(tmp_path, head):
    clone = mmlu_pro(tmp_path / "clone")
    (tmp_path / "secret").write_text("b2" * 20)
    (clone / ".git" / "HEAD").write_text(head)
    assert make_recorded("mmlu_pro", clone, tmp_path / "out")["commit"] is None


def test_packed_references_and_a_folder_in_use(tmp_path):
    clone = mmlu_pro(tmp_path / "clone")
    (clone / ".git" / "refs" / "heads" / "main").unlink()
    (clone / ".git" / "packed-refs").write_text(f"# pack-refs\n{'c3' * 20} refs/heads/main\n")
    assert make_recorded("mmlu_pro", clone, tmp_path / "out")["commit"] == "c3" * 20
    with pytest.raises(ValueError, match="expected a folder without recorded answers"):
        make_recorded("mmlu_pro", clone, tmp_path / "out")


def test_what_is_no_clone_or_source(tmp_path):
    with pytest.raises(ValueError, match="recorded: expected one of mmlu_pro, reasoning_gym_easy"):
        make_recorded("gsm", tmp_path, tmp_path / "out")
    with pytest.raises(ValueError, match="clone: expected a folder, got"):
        make_recorded("mmlu_pro", tmp_path / "absent", tmp_path / "out")
    for name, source in SOURCES.items():
        with pytest.raises(ValueError, match=f"got none: pass a clone of https://github.com/{source.repository}"):
            make_recorded(name, tmp_path, tmp_path / "out")


def test_debates_keep_every_round(tmp_path):
    clone = debated(tmp_path / "clone", TEAM.replace("mmlu", "gsm"), "How many?", "6 * 7 = <<6*7=42>>42\n#### 1,042")
    debated(clone, TEAM.replace("persona_calm+odd+grim", "temp0.5+0.7+1.0"), replies=["(B)"] * 3)
    debated(debated(clone), asked=ASKED.replace("Which?", "Where?"), gold="A")
    debated(clone, TEAM.replace("agents3", "agents5"), agents=5)
    debated(clone, TEAM.replace("mmlu", "biography"))
    told = []
    about = make_recorded("debates_3", clone, tmp_path / "out", report=told.append)
    answers = load_recorded(tmp_path / "out")
    assert answers.agents == ("agent1", "agent2", "agent3")
    assert [task.id for task in answers.tasks] == [
        "gsm/Tiny-1B/calm+odd+grim/0",
        "mmlu/Tiny-1B/calm+odd+grim/0",
        "mmlu/Tiny-1B/calm+odd+grim/1",
        "mmlu/Tiny-1B/0.5+0.7+1.0/0",
    ]
    assert answers.tasks[1].question == "Which? A) few, B) many"
    assert [task.target for task in answers.tasks] == ["1042", "B", "A", "B"]
    assert {task.category for task in answers.tasks} == {"gsm/Tiny-1B", "mmlu/Tiny-1B"}
    rounds = (answers, *answers.later)
    assert [part.answers[1] for part in rounds] == [("A",) * 3, ("B",) * 3, ("B",) * 3]
    assert [part.correct[:, 0].tolist() for part in rounds] == [
        [False, False, True, True],
        [False, True, False, True],
        [False, True, False, True],
    ]
    assert told == [f"agent{place}: 12 answers" for place in (1, 2, 3)]
    assert (about["license"], about["left_out"], len(about["read"])) == ("MIT (by its README)", 0, 3)
    make_recorded("debates_5", clone, tmp_path / "five", ["agent4", "agent2"])
    assert load_recorded(tmp_path / "five").agents == ("agent2", "agent4")


@pytest.mark.parametrize(
    ("kind", "reply", "answer"),
    [
        ("gsm", "\\boxed{3}, no: \\boxed{1{,}000 \\text{ m}^2} \\boxed{answer} of 7", "1000"),
        ("gsm", "10-5 is 5, and so 12,000.50.", "24001/2"),
        ("gsm", "It is -3", "-3"),
        ("gsm", "<think>\\boxed{3}</think>So it is 4.", "4"),
        ("gsm", "<think>\\boxed{3}</think>So it is.", "3"),
        ("gsm", "I cannot say.", None),
        ("mmlu", "(A), (e) or (b)?", "B"),
        ("mmlu", "Not (A): \\boxed{\\text{C}}", "C"),
        ("mmlu", "(X) D", "D"),
        ("mmlu", "Answer: **B**. A reason is A.", "B"),
        ("mmlu", "A lot speaks for option C. A test", "C"),
        ("mmlu", "<think>(A)</think>(C)", "C"),
        ("mmlu", "<think>(A)</think> ", "A"),
        ("mmlu", "D" + " no" * 100, None),
    ],
)
def test_answers_of_debates_are_read(tmp_path, kind, reply, answer):
    clone = debated(tmp_path / "clone", TEAM.replace("mmlu", kind), gold="A #### 7", replies=[reply] * 3)
    make_recorded("debates_3", clone, tmp_path / "out")
    assert load_recorded(tmp_path / "out").answers == ((answer,) * 3,)


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ([1], "expected debates by question, got '[1]'"),
        ({"": [[talk("a", "b", "c")] * 3, "B"]}, "question 1: expected a question and its gold answer, got '' and 'B'"),
        ({"Which?": [[talk("a", "b", "c")] * 3, "E"]}, "question and its gold answer, got 'Which?' and 'E'"),
        ({"Which?": [[talk("a", "b", "c")] * 3, 2]}, "expected 3 agents with 3 replies each"),
        ({"Which?": [[talk("a", "b", "c")] * 2, "B"]}, "expected 3 agents with 3 replies each"),
        ({"Which?": [[talk("a", "b")] * 3, "B"]}, "expected 3 agents with 3 replies each"),
        ({"Which?": [[1, [], []], "B"]}, "expected 3 agents with 3 replies each"),
        ({"Which?": "B"}, "expected 3 agents with 3 replies each, and a gold answer, got 'B'"),
        ({"Which?": [[["a"]] * 3, "B"]}, "question 1: expected an object, got 'a'"),
        ({"Which?": [[[{"role": "user", "content": 1}]] * 3, "B"]}, "expected role, content, got content='1'"),
        ({"Which?": json.loads("[" * 120 + "]" * 120)}, "not valid JSON"),
    ],
)
def test_a_hostile_debate_is_one_line_and_nothing_is_written(tmp_path, held, told):
    (debated(tmp_path / "clone") / TEAM).write_text(json.dumps(held))
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        make_recorded("debates_3", tmp_path / "clone", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_halves_of_characters_of_a_debate_are_mended(tmp_path):
    clone = debated(tmp_path / "clone", asked="Odd \ud83d?", replies=["\ud83d (A)"] * 3)
    make_recorded("debates_3", clone, tmp_path / "out")
    answers = load_recorded(tmp_path / "out")
    assert (answers.tasks[0].question, answers.outputs[0][0]) == ("Odd \ufffd?", "\ufffd (A)")
