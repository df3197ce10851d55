"""Code that comes with weights and encoders never runs."""

import json

import pytest
import torch
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch import load_backbone, load_encoder
from nsed_torch.engines.weights import Weights


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def weights(tmp_path):
    """A folder of weights with code in it, and what shows that the code ran."""
    folder, marker = (
        save_tiny(tmp_path / "weights", tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))),
        tmp_path / "ran",
    )
    (folder / "strange.py").write_text(
        f"import os\nos.makedirs({str(marker)!r}, exist_ok=True)\n"
        "from torch import nn\n"
        "from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast\n"
        "class Config(LlamaConfig): model_type = 'strange'\n"
        "class Model(LlamaForCausalLM): config_class = Config\n"
        "class Tokenizer(PreTrainedTokenizerFast): pass\n"
        "class Module(nn.Module): pass\n"
    )
    return folder, marker


def load(folder, loader=load_backbone):
    """Load as far as that goes without code."""
    try:
        loader(Weights("strange", path=str(folder)), device="cpu")
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def test_code_of_a_model_is_not_run(weights):
    folder, marker = weights
    classes = {"AutoConfig": "strange.Config", "AutoModelForCausalLM": "strange.Model"}
    edit(folder / "config.json", auto_map=classes, model_type="strange")
    assert load(folder)
    assert not marker.exists()


def test_code_of_a_tokenizer_is_not_run(weights):
    folder, marker = weights
    classes = {"AutoTokenizer": [None, "strange.Tokenizer"]}
    edit(folder / "tokenizer_config.json", auto_map=classes, tokenizer_class="Tokenizer")
    load(folder)
    assert not marker.exists()


def test_code_of_an_encoder_is_not_run(weights):
    folder, marker = weights
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "strange.Module"}]))
    assert "modules.json: expected modules of sentence_transformers, got strange.Module" in load(folder, load_encoder)
    assert not marker.exists()


def test_code_of_an_encoders_model_is_not_run(weights):
    folder, marker = weights
    edit(
        folder / "config.json",
        auto_map={"AutoConfig": "strange.Config", "AutoModel": "strange.Model"},
        model_type="strange",
    )
    load(folder, load_encoder)
    assert not marker.exists()


@pytest.mark.parametrize("loader", [load_backbone, load_encoder])
def test_pickled_weights_are_not_read(weights, loader):
    folder, _ = weights
    torch.save(dict.fromkeys(("a", "b"), torch.zeros(2)), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "safetensors" in load(folder, loader)
