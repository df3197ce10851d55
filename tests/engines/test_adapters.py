"""Adapters that learn: no effect at the start, nobody else's weights, and folders that give them back."""

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from nsed_torch.engines import adapters
from nsed_torch.engines.adapters import (
    ATTENTION,
    adapter_files,
    adapter_parameters,
    add_adapter,
    copy_adapter,
    save_adapter,
)


@pytest.fixture(params=["none", "nf4"])
def engine(request, load_tiny):
    return load_tiny(quantization=request.param)


@pytest.fixture
def rated(judge):
    return lambda engine, adapter=None: engine.rate([judge(["good", "bad one"], adapter=adapter)])[0].values


def shake(engine, name):
    with torch.no_grad():
        for parameter in adapter_parameters(engine, name).values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))


def test_a_fresh_adapter_changes_nothing_and_can_learn(engine, rated):
    bare = rated(engine)
    before = {name: value.clone() for name, value in engine.state_dict().items()}
    add_adapter(engine, "judge", rank=2)
    add_adapter(engine, "other", rank=3, targets=["q_proj"])
    for reader in ([], ["judge"], ["other"]):
        assert rated(engine, *reader) == pytest.approx(bare, abs=1e-6)
    assert {name for name, p in engine.named_parameters() if p.requires_grad} == {
        *adapter_parameters(engine, "judge"),
        *adapter_parameters(engine, "other"),
    }
    after = {k.replace("base_model.model.", "").replace("base_layer.", ""): v for k, v in engine.state_dict().items()}
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert len(adapter_parameters(engine, "judge")) == 2 * 2 * len(ATTENTION)  # A and B, two layers
    assert {p.shape[0] for n, p in adapter_parameters(engine, "other").items() if "lora_A" in n} == {3}
    shake(engine, "judge")
    assert rated(engine, "judge") != pytest.approx(bare, abs=1e-4)
    for reader in ([], ["other"]):
        assert rated(engine, *reader) == pytest.approx(bare, abs=1e-6)


def test_a_is_drawn_from_the_seed_and_from_nothing_else(load_tiny):
    drawn = []
    for seed in (3, 3, 4):
        engine = load_tiny()
        torch.manual_seed(len(drawn))
        state = torch.get_rng_state()
        add_adapter(engine, "judge", seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        drawn.append([p for n, p in adapter_parameters(engine, "judge").items() if "lora_A" in n])
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))


def test_a_saved_adapter_comes_back_with_its_ratings_and_its_fingerprint(engine, load_tiny, rated, tmp_path):
    add_adapter(engine, "judge", rank=2, alpha=3)
    shake(engine, "judge")
    save_adapter(engine, "judge", tmp_path / "a" / "b")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    quantization = engine.identity(None)["quantization"]
    again = load_tiny(quantization=quantization, adapters={"reader": str(tmp_path / "a" / "b")})
    assert rated(again, "reader") == rated(engine, "judge")
    assert again.identity("reader") == engine.identity("judge")
    assert not any(p.requires_grad for p in again.parameters())
    config = json.loads((tmp_path / "a" / "b" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"], config["lora_alpha"]) == ("tiny", 2, 3)
    weights = load_file(tmp_path / "a" / "b" / "adapter_model.safetensors")
    for name, parameter in adapter_parameters(engine, "judge").items():
        assert_close(weights[name.removeprefix("model.").replace(".judge", "")], parameter, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_on_disk_is_rounded_once(engine, load_tiny, rated, tmp_path, dtype):
    """Loaded in float32; saved again it has the same bytes, so the same fingerprint."""
    add_adapter(engine, "judge", rank=2)
    shake(engine, "judge")
    save_adapter(engine, "judge", tmp_path / "whole")
    save_adapter(engine, "judge", tmp_path / "half", dtype=dtype)
    whole, half = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "half"))
    assert {str(value.dtype) for value in half.values()} == {f"torch.{dtype}"}
    for name, value in whole.items():
        assert torch.equal(half[name], value.to(half[name].dtype))
    quantization = engine.identity(None)["quantization"]
    again = load_tiny(quantization=quantization, adapters={"judge": str(tmp_path / "half")})
    for name, parameter in adapter_parameters(again, "judge").items():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, half[name.removeprefix("model.").replace(".judge", "")].float())
    save_adapter(again, "judge", tmp_path / "again", dtype=dtype)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "half" / file).read_bytes()
    third = load_tiny(quantization=quantization, adapters={"judge": str(tmp_path / "again")})
    assert third.identity("judge") == again.identity("judge") != engine.identity("judge")
    assert rated(third, "judge") == rated(again, "judge") == pytest.approx(rated(engine, "judge"), abs=0.02)
    room = [(tmp_path / name / "adapter_model.safetensors").stat().st_size for name in ("half", "whole")]
    assert room[0] < 0.75 * room[1]  # the names of so few numbers weigh as well


