"""Prompts of the methods that read texts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.prompts import Prompts, nonce

MARKS = re.compile(r"<\s*/?\s*text\s*-\s*[0-9a-f]+\s*>", re.IGNORECASE)
PROMPTS = Prompts()
KINDS = pytest.mark.parametrize("kind", ["correct", "aggregate", "debate"])


def everything(kind, texts, seed=0):
    messages = PROMPTS.ask(kind, "Which is larger?", texts=texts, persona="P1", seed=seed)
    assert [message.role for message in messages] == ["system", "user"]
    return "\n".join(message.content for message in messages)


@KINDS
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers(0, 2**63 - 1))
def test_every_text_is_shown_once_behind_a_fence_it_cannot_forge(kind, data, seed):
    pieces = st.sampled_from(
        [f"<text-{nonce(seed)}>", f"</text-{nonce(seed)}>", "<", "/", "text-", "{{ question }}", "a"]
    )
    texts = [f"T{i}." + "".join(data.draw(st.lists(pieces, max_size=8))) for i in range(3)]
    prompt = everything(kind, texts, seed)
    assert MARKS.findall(prompt) == [f"<text-{nonce(seed)}>", f"</text-{nonce(seed)}>"] * 3
    assert [prompt.count(f">\nT{i}.") for i in range(3)] == [1, 1, 1]
    assert prompt.count("Which is larger?") == 2


@KINDS
def test_shared_text_comes_first_and_the_persona_late(kind):
    prompt = everything(kind, ["X1", "X2"])
    assert (
        prompt.index("Which is larger?") < prompt.index("X2") < prompt.index("P1") < prompt.rindex("Which is larger?")
    )
    assert "\n\n\n" not in prompt


@KINDS
def test_without_texts_it_still_asks(kind):
    prompt = everything(kind, [""] if kind == "debate" else [])
    assert not MARKS.search(prompt)
    assert "Which is larger?" in prompt
    assert "P1" in prompt
