"""Weights, adapters, templates and kept embeddings that are damaged or foreign: told in one line, never used."""

import json
import os
import re
import shutil
import time
from importlib.metadata import version

import pytest
import safetensors.torch
import torch
from tiny_models import CHAT, save_tiny, tiny_tokenizer

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Message, RateRequest, RatingScale
from nsed_torch.engines import weights as weights_module
from nsed_torch.engines.adapters import add_adapter, copy_adapter, save_adapter
from nsed_torch.engines.backbones import load_backbone, load_encoder
from nsed_torch.engines.chat import Chat
from nsed_torch.engines.weights import Weights, resolve
from nsed_torch.records import rendering as templates
from nsed_torch.records.call_log import CallLog
from nsed_torch.traces.featured import CachedEncoder

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder of a tiny model with an adapter in `judge`."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    save_tiny(folder / "model", tokenizer, max_position_embeddings=256, tie_word_embeddings=False)
    add_adapter(engine := load(folder / "model"), "judge", rank=2)
    save_adapter(engine, "judge", folder / "judge")
    return folder


@pytest.fixture
def own(tiny, tmp_path):
    """A copy of it that a test may spoil."""
    return shutil.copytree(tiny, tmp_path / "own")


def load(folder, **options):
    return load_backbone(Weights(name="tiny", path=str(folder)), dtype="float32", device="cpu", **options)


def one_line(call, expected):
    with pytest.raises(ValueError, match=expected) as caught:
        call()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


# --- the call log answers for these weights alone -------------------------------------------------------------------


def test_weights_set_to_zero_are_other_weights(tmp_path):
    """Spread over a file of which samples would see next to nothing."""
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    file = folder / "model.safetensors"
    safetensors.torch.save_file({"a": torch.ones(2 << 20)}, file)
    weights = Weights("big", path=str(folder))
    before = resolve(weights).revision
    data = bytearray(file.read_bytes())
    size = len(data)
    step = size // 64
    for start in range(0, size, step):  # between the blocks of 16 KiB that were once read
        data[start + (1 << 15) : start + (1 << 15) + 4096] = bytes(4096)
    file.write_bytes(data)
    assert resolve(weights).revision != before


def test_a_sum_is_kept_for_an_untouched_file_and_no_other(tmp_path, cache, monkeypatch):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    file = folder / "model.safetensors"
    file.write_bytes(bytes(2 << 20))
    weights, old = Weights("big", path=str(folder)), time.time_ns() - 10**10
    os.utime(file, ns=(old, old))
    before = resolve(weights).revision
    (kept,) = (cache / "sums").iterdir()
    hashed, digest = [], weights_module.hashlib.file_digest
    monkeypatch.setattr(
        weights_module.hashlib, "file_digest", lambda opened, kind: hashed.append(opened.name) or digest(opened, kind)
    )
    assert resolve(weights).revision == before
    assert str(file) not in hashed
    kept.write_text("no sum")
    assert resolve(weights).revision == before
    assert str(file) in hashed
    file.write_bytes(b"\1" + bytes((2 << 20) - 1))  # same size, inode, and by its own word the same time
    os.utime(file, ns=(old, old))
    assert resolve(weights).revision != before


def test_other_versions_of_what_computes_make_other_calls(tiny, monkeypatch):
    before = load(tiny / "model").identity(None)
    for package in ("torch", "transformers", "tokenizers", "bitsandbytes", "peft"):
        assert before[package] == version(package)


def test_a_run_on_other_weights_asks_again(own):
    request = RateRequest("a", (Message("user", "Rate it: "),), ("x",), RatingScale(("a", "b"), (-1, 1)))
    log, file = CallLog(None), own / "model" / "model.safetensors"

    def rate():
        ensemble = Ensemble({"one": load(own / "model")}, [Agent("a", "one"), Agent("b", "one")], call_log=log)
        ensemble.rate([request])
        return len(log)

    assert (rate(), rate()) == (1, 1)
    zeros = {name: torch.zeros_like(value) for name, value in safetensors.torch.load_file(file).items()}
    safetensors.torch.save_file(zeros, file, {"format": "pt"})
    assert rate() == 2


# --- damaged and foreign files --------------------------------------------------------------------------------------


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def without_one(path):
    values = safetensors.torch.load_file(path)
    values.pop(next(name for name in values if "q_proj" in name))
    safetensors.torch.save_file(values, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("file", "spoil", "expected"),
    [
        ("model.safetensors", cut, "cannot be loaded"),
        ("model.safetensors", lambda p: p.write_bytes(b"\xff" * 8 + b"{}"), "cannot be loaded"),
        ("model.safetensors", without_one, "cannot be loaded .*are missing"),
        ("config.json", lambda p: p.write_text("[1]"), "cannot be loaded"),
        ("config.json", lambda p: p.write_text("{"), "cannot be loaded"),
        ("tokenizer.json", lambda p: p.write_text('{"model": \x1b[31m'), "cannot be loaded"),
    ],
)
def test_a_damaged_model_is_one_line(own, file, spoil, expected):
    spoil(own / "model" / file)
    one_line(lambda: load(own / "model"), rf"^weights 'tiny': {re.escape(str(own))}/model {expected}")


@pytest.mark.parametrize("index", ["[]", '{"weight_map": ["model.safetensors"]}', "{", '{"weight_map": null}'])
def test_a_hostile_index_of_shards_is_one_line(own, index):
    (own / "model" / "model.safetensors.index.json").write_text(index)
    one_line(lambda: load(own / "model"), r"model\.safetensors\.index\.json: ")


