"""Recorded verdicts beside ours: by the set's own rule, by its scorer, and what a cut text cannot tell."""

import json

import pytest

from nsed_lab.studies.agreement import compared, gym_items, scored
from nsed_torch.traces.recorded import load_recorded

TEXTS = {
    "first": [("The answer is (A). No: the answer is (B).", "A", False), ("I say B.", None, False)],
    "later": [("I say B.", "B", True), ("no letter", "A", True)],
}


@pytest.fixture
def table(tmp_path):
    (tmp_path / "answers").mkdir()
    rows = [{"id": name, "question": "Which?", "target": target} for name, target in (("1", "B"), ("2", "A"))]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for agent, texts in TEXTS.items():
        lines = [
            {"id": str(i), "output": text, "answer": answer, "correct": right}
            for i, (text, answer, right) in enumerate(texts, start=1)
        ]
        (tmp_path / "answers" / f"{agent}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load_recorded(tmp_path)


def test_each_agent_is_read_by_the_version_of_its_record(table):
    found = [(one.agent, one.case, one.answer) for one in compared(table, "mmlu_pro")]
    assert found == [
        ("first", "agrees", "A"),
        ("first", "agrees", ""),
        ("later", "agrees", "B"),
        ("later", "guessed, where nothing is found", ""),
    ]
    assert next(one.case for one in compared(table, "general")) == "right, where it was wrong"
    assert len(list(compared(table, "mmlu_pro", every=2))) == 2


def test_a_scorer_is_asked_about_nothing_that_calls_names():
    class Scorer:
        def score_answer(self, answer, entry):
            return float(eval(answer) == entry)

    assert scored("(1 + 2) * 3", (Scorer(), 9))
    assert not scored("(1 + 2) * 4", (Scorer(), 9))
    assert not scored("int('9')", (Scorer(), 9))
    assert not scored("9 if ().__class__ else 9", (Scorer(), 9))
    assert not scored("(1 +", (Scorer(), 9))
    assert not scored("9", None)


def test_questions_are_made_again(tmp_path):
    pytest.importorskip("reasoning_gym")
    file = tmp_path / "small.yaml"
    params = {"min_terms": 2, "max_terms": 2}
    file.write_text(
        json.dumps({"default_seed": 45, "categories": [{"datasets": [{"dataset": "chain_sum", "params": params}]}]})
    )
    items = gym_items(file, {"chain_sum"})
    assert len(items) > 40
    for dataset, entry in items.values():
        assert scored(entry["answer"], (dataset, entry))
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"expected \{default_seed, categories\}"):
        gym_items(file, set())
