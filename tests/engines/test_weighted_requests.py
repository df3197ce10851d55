"""Requests whose notes are heard in part, by a model that reads its tokens one full pass at a time."""

import math

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.core.engine import Decoding, GenerateRequest, LikelihoodRequest, Message, Note, RateRequest

TEXTS = "<text-ab>\nred\n</text-ab>", "<text-ab>\nblue and green\n</text-ab>"
CHAT = (Message("system", "You are one."), Message("user", f"Notes:\n{TEXTS[0]}\n{TEXTS[1]}\n\nWhich colour?"))


def notes(*retention):
    return tuple(Note(text, r) for text, r in zip(TEXTS, retention, strict=False))


def log_likelihood(engine, retention, text="red"):
    """Of a text and its end, by full passes under an additive mask."""
    opening = engine.chat.text(CHAT)
    before, ids = engine.chat.encode(opening), engine.chat.encode(opening + text)
    seams = opening.index(TEXTS[0]), opening.index(TEXTS[1]), opening.index(TEXTS[1]) + len(TEXTS[1])
    place = [len(engine.chat.encode(opening[:seam])) for seam in seams]
    mask = torch.zeros(len(ids), len(ids)).masked_fill(~torch.ones(len(ids), len(ids)).tril().bool(), -torch.inf)
    for k, r in enumerate(retention):
        mask[place[k + 1] :, place[k] : place[k + 1]] = math.log(r)
    names = {"adapter_names": ["__base__"]} if engine.adapters else {}
    output = engine.model(input_ids=torch.tensor([ids]), attention_mask=mask[None, None], **names)
    logits = output.logits[0].log_softmax(-1)
    said = [logits[i - 1, ids[i]] for i in range(len(before), len(ids))]
    return torch.stack([*said, logits[-1, engine.stop_ids].logsumexp(0)]).mean()


@torch.no_grad()
def test_likelihoods_equal_an_additive_mask_and_1_is_the_plain_prompt(tiny):
    for retention in ((0.5, 0.1), (1.0, 1.0), (1.0, 1e-4)):
        (got,) = tiny.measure([LikelihoodRequest("a", CHAT, ("red",), notes=notes(*retention))])
        assert_close(math.log(got.values[0]), log_likelihood(tiny, retention).item(), atol=1e-5, rtol=1e-5)
    plain, whole = tiny.measure(
        [LikelihoodRequest("a", CHAT, ("red", "blue"), notes=told) for told in ((), notes(1.0, 1.0))]
    )
    assert plain.values == whole.values


@pytest.mark.parametrize("beside", [False, True])
def test_a_text_that_was_written_is_what_is_likeliest_and_ratings_follow(tiny, beside):
    told = {"notes": notes(0.3, 0.02), "beside": beside}
    (written,) = tiny.generate([GenerateRequest("a", CHAT, Decoding(6, temperature=0), 0, **told)])
    request = GenerateRequest("a", CHAT, Decoding(), 0, **told)
    with torch.no_grad(), tiny._packed.opened() as model:
        prompt = tiny._sequence(*tiny.chat.heard(tiny.chat.text(CHAT), request.notes), request)
        for token in written.written:
            assert int(model.read([prompt]).argmax()) == token
            prompt = [*prompt, token]
    ratings = [tiny.rate([RateRequest("a", CHAT, ("x", "y"), **more)])[0].values for more in (told, {}, told)]
    assert ratings[0] == pytest.approx(ratings[2], abs=1e-5)
    assert max(abs(one - other) for one, other in zip(*ratings[:2], strict=True)) > 1e-3


def test_gradients_reach_retention_through_a_text(tiny):
    retention = torch.tensor([0.5, 0.1], dtype=torch.float64, requires_grad=True)
    request = LikelihoodRequest("a", CHAT, ("red",), notes=notes(1.0, 1.0))
    (likelihoods,) = tiny.log_likelihoods([request], [retention])
    (got,) = torch.autograd.grad(likelihoods[0], retention)
    step = 1e-3
    for k in range(2):
        moved = [tuple(0.5 + d * (k == 0) if i == 0 else 0.1 + d * (k == 1) for i in range(2)) for d in (step, -step)]
        with torch.no_grad():
            slope = (log_likelihood(tiny, moved[0]) - log_likelihood(tiny, moved[1])) / (2 * step)
        assert_close(got[k].float(), slope.float(), atol=5e-3, rtol=5e-2)


def test_a_note_that_is_not_in_the_chat_is_one_line(tiny):
    with pytest.raises(ValueError, match="expected a chat that shows the note 'green': show it"):
        tiny.measure([LikelihoodRequest("a", CHAT[:1], ("red",), notes=(Note("green", 0.5),))])
