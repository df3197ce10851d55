import json
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import embed
from nsed_torch.core.encoder import Encoder
from nsed_torch.engines.backbones import load_encoder
from nsed_torch.engines.weights import Weights

WORDS = ["red apples", "blue sky", "17", "a rather longer sentence about nothing in particular", "", "é ∑"]


def test_vectors_are_unit_float32_on_the_cpu(tiny_encoder):
    vectors = tiny_encoder.embed(WORDS)
    assert vectors.shape == (len(WORDS), tiny_encoder.dim) == (6, 16)
    assert vectors.dtype == torch.float32
    assert vectors.device.type == "cpu"
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(6), atol=1e-6)
    assert tiny_encoder.embed([]).shape == (0, 16)


@settings(max_examples=10)
@given(st.permutations(WORDS), st.integers(1, 6))
def test_a_vector_does_not_depend_on_its_batch(tiny_encoder, order, count):
    batch = tiny_encoder.embed(order[:count])
    assert all(torch.equal(batch[i], tiny_encoder.embed([text])[0]) for i, text in enumerate(order[:count]))


def test_texts_that_come_twice_go_through_once(tiny_encoder, monkeypatch):
    expected = torch.cat([tiny_encoder.embed([text]) for text in ("one", "two", "one")])
    encode, asked = tiny_encoder.model.encode, []
    monkeypatch.setattr(tiny_encoder.model, "encode", lambda texts, **o: asked.extend(set(texts)) or encode(texts, **o))
    assert torch.equal(tiny_encoder.embed(["one", "two", "one"]), expected)
    assert sorted(asked) == ["one", "two"]


def test_texts_of_other_lengths_never_share_a_pass_and_those_of_one_do(tiny_encoder, monkeypatch):
    encode, passes = tiny_encoder.model.encode, []
    monkeypatch.setattr(tiny_encoder.model, "encode", lambda texts, **o: passes.append(texts) or encode(texts, **o))
    texts = [f"{word} " * count for count in (1, 9, 40) for word in "abcdef"]
    tiny_encoder.embed(texts)
    length = {text: len(tiny_encoder.model.tokenizer(text)["input_ids"]) for text in texts}
    assert [len({length[text] for text in one}) for one in passes] == [1] * len(set(length.values()))
    assert all(sum(length[text] for text in one) >= 32 for one in passes)


@settings(max_examples=10)
@given(st.permutations(WORDS), st.integers(1, 6))
def test_it_is_what_the_library_makes_of_each_text_alone_and_of_all_padded(tiny_encoder, order, count):
    vectors, options = tiny_encoder.embed(order[:count]), {"convert_to_tensor": True, "normalize_embeddings": True}
    alone = torch.stack([tiny_encoder.model.encode(text, **options) for text in order[:count]])
    padded = tiny_encoder.model.encode(order[:count], **options)
    assert (vectors - alone).abs().max() < 1e-6
    assert (vectors - padded).abs().max() < 1e-6


def test_a_text_beyond_the_window_is_cut_not_refused(tiny_encoder):
    long = tiny_encoder.embed(["word " * 500])
    assert torch.allclose(long.norm(), torch.tensor(1.0))


def test_it_is_a_frozen_module_with_an_identity(tiny_encoder):
    assert isinstance(tiny_encoder, Encoder)
    assert isinstance(tiny_encoder, torch.nn.Module)
    assert not tiny_encoder.model.training
    assert list(tiny_encoder.parameters())
    assert not any(weight.requires_grad for weight in tiny_encoder.parameters())
    identity = json.loads(json.dumps(tiny_encoder.identity()))
    assert identity["name"] == "tiny_encoder"
    assert identity["revision"]


def test_its_bench_line_embeds_the_same_both_ways(tiny_encoder, monkeypatch):
    monkeypatch.setattr(embed, "TEXTS", 20)
    (line,) = embed.compared(tiny_encoder, repeats=1)
    assert line.ratio > 0
    assert 0 <= line.facts["furthest_alone"] <= line.facts["furthest"] + 1e-6 < 2e-6


POOLED = {
    "as the library writes it": ({"embedding_dimension": 16, "pooling_mode": "mean"}, False),
    "as it wrote it before": (
        {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        False,
    ),
    "two ways side by side": ({"embedding_dimension": 16, "pooling_mode": ["cls", "mean"]}, True),
    "two ways as before": (
        {"word_embedding_dimension": 16, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        True,
    ),
}


@pytest.mark.parametrize(("pooling", "at_once"), POOLED.values(), ids=POOLED)
def test_it_is_loaded_when_a_text_is_first_embedded_if_its_files_say_how_long_vectors_are(
    encoder_folder, tmp_path, pooling, at_once
):
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    next(folder.glob("*Pooling/config.json")).write_text(json.dumps(pooling))
    encoder = load_encoder(Weights("tiny", path=str(folder)), device="cpu")
    assert bool(list(encoder.parameters())) == at_once
    assert encoder.embed(["one"]).shape == (1, encoder.dim)
    assert list(encoder.parameters())
    assert encoder.dim == encoder.model.get_embedding_dimension()


def test_files_beside_it_need_be_no_more_than_json(encoder_folder, tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    (folder / "of_the_makers.json").write_text('{"loss": NaN, "letter": "\\ud83d"}')
    (folder / "onnx").mkdir()
    (folder / "onnx/of_others.json").write_text("{")
    assert load_encoder(Weights("tiny", path=str(folder)), device="cpu").embed(["one"]).shape == (1, 16)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"{"),
        ("tokenizer.json", b'{"model": '),
        ("1_Pooling/config.json", b"["),
        ("model.safetensors", b"\xff" * 8 + b"{}"),
        ("model.safetensors", b"\x02" + b"\0" * 7),
    ],
)
def test_damaged_files_are_told_before_a_text_is_embedded(encoder_folder, tmp_path, file, content):
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder, folder)
    (folder / file).write_bytes(content)
    with pytest.raises(
        ValueError, match=r"^weights 'tiny': .* cannot be loaded \(.*\): fetch or save the model again$"
    ):
        load_encoder(Weights("tiny", path=str(folder)), device="cpu")
