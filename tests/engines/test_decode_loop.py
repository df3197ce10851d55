"""Rows that leave and enter: the same answers as one by one without a cache, in as few passes and as little memory."""

import copy
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
import torch

from nsed_torch.core.engine import Decoding, Message, RatingScale
from nsed_torch.engines.decode_loop import Draft, decode
from nsed_torch.engines.packing.model import PackedModel
from nsed_torch.engines.packing.slots import Slots

ADAPTERS = (None, "poet", "critic")


@torch.no_grad()
def greedy(engine, request):
    """Tokens of the plain model: a full forward pass each, one sequence, no cache."""
    prompt, written = engine.chat.ids(request.messages), []
    while len(written) < request.decoding.max_new_tokens:
        names = {"adapter_names": [request.adapter or "__base__"]} if engine.adapters else {}
        ids = torch.tensor([prompt + written])
        written.append(int(engine.model(input_ids=ids, use_cache=False, **names).logits[0, -1].argmax()))
        if written[-1] in engine.stop_ids:
            break
    return written


@pytest.fixture(scope="module")
def passes_of():
    """Counts what a call reads: one number of tokens a forward pass of the bare backbone."""

    def count(engine, call):
        base = getattr(engine.model, "get_base_model", lambda: engine.model)()
        read = []
        hook = base.register_forward_pre_hook(
            lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True
        )
        try:
            return call(), read
        finally:
            hook.remove()

    return count


@pytest.fixture(scope="module")
def ragged(ask):
    """Eleven requests of different lengths, allowances and adapters, some of which begin alike."""
    return [
        ask("same beginning " * (i % 3) + "q" * (7 * i % 23), adapter=ADAPTERS[i % 3], temperature=0, max_new_tokens=n)
        for i, n in enumerate((3, 20, 1, 9, 14, 20, 2, 17, 6, 20, 11))
    ]


@pytest.fixture(scope="module")
def written(tiny, ragged):
    """What the plain model writes to the ragged requests, and to the same without adapters."""
    return {True: [greedy(tiny, r) for r in ragged], False: [greedy(tiny, replace(r, adapter=None)) for r in ragged]}


def same(engine, answers, expected):
    """Assert that answers are the expected tokens, and count how they ended."""
    reasons = Counter()
    for answer, tokens in zip(answers, expected, strict=True):
        stopped = tokens[-1] in engine.stop_ids
        said = tokens[: len(tokens) - stopped]
        assert answer.text == engine.chat.tokenizer.decode(said, skip_special_tokens=True).strip()
        assert answer.completion_tokens == len(tokens)
        assert answer.finish_reason == ("stop" if stopped else "length")
        reasons[answer.finish_reason] += 1
    return reasons


@pytest.mark.parametrize("options", [{}, {"max_batch": 3, "pass_tokens": 40}, {"prefix_tokens": 0, "max_batch": 1}])
def test_greedy_answers_in_float32_are_exactly_those_without_a_batch(
    load_tiny, adapter_folders, ragged, written, options
):
    engine = load_tiny(adapters=adapter_folders, **options)
    for _ in range(2):
        reasons = same(engine, engine.generate(ragged), written[True])
    assert reasons["stop"] >= 2
    assert reasons["length"] >= 2


def test_so_are_those_of_a_model_with_sliding_windows(tmp_path, save_tiny, ragged):
    engine = save_tiny(tmp_path, "gemma3")
    engine.max_batch = 3
    bare = [replace(r, adapter=None) for r in ragged]
    same(engine, engine.generate(bare), [greedy(engine, request) for request in bare])


