"""The script that a newcomer writes, word for word, on two tiny models: `first_script.py` beside this file."""

import json
import runpy
from functools import partial
from pathlib import Path

import pytest
from tiny_models import tiny_model, tiny_tokenizer

from nsed_torch import Decoding
from nsed_torch.tuning.trainer import Schedule

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests/first_script.py"


def a_model(family, **options):
    """A tiny model, and a tokenizer with a token for each common word of our prompts, as a real one has."""
    from tokenizers import trainers

    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    prompts = [path.read_text() for path in (ROOT / "nsed_torch/core/templates").glob("*.jinja")]
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        initial_alphabet=list(tokenizer.backend_tokenizer.get_vocab()),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.backend_tokenizer.train_from_iterator(prompts * 2, trainer)
    return tiny_model(len(tokenizer), family, eos_token_id=tokenizer.eos_token_id, **options), tokenizer


def test_it_runs_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"q{i}", "question": f"What is {i} + {i + 3}?", "target": str(2 * i + 3)} for i in range(8)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (qwen, tok), (llama, tok2) = a_model("qwen3", head_dim=8), a_model("llama")
    models = {"qwen": qwen, "tok": tok, "llama": llama, "tok2": tok2}
    # Random models never end an answer, and there is nothing to learn of them.
    monkeypatch.setattr("nsed_torch.core.rnn.Decoding", lambda most, *others: Decoding(min(most, 4), *others))
    monkeypatch.setattr("nsed_torch.tuning.fitting.Schedule", partial(Schedule, epochs=1))
    runpy.run_path(str(SCRIPT), init_globals=models)
    said = capsys.readouterr().out
    for word in ("fitted", "no gate", "not fitted", "deliberation", "single:ada", "best_single", "plurality"):
        assert word in said
    assert (tmp_path / "runs/mine/model.safetensors").is_file()
    traces = (tmp_path / "runs/traces/traces.jsonl").read_bytes()
    # The same once more asks nobody: every call of the collection is in its folder.
    monkeypatch.setattr(
        "nsed_torch.engines.transformers_engine.TransformersEngine.generate", lambda *_: pytest.fail("asked")
    )
    from nsed_torch import MacroRNN, collect, tasks

    team = MacroRNN.from_models({"ada": (qwen, tok), "bo": (llama, tok2), "cy": (qwen, tok)}, rounds=3)
    collect(team, tasks("questions.jsonl").split(0.8, seed=0)[0], "runs/traces")
    assert (tmp_path / "runs/traces/traces.jsonl").read_bytes() == traces


def test_it_fits_on_a_screen():
    assert sum(bool(line.strip()) for line in SCRIPT.read_text().splitlines()) <= 20
