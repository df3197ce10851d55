"""The reference in these tests is the plain model: one sequence, one full forward pass a token, no cache."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nsed_torch.core.engine import (
    ContextWindowError,
    Decoding,
    Engine,
    GenerateRequest,
    Message,
    RateRequest,
    RatingScale,
)
from nsed_torch.engines.decode_loop import Draft, Twins, draw, penalize
from nsed_torch.engines.readout import tokens_read
from nsed_torch.engines.transformers_engine import TransformersEngine

ADAPTERS = (None, "poet", "critic")
texts = st.text("abc 1?\n", max_size=40)
requests = st.builds(
    GenerateRequest,
    agent=st.just("a"),
    messages=st.tuples(st.builds(Message, st.just("system"), texts), st.builds(Message, st.just("user"), texts)),
    decoding=st.builds(
        Decoding,
        max_new_tokens=st.integers(1, 12),
        temperature=st.sampled_from([0, 0.7, 1.5]),
        top_p=st.sampled_from([0.5, 0.9, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
    ),
    seed=st.integers(0, 2**63 - 1),
    adapter=st.sampled_from(ADAPTERS),
)
questions = st.builds(
    RateRequest,
    agent=st.just("a"),
    messages=st.tuples(st.builds(Message, st.just("system"), texts), st.builds(Message, st.just("user"), texts)),
    candidates=st.lists(texts, max_size=4).map(tuple),
    adapter=st.sampled_from(ADAPTERS),
    scale=st.sampled_from([RatingScale(), RatingScale(("N", "Y"), (-1.0, 1.0))]),
)


def next_logits(engine, ids, adapter=None):
    names = {"adapter_names": [adapter or "__base__"]} if engine.adapters else {}
    return engine.model(input_ids=torch.tensor([ids]), **names).logits[0, -1]


def rated_by_the_plain_model(engine, request):
    labels = torch.tensor([engine.chat.encode(label)[0] for label in request.scale.labels])
    values, coverage = [], []
    for candidate in request.candidates:
        *before, last = request.messages
        ids = engine.chat.ids([*before, Message(last.role, last.content + candidate)])
        probabilities = next_logits(engine, ids, request.adapter).double().softmax(dim=-1)[labels]
        coverage.append(float(probabilities.sum()))
        values.append(float(probabilities @ torch.tensor(request.scale.values).double() / probabilities.sum()))
    return values, coverage


def written_by_the_plain_model(engine, request):
    """Tokens up to the stop token or the allowance; returns them and whether a stop token came."""
    ids, written = engine.chat.ids(request.messages), []
    row = Draft(0, [], None, request.decoding, request.seed, 0)
    for _ in range(request.decoding.max_new_tokens):
        logits = next_logits(engine, ids + written, request.adapter)[None]
        if request.decoding.temperature == 0:
            penalty = torch.tensor([request.decoding.repetition_penalty])
            token = int(penalize(logits, torch.tensor([written]).long(), penalty).argmax())
        else:
            draw(logits, [Twins([row])], [()], 0.0, lambda _: False)
            token = row.written[-1]
        if token == engine.chat.tokenizer.eos_token_id or 240 <= token < 256:
            return written, True
        written.append(token)
    return written, False


@pytest.fixture(scope="module")
def exact_tiny(load_tiny, adapter_folders):
    """In float64, where the order of sums, which depends on the batch, cannot move a token."""
    return load_tiny(adapters=adapter_folders).to(torch.float64)


@settings(max_examples=12)
@given(st.lists(requests, min_size=2, max_size=5))
def test_a_row_says_in_any_batch_what_it_says_alone(exact_tiny, batch):
    together = exact_tiny.generate(batch)
    assert together == [exact_tiny.generate([request])[0] for request in batch]
    assert exact_tiny.generate(batch[::-1]) == together[::-1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_in_float32_says_in_a_batch_what_it_says_alone(tiny, ask, temperature):
    batch = [
        ask("x" * (17 * i % 50), seed=i, adapter=ADAPTERS[i % 3], temperature=temperature, max_new_tokens=3 + 4 * i)
        for i in range(6)
    ]
    together = tiny.generate(batch)
    assert together == [tiny.generate([request])[0] for request in batch]
    assert {result.finish_reason for result in together} == {"stop", "length"}
    assert len({result.text for result in together}) >= 4


@settings(max_examples=12)
@given(requests)
def test_an_answer_is_what_the_plain_model_writes_token_by_token(exact_tiny, request_):
    # The saved model brings a repetition penalty of its own: it must not act beside the request's decoding.
    (got,) = exact_tiny.generate([request_])
    written, stopped = written_by_the_plain_model(exact_tiny, request_)
    assert got.text == exact_tiny.chat.tokenizer.decode(written, skip_special_tokens=True).strip()
    assert got.completion_tokens == len(written) + stopped
    assert got.prompt_tokens == len(exact_tiny.chat.ids(request_.messages))
    assert got.finish_reason == ("stop" if stopped else "length")
    assert got.notes == ()


def test_seed_adapter_and_temperature_each_change_what_is_said(tiny, ask):
    base = ask(temperature=1.0, max_new_tokens=20, seed=1)
    others = [
        ask(temperature=1.0, max_new_tokens=20, seed=2),
        ask(temperature=1.0, max_new_tokens=20, seed=1, adapter="poet"),
        ask(temperature=0.0, max_new_tokens=20, seed=1),
    ]
    assert len({result.text for result in tiny.generate([base, *others])}) == 4


def test_no_requests_make_no_results(tiny):
    assert tiny.generate([]) == tiny.rate([]) == []


@settings(max_examples=20, derandomize=True)  # float32 sums depend on the batch; fixed examples do not flicker
@given(st.lists(questions, min_size=1, max_size=4))
def test_ratings_equal_one_full_forward_pass_a_pair(tiny, batch):
    with torch.no_grad():
        expected = [rated_by_the_plain_model(tiny, request) for request in batch]
    for request, rating, (values, coverage) in zip(batch, tiny.rate(batch), expected, strict=True):
        assert rating.values == pytest.approx(values, abs=1e-5)
        assert rating.coverage == pytest.approx(coverage, abs=1e-5)
        assert all(-1 <= value <= 1 for value in rating.values)
        assert all(0 <= share <= 1 for share in rating.coverage)
        assert len(rating.values) == len(rating.coverage) == len(request.candidates)


def test_a_model_with_a_sliding_window_rates_prompts_beyond_it(tmp_path, save_tiny, judge):
    engine = save_tiny(tmp_path, "gemma3")
    batch = [judge(["a", "bb" * 9], text="long " * 12), judge(["c"], text="x"), judge(["d" * 40, ""], text="y" * 20)]
    with torch.no_grad():
        expected = [rated_by_the_plain_model(engine, request)[0] for request in batch]
    for rating, values in zip(engine.rate(batch), expected, strict=True):
        assert rating.values == pytest.approx(values, abs=1e-5)


def test_a_shared_prefix_is_read_once_and_billed_with_every_candidate(tiny, judge):
    (rating,) = tiny.rate([judge(["one", "two", "three"], text="T" * 50)])
    lengths = [
        len(tiny.chat.ids([*judge([]).messages[:1], Message("user", "T" * 50 + c)])) for c in ("one", "two", "three")
    ]
    shared = (
        len(tiny.chat.encode(tiny.chat.text([*judge([]).messages[:1], Message("user", "T" * 50)]).split("TT<")[0])) + 2
    )
    rows = tiny.rating_prompts(judge(["one", "two", "three"], text="T" * 50))
    assert tokens_read(rows) == shared + sum(n - shared for n in lengths)
    assert rating.prompt_tokens == sum(lengths)


def test_no_candidates_make_no_ratings_and_cost_nothing(tiny, judge):
    empty, full = tiny.rate([judge([]), judge(["x"])])
    assert (empty.values, empty.coverage, empty.prompt_tokens) == ((), (), 0)
    alone = tiny.rate([judge(["x"])])[0]
    assert full.values == pytest.approx(alone.values, abs=1e-5)
    assert full.prompt_tokens == alone.prompt_tokens
    assert tiny.rate([judge([])]) == [empty]


def test_a_label_of_several_tokens_is_refused_every_time(tiny, judge):
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"^expected rating labels of one token each, '10' is \[.*\] for this model"
        ):
            tiny.rate([judge(["x"], scale=RatingScale(("1", "10"), (-1, 1)))])


def test_gradients_of_ratings_reach_the_judges_adapter_alone(load_tiny, adapter_folders, judge):
    engine = load_tiny(adapters=adapter_folders)
    trained = {n: p.requires_grad_(True) for n, p in engine.named_parameters() if "lora" in n}
    batch = [judge(["good", "bad answer"], adapter="poet"), judge(["x"]), judge(["y"], adapter="critic")]
    labels = engine.chat.label_ids(RatingScale().labels)

    def slopes(ratings):
        return torch.autograd.grad(ratings.sum(), list(trained.values()), allow_unused=True)

    got = slopes(engine.expected_ratings(batch)[:2])
    plain = [
        next_logits(engine, engine.chat.ids([batch[0].messages[0], Message("user", "Rate." + c)]), "poet")
        for c in batch[0].candidates
    ]
    expected = torch.stack(plain)[:, labels].softmax(dim=-1) @ torch.tensor(RatingScale().values)
    for name, slope, target in zip(trained, got, slopes(expected), strict=True):
        if "poet" in name:
            assert slope.abs().sum() > 0
            assert_close(slope, target, atol=1e-5, rtol=1e-3)
        else:
            assert slope is None or not slope.any()


def test_a_long_prompt_shrinks_the_allowance_and_says_so(load_tiny, ask):
    engine = load_tiny(context_window=64)
    prompt = len(engine.chat.ids(ask("x").messages)) - 1
    roomy, tight = engine.generate([ask("x" * 8, max_new_tokens=20), ask("x" * (44 - prompt), max_new_tokens=50)])
    assert roomy.notes == ()
    assert tight.notes == ("answer allowance shrunk from 50 to 20 tokens to fit the window",)
    assert tight.prompt_tokens == 44
    assert tight.completion_tokens <= 20
    few = ask("x" * (60 - prompt), max_new_tokens=4)
    assert engine.generate([few])[0].notes == ()


def test_a_prompt_beyond_the_window_is_one_line_with_the_numbers(load_tiny, ask, judge, fails):
    engine = load_tiny(context_window=64)
    prompt = len(engine.chat.ids(ask("x").messages)) - 1
    remedy = "shorten the question, lower memory_tokens or raise context_window"
    for asked, needed in ((50, 65), (16, 65), (17, 65)):
        with fails(
            f"a prompt of 49 tokens plus an answer needs at least {needed} tokens, the window of tiny is 64: {remedy}",
            ContextWindowError,
        ):
            engine.generate([ask("fits", max_new_tokens=1), ask("x" * (49 - prompt), max_new_tokens=asked)])
    with pytest.raises(ContextWindowError) as caught:
        engine.rate([judge(["x"], text=""), judge(["short", "x" * 99], text="", agent="solver")])
    length = len(engine.chat.ids([*judge([]).messages[:1], Message("user", "x" * 99)]))
    assert str(caught.value) == (
        f"the rating prompt of agent 'solver' needs at least {length} tokens, the window of tiny is 64: {remedy}"
    )


def test_the_window_is_never_wider_than_the_models(load_tiny):
    assert load_tiny(context_window=10**6).context_window == 512
    assert load_tiny().context_window == 512


@pytest.fixture(scope="module")
def talker(load_tiny):
    """A base model that has learned to answer "hi" and go on with another turn, and to answer "yo" at length."""
    engine = load_tiny(chat_template="plain")
    engine.requires_grad_(True)
    rows = [
        engine.chat.ids([Message("user", text)]) + engine.chat.encode(answer)
        for text, answer in (("hi", "ok\n### User:\nmore and more"), ("yo", "0123456789abcdefghijklmnopqrst"))
    ]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=-100)
    mask = ids != -100
    optimizer = torch.optim.Adam(engine.parameters(), lr=1e-2)
    for _ in range(150):
        loss = engine.model(input_ids=ids.clamp(min=0), attention_mask=mask.long(), labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return engine.requires_grad_(False)


def test_a_base_model_stops_where_it_opens_another_turn(talker, ask):
    batch = [ask("hi", temperature=0, max_new_tokens=24), ask("yo", temperature=0, max_new_tokens=24)]
    short, long = talker.generate(batch)
    assert (short.text, short.finish_reason) == ("ok", "stop")
    assert short.completion_tokens == len(talker.chat.encode("ok\n###"))
    assert (long.text, long.finish_reason, long.completion_tokens) == ("0123456789abcdefghijklmn", "length", 24)
    assert [short, long] == [talker.generate([request])[0] for request in batch]


def test_a_row_that_has_its_allowance_keeps_nobody_waiting(talker, ask, monkeypatch):
    steps = []
    monkeypatch.setattr(talker, "lookup_tokens", 0)
    hook = talker.model.register_forward_hook(lambda *_: steps.append(1))
    short, few = talker.generate(
        [ask("hi", temperature=0, max_new_tokens=24), ask("yo", temperature=0, max_new_tokens=3)]
    )
    hook.remove()
    assert (short.text, few.text) == ("ok", "012")
    assert len(steps) == len(talker.chat.encode("ok\n###"))


def test_the_engine_is_a_module_that_converts_and_round_trips(load_tiny, ask, judge):
    engine = load_tiny()
    assert isinstance(engine, Engine)
    assert not engine.training or not engine.model.training
    said, rated = engine.generate([ask()]), engine.rate([judge(["x", "y"])])[0].values
    saved = {name: value.clone() for name, value in engine.state_dict().items()}
    with torch.no_grad():
        for weight in engine.parameters():
            weight.add_(0.5)
    assert engine.rate([judge(["x", "y"])])[0].values != pytest.approx(rated)
    engine.load_state_dict(saved)
    assert engine.generate([ask()]) == said
    assert engine.rate([judge(["x", "y"])])[0].values == rated
    engine.to(torch.float64)
    assert {weight.dtype for weight in engine.parameters()} == {torch.float64}
    assert engine.rate([judge(["x", "y"])])[0].values == pytest.approx(rated, abs=1e-5)
    assert engine.generate([ask()]) == said


def test_memory_is_the_bytes_of_its_weights(load_tiny):
    engine = load_tiny()
    expected = sum(weight.numel() * 4 for weight in engine.parameters())
    buffers = sum(b.numel() * b.element_size() for b in engine.buffers())
    assert expected <= engine.memory_bytes() <= expected + buffers
    assert engine.to(torch.float64).memory_bytes() >= 2 * expected


def test_identity_tells_apart_whatever_changes_an_answer(load_tiny, tiny, adapter_folders):
    identities = [
        tiny.identity(None),
        tiny.identity("poet"),
        tiny.identity("critic"),
        load_tiny(chat_template="plain").identity(None),
        load_tiny(context_window=64).identity(None),
        load_tiny(dtype="bfloat16").identity(None),
        load_tiny(quantization="nf4").identity(None),
        load_tiny(quantization="int8").identity(None),
    ]
    assert len({json.dumps(identity, sort_keys=True) for identity in identities}) == len(identities)
    assert load_tiny().identity(None) == tiny.identity(None)
    # A name says nothing about the weights behind it.
    assert load_tiny(adapters={"poet": adapter_folders["critic"]}).identity("poet") == tiny.identity("critic")


def test_an_adapter_that_is_not_loaded_is_named(tiny, load_tiny, fails):
    with fails("expected a loaded adapter, got 'judge': add it to the backbone's adapters (critic, poet)"):
        tiny.identity("judge")
    with pytest.raises(ValueError, match=r"add it to the backbone's adapters \(none\)$"):
        load_tiny().identity("judge")


def test_a_model_without_a_stop_token_is_refused(load_tiny):
    engine = load_tiny()
    tokenizer, model = engine.chat.tokenizer, engine.model
    tokenizer.eos_token, model.generation_config.eos_token_id = None, None
    with pytest.raises(ValueError, match=r"^expected a tokenizer with an end-of-sequence token, got none$"):
        type(engine)(model, tokenizer, identity={})


def test_tokens_are_counted_without_any_template(tiny):
    assert tiny.count_tokens("abc") == 3
    assert tiny.count_tokens("") == 0


def test_thoughts_count_as_tokens_and_are_not_in_the_answer(exact_tiny, ask):
    (whole,) = exact_tiny.generate([ask(temperature=0, max_new_tokens=12)])
    opening, closing = whole.text[:2], whole.text[3:5]
    thinks = TransformersEngine(
        exact_tiny.model,
        exact_tiny.chat.tokenizer,
        identity=exact_tiny.identity(None),
        chat_template=exact_tiny.chat.template,
        reasoning=[opening, closing],
    )
    (told,) = thinks.generate([ask(temperature=0, max_new_tokens=12)])
    assert told.text == whole.text.rpartition(closing)[2].strip() != whole.text
    assert (told.written, told.completion_tokens) == (whole.written, whole.completion_tokens)
