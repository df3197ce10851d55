"""Adapters fitted to replies: the loss is that of plain rows, and a resumed run ends where a straight one does."""

import json
import shutil
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from nsed_torch.core.engine import Decoding, GenerateRequest, Message
from nsed_torch.engines.adapters import adapter_parameters, add_adapter
from nsed_torch.tuning import fine_tuning
from nsed_torch.tuning.fine_tuning import Example, FineTuning, fine_tune, last_checkpoint, reply_loss, tokenized
from nsed_torch.tuning.logs import FileLog

TARGETS = ("q_proj", "v_proj", "down_proj")


def example(question, reply):
    return Example((Message("system", "s"), Message("user", question)), reply)


EXAMPLES = [example(f"{a}{b}", b + a) for a in "abcdef" for b in "ghij"]


@pytest.fixture
def learner(toy):
    engine = toy.engine()
    add_adapter(engine, "learner", rank=4, targets=TARGETS, seed=1)
    return engine


def plain_loss(engine, examples):
    """One example after the other, nothing packed, nothing shared."""
    losses = []
    for one in examples:
        prompt = engine.chat.ids(one.messages)
        reply = [*engine.chat.encode(one.reply), engine.chat.tokenizer.eos_token_id]
        logits = engine.model(input_ids=torch.tensor([prompt + reply])).logits[0]
        losses.append(nn.functional.cross_entropy(logits[len(prompt) - 1 : -1], torch.tensor(reply), reduction="none"))
    return torch.cat(losses).mean()


def packed_loss(engine, examples):
    return reply_loss(engine, **tokenized(engine, examples))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=4), st.text("ab", max_size=3)), min_size=1, max_size=5))
def test_a_packed_row_has_the_loss_of_its_examples_one_by_one(shared_learner, pairs):
    examples = [example(q, r) for q, r in pairs]
    assert_close(packed_loss(shared_learner, examples), plain_loss(shared_learner, examples), atol=1e-5, rtol=1e-4)


def test_an_example_beyond_the_window_is_refused(shared_learner):
    with pytest.raises(ValueError, match=r"at most 512 tokens, the model.s window, got one of 6\d\d:"):
        tokenized(shared_learner, [EXAMPLES[0], example("a", "b" * 600)])


@pytest.fixture(scope="module")
def shared_learner(model_folder):
    from nsed_torch.engines.backbones import load_backbone
    from nsed_torch.engines.weights import Weights

    engine = load_backbone(Weights(name="tiny", path=str(model_folder)), dtype="float32", device="cpu")
    add_adapter(engine, "learner", rank=4, targets=TARGETS, seed=1)
    with torch.no_grad():
        for parameter in adapter_parameters(engine, "learner").values():
            parameter.add_(0.1)
    return engine


def test_its_gradient_is_that_of_the_examples_one_by_one(shared_learner):
    examples = EXAMPLES[:3]
    parameters = list(adapter_parameters(shared_learner, "learner").values())
    packed = torch.autograd.grad(packed_loss(shared_learner, examples), parameters)
    plain = torch.autograd.grad(plain_loss(shared_learner, examples), parameters)
    assert_close(packed, plain, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(("most", "passes"), [(10_000, 1), (150, 2), (1, 4)])
def test_long_examples_go_through_apart_with_the_same_gradient(shared_learner, monkeypatch, most, passes):
    examples = [example("a", "bb"), example("c" * 20, "dd"), example("e", "fff"), example("g", "h" * 30)]
    lengths = [len(ids) for ids in tokenized(shared_learner, examples)["sequences"]]
    assert max(lengths) < 150 < sum(lengths)
    parameters, seen = list(adapter_parameters(shared_learner, "learner").values()), []
    together = packed_loss(shared_learner, examples)
    expected = torch.autograd.grad(together, parameters)
    follow = type(shared_learner).follow
    monkeypatch.setattr(fine_tuning, "PASS", most)
    monkeypatch.setattr(type(shared_learner), "follow", lambda *a: (seen.append(1), follow(*a))[1])
    loss = packed_loss(shared_learner, examples)
    assert len(seen) == passes, lengths
    assert_close(loss, together, atol=1e-5, rtol=1e-4)
    assert_close(torch.autograd.grad(loss, parameters), expected, atol=1e-5, rtol=1e-3)


def test_what_a_pass_keeps_for_its_gradient_is_gone_before_the_next(shared_learner, monkeypatch):
    kept, most, follow = weakref.WeakSet(), [], type(shared_learner).follow

    class Kept:
        def __init__(self, tensor):
            self.tensor = tensor
            kept.add(self)

    def followed(*asked):
        most.append(len(kept))
        return follow(*asked)

    monkeypatch.setattr(fine_tuning, "PASS", 1)
    monkeypatch.setattr(type(shared_learner), "follow", followed)
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda one: one.tensor):
        assert packed_loss(shared_learner, EXAMPLES[:3]).requires_grad
    assert len(most) == 3
    parameters = adapter_parameters(shared_learner, "learner")
    assert max(most) <= 2 * len(parameters), "beside a product with each gradient"


