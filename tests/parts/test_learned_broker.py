"""The learned broker's tensors: what it reads, whom it asks, and its file."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from nsed_torch.parts.learned_broker import Heard, LearnedBroker

ENCODER = {"name": "hashed", "dim": 4}


def drawn(seed=0, **sizes):
    broker = LearnedBroker(("ann", "bea", "cyd"), **{"rounds": 3, **sizes})
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in broker.parameters():
            parameter.normal_()
    return broker


def heard(batch=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    asked, answered, agree = (torch.rand(batch, 3, generator=draw) < 0.6 for _ in range(3))
    lead, second = torch.rand(2, batch, generator=draw, dtype=torch.float64)
    length = torch.randn(batch, 3, generator=draw, dtype=torch.float64)
    return Heard(asked, answered, agree & asked & answered, length, lead, second)


def test_at_the_start_everybody_is_worth_one():
    broker = LearnedBroker(("a", "b"), rounds=2, roles=2, dim=4, encoder=ENCODER)
    assert torch.equal(broker(1, Heard.nothing(3, 2), torch.randn(3, 4)), torch.ones(3, 2, 2).double())
    assert repr(broker) == "LearnedBroker(agents=2, rounds=2, roles=2, dim=4)"


def test_the_evidence():
    yes, no = True, False
    found = Heard(
        torch.tensor([[yes, yes, no]]),
        torch.tensor([[yes, no, yes]]),
        torch.tensor([[yes, no, no]]),
        torch.tensor([[3.0, 99.0, 99.0]], dtype=torch.float64),
        torch.tensor([0.7]),
        torch.tensor([0.2]),
    )
    habits = torch.tensor([[1.0, 1.0, 1.0], [4.0, 1.0, 1.0]])
    # One of two did not answer; the other's answer is half a deviation longer than it uses to be.
    expected = [1, 1, 0, 1, 0, 0, 0.7, 0.2, 0.25, 1, 0.5]
    assert found.evidence(habits)[0].tolist() == pytest.approx(expected)


def test_utilities_are_linear_in_question_and_evidence():
    broker, found, x = drawn(dim=4, encoder=ENCODER), heard(), torch.randn(5, 4).double()
    for round_ in range(3):
        shown = found.evidence(broker.habits)
        q = (shown @ broker.confidence[round_, 1:] + broker.confidence[round_, 0]).sigmoid()[:, None]
        rows = torch.cat([x, shown, q, q * (1 - q)], -1)
        expected = broker.bias[round_] + (rows @ broker.weight[round_, :, 0].T)[..., None]
        torch.testing.assert_close(broker(round_, found, x), expected)


def test_it_asks_the_one_of_largest_utility_above_zero_that_was_not_asked():
    broker, found = drawn(), heard(200)
    for round_ in (0, 1):
        worth, chosen = broker(round_, found)[..., 0], broker.next_one(round_, found)
        for task in range(200):
            free = [(float(worth[task, a].detach()), a) for a in range(3) if not found.asked[task, a]]
            best = max(free, default=(-1.0, 0))
            asks = bool(free) and (best[0] > 0 or round_ == 0)
            assert chosen[task].nonzero()[:, 0].tolist() == ([best[1]] if asks else [])


@pytest.mark.parametrize("sizes", [{}, {"roles": 2, "rounds": 1, "dim": 4, "encoder": ENCODER}])
def test_a_saved_broker_is_the_same(tmp_path, sizes):
    broker, path = drawn(**sizes), tmp_path / "deep" / "broker.safetensors"
    broker.save_pretrained(path)
    again = LearnedBroker.from_pretrained(path)
    assert (again.agents, again.encoder, repr(again)) == (broker.agents, broker.encoder, repr(broker))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in broker.state_dict().items())
    written = path.read_bytes()
    again.save_pretrained(path)
    assert path.read_bytes() == written


def about(**changes):
    return {"nsed_broker": json.dumps({"agents": ["ann", "bea", "cyd"], "encoder": None, **changes})}


HOSTILE = {
    "another kind of file": (lambda t: t, {"format": "pt"}, "'nsed_broker'"),
    "no metadata": (lambda t: t, None, ""),
    "no JSON": (lambda t: t, {"nsed_broker": "{"}, ""),
    "too few names": (lambda t: t, about(agents=["ann", "bea"]), "agents and tensors do not fit"),
    "one text for names": (lambda t: t, about(agents="abc"), "agents and tensors do not fit"),
    "equal names": (lambda t: t, about(agents=["ann", "ann", "cyd"]), "one or more different names"),
    "numbers for names": (lambda t: t, about(agents=[1, 2, 3]), ""),
    "an encoder that is not read": (lambda t: t, about(encoder=ENCODER), "an encoder where dim is above 0"),
    "single precision": (lambda t: {n: v.float() for n, v in t.items()}, about(), "agents and tensors do not fit"),
    "a tensor less": (lambda t: {n: v for n, v in t.items() if n != "habits"}, about(), "Missing key"),
    "a tensor more": (lambda t: {**t, "more": torch.zeros(1).double()}, about(), "Unexpected key"),
    "weights of other rounds": (lambda t: {**t, "weight": t["weight"][:1].clone()}, about(), "do not fit"),
    "wide weights of few": (lambda t: {**t, "weight": torch.zeros(1, 1, 1, 9**6).double()}, about(), "do not fit"),
    "three roles": (
        lambda t: {**t, **{n: t[n].repeat_interleave(3, 2) for n in ("bias", "weight")}},
        about(),
        "roles of 1 or 2",
    ),
    "not a number": (lambda t: {**t, "bias": t["bias"] * torch.nan}, about(), ".bias.: expected numbers in"),
    "deviations of zero": (lambda t: {**t, "habits": t["habits"] * 0}, about(), "habits: expected finite numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_are_something_else_are_refused(tmp_path, case):
    change, metadata, fault = HOSTILE[case]
    path = tmp_path / "broker.safetensors"
    drawn().save_pretrained(path)
    save_file(change(load_file(path)), path, metadata=metadata)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: not a learned broker .*{fault}.*fit it again$"):
        LearnedBroker.from_pretrained(path)


def test_torn_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "broker.safetensors"
    with pytest.raises(ValueError, match=r"expected a learned broker, got none there: check the path$"):
        LearnedBroker.from_pretrained(path)
    drawn().save_pretrained(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"not a learned broker .*: fit it again$"):
        LearnedBroker.from_pretrained(path)


@pytest.mark.parametrize(
    ("agents", "sizes", "fault"),
    [
        ((), {"rounds": 1}, "one or more different names, got []"),
        (("a", "a"), {"rounds": 1}, "one or more different names, got ['a', 'a']"),
        (("a",), {"rounds": 0}, "expected rounds >= 1, roles of 1 or 2 and dim >= 0, got 0, 1, 0"),
        (("a",), {"rounds": 1, "roles": 3}, "got 1, 3, 0"),
        (("a",), {"rounds": 1, "dim": 4}, "expected an encoder where dim is above 0 and else none, got None and 4"),
    ],
)
def test_sizes_are_checked(agents, sizes, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        LearnedBroker(agents, **sizes)


def test_it_speaks_of_its_own_agents_and_embeddings_alone():
    broker = drawn(dim=4, encoder=ENCODER)
    broker.check(["cyd", "ann"], ENCODER)
    with pytest.raises(ValueError, match=r"^broker: expected agents out of ann, bea, cyd, got eve: leave them out"):
        broker.check(["ann", "eve"], ENCODER)
    with pytest.raises(
        ValueError, match=r'^broker: expected the encoder {"name": "hashed", "dim": 4}, got .*"dim": 8}'
    ):
        broker.check(["ann"], {"name": "hashed", "dim": 8})
