"""Engines on a device and in a precision that are named: proposals, ratings, likelihoods, whole deliberations.

Models have the structure of those of 7 to 8 billion parameters, at a few kilobytes.
"""

import math

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from tiny_models import save_tiny, tiny_tokenizer

from bench.plain import PlainEngine
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding, GenerateRequest, LikelihoodRequest, Message, RateRequest, RatingScale
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.adapters import add_adapter
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.records.transcript import Task

GROUPED = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
STRUCTURES = {
    "llama3": {"family": "llama", "head_dim": 32, "rope_parameters": LLAMA3_ROPE},
    # Heads together are wider than what they read.
    "qwen3": {"family": "qwen3", "head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
}
SCALE = RatingScale(("N", "Y"), (-1.0, 1.0))
QUESTION = (Message("user", "Which is larger, 17 or 71?"),)


@pytest.fixture(scope="module", params=STRUCTURES)
def structure(request, tmp_path_factory):
    """A folder with a random model of one of the structures."""
    return save_tiny(tmp_path_factory.mktemp(request.param), tiny_tokenizer(), **GROUPED, **STRUCTURES[request.param])


def deliberated(engine, adapters):
    """Two rounds of two agents, every part of which is there."""
    decoding = Decoding(max_new_tokens=8)
    agents = [Agent(f"a{i}", "tiny", decoding=decoding, adapter=adapter) for i, adapter in enumerate(adapters)]
    encoder = HashedEncoder()
    cell = MacroRNNCell(Ensemble({"tiny": engine}, agents), encoder, ConsensusCell(encoder.dim, 2).double())
    with torch.no_grad():
        (transcript,) = MacroRNN(cell, halting=FixedHalting(2))([Task(QUESTION[0].content)]).transcripts
    assert len(transcript.rounds) == 2
    for record in transcript.rounds:
        assert all(proposal.usage.completion_tokens for proposal in record.proposals)
        assert math.isclose(sum(record.consensus), 1, abs_tol=1e-6)
        # Random weights may end an answer at once: an empty one is masked.
        ratings = [record.ratings[i][1 - i] for i in range(2) if record.proposals[1 - i].text]
        assert ratings
        assert all(-1 <= rating <= 1 for rating in ratings)


def asked(engine, adapters):
    """What agents say, rate and find likely."""
    decoding = Decoding(max_new_tokens=4, temperature=0.0)
    written = engine.generate([GenerateRequest("a", QUESTION, decoding, seed=1, adapter=name) for name in adapters])
    rated = engine.rate([RateRequest("a", QUESTION, ("17", "71"), SCALE, adapter=name) for name in adapters])
    measured = engine.measure([LikelihoodRequest("a", QUESTION, ("17", "71"), adapter=name) for name in adapters])
    return [a.completion_tokens for a in written], [r.values for r in rated], [m.values for m in measured]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_large_structures_deliberate_where_and_as_exactly_as_asked(structure, dtype, quantization):
    weights = Weights("tiny", path=str(structure))
    engine = load_backbone(weights, device="cpu", dtype=dtype, quantization=quantization)
    layer = engine.model.model.layers[0].self_attn.q_proj
    assert type(layer).__name__ == {"none": "Linear", "nf4": "Linear4bit", "int8": "Linear8bitLt"}[quantization]
    assert engine.model.model.embed_tokens.weight.dtype == getattr(torch, dtype)
    assert engine.model.lm_head.weight is not engine.model.model.embed_tokens.weight
    assert {p.device.type for p in engine.parameters()} == {"cpu"}
    identity = engine.identity(None)
    assert (identity["device"], identity["dtype"], identity["quantization"]) == ("cpu", dtype, quantization)

    add_adapter(engine, "one")
    ours = asked(engine, (None, "one"))
    for of_bare, of_adapter in ours:
        assert of_bare == pytest.approx(of_adapter, abs=1e-6)  # a fresh adapter changes nothing
    if quantization == "none" and dtype == "float32":
        for mine, plain in zip(ours[1:], asked(PlainEngine(engine), (None, "one"))[1:], strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)  # transformers' own attention and positions
    deliberated(engine, (None, "one"))


@pytest.mark.weights
@pytest.mark.parametrize(("dtype", "quantization"), [("float32", "nf4"), ("bfloat16", "none")])
def test_the_packaged_model_does_as_well(dtype, quantization):
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        node = compose("backbone/smollm2_135m_instruct").backbone
    engine = instantiate({**node, "device": "cpu", "dtype": dtype, "quantization": quantization})
    identity = engine.identity(None)
    assert (identity["device"], identity["dtype"], identity["quantization"]) == ("cpu", dtype, quantization)
    written, rated, measured = asked(engine, (None, None))
    assert written[0] == written[1] > 0
    assert rated[0] == rated[1]
    assert measured[0] == measured[1]
    deliberated(engine, (None, None))