def test_it_learns_and_nothing_but_the_adapter_changes(learner, tmp_path):
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    log = FileLog(tmp_path / "log.jsonl")
    plan = FineTuning(steps=60, batch=12, learning_rate=2e-2, warmup_steps=2, save_steps=60)
    fine_tune(learner, EXAMPLES, tmp_path / "checkpoints", settings=plan, log=log)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert lines[-1]["loss"] < lines[0]["loss"] / 3
    assert min(line["seconds"] for line in lines) > 0
    own = set(adapter_parameters(learner, "learner"))
    changed = {name for name, value in learner.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert changed <= own
    assert not learner.training
    request = GenerateRequest("t", EXAMPLES[5].messages, Decoding(4, temperature=0.0), 0, "learner")
    assert learner.generate([request])[0].text == EXAMPLES[5].reply


def test_a_resumed_run_ends_where_a_straight_one_does(toy, tmp_path):
    def run(folder, steps_before_kill=None):
        engine = toy.engine()
        add_adapter(engine, "learner", rank=2, targets=TARGETS, seed=1)
        plan = FineTuning(steps=6, batch=8, learning_rate=1e-2, warmup_steps=1, save_steps=2)
        log = FileLog(folder / "log.jsonl")
        if steps_before_kill:
            log.write = killed_after(log.write, steps_before_kill)
        fine_tune(engine, EXAMPLES, folder / "checkpoints", settings=plan, log=log)
        lines = [json.loads(line) for line in log.path.read_text().splitlines()]
        return adapter_parameters(engine, "learner"), [(line["step"], line["loss"]) for line in lines]

    def killed_after(write, step):
        def limited(at, record):
            if at > step:
                raise KeyboardInterrupt
            write(at, record)

        return limited

    straight, told = run(tmp_path / "straight")
    for kill in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "killed", kill)
    # A checkpoint that was cut off is passed over.
    torn = tmp_path / "killed" / "checkpoints" / "checkpoint-5"
    shutil.copytree(tmp_path / "killed" / "checkpoints" / "checkpoint-4", torn)
    (torn / "trainer_state.json").write_text('{"global_')
    assert last_checkpoint(tmp_path / "killed" / "checkpoints")[0] == 4
    resumed, told_again = run(tmp_path / "killed")
    assert told_again == told
    for name, value in straight.items():
        assert torch.equal(value, resumed[name]), name


def test_checkpoints_ask_nobody_about_the_backbone(toy, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda *a, **_: asked.append(a))
    engine = toy.engine()
    engine.model.name_or_path = "someone/model"
    add_adapter(engine, "learner", rank=2, targets=TARGETS)
    fine_tune(
        engine,
        EXAMPLES,
        tmp_path,
        settings=FineTuning(steps=2, batch=2, save_steps=1),
        log=FileLog(tmp_path / "log.jsonl"),
    )
    assert last_checkpoint(tmp_path)[0] == 2
    assert asked == []


def test_it_refuses_what_it_cannot_learn_from(toy, learner, tmp_path):
    with pytest.raises(ValueError, match="expected examples and an adapter that learns, got 0 examples"):
        fine_tune(learner, [], tmp_path, settings=FineTuning(), log=FileLog(tmp_path / "log"))
    with pytest.raises(ValueError, match="expected examples and an adapter that learns"):
        fine_tune(toy.engine(), EXAMPLES, tmp_path, settings=FineTuning(), log=FileLog(tmp_path / "log"))
    with pytest.raises(ValueError, match="of at least 1 and rates above 0"):
        FineTuning(steps=0)
    assert last_checkpoint(tmp_path / "nothing") == (0, None)
