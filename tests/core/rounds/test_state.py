"""What of the memory agents are shown."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.memory import MemoryState
from nsed_torch.core.open_round import DeliberationState, SlotText, longest_end, shown_texts
from nsed_torch.core.team import full_team
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task

texts = st.lists(st.sampled_from(["a", "bb", "7", "", "x\ny"]), max_size=12).map(" ".join)


def words(text):
    return len(text.split())


def letters(text):
    return len(text)


@given(texts, st.integers(-2, 20), st.sampled_from([words, letters]))
def test_longest_end_fits_is_a_suffix_and_is_maximal(text, budget, count):
    shown = longest_end(text, budget, count)
    if budget <= 0:
        assert shown == ""
        return
    assert count(shown) <= budget
    if count(text) <= budget:
        assert shown == text
        return
    pieces = text.split(" ")
    kept = 0
    if shown:
        assert shown.startswith("… ")
        kept = len(shown[2:].split(" "))
        assert shown[2:] == " ".join(pieces[-kept:])
    # One more word does not fit, unless it would be the whole text, which never stands behind an ellipsis.
    if kept + 1 < len(pieces):
        assert count("… " + " ".join(pieces[-kept - 1 :])) > budget


def test_cut_texts_keep_their_end():
    assert longest_end("first we add, so the answer is 71", 4, words) == "… answer is 71"
    assert longest_end("unbroken", 3, letters) == ""
    assert longest_end("one two", 1, words) == ""


@given(st.lists(texts, max_size=6), st.integers(0, 25))
def test_shown_texts_fit_in_order_and_once(memory, budget):
    shown = shown_texts(memory, budget, words)
    assert len(shown) == len(memory)
    assert sum(words(text) for text in shown if text) <= budget
    cut = False
    for i, (text, seen) in enumerate(zip(memory, shown, strict=True)):
        if text in memory[:i] or cut or not text:
            assert seen is None
        elif seen != text:
            assert seen is None or text.endswith(seen.removeprefix("…").lstrip(" "))
            cut = True


def test_nothing_follows_a_text_that_was_cut_or_hidden():
    assert shown_texts(["a b", "c d e f", "g"], 4, words) == ["a b", "… f", None]
    # A single word is left: no end of the second text fits it, and the weaker third does not slip past it.
    assert shown_texts(["a b", "c d e f", "g"], 3, words) == ["a b", None, None]
    assert shown_texts(["a b", "a b", "c"], 3, words) == ["a b", None, "c"]


def test_select_takes_rows_of_everything():
    memory = MemoryState(*(torch.arange(3.0).reshape(3, *[1] * n) for n in (2, 1, 1, 1)), torch.ones(3, 1) > 0)
    slots = tuple((SlotText(f"text {i}", "ada", 1),) for i in range(3))
    ledgers = TokenLedger(), TokenLedger(), TokenLedger()
    state = DeliberationState(memory, slots, ({}, {"ada": ("no",)}, {}), (None,) * 3, ledgers)
    chosen = state.select([2, 1])
    assert [tensor.flatten().tolist() for tensor in chosen.memory[:4]] == [[2, 1]] * 4
    assert chosen.slots == (slots[2], slots[1])
    assert chosen.critiques == ({}, {"ada": ("no",)})
    assert chosen.ledgers == (ledgers[2], ledgers[1])
    assert state.select([]).memory.retention.shape == (0, 1)


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_size_of_a_state_does_not_depend_on_what_it_holds(scripted, tasks, slots, rounds):
    rnn, _ = scripted.build(3, slots=slots)

    batch = [Task("Why?", id=str(i)) for i in range(tasks)]
    state = rnn.cell.start(batch)
    empty = [tensor.shape for tensor in state.memory]
    for index in range(1, rounds + 1):
        _, state = rnn.cell(batch, [full_team(rnn.cell.ensemble)] * tasks, state, index=index)
    assert [tensor.shape for tensor in state.memory] == empty
    assert all(len(texts) <= slots for texts in state.slots)
