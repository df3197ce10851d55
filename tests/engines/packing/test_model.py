"""Families of models: packed logits against one full forward pass a sequence, without cache, in eager attention."""

from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.packing.slots import Slots

LAYERS = ["sliding_attention", "full_attention"]
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": 4},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 9.0},
    "gemma3_text": {"head_dim": 8, "sliding_window": 4, "layer_types": LAYERS},
    "phi3": {"sliding_window": 5},
    "granite": {"attention_multiplier": 0.2, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "smollm3": {"no_rope_layers": [1, 0]},
    "olmo2": {},
    "starcoder2": {"sliding_window": 4},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "qwen3_moe": {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "afmoe": {"sliding_window": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
BEGINNING = [7, 8, 9, 10, 11, 12]
SEQUENCES = [[*BEGINNING, 5], [*BEGINNING, 6, 7, 8], [*BEGINNING[:4], 50, 51], [9, 8], BEGINNING]


@torch.no_grad()
def plain(model, sequences):
    return torch.stack([model(input_ids=torch.tensor([s]), use_cache=False).logits[0, -1] for s in sequences])


@pytest.mark.parametrize("family", FAMILIES)
def test_reading_and_writing_equal_full_passes(grow, family):
    reference = grow(family, **FAMILIES[family])
    packed = PackedModel(grow(family, attention=None, **FAMILIES[family]), 8)
    packed.model.load_state_dict(reference.state_dict())
    sequences, slots = SEQUENCES, Slots(len(SEQUENCES))
    with torch.no_grad(), packed.opened() as model:
        for _ in range(2):  # the second time from what was kept
            got = model.read(sequences, slots, range(len(sequences)))
            assert_close(got, plain(reference, sequences), atol=1e-4, rtol=1e-4)
        for token in (3, 4, 3):
            positions = [len(s) for s in sequences]
            sequences = [[*s, token + i] for i, s in enumerate(sequences)]
            got = model.step([s[-1:] for s in sequences], positions, slots)
            assert_close(got, plain(reference, sequences), atol=1e-4, rtol=1e-4)
    assert_close(plain(packed.model, SEQUENCES), plain(reference, SEQUENCES), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma2", "mistral", "gpt2"])
@pytest.mark.parametrize("places", [0, 8, 100])
def test_tokens_within_sequences_have_the_logits_of_full_passes(grow, family, places):
    reference = grow(family, **FAMILIES[family])
    packed = PackedModel(grow(family, attention=None, **FAMILIES[family]), places)
    packed.model.load_state_dict(reference.state_dict())
    starts = [5, 2, 0, 1, 5]
    with torch.no_grad(), packed.opened() as model:
        for _ in range(3):
            logits, rows = model.follow(SEQUENCES, starts)
            assert places or len(logits) == 13  # for 17 tokens, some of which sequences share
            for sequence, start, own in zip(SEQUENCES, starts, rows, strict=True):
                expected = reference(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, start:]
                assert_close(logits[own], expected, atol=1e-4, rtol=1e-4)
            assert_close(model.read(SEQUENCES), plain(reference, SEQUENCES), atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def exact(grow):
    """A model in float64, and what keeps a few of its prefixes."""
    model = grow(attention="sdpa").double()
    return model, PackedModel(model, 10)


@settings(max_examples=12)
@given(
    st.lists(
        st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=7), min_size=1, max_size=4), min_size=1, max_size=4
    )
)
def test_logits_do_not_depend_on_what_was_read_before(exact, series):
    model, packed = exact
    for sequences in series:
        with torch.no_grad(), packed.opened() as opened:
            got = opened.read(sequences)
        assert_close(got, plain(model, sequences), atol=1e-5, rtol=1e-5)


REFUSED = {
    "mamba": ({"state_size": 4}, "MambaForCausalLM has linear_attention"),
    "lfm2": ({"layer_types": ["conv", "full_attention"]}, "Lfm2ForCausalLM has conv"),
    "bloom": ({"n_head": 4}, "BloomForCausalLM has an attention of its own"),
    "nemotron": ({}, "NemotronAttention has an attention of its own"),
    "gpt_oss": ({"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}, "GptOssAttention has s_aux"),
    "doge": ({}, "DogeAttention has another mask"),
    "bert": ({}, "BertSelfAttention has what comes later"),
    "diffllama": ({}, "DiffLlamaForCausalLM has other layers beside its attention in [0, 0, 1, 1]"),
}


@pytest.mark.parametrize("family", REFUSED)
def test_layers_that_are_no_plain_attention_are_refused(grow, fails, family):
    options, found = REFUSED[family]
    model = grow(family, **options)
    implementation = model.config._attn_implementation
    with fails(f"expected a model of full or sliding attention layers, {found}: choose another model"):
        PackedModel(model, 0)
    assert model.config._attn_implementation == implementation
    assert not any("forward" in vars(module) for module in model.modules())


def test_the_model_is_as_before_when_the_last_user_is_done(grow):
    packed = PackedModel(grow(), 8)
    expected = plain(packed.model, SEQUENCES)
    with torch.no_grad():
        first, second = ExitStack(), ExitStack()
        opened = first.enter_context(packed.opened())
        assert second.enter_context(packed.opened()) is opened
        first.close()
        assert_close(opened.read(SEQUENCES), expected, atol=1e-4, rtol=1e-4)
        second.close()
    assert packed.model.config._attn_implementation == "eager"
    assert not any("forward" in vars(module) for module in packed.model.modules())
    assert_close(plain(packed.model, SEQUENCES), expected, rtol=0, atol=0)


def test_a_pass_that_fails_leaves_nothing_half_kept(grow):
    packed = PackedModel(grow(), 50)
    broken = packed.model.model.layers[0].register_forward_hook(lambda *_: 1 / 0)
    with torch.no_grad(), pytest.raises(ZeroDivisionError), packed.opened() as model:
        model.read(SEQUENCES)
    broken.remove()
    assert packed.model.config._attn_implementation == "eager"
    with torch.no_grad(), packed.opened() as model:
        assert_close(model.read(SEQUENCES), plain(grow(), SEQUENCES), atol=1e-4, rtol=1e-4)


def test_gradients_are_those_of_full_passes(grow):
    model = grow(attention="sdpa").double()
    packed = PackedModel(model, 50)
    weights = [p for p in model.parameters() if p.requires_grad]
    direction = torch.randn(5, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), packed.opened() as opened:
        opened.read(SEQUENCES)
    with packed.opened() as opened:
        loss = (opened.read(SEQUENCES) * direction).sum()
    expected = torch.stack([model(input_ids=torch.tensor([s]), use_cache=False).logits[0, -1] for s in SEQUENCES])
    slopes = torch.autograd.grad((expected * direction).sum(), weights)
    for got, slope in zip(torch.autograd.grad(loss, weights), slopes, strict=True):
        assert_close(got, slope, atol=1e-4, rtol=1e-4)
