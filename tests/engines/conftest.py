"""A language model and an encoder small enough to check every number twice, saved and loaded like real ones."""

import os
import re
import shutil
import subprocess
import warnings
from contextlib import contextmanager

import pytest
import torch
from endpoint_server import endpoint
from packaged_weights import model_folder, write_wheel
from recording_team import AGENTS, Recording
from tiny_models import CHAT, save_tiny_encoder, tiny_model, tiny_tokenizer

from nsed_torch.core.agent import Ensemble
from nsed_torch.core.engine import Decoding, GenerateRequest, Message, RateRequest
from nsed_torch.engines.backbones import load_backbone, load_encoder
from nsed_torch.engines.weights import PackagedWeights, Weights

WINDOW = 512
RUN = subprocess.run


@contextmanager
def peft_behind_transformers():
    """Let peft ask transformers for a property that has a new name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def byte_tokenizer(template=CHAT):
    """One token a byte, and four more."""
    from tokenizers import AddedToken

    control = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer = tiny_tokenizer(template, special=control, bos_token="<|endoftext|>")
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


def write_tiny(folder, family="llama"):
    """A random model whose logits are far enough from each other to be told apart in float32."""
    tokenizer = byte_tokenizer()
    shape = {"max_position_embeddings": WINDOW, "initializer_range": 0.3, "tie_word_embeddings": False}
    if family == "gemma3":
        family = "gemma3_text"
        shape |= {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = tiny_model(len(tokenizer), family, **shape, **ends)
    # What authors may put beside their weights: more stop tokens, so that rows end early, and a repetition penalty,
    # which would count padding.
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(240, 256)]
    model.generation_config.repetition_penalty = 1.5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_adapter(model_folder, folder, seed, **options):
    """A LoRA adapter that changes what the model says."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_folder)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", **options)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        with peft_behind_transformers():
            wrapped = get_peft_model(model, config)
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.5)
    wrapped.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="session")
def make_tokenizer():
    """Builds a tokenizer with another chat template, or without."""
    return byte_tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def adapter_folders(tiny_folder, tmp_path_factory):
    parent = tmp_path_factory.mktemp("adapters")
    return {name: str(save_adapter(tiny_folder, parent / name, seed)) for seed, name in enumerate(("poet", "critic"))}


@pytest.fixture(scope="session")
def keep_adapter():
    """Saves an adapter of a model's in a folder, with any of peft's options."""
    return save_adapter


@pytest.fixture(scope="session")
def save_tiny():
    """Saves a tiny model of a family in a folder and loads it."""

    def save(folder, family):
        write_tiny(folder, family)
        return load_backbone(Weights(name=family, path=str(folder)), dtype="float32", device="cpu")

    return save


@pytest.fixture(scope="session")
def load_tiny(tiny_folder):
    """Builds another engine on the tiny weights."""

    def load(**options):
        options = {"dtype": "float32", "device": "cpu", **options}
        with peft_behind_transformers():
            return load_backbone(Weights(name="tiny", path=str(tiny_folder)), **options)

    return load


@pytest.fixture(scope="session")
def tiny(load_tiny, adapter_folders):
    """The tiny model with two adapters. Shared: leave it as it is."""
    return load_tiny(adapters=adapter_folders)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    return save_tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def tiny_encoder(encoder_folder):
    return load_encoder(Weights(name="tiny_encoder", path=str(encoder_folder)), device="cpu")


@pytest.fixture(scope="session")
def fails():
    """Expects an error of exactly this text."""
    return lambda text, error=ValueError: pytest.raises(error, match=f"^{re.escape(text)}$")


@pytest.fixture(scope="session")
def ask():
    """Builds a request to write."""

    def build(text="Why?", agent="a", seed=0, adapter=None, system=None, template="", **decoding):
        messages = ((Message("system", system),) if system else ()) + (Message("user", text),)
        return GenerateRequest(agent, messages, Decoding(**{"max_new_tokens": 12, **decoding}), seed, adapter, template)

    return build


@pytest.fixture(scope="session")
def judge():
    """Builds a request to rate."""

    def build(candidates, text="Rate.", agent="a", **rest):
        return RateRequest(agent, (Message("system", "Be fair."), Message("user", text)), tuple(candidates), **rest)

    return build


@pytest.fixture
def engines():
    return {"one": Recording("one", max_batch=2), "two": Recording("two", max_batch=3)}


@pytest.fixture
def ensemble(engines):
    return Ensemble(engines, AGENTS)


@pytest.fixture
def server(monkeypatch):
    """An endpoint that echoes until told otherwise."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with endpoint() as served:
        yield served


@pytest.fixture
def closed_world(tmp_path, monkeypatch):
    """An empty Hugging Face cache, no Hub, a package index of one folder, a cache of our own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def quick_pip(tmp_path, monkeypatch):
    """Copy from the index in place of the call to pip, which takes a second; two tests ask for the real one."""

    def run(command, **options):
        if command[1:4] != ["-m", "pip", "download"]:
            return RUN(command, **options)
        name, _, version = command[-1].partition("==")
        wheel = tmp_path / "index" / f"{name}-{version}-py3-none-any.whl"
        shutil.copy(wheel, command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.fixture
def real_pip(quick_pip, monkeypatch):
    monkeypatch.setattr(subprocess, "run", RUN)


@pytest.fixture
def packaged(tmp_path):
    files = {f"tiny/model/{f.name}": f.read_bytes() for f in model_folder(tmp_path / "source").iterdir()}
    files |= {"tiny/__init__.py": b"raise SystemExit", "tiny/model/pytorch_model.bin": b"pickle"}
    return PackagedWeights([write_wheel(tmp_path / "index", "tiny", files)], ["tiny/model"])