def test_no_more_passes_than_the_longest_answer_needs(load_tiny, ragged, written, passes_of):
    engine = load_tiny(prefix_tokens=0, lookup_tokens=0)
    bare = [replace(r, adapter=None) for r in ragged]
    lengths = [len(tokens) for tokens in written[False]]
    answers, read = passes_of(engine, lambda: engine.generate(bare))
    assert [a.completion_tokens for a in answers] == lengths
    assert len(read) == max(lengths)
    # In every step exactly the rows that still write; in the first pass every beginning once.
    assert read[1:] == [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    prompts = [engine.chat.ids(r.messages) for r in bare]
    assert read[0] == len({tuple(p[: n + 1]) for p in prompts for n in range(len(p))})


def test_rows_that_wait_enter_as_soon_as_one_leaves(load_tiny, ask, passes_of):
    engine = load_tiny(max_batch=3, prefix_tokens=0, lookup_tokens=0)
    batch = [ask("x" * i, temperature=0, max_new_tokens=n) for i, n in enumerate((9, 2, 7, 1, 3, 5, 2, 4, 1, 8, 6))]
    lengths = [len(greedy(engine, request)) for request in batch]
    # Three rows, the largest allowances first: what the schedule must come to, simulated with numbers alone.
    waiting = [lengths[i] for i in sorted(range(len(batch)), key=lambda i: -batch[i].decoding.max_new_tokens)]
    running, steps = [], []
    while waiting or running:
        room = min(3 - len(running), len(waiting))
        if room:
            running += [length - 1 for length in waiting[:room]]
            del waiting[:room]
            steps.append(None)
        else:
            steps.append(len(running))
            running = [left - 1 for left in running]
        running = [left for left in running if left]
    answers, read = passes_of(engine, lambda: engine.generate(batch))
    assert [a.completion_tokens for a in answers] == lengths
    assert len(read) == len(steps)
    assert all(got == expected for got, expected in zip(read, steps, strict=True) if expected is not None)


def test_samples_of_one_prompt_are_one_row_until_they_differ(load_tiny, ask, passes_of):
    # In float64, where the order of sums, which depends on the batch, cannot move a token.
    together, alone = (load_tiny(max_batch=n, prefix_tokens=0, lookup_tokens=0).to(torch.float64) for n in (16, 1))
    batch = [
        ask(text, temperature=0.3, max_new_tokens=allowed, seed=seed)
        for text, allowed in (("two", 12), ("one", 9))
        for seed in range(6)
    ]
    answers, read = passes_of(together, lambda: together.generate(batch))
    expected, one_by_one = passes_of(alone, lambda: alone.generate(batch))
    texts = [tuple(draft.written) for draft in sorted(chain(*together.written(batch)), key=lambda draft: draft.index)]
    assert [a.text for a in answers] == [e.text for e in expected]
    assert len(set(texts)) > 4
    # Each beginning of what samples of a prompt write is read once, but for its last token.
    beginnings = {(batch[i].messages, text[:n]) for i, text in enumerate(texts) for n in range(1, len(text))}
    assert sum(read[1:]) == len(beginnings) < sum(map(len, texts)) - len(texts) < sum(one_by_one)
    guessing = load_tiny(max_batch=16, lookup_tokens=8).to(torch.float64)
    assert [a.text for a in guessing.generate(batch)] == [e.text for e in expected]


def test_answers_are_handed_out_as_they_end(load_tiny, ragged):
    engine = load_tiny(max_batch=4, prefix_tokens=0)
    bare = [replace(r, adapter=None) for r in ragged]
    parts = list(engine.generations(bare))
    assert len(parts) > 3
    assert sorted(i for part in parts for i in part) == list(range(len(bare)))
    assert {i: a for part in parts for i, a in part.items()} == dict(enumerate(engine.generate(bare)))
    assert all(a.seconds > 0 for part in parts for a in part.values())


def test_in_bfloat16_it_is_the_plain_model_within_its_rounding(load_tiny, adapter_folders, ragged, judge):
    """Logits no further from the same weights in float64 than the plain model's; ratings within 0.02 on -1 to 1."""
    engine = load_tiny(adapters=adapter_folders, dtype="bfloat16")
    scale = torch.tensor(RatingScale().values)
    labels = [engine.chat.encode(label)[0] for label in RatingScale().labels]

    def plain(ids, adapter, model=engine.model):
        names = [adapter or "__base__"]
        return model(input_ids=torch.tensor([ids]), adapter_names=names, use_cache=False).logits[0, -1].double()

    prompts, adapters = [engine.chat.ids(r.messages) for r in ragged], [r.adapter for r in ragged]
    slots = Slots(len(prompts))
    with torch.no_grad(), engine._packed.opened() as model:
        readings = [model.readings([*ids, 5], name) for ids, name in zip(prompts, adapters, strict=True)]
        first = model.read([ids[:-1] for ids in readings], slots, range(len(prompts)))
        second = model.step([ids[-1:] for ids in readings], [len(ids) for ids in prompts], slots)
    assert first.dtype == second.dtype == torch.bfloat16
    exact = copy.deepcopy(engine.model).double()
    with torch.no_grad():
        for ids, name, *rows in zip(prompts, adapters, first.double(), second.double(), strict=True):
            for tokens, got in zip((ids, [*ids, 5]), rows, strict=True):
                expected = plain(tokens, name, exact)
                error, rounding = ((row - expected).square().mean() for row in (got, plain(tokens, name)))
                assert 0 < error < 1.5 * rounding
        batch = [judge(["good", "bad" * 5, ""], adapter=name) for name in ADAPTERS]
        for request, rating in zip(batch, engine.rate(batch), strict=True):
            before, last = request.messages
            for candidate, value in zip(request.candidates, rating.values, strict=True):
                ids = engine.chat.ids([before, Message(last.role, last.content + candidate)])
                expected = plain(ids, request.adapter)[labels].float().softmax(dim=-1) @ scale
                assert value == pytest.approx(float(expected), abs=0.02)


@pytest.fixture
def series(ask):
    """Two calls whose prompts begin with the same rules."""
    rules = "Be brief. Be kind. Never shout. " * 3
    return [
        [
            ask(f"{round_} {'x' * i}?", system=rules, adapter=ADAPTERS[i % 3], temperature=0, max_new_tokens=2)
            for i in range(4)
        ]
        for round_ in ("one", "two")
    ]


def test_what_was_read_before_is_not_read_again(load_tiny, adapter_folders, series, passes_of):
    engines = [load_tiny(adapters=adapter_folders, prefix_tokens=n) for n in (2048, 0)]
    (kept, read), (fresh, again) = (
        zip(*[passes_of(engine, lambda e=engine, b=batch: e.generate(b)) for batch in series], strict=True)
        for engine in engines
    )
    assert kept == fresh
    assert again[1][0] == again[0][0] == read[0][0]
    chat = engines[0].chat
    prompts = [
        [(r.adapter, tuple(ids[: n + 1])) for r in batch for ids in [chat.ids(r.messages)] for n in range(len(ids))]
        for batch in series
    ]
    assert read[1][0] == len(set(prompts[1]) - set(prompts[0])) < 0.5 * again[1][0]


def test_changed_weights_and_forgetting_make_it_read_anew(load_tiny, adapter_folders, series, passes_of):
    engine = load_tiny(adapters=adapter_folders)
    first, again = (passes_of(engine, lambda: engine.generate(series[0]))[1][0] for _ in range(2))
    assert again < first / 2
    engine.forget()
    assert not engine._packed.prefixes._buffers
    assert passes_of(engine, lambda: engine.generate(series[0]))[1][0] == first
    with torch.no_grad():
        for name, weight in engine.named_parameters():
            if "k_proj" in name or "poet" in name:
                weight.mul_(-1)
    answers, read = passes_of(engine, lambda: engine.generate(series[0]))
    assert read[0] == first
    same(engine, answers, [greedy(engine, request) for request in series[0]])


def test_what_is_kept_takes_the_same_memory_after_any_number_of_calls(load_tiny, ask, judge):
    engine = load_tiny(prefix_tokens=50, max_batch=2, pass_tokens=64)
    sizes = set()
    for i in range(6):
        engine.generate([ask(f"{i}" * (20 * i + 1), max_new_tokens=3), ask("again", max_new_tokens=2)])
        engine.rate([judge(["a", "b" * i], text="t" * 30 * i)])
        buffers = engine._packed.prefixes._buffers.values()
        sizes.add((len(buffers), sum(b.numel() * b.element_size() for b in buffers)))
    config = engine.model.config
    heads, dim = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    layers = config.num_hidden_layers
    assert sizes == {(2 * layers, 2 * layers * heads * 50 * dim * 4)}


def restored(engine):
    implementation = engine.model.config._attn_implementation
    return implementation != "nsed_packed" and not any("forward" in vars(m) for m in engine.model.modules())


def test_an_abandoned_call_leaves_the_model_as_it_was(load_tiny, adapter_folders, ragged, written, judge):
    engine = load_tiny(adapters=adapter_folders, max_batch=2)
    rated = engine.rate([judge(["x", "y"], adapter="poet")])[0].values
    parts = engine.generations(ragged)
    next(parts)
    assert not restored(engine)
    # Another call may come between two parts, and outlive the first.
    assert engine.rate([judge(["x", "y"], adapter="poet")])[0].values == pytest.approx(rated, abs=1e-5)
    others = engine.generations(ragged)
    found = dict(next(others))
    parts.close()
    for part in others:
        found.update(part)
    same(engine, [found[i] for i in range(len(ragged))], written[True])
    assert restored(engine)
    same(engine, engine.generate(ragged), written[True])


def test_an_exception_leaves_the_engine_usable(load_tiny, adapter_folders, ragged, written):
    engine = load_tiny(adapters=adapter_folders, max_batch=3)
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) == 9:
            raise RuntimeError("out of memory")

    hook = engine.model.get_base_model().model.layers[1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.generate(ragged)
    hook.remove()
    assert restored(engine)
    same(engine, engine.generate(ragged), written[True])


@pytest.mark.parametrize("guessed", [0, 8])
def test_the_loop_knows_nothing_of_texts(load_tiny, guessed):
    """Drafts are tokens: an answer ends where `ended` says, whatever the tokens mean."""
    engine = load_tiny()
    prompts = [[5, 6, 7], [5, 6], [9], [5, 6, 7]]
    drafts = [Draft(i, p, None, Decoding(temperature=0), 0, 4) for i, p in enumerate(prompts)]
    packed = PackedModel(engine.model, 0)
    with torch.no_grad(), packed.opened() as model:
        parts = list(
            decode(
                model,
                drafts,
                max_rows=2,
                pass_tokens=2,
                lookup_tokens=guessed,
                ended=lambda draft: len(draft.written) == draft.index + 1,
            )
        )
    assert [len(draft.written) for draft in drafts] == [1, 2, 3, 4]
    assert sorted(draft.index for part in parts for draft in part) == [0, 1, 2, 3]
    assert drafts[0].written == drafts[3].written[:1]
    assert [draft.position for draft in drafts] == [3, 3, 3, 6]
    with torch.no_grad():
        for draft in drafts:
            logits = engine.model(input_ids=torch.tensor([draft.prompt + draft.written])).logits[0]
            expected = logits[len(draft.prompt) - 1 : -1].argmax(dim=-1).tolist()
            assert draft.written == expected


def repeating(ask, **decoding):
    """Texts that say the same over and over, so that much can be looked up."""
    texts = ("one two three one two three one two", "abababababab", "q w e r t y", "no")
    return [ask(t, adapter=ADAPTERS[i % 3], seed=i, max_new_tokens=24, **decoding) for i, t in enumerate(texts)]


@pytest.mark.parametrize("decoding", [{"temperature": 0}, {"temperature": 0.3, "top_p": 0.9}, {"temperature": 1.0}])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_a_guess_changes_no_answer(load_tiny, adapter_folders, ask, decoding, penalty):
    requests = repeating(ask, repetition_penalty=penalty, **decoding)
    plain, ahead = (load_tiny(adapters=adapter_folders, lookup_tokens=n) for n in (0, 8))
    texts = [[answer.written for answer in engine.generate(requests)] for engine in (plain, ahead)]
    assert texts[0] == texts[1]


def test_what_was_said_before_is_written_in_few_passes(load_tiny, ask, passes_of):
    requests = [ask("abab", temperature=0, max_new_tokens=40)]
    counts = []
    for lookup_tokens in (0, 8):
        engine = load_tiny(lookup_tokens=lookup_tokens)
        engine.stop_ids = []
        # It says one token over and over.
        engine.model.model.norm.register_forward_hook(lambda _, given, output: torch.ones_like(output))
        answers, read = passes_of(engine, lambda engine=engine: engine.generate(requests))
        counts.append((answers[0].written, len(read)))
    assert counts[0][0] == counts[1][0]
    assert counts[0][1] == 40
    assert counts[1][1] <= 12


def test_what_an_adapter_wrote_before_is_written_in_few_passes(load_tiny, adapter_folders, ask, passes_of):
    engine = load_tiny(adapters=adapter_folders, prefix_tokens=0)
    engine.stop_ids = []

    def write(adapter):
        request = ask("abab", adapter=adapter, temperature=1.0, seed=7, max_new_tokens=40)
        answers, read = passes_of(engine, lambda: engine.generate([request]))
        return answers[0].written, len(read)

    said, first = write(ADAPTERS[1])
    again, second = write(ADAPTERS[1])
    assert again == said
    assert second < first / 2
    other = write(ADAPTERS[2])  # of whom nothing is known
    engine.forget()
    assert (write(ADAPTERS[2]), write(ADAPTERS[1])) == (other, (said, first))


def test_a_draft_guesses_what_followed_last_time():
    draft = Draft(0, [1, 2, 3, 9, 2, 3, 7, 5], None, Decoding(temperature=0), 0, allowance=20)
    draft.write([2], [], lambda _: False)
    assert draft.guess(8) == []  # nothing ended in 5, 2 before
    draft.write([3], [], lambda _: False)
    assert draft.guess(8) == [7, 5, 2, 3, 7, 5, 2]  # the last time, and what repeats itself goes on doing so
    assert draft.guess(2) == [7, 5]
    draft.write([7, 5, 2, 3, 7], [7, 5, 2, 3], lambda _: False)
    assert draft.guess(12) == [5, 2, 3, 7, 5, 2, 3, 7, 5]  # twice as many as were right, and one
    draft.write([5, 2, 4, 6], [5, 2, 3, 7], lambda _: False)
    assert draft.written == [2, 3, 7, 5, 2, 3, 7, 5, 2, 4]  # what stands behind a wrong guess is not written
    assert draft.guess(3) == [7, 5, 2]  # a copy goes on behind a token that differs
    draft.write([8, 8, 8, 8], [7, 5, 2], lambda _: False)
    assert draft.guess(3) == [5, 2, 4]
    draft.write([8, 8], [5], lambda _: False)
    assert draft.guess(8) == []  # but not behind two of them
    after = Draft(0, [9, 8, 1, 2], None, Decoding(temperature=0), 0, allowance=20, earlier=[1, 2, 3, 4, 5, 8, 1, 6])
    after.write([3], [], lambda _: False)
    assert after.guess(3) == [4, 5, 8]  # what followed in an answer before
    after.write([1], [4, 5, 8], lambda _: False)
    assert after.guess(3) == [5, 8, 1]
    assert after.position == 5


def test_an_answer_is_guessed_to_begin_as_the_last_one_did():
    earlier = [1, 2, 3, 4, 5, 6, 7]
    draft = Draft(0, [9, 9], None, Decoding(temperature=0), 0, allowance=20, earlier=earlier, last=4)
    draft.write([8], [], lambda _: False)
    assert draft.guess(3) == [5, 6, 7]  # its second token and on, though the first differs
    draft.write([0], [5, 6, 7], lambda _: False)
    assert draft.guess(2) == [6, 7]
    draft.write([0], [6, 7], lambda _: False)
    assert draft.guess(2) == []


def test_a_draft_that_is_about_to_end_guesses_less():
    ending = Draft(0, [1, 2, 1, 2], None, Decoding(temperature=0), 0, allowance=4)
    ending.write([1], [], lambda _: False)
    ending.write([2, 1, 2], [2, 1], lambda draft: draft.written[-1] == 2)
    assert ending.written == [1, 2]  # nothing is written behind an end
    assert ending.guess(8) == [1]  # never beyond the allowance
