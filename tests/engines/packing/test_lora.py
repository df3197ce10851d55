"""Adapters of many tokens at once against peft, which reads one sequence with one adapter at a time."""

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.engines.packing.forest import READER, plant
from nsed_torch.engines.packing.model import PackedModel

SEQUENCES = [[7, 8, 9], [7, 8, 10, 11], [7, 8, 9], [12], [7, 8, 9], [13], [7, 8]]
ADAPTERS = ["small", "large", None, "small", "root", None, "head"]
CONFIGS = {
    "small": {"r": 2, "target_modules": ["q_proj", "v_proj"]},
    "large": {"r": 5, "lora_alpha": 3, "target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 3}},
    "root": {"r": 4, "lora_alpha": 8, "use_rslora": True, "target_modules": ["o_proj"]},
    "head": {"r": 3, "target_modules": ["lm_head", "gate_proj"]},
}
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def adapt(model, configs=CONFIGS):
    """Add adapters, each of which says something."""
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, options in configs.items():
            config = LoraConfig(task_type="CAUSAL_LM", **options)
            if hasattr(model, "peft_config"):
                model.add_adapter(name, config)
            else:
                model = get_peft_model(model, config, adapter_name=name)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.3)
    return model.eval()


def by_peft(model, sequences=SEQUENCES, adapters=ADAPTERS):
    pairs = zip(sequences, adapters, strict=True)
    return torch.stack(
        [
            model(input_ids=torch.tensor([tokens]), adapter_names=[name or "__base__"], use_cache=False).logits[0, -1]
            for tokens, name in pairs
        ]
    )


def read(packed, sequences=SEQUENCES, adapters=ADAPTERS):
    with packed.opened() as model:
        return model.read([model.readings(*one) for one in zip(sequences, adapters, strict=True)])


@pytest.fixture
def model(grow):
    return adapt(grow(tie_word_embeddings=False).double())


def test_mixed_adapters_say_what_peft_says_one_by_one(model):
    packed = PackedModel(model, 20)
    with torch.no_grad():
        expected = by_peft(model)
        for _ in range(2):
            assert_close(read(packed).double(), expected, atol=1e-5, rtol=1e-5)
        assert_close(read(packed, SEQUENCES[::-1], ADAPTERS[::-1]).double(), expected.flip(0), atol=1e-5, rtol=1e-5)
        assert torch.pdist(expected[[0, 2, 4]]).min() > 0.1  # the same tokens, other adapters
        assert_close(by_peft(model), expected, rtol=0, atol=0)


def test_adapters_in_float32_on_a_backbone_in_bfloat16(grow):
    model = adapt(grow(tie_word_embeddings=False).bfloat16())
    assert {p.dtype for n, p in model.named_parameters() if "lora_" in n} == {torch.float32}
    with torch.no_grad():
        got, expected = read(PackedModel(model, 0)), by_peft(model)
    assert got.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits: two layers of it, in another order of sums.
    assert (got - expected).abs().max() < 0.04 * expected.float().std()


def test_gradients_reach_the_adapters_of_the_tokens_present(model):
    parameters = {n: p.requires_grad_(True) for n, p in model.named_parameters() if "lora_" in n}
    packed = PackedModel(model, 20)
    present = [0, 1, 2, 4]
    sequences, adapters = [SEQUENCES[i] for i in present], [ADAPTERS[i] for i in present]

    def slopes(logits):
        return torch.autograd.grad(logits.double().square().sum(), list(parameters.values()), allow_unused=True)

    got, expected = slopes(read(packed, sequences, adapters)), slopes(by_peft(model, sequences, adapters))
    for name, slope, other in zip(parameters, got, expected, strict=True):
        if ".head." in name:
            assert slope is None
        else:
            assert slope.any()
            assert_close(slope, other, atol=1e-3, rtol=1e-3)


ACTIVATED = {
    "early": {"r": 2, "target_modules": ["q_proj", "v_proj", "down_proj"], "alora_invocation_tokens": [5, 6]},
    "late": {"r": 3, "target_modules": ["k_proj", "gate_proj"], "alora_invocation_tokens": [6, 7]},
    "small": CONFIGS["small"],
}
INVOKED = [
    *([7, 8, 9, 5, 6, 7, 3], [7, 8, 9, 5, 6, 7, 4], [5, 6, 5, 6], [7, 8, 9, 5, 6, 7, 3], [7, 8, 9]),
    *([7, 8, 9, 5, 6, 7, 3], [7, 8, 9, 5, 6, 7, 3], [5, 6, 7, 8]),
]
BY = ["early", "early", "early", "late", "early", None, "small", "late"]


