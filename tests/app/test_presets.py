"""What `+experiment=NAME` brings: every preset says what it would cost, without a model, its weights or a server."""

import gzip
import json
import re
import sys

import pytest
from preset_verbs import INSTALLED

PATTERNS = "anthropomorphization", "brand-bias", "harmful-generation", "sneaking", "sycophancy", "user-retention"
AIME = {"id": "aime_2025_1", "competition": "aime_2025", "problem": "What is 1 + 1?", "answer": 2}
PROGRAM = {"question_id": "1", "question_content": "Add.", "starter_code": "", "difficulty": "hard"}
PROGRAM |= {"sample_tests_parsed": [{"input": "1", "output": "1", "testtype": "stdin"}], "sample_tests_validated": True}
FILES = {
    "aime/aime_2024_2025.jsonl": [AIME],
    "darkbench/darkbench_660.jsonl": [{"id": f"{p}-001", "pattern": p, "prompt": "Hello."} for p in PATTERNS],
    "gsm8k/test.jsonl": [{"question": "How much is 1 + 1?", "answer": "2 #### 2"}],
    "livecodebench/problems_v5_880.jsonl.gz": [PROGRAM],
    "questions.jsonl": [{"id": "q", "question": "How much is 1 + 1?", "target": "2"}],
}
HERE = {"aime2025": 40.8, "livecodebench": 40.8, "darkbench": 40.8, "endpoint": 0.0, "conductor_7b": 15.2}
"""GB of weights, of those whose models are named in full."""
SHORTER = {"ten_disks": ["rounds=40"], "composites": ["tasks.size=20", "~tasks.unlike"]}
"""Of presets with thousands of calls, or of questions that none of theirs may be."""


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with a question of each kind, on a machine that has no weights and may fetch none."""
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    for name in ("_from_hub", "_from_wheels"):
        monkeypatch.setattr(f"nsed_torch.engines.weights.{name}", lambda *_: pytest.fail("weights were fetched"))
    for name in ("transformers.AutoModelForCausalLM.from_pretrained", "sentence_transformers.SentenceTransformer"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("a model was loaded"))
    for file, rows in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / file).write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
    return tmp_path


@pytest.mark.parametrize("name", INSTALLED)
def test_a_dry_run_tells_calls_tokens_hours_and_memory(nsed, data, name):
    pytest.importorskip("openai")
    questions = {"evaluate": f"data_dir={data}", "train-conductor": f"questions={data}/questions.jsonl"}[
        INSTALLED[name]
    ]
    words = [questions, "limit=1", "dry_run=true", "output_dir=run", *SHORTER.get(name, ())]
    out = nsed.ok(INSTALLED[name], f"+experiment={name}", *words)
    for column in ("calls", "tokens", "hours", "US$"):
        assert column in out
    calls = re.search(r"all\W+([0-9,]+)\W+([0-9,]+)", out)
    assert int(calls[1].replace(",", "")) > 0
    assert int(calls[2].replace(",", "")) > int(calls[1].replace(",", ""))
    memory = float(re.search(r"memory: ([0-9.]+) GB of weights here", out)[1])
    encoder = 0.1 if INSTALLED[name] == "evaluate" else 0.0
    assert memory == pytest.approx(HERE.get(name, memory), abs=0.05 + encoder)
    assert memory > 0 or name == "endpoint"


def test_the_seed_papers_presets_sweep_over_the_mask(nsed, data):
    pytest.importorskip("openai")
    asked = [f"data_dir={data}", "rounds=1", "methods=[deliberation]", "dry_run=true", "output_dir=sweep"]
    out = nsed.ok("evaluate", "-m", "+experiment=aime2025", *asked)
    # Without the mask each of three judges reads a third candidate: 3 + 9 calls in place of 3 + 6.
    assert [int(n) for n in re.findall(r"deliberation\W+([0-9]+)", out)] == [9, 12]


def test_a_dry_run_of_a_training_lays_no_pool_out(nsed, data):
    pytest.importorskip("reasoning_gym")
    asked = ["conductor=experts", "tasks=experts_tuning", "tasks.size=8", "limit=4", "dry_run=true", "output_dir=run"]
    assert "memory: " in nsed.ok("train-conductor", *asked)


def test_a_dry_run_downloads_no_questions(nsed, monkeypatch):
    monkeypatch.setattr("nsed_torch.questions.sources._cached", lambda hub: False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # what would ask the Hub
    out = nsed.ok("evaluate", "+experiment=laptop", "dry_run=true", "output_dir=run")
    assert "openai/gsm8k: is not on this machine; pass data_dir=DIR. 20 questions of 80 words stand in for it" in out
    assert "deliberation" in out
