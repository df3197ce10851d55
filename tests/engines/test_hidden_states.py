"""Hidden states are those of the plain model, each chat alone."""

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.core.engine import ContextWindowError, Message

CHATS = [(Message("system", "Name it."), Message("user", text)) for text in ("abc", "abc 1?", "1?" * 30, "abc")]


@pytest.mark.parametrize("adapter", [None, "critic"])
def test_they_are_the_plain_models(tiny, adapter):
    found, tokens = tiny.hidden_states(CHATS, adapter)
    for chat, state, read in zip(CHATS, found, tokens, strict=True):
        ids = tiny.chat.ids(chat)
        names = [adapter or "__base__"]
        whole = tiny.model(input_ids=torch.tensor([ids]), adapter_names=names, output_hidden_states=True)
        assert_close(state, whole.hidden_states[-1][0, -1].detach(), atol=1e-5, rtol=1e-4)
        assert read == len(ids)
    assert torch.equal(found[0], found[3])
    assert not torch.allclose(found[0], found[1])


def test_adapters_have_states_of_their_own_and_passes_make_no_difference(tiny, load_tiny, adapter_folders):
    states = {adapter: tiny.hidden_states(CHATS, adapter)[0] for adapter in (None, "critic")}
    assert not torch.allclose(states[None], states["critic"], atol=1e-4)
    few = load_tiny(adapters=adapter_folders, pass_tokens=1, prefix_tokens=0)
    assert_close(few.hidden_states(CHATS, "critic")[0], states["critic"], atol=1e-5, rtol=1e-4)


def test_a_prompt_beyond_the_window_is_refused(tiny):
    with pytest.raises(ContextWindowError, match="a prompt whose hidden state is read needs at least"):
        tiny.hidden_states([(Message("user", "a" * 10**5),)])