def test_a_damaged_encoder_is_one_line(tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "modules.json").write_text("[")
    (folder / "model.safetensors").write_bytes(b"")
    one_line(lambda: load_encoder(Weights("e", path=str(folder)), device="cpu"), r"^weights 'e': .* cannot be loaded")


def narrowed(path):
    values = safetensors.torch.load_file(path)
    safetensors.torch.save_file({k: v[:, :1].contiguous() for k, v in values.items()}, path)


def config(value):
    return lambda path: path.write_text(json.dumps(value))


LORA = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}


@pytest.mark.parametrize(
    ("file", "spoil", "expected"),
    [
        (WEIGHTS, cut, "adapter_model.safetensors is damaged"),
        (WEIGHTS, lambda p: p.write_bytes(b"PK"), "adapter_model.safetensors is damaged"),
        (WEIGHTS, narrowed, "expected one of this model in|expected an adapter of this model in"),
        (WEIGHTS, without_one, "expected one of this model in .*missing"),
        (CONFIG, config([1]), "expected a LoRA adapter's adapter_config.json"),
        (CONFIG, config({}), "expected a LoRA adapter's adapter_config.json"),
        (CONFIG, config(LORA | {"r": "2"}), "expected a LoRA adapter's adapter_config.json"),
        (CONFIG, config(LORA | {"target_modules": None}), "expected a LoRA adapter's adapter_config.json"),
        (CONFIG, config(LORA | {"peft_type": "PREFIX_TUNING"}), "expected a LoRA adapter's adapter_config.json"),
        (CONFIG, lambda p: p.write_text("{" * 100_000), "not valid JSON"),
        (CONFIG, lambda p: p.unlink(), "there is no such file"),
    ],
)
def test_a_damaged_or_foreign_adapter_is_one_line(own, file, spoil, expected):
    spoil(own / "judge" / file)
    one_line(lambda: load(own / "model", adapters={"judge": str(own / "judge")}), expected)
    if spoil is not without_one:
        one_line(lambda: copy_adapter(load(own / "model"), "pupil", str(own / "judge")), expected)


# --- chat templates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ messages[0].content.__class__.__mro__ }}", "SecurityError|expected one that shows"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ raise_exception('never \x1b[31m') }}", "TemplateError: never"),
        ("{{ messages.nothing.at_all }}", "UndefinedError"),
        ("{% for i in range(10**9) %}{% endfor %}", "OverflowError"),
        ("Hello.", "expected one that shows what users say"),
    ],
)
def test_a_broken_template_is_one_line_where_it_is_loaded(template, expected):
    tokenizer = tiny_tokenizer(special=("<|im_end|>",))
    with pytest.raises(ValueError, match=rf"^chat template: .*({expected})") as caught:
        Chat(tokenizer, template)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_template_that_would_not_end_is_one_line(monkeypatch):
    monkeypatch.setattr(templates, "PATIENCE", 0.3)
    # Ends by itself after some minutes even where nothing stops it; real ones would go on for hours.
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ValueError, match=r"^chat template: did not end within 0\.3 s: correct it"):
        Chat(tiny_tokenizer(special=("<|im_end|>",)), endless)
    chat = Chat(
        tiny_tokenizer(special=("<|im_end|>",)), CHAT + "{% if messages|length > 3 %}" + endless + "{% endif %}"
    )
    with pytest.raises(ValueError, match=r"^chat template: did not end within 0\.3 s: correct it"):
        chat.text([Message("user", str(i)) for i in range(4)])


def test_a_template_that_fails_later_is_one_line_too():
    chat = Chat(tiny_tokenizer(special=("<|im_end|>",)), CHAT + "{{ 1 // (4 - messages|length) }}")
    with pytest.raises(ValueError, match=r"^chat template: ZeroDivisionError"):
        chat.text([Message("user", str(i)) for i in range(4)])


def test_several_templates_are_none_that_was_chosen():
    tokenizer = tiny_tokenizer({"default": CHAT, "tools": CHAT}, special=("<|im_end|>",))
    with pytest.raises(ValueError, match=r"^expected a chat template, the tokenizer has several: set"):
        Chat(tokenizer)


# --- kept embeddings ------------------------------------------------------------------------------------------------


def nan(values):
    return {**values, "features": torch.full_like(values["features"], torch.nan)}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: {**values, "features": values["features"] * 2},
        lambda values: {**values, "features": values["features"][:, :3].contiguous()},
        lambda values: {"features": values["features"]},
        nan,
        lambda values: nan(values) | {"sum": torch.zeros(32, dtype=torch.uint8)},
        lambda values: {},
    ],
)
def test_broken_embeddings_are_made_anew(cache, spoil):
    encoder = CachedEncoder(HashedEncoder(8))
    whole = encoder.embed(["one", "two"])
    (file,) = (cache / "features").iterdir()
    bytes_before = file.read_bytes()
    safetensors.torch.save_file(spoil(safetensors.torch.load(bytes_before)), file)
    assert torch.equal(encoder.embed(["one", "two"]), whole)
    assert file.read_bytes() == bytes_before
    file.write_bytes(bytes_before[:-7])
    assert torch.equal(encoder.embed(["one", "two"]), whole)


def test_embeddings_that_are_no_numbers_do_not_stay(cache):
    """Their sum may be right, where the encoder once overflowed."""
    inner = HashedEncoder(8)
    encoder, sound = CachedEncoder(inner), inner.embed
    inner.embed = lambda texts: torch.full((len(texts), 8), torch.nan)
    encoder.embed(["one"])
    inner.embed = sound
    assert torch.equal(encoder.embed(["one"]), sound(["one"]))
