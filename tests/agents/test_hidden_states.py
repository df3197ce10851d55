"""Hidden states are those of the plain model, each chat alone."""

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.agents import Message, Weights, add_adapter, load_backbone
from nsed_torch.agents.requests import ContextWindowError

CHATS = [(Message("system", "Name it."), Message("user", text)) for text in ("abc", "abc 1?", "1?" * 30, "abc")]


@pytest.mark.parametrize("adapter", [None, "other"])
def test_they_are_the_plain_models(tiny_model, adapter):
    engine = load_backbone(Weights(name="tiny", path=str(tiny_model)), dtype="float32", device="cpu")
    add_adapter(engine, "other", rank=2, seed=7)
    with torch.no_grad():
        for name, parameter in engine.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1)
    engine.pass_tokens = 60  # several passes
    found, tokens = engine.hidden_states(CHATS, adapter)
    engine.model.set_adapter("other")
    for chat, state, read in zip(CHATS, found, tokens, strict=True):
        ids = engine.chat.ids(chat)
        names = [adapter or "__base__"]
        whole = engine.model(input_ids=torch.tensor([ids]), adapter_names=names, output_hidden_states=True)
        assert_close(state, whole.hidden_states[-1][0, -1].detach(), atol=1e-5, rtol=1e-4)
        assert read == len(ids)
    assert torch.equal(found[0], found[3])
    assert not torch.allclose(found[0], found[1])


def test_a_prompt_beyond_the_window_is_refused(tiny_model):
    engine = load_backbone(Weights(name="tiny", path=str(tiny_model)), dtype="float32", device="cpu")
    with pytest.raises(ContextWindowError, match="a prompt whose hidden state is read needs at least"):
        engine.hidden_states([(Message("user", "a" * 10**5),)])