def test_an_adapter_can_begin_as_a_saved_one_and_go_on(engine, load_tiny, rated, tmp_path):
    add_adapter(engine, "judge", rank=2, alpha=3, targets=["q_proj", "o_proj"])
    shake(engine, "judge")
    save_adapter(engine, "judge", tmp_path)
    copy_adapter(engine, "pupil", str(tmp_path))
    before = rated(engine, "judge")
    assert rated(engine, "pupil") == pytest.approx(before, abs=1e-5)
    assert adapter_files(engine, "pupil") == adapter_files(engine, "judge")
    assert engine.model.peft_config["pupil"].lora_alpha == 3
    assert all(p.requires_grad for p in adapter_parameters(engine, "pupil").values())
    shake(engine, "pupil")
    assert rated(engine, "pupil") != pytest.approx(before, abs=1e-4)
    assert rated(engine, "judge") == pytest.approx(before, abs=1e-5)


def test_an_activated_adapter_reads_from_its_invocation_on_however_it_was_loaded(load_tiny, rated, ask, tmp_path):
    engine = load_tiny()
    invocation = engine.chat.ending("Answer the question.")
    add_adapter(engine, "expert", rank=2, layers=[1], invocation=invocation)
    shake(engine, "expert")
    save_adapter(engine, "expert", tmp_path)
    copy_adapter(engine, "pupil", str(tmp_path))
    again = load_tiny(adapters={"expert": str(tmp_path)})
    pairs = [(text, reader) for text in "xy" for reader in ("expert", "pupil")]
    asked = [ask(f"{text} Answer the question.", temperature=0, adapter=reader) for text, reader in pairs]
    texts = [generation.text for generation in engine.generate(asked)]
    assert texts[::2] == texts[1::2] == [g.text for g in again.generate(asked[::2])]
    assert texts[0] != engine.generate([ask("x Answer the question.", temperature=0)])[0].text
    # Where nothing invokes it, the bare model reads.
    bare = rated(engine)
    for loaded in (engine, again):
        assert rated(loaded, "expert") == pytest.approx(bare, abs=1e-6)
    ids = engine.chat.ids(asked[0].messages)
    assert ids[-len(invocation) :] == invocation
    assert [engine.invoked(part, "expert") for part in (ids, ids[: -len(invocation)])] == [True, False]
    assert {int(name.split("layers.")[1][0]) for name in adapter_parameters(engine, "expert")} == {1}


