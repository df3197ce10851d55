"""A tiny language model on disk, and the command line in this process."""

import json
from types import SimpleNamespace

import pytest
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.app.cli import main
from nsed_torch.records.files import read_json


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A folder with a random Llama of two layers that knows ASCII; Yes and No are one token each."""
    words = [*map(chr, range(33, 127)), "Ġ", "Ċ", "Ye", "Yes", "No"]  # Ġ and Ċ: how byte level writes blank and break
    merges = [("Y", "e"), ("Ye", "s"), ("N", "o")]
    tokenizer = tiny_tokenizer(words=words, merges=merges, bos_token="<|im_start|>")
    bos = tokenizer.bos_token_id
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=8192, bos_token_id=bos)


@pytest.fixture
def plots():
    """Asked for by tests of `nsed evaluate` that look at its plots; a run without them takes a second less."""


@pytest.fixture
def nsed(tiny_model, tmp_path, monkeypatch, capfd, request):
    """The command line: `nsed.ok(...)` returns what it printed, `nsed.fault(...)` its one line of complaint."""
    monkeypatch.chdir(tmp_path)
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("nsed_torch.app.verbs.evaluate.draw_plots", lambda *_: None)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    tiny = [
        "ensemble=demo",
        "encoder=hashed",
        f"ensemble.engines.smollm2.weights.path={tiny_model}",
        "ensemble.engines.smollm2.quantization=none",
        *(f"ensemble.agents.{name}.decoding.max_new_tokens=4" for name in ("solver", "skeptic", "explainer")),
    ]

    def run(arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    def ok(*arguments):
        code, out, err = run(arguments)
        assert (code, err) == (0, ""), err
        return out

    def fault(*arguments):
        code, _, err = run(arguments)
        assert code == 2
        assert err.startswith(f"nsed {arguments[0]}: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err.removeprefix(f"nsed {arguments[0]}: ").rstrip("\n")

    def deliberate(*arguments, folder="run"):
        published = "rating=verdict", "rounds=3", "prompts.style=short"
        out = ok("deliberate", *tiny, *published, f"output_dir={folder}", *arguments)
        return out, read_json(tmp_path / folder / "transcript.json")

    return SimpleNamespace(ok=ok, fault=fault, deliberate=deliberate, tiny=tiny, folder=tmp_path)


@pytest.fixture
def rows():
    """Everything a call log holds."""
    import sqlite3
    from contextlib import closing

    def read(path):
        with closing(sqlite3.connect(path)) as database:
            return {key: json.loads(value[16:]) for key, value in database.execute("SELECT key, value FROM calls")}

    return read
