"""Notes that are heard in part: packed passes against a full pass under an additive mask."""

import pytest
import torch
from torch.testing import assert_close

from nsed_torch.engines.packing import heard
from nsed_torch.engines.packing.attention import ForestPlan
from nsed_torch.engines.packing.heard import Span
from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.packing.slots import Slots

FIRST = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
CASES = [
    (FIRST, [Span(3, 5, 0.5), Span(5, 8, 0.1)]),
    ([*FIRST[:9], 19, 20], [Span(3, 5, 0.5), Span(5, 8, 0.1)]),
    ([*FIRST[:9], 19, 20], [Span(3, 5, 0.5), Span(5, 8, 0.2)]),  # the same tokens, heard otherwise
    ([7, 8, 9, 12, 13, 14, 20, 21, 16, 17], [Span(3, 6, 0.3), Span(6, 8, 1.0)]),
    (FIRST, []),
]


def plain(model, tokens, spans, beside):
    """The same by one pass over all tokens with an additive mask and positions of its own."""
    count, longest = len(tokens), max((span.stop - span.start for span in spans), default=0)
    note = [next((k for k, span in enumerate(spans) if span.start <= i < span.stop), None) for i in range(count)]
    place = list(range(count))
    if beside and spans:
        for i in range(spans[0].start, count):
            behind = spans[0].start + longest + i - spans[-1].stop
            place[i] = behind if note[i] is None else spans[0].start + i - spans[note[i]].start
    mask = torch.full((count, count), -torch.inf)
    for query in range(count):
        for column in range(query + 1):
            other = note[column] is not None and note[column] != note[query]
            if not (beside and other and note[query] is not None):
                retention = spans[note[column]].retention if other else 1.0
                mask[query, column] = torch.as_tensor(retention).log()
    ids, places = torch.tensor([tokens]), torch.tensor([place])
    return model(input_ids=ids, position_ids=places, attention_mask=mask[None, None].to(model.dtype)).logits[0]


@pytest.fixture(params=["llama", "gemma2", "qwen2"])
def pair(grow, request):
    capped = {"head_dim": 8, "attn_logit_softcapping": 2.0, "layer_types": ["full_attention"] * 2}
    options = capped if request.param == "gemma2" else {}
    reference = grow(request.param, **options)
    other = grow(request.param, attention=None, **options)
    other.load_state_dict(reference.state_dict())
    return reference, other


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("places", [0, 8, 100])
@torch.no_grad()
def test_reading_and_writing_equal_an_additive_mask(pair, beside, dense, places, monkeypatch):
    if dense:  # as on an accelerator
        made = ForestPlan.__init__
        monkeypatch.setattr(ForestPlan, "__init__", lambda *args, **named: made(*args, **named, dense=True))
    reference, other = pair
    with PackedModel(other, places).opened() as model:
        for _ in range(2):  # the second time from what was kept
            sequences, slots = [model.readings(t, None, s, beside=beside) for t, s in CASES], Slots(len(CASES))
            wanted = torch.stack([plain(reference, *case, beside)[-1] for case in CASES])
            assert_close(model.read(sequences, slots, range(len(CASES))), wanted, atol=1e-5, rtol=1e-5)
            tokens = [3, 4, 5, 6, 7]
            got = model.step([[token] for token in tokens], [len(t) for t, _ in CASES], slots, sequences)
            more = [plain(reference, [*t, new], s, beside)[-1] for (t, s), new in zip(CASES, tokens, strict=True)]
            assert_close(got, torch.stack(more), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_at_retention_1_one_behind_the_other_is_the_plain_prompt_to_the_digit(pair):
    with PackedModel(pair[1], 0).opened() as model:
        assert model.readings(FIRST, None, [Span(3, 5), Span(5, 8)]) == model.readings(FIRST, None)


@torch.no_grad()
def test_side_by_side_the_order_of_notes_is_nothing_and_a_kept_note_is_not_read_again(pair, monkeypatch):
    notes, tail, read = [[10, 11], [12, 13, 14], [20, 21, 22]], [15, 16, 17], []
    with PackedModel(pair[1], 64).opened() as model:
        inner = model._forward
        monkeypatch.setattr(model, "_forward", lambda *args: read.append(len(args[1])) or inner(*args))

        def logits(order, retention):
            tokens, spans = [7, 8, 9], []
            for i in order:
                tokens, spans = (
                    [*tokens, *notes[i]],
                    [*spans, Span(len(tokens), len(tokens) + len(notes[i]), retention[i])],
                )
            return model.read([model.readings([*tokens, *tail], None, spans, beside=True)])

        first = logits([0, 1], [0.5, 0.2, 0.9])
        assert_close(logits([1, 0], [0.5, 0.2, 0.9]), first, atol=1e-5, rtol=1e-5)
        logits([1, 2], [0.5, 0.1, 0.9])  # another note, and one is gone
    assert read == [3 + 5 + 3, 3, 3 + 3]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("places", [0, 64])
def test_a_retention_has_the_gradient_of_the_additive_mask(pair, beside, places):
    reference, other = (model.requires_grad_(False) for model in pair)
    retention = torch.tensor([0.5, 0.1], dtype=torch.float64, requires_grad=True)
    spans = [Span(3, 5, retention[0]), Span(5, 8, retention[1])]
    with PackedModel(other, places).opened() as model:
        for _ in range(2):
            sequence = model.readings(FIRST, None, spans, beside=beside)
            (got,) = torch.autograd.grad(model.read([sequence])[0, 5], retention)
            (wanted,) = torch.autograd.grad(plain(reference, FIRST, spans, beside)[-1, 5], retention)
            assert got.abs().min() > 0
            assert_close(got, wanted, atol=1e-5, rtol=1e-4)


def test_a_retention_out_of_range_is_one_line(pair):
    with (
        PackedModel(pair[1], 0).opened() as model,
        pytest.raises(ValueError, match="above 0 and up to 1, got 0: leave"),
    ):
        model.readings(FIRST, None, [Span(3, 5, 0.0)])


def test_side_by_side_a_sliding_window_is_one_line(grow):
    with PackedModel(grow("mistral", attention=None, sliding_window=4), 0).opened() as model, torch.no_grad():
        sequence = model.readings(FIRST, None, CASES[0][1], beside=True)
        with pytest.raises(ValueError, match=r"for memory=beside, got a sliding window: set protocol.memory=weighted"):
            model.read([sequence])


def test_retentions_that_learn_take_no_tags_for_good(grow, monkeypatch):
    monkeypatch.setattr(heard, "TAGS", 8)
    packed = PackedModel(grow(attention=None).requires_grad_(False), 0)
    for _ in range(9):
        retention = torch.tensor([0.5, 0.1], requires_grad=True)
        with packed.opened() as model:
            sequence = model.readings(FIRST, None, [Span(3, 5, retention[0]), Span(5, 8, retention[1])])
            model.read([sequence])[0, 5].backward()
        assert retention.grad.abs().min() > 0
    sequences = [[Span(3, 5, value / 10)] for value in range(1, 8)]
    assert all(packed.readings(FIRST, None, spans) for spans in sequences)
    with pytest.raises(ValueError, match="expected up to 8 retentions of notes, got more"):
        packed.readings(FIRST, None, [Span(3, 5, 0.95)])
    packed.make_room()
    assert packed.readings(FIRST, None, [Span(3, 5, 0.95)])
