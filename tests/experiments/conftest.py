"""A tiny language model on disk, and the command line in this process."""

import json
from types import SimpleNamespace

import pytest
import torch

from nsed_torch.cli import main
from nsed_torch.records import read_json

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A folder with a random Llama of two layers that knows ASCII; Yes and No are one token each."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = [*map(chr, range(33, 127)), "Ġ", "Ċ", "Ye", "Yes", "No"]  # Ġ and Ċ: how byte level writes blank and break
    merges = [("Y", "e"), ("Ye", "s"), ("N", "o")]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", bos_token="<|im_start|>")
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            bos_token_id=fast.bos_token_id,
            eos_token_id=fast.eos_token_id,
        )
    )
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture
def nsed(tiny_model, tmp_path, monkeypatch, capfd):
    """The command line: `nsed.ok(...)` returns what it printed, `nsed.fault(...)` its one line of complaint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    tiny = [
        "encoder=hashed",
        f"ensemble.engines.smollm2.weights.path={tiny_model}",
        "ensemble.engines.smollm2.quantization=none",
        *(f"ensemble.agents.{name}.decoding.max_new_tokens=8" for name in ("solver", "skeptic", "explainer")),
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
        out = ok("deliberate", *tiny, f"output_dir={folder}", *arguments)
        return out, read_json(tmp_path / folder / "transcript.json")

    return SimpleNamespace(ok=ok, fault=fault, deliberate=deliberate, tiny=tiny, folder=tmp_path)


@pytest.fixture
def rows():
    """Everything a call log holds."""
    import sqlite3
    from contextlib import closing

    def read(path):
        with closing(sqlite3.connect(path)) as database:
            return {key: json.loads(value) for key, value in database.execute("SELECT key, value FROM calls")}

    return read