@pytest.mark.parametrize("fault", ["shape", "layer"])
def test_an_adapter_of_another_model_is_no_beginning(load_tiny, tmp_path, fault):
    add_adapter(engine := load_tiny(), "judge", rank=2)
    save_adapter(engine, "judge", tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    key = next(iter(weights))
    weights[key if fault == "shape" else key.replace("layers.0", "layers.9")] = weights.pop(key)[:, :1].contiguous()
    save_file(weights, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"^expected an adapter of this model in .*, got ") as caught:
        copy_adapter(engine, "pupil", str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_saved_adapter_names_no_place_of_this_machine(load_tiny, tiny_folder, tmp_path):
    engine = load_tiny()
    add_adapter(engine, "judge")
    save_adapter(engine, "judge", tmp_path / "judge")
    config = (tmp_path / "judge" / "adapter_config.json").read_text()
    assert not [part for part in (tmp_path, tiny_folder, *tiny_folder.parents[:-1]) if str(part) in config]


def test_an_adapter_that_has_learned_is_another_one_to_the_call_log(load_tiny):
    engine = load_tiny()
    add_adapter(engine, "judge")
    before = engine.identity("judge")
    assert engine.identity("judge") == before
    shake(engine, "judge")
    assert engine.identity("judge") != before


def test_one_can_be_added_beside_loaded_ones(load_tiny, adapter_folders, rated):
    engine = load_tiny(adapters=adapter_folders)
    poet = rated(engine, "poet")
    add_adapter(engine, "judge")
    shake(engine, "judge")
    assert rated(engine, "poet") == pytest.approx(poet, abs=1e-6)
    assert {name for name, p in engine.named_parameters() if p.requires_grad} == set(
        adapter_parameters(engine, "judge")
    )


@pytest.mark.parametrize(("rank", "calls"), [(4, 0), (3, 0), (None, 1)], ids=["alike", "rank", "other layers"])
def test_one_of_a_known_kind_is_put_beside_as_peft_would_have_it(
    load_tiny, adapter_folders, rated, tmp_path, monkeypatch, rank, calls
):
    targets = ["q_proj"] if rank is None else ["down_proj", "q_proj", "v_proj"]
    add_adapter(other := load_tiny(), "third", rank=rank or 4, alpha=6.0, targets=targets)
    shake(other, "third")
    save_adapter(other, "third", tmp_path / "third")
    save_adapter(load_tiny(adapters=adapter_folders), "poet", tmp_path / "poet")
    kind = json.loads((tmp_path / "poet" / "adapter_config.json").read_text())
    if rank:  # else the saved one's own, which differs in more than rank
        kind |= {"r": rank, "lora_alpha": 6.0}
        (tmp_path / "third" / "adapter_config.json").write_text(json.dumps(kind))
    folders = {"poet": str(tmp_path / "poet"), "third": str(tmp_path / "third")}

    def load():
        walks = []

        def walk(model, *where, **options):
            walks.append(where[1] if len(where) > 1 else options["adapter_name"])
            return asked(model, *where, **options)

        asked = PeftModel.load_adapter
        with monkeypatch.context() as patch:
            patch.setattr(PeftModel, "load_adapter", walk)
            return load_tiny(adapters=folders), walks.count("third")

    engine, walks = load()
    with monkeypatch.context() as patch:
        patch.setattr(adapters, "_put_beside", lambda *_: False)
        plain, _ = load()
    assert walks == calls
    state, wanted = engine.state_dict(), plain.state_dict()
    assert list(state) == list(wanted)
    assert all(torch.equal(state[name], value) for name, value in wanted.items())
    for name in folders:
        assert rated(engine, name) == rated(plain, name)
        assert engine.model.peft_config[name].to_dict() == plain.model.peft_config[name].to_dict()
    assert not any(p.requires_grad for p in engine.parameters())
    save_adapter(engine, "third", tmp_path / "again")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == adapter_files(plain, "third")[file]


@pytest.mark.parametrize("fault", ["shape", "layer"])
def test_a_second_adapter_of_another_model_is_refused(load_tiny, adapter_folders, tmp_path, fault):
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / file).write_bytes(Path(adapter_folders["critic"], file).read_bytes())
    weights = load_file(tmp_path / "adapter_model.safetensors")
    key = next(iter(weights))
    weights[key if fault == "shape" else key.replace("layers.0", "layers.9")] = weights.pop(key)[:, :1].contiguous()
    save_file(weights, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"^adapter 'bad': expected one of this model in .*, got ") as caught:
        load_tiny(adapters={**adapter_folders, "bad": str(tmp_path)})
    assert "\n" not in str(caught.value)


def test_the_layer_of_the_logits_can_learn_too(load_tiny, judge, rated):
    engine = load_tiny()
    bare = rated(engine)
    add_adapter(engine, "judge", targets=["lm_head"])
    shake(engine, "judge")
    mixed = [r.values for r in engine.rate([judge(["good", "bad one"], adapter=name) for name in (None, "judge")])]
    assert mixed[0] == pytest.approx(bare, abs=1e-6)
    assert mixed[1] == pytest.approx(rated(engine, "judge"), abs=1e-6)
    assert mixed[1] != pytest.approx(bare, abs=1e-4)


def test_a_saved_adapter_that_is_not_plain_lora_is_refused(tiny_folder, load_tiny, keep_adapter, tmp_path, fails):
    found = "DoraLinearVariant at model.layers.0.self_attn.q_proj (Linear)"
    with fails(f"expected plain LoRA adapters of linear layers, got {found}: train the adapter without"):
        load_tiny(adapters={"judge": str(keep_adapter(tiny_folder, tmp_path, 0, use_dora=True))})


def test_faults_are_one_line(load_tiny, fails):
    engine = load_tiny()
    add_adapter(engine, "judge")
    with fails("expected a new adapter, the backbone has one named 'judge': choose another name"):
        add_adapter(engine, "judge")
    for name in ("a.b", "", "lora", "keys"):
        with fails(f"expected an adapter name that can name a submodule, got {name!r}: rename the agent"):
            add_adapter(engine, name)
    with fails("expected an adapter's rank of at least 1 and alpha above 0, got 0 and 16.0"):
        add_adapter(engine, "x", rank=0)
    with fails("expected names of the model's linear layers as targets, got ['nothing_proj']"):
        add_adapter(engine, "x", targets=["q_proj", "nothing_proj"])
    with fails("expected names of the model's linear layers as targets, got ['embed_tokens']"):
        add_adapter(engine, "x", targets=["embed_tokens"])
    with fails("expected names of the model's linear layers as targets, got none"):
        add_adapter(engine, "x", targets=[])
    with fails("expected a loaded adapter, got 'x': add it to the backbone's adapters (judge)"):
        save_adapter(engine, "x", "nowhere")
    with fails("expected an adapter's dtype out of float32, bfloat16, float16, got 'int8'"):
        save_adapter(engine, "judge", "nowhere", dtype="int8")
    assert set(engine.adapters) == {"judge"}