def test_activated_adapters_say_what_peft_says_and_share_what_stands_before(grow):
    model = adapt(grow(tie_word_embeddings=False).double(), ACTIVATED)
    packed = PackedModel(model, 100)
    with torch.no_grad():
        expected = by_peft(model, INVOKED, BY)
        for _ in range(2):
            assert_close(read(packed, INVOKED, BY).double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.pdist(expected[[0, 3, 5, 6]]).min() > 0.1  # the same tokens, other adapters
    bare = [token for token in packed.readings(INVOKED[0], "early") if token < READER]
    assert bare == packed.readings(INVOKED[4], "early") == [7, 8, 9]
    beginnings = {tuple(packed.readings(*one)[:n]) for one in zip(INVOKED, BY, strict=True) for n in range(1, 8)}
    packed.prefixes.clear()
    with torch.no_grad(), packed.opened() as opened:
        forest = plant(sequences := [opened.readings(*one) for one in zip(INVOKED, BY, strict=True)], [()] * 8)
        opened.read(sequences)
    assert len(forest.readings) == len(beginnings)


def test_gradients_of_activated_adapters_are_those_of_plain_passes_and_stop_before_them(grow):
    model = adapt(grow(tie_word_embeddings=False).double(), ACTIVATED)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = torch.autograd.grad(by_peft(model, INVOKED, BY).square().sum(), parameters)
    for places, before in ((0, False), (5, False), (100, False), (100, True)):
        packed = PackedModel(model, places)
        if before:  # all of it is kept then, and what learns is read all the same
            with torch.no_grad():
                read(packed, INVOKED, BY)
        with packed.opened() as opened:
            sequences = [opened.readings(*one) for one in zip(INVOKED, BY, strict=True)]
            logits = opened.read(sequences)
        if places == 100 and not before:  # what no adapter reads was read without gradients, and is kept
            bare = [[reading for reading in sequence if reading < READER] for sequence in sequences]
            assert len(packed.prefixes._places) == len({tuple(s[:n]) for s in bare for n in range(1, len(s) + 1)})
        got = torch.autograd.grad(logits.double().square().sum(), parameters)
        for slope, other in zip(got, expected, strict=True):
            assert_close(slope, other, atol=1e-3, rtol=1e-3)


def test_weights_that_change_are_read_anew(model):
    packed = PackedModel(model, 20)
    with torch.no_grad():
        before = read(packed)
        for name, weight in model.named_parameters():
            if "small" in name:
                weight.mul_(1.5)
        after = read(packed)
        assert_close(after.double(), by_peft(model), atol=1e-5, rtol=1e-5)
    changed = [i for i in range(len(SEQUENCES)) if (after[i] - before[i]).abs().max() > 1e-3]
    assert changed == [0, 3]


DEPARTURES = {
    "dora": ({"use_dora": True}, "DoraLinearVariant at model.layers.0.self_attn.q_proj (Linear)"),
    "bias": ({"lora_bias": True}, "a bias of the adapter at model.layers.0.self_attn.q_proj (Linear)"),
    "embedding": (
        {"target_modules": ["embed_tokens"]},
        "an adapter of another kind of layer at model.embed_tokens (Embedding)",
    ),
    "saved": ({"modules_to_save": ["lm_head"]}, "weights of its own at lm_head (ModulesToSaveWrapper)"),
    "tokens": ({"trainable_token_indices": [3]}, "weights of its own at model.embed_tokens (TrainableTokensWrapper)"),
}


@pytest.mark.parametrize("departure", DEPARTURES)
def test_what_is_not_plain_lora_is_refused(grow, fails, departure):
    options, found = DEPARTURES[departure]
    model = adapt(grow(attention_bias=True), {"plain": CONFIGS["small"]})
    PackedModel(model, 0)
    adapt(model, {"other": {"r": 2, "target_modules": ["q_proj"], **options}})
    with fails(f"expected plain LoRA adapters of linear layers, got {found}: train the adapter without"):
        PackedModel(model, 0)
    assert not any("forward" in vars(module) for module in model.modules())


def test_adapters_that_are_no_lora_or_no_longer_beside_the_weights_are_refused(grow, fails):
    from peft import IA3Config, get_peft_model

    line = "expected plain LoRA adapters of linear layers, got {}: train the adapter without"
    other = IA3Config(target_modules=["q_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    with fails(line.format("adapter 'scaler' of type IA3")):
        PackedModel(get_peft_model(grow(), other, adapter_name="scaler"), 0)
    merged = adapt(grow(), {"plain": CONFIGS["small"]})
    merged.merge_adapter()
    with fails(line.format("a merged adapter at model.layers.0.self_attn.q_proj (Linear)")):
        PackedModel(merged, 0)


def test_frozen_adapters_are_held_once_and_one_that_learns_by_itself(model):
    wanted = by_peft(model)
    model.requires_grad_(False)
    layer = model.get_base_model().model.layers[0].self_attn.q_proj
    layer.lora_A["large"].weight.requires_grad_(True)
    packed = PackedModel(model, 0)
    with torch.no_grad():
        assert_close(read(packed).double(), wanted, atol=1e-5, rtol=1e-5)
    shared = model.get_base_model().model.layers[1].self_attn.q_proj
    places = [shared.lora_A[name].weight.untyped_storage().data_ptr() for name in ("small", "large")]
    assert places[0] == places[1]
    places = [layer.lora_A[name].weight.untyped_storage().data_ptr() for name in ("small", "large")]
    assert places[0] != places[1]
    # Where weights lie may change the last bit of a product.
    assert_close(by_peft(model), wanted, rtol=0, atol=1e-12)


def test_adapters_that_change_or_come_are_seen(model):
    packed = PackedModel(model.requires_grad_(False), 0)
    with torch.no_grad():
        read(packed)
        for layer in model.modules():
            if hasattr(layer, "lora_A") and "small" in layer.lora_A:
                layer.lora_B["small"].weight.mul_(2)
        assert_close(read(packed).double(), by_peft(model), atol=1e-5, rtol=1e-5)
        adapt(model, {"new": {"r": 2, "target_modules": ["q_proj"]}})
        adapters = ["new" if name == "large" else name for name in ADAPTERS]
        expected = by_peft(model, adapters=adapters)
        assert_close(read(packed, adapters=adapters).double(), expected, atol=1e-5, rtol=1e-5)


def test_adapters_that_learn_are_read_anew_though_no_version_tells_of_it(model):
    """As a fused optimizer's step, which a weight's version does not count."""
    packed = PackedModel(model, 0)
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name)
    with torch.no_grad():
        before = read(packed)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.data.mul_(-2)
        after = read(packed).double()
        assert (after - before).abs().max() > 0.1
        assert_close(after, by_peft(model), atol=1e-5, rtol=1e-5)
