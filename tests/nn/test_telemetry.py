import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.nn.telemetry import DECAY, Telemetry

NAMES = ["ann", "bob"]


class Clock:
    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_means_are_exponentially_weighted(values):
    telemetry = Telemetry(NAMES)
    for value in values:
        telemetry.success("bob", 2.0, correct=value)
    weights = [DECAY ** (len(values) - 1 - t) for t in range(len(values))]
    expected = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
    accuracy, latency, failures = telemetry.mean[1].tolist()
    assert accuracy == pytest.approx(expected, abs=1e-12)
    assert latency == pytest.approx(math.log(3))
    assert failures == 0
    assert not telemetry.mean[0].any()


def test_unknown_correctness_and_failures_are_counted_apart(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.success("ann", 0.0, correct=True)
    telemetry.success("ann", 0.0)
    telemetry.failure("ann")
    telemetry.success("ann", 0.0, correct=False)
    assert telemetry.mean[0].tolist() == pytest.approx([0.95 / 1.95, 0.0, 0.95 / (1 + 0.95 + 0.95**2 + 0.95**3)])


def test_failing_agents_sit_out_longer_and_come_back(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    for minutes in (5, 10, 20, 30, 30):
        telemetry.failure("ann")
        assert telemetry.available().tolist() == [False, True]
        clock.now += 60 * minutes - 1
        assert telemetry.available().tolist() == [False, True]
        clock.now += 1
        assert telemetry.available().tolist() == [True, True]
    telemetry.success("ann", 1.0)
    telemetry.failure("ann")
    clock.now += 300
    assert telemetry.available().all()


def test_one_success_ends_the_bench(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.failure("bob")
    telemetry.success("bob", 1.0)
    assert telemetry.available().all()
    assert telemetry.strikes.tolist() == [0, 0]


def test_calls_under_way_add_no_strike(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    for _ in range(8):
        telemetry.failure("ann")
    assert telemetry.strikes[0] == 1
    clock.now += 300
    assert telemetry.available().all()
    assert telemetry.mean[0, 2] == 1


def test_many_strikes_do_not_overflow(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.strikes[0] = 5000
    telemetry.failure("ann")
    assert telemetry.benched_until[0] == clock.now + 1800


def busy(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.success("ann", 1.5, correct=True)
    telemetry.success("bob", 0.3, correct=False)
    telemetry.failure("bob")
    return telemetry


def same(a, b):
    return all(torch.equal(x, b.state_dict()[name]) for name, x in a.state_dict().items())


def test_a_restart_changes_nothing(clock, tmp_path):
    before = busy(clock)
    before.save(tmp_path / "telemetry.json")
    after, other = Telemetry(NAMES, clock=clock), Telemetry(NAMES, clock=clock)
    after.load(tmp_path / "telemetry.json")
    other.load_state_dict(before.state_dict())
    assert same(before, after)
    assert same(before, other)
    assert after.available().tolist() == [True, False]
    clock.now += 300
    assert after.available().all()
    for telemetry in (before, after):
        telemetry.failure("bob")
    assert same(before, after)


def test_files_know_agents_by_name(clock, tmp_path):
    busy(clock).save(tmp_path / "t.json")
    new = Telemetry(["cid", "bob"], clock=clock)
    new.load(tmp_path / "t.json")
    assert new.available().tolist() == [True, False]
    assert torch.equal(new.mean[1], busy(clock).mean[1])
    assert not new.mean[0].any()


def test_a_cast_keeps_the_bench(clock):
    telemetry = busy(clock).half()
    clock.now += 299
    assert telemetry.available().tolist() == [True, False]
    clock.now += 1
    assert telemetry.available().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=2), "the telemetry that `save` writes, .*expected version 1, got 2"),
        (lambda c: c.pop("agents"), "'agents'"),
        (lambda c: c["agents"]["bob"].pop("mass"), "missing .*mass"),
        (lambda c: c["agents"]["bob"].update(mean=[1.0]), r"got \[1.0\]"),
        (lambda c: c["agents"]["bob"].update(strikes=-1), "got -1"),
        (lambda c: c["agents"]["bob"].update(benched_until="x"), "benched_until: expected int, got 'x'"),
    ],
)
def test_broken_files_change_nothing(clock, tmp_path, change, message):
    path = tmp_path / "t.json"
    busy(clock).save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    fresh = Telemetry(NAMES, clock=clock)
    with pytest.raises(ValueError, match=f"t.json: .*{message}"):
        fresh.load(path)
    assert same(fresh, Telemetry(NAMES))


def test_bad_arguments():
    with pytest.raises(ValueError, match="different names, got"):
        Telemetry(["a", "a"])
    telemetry = Telemetry(NAMES)
    with pytest.raises(ValueError, match="one of the agents ann, bob, got 'zoe'"):
        telemetry.failure("zoe")
    with pytest.raises(ValueError, match="seconds of at least 0, got nan"):
        telemetry.success("ann", math.nan)
    with pytest.raises(ValueError, match=r"correct in \[0, 1\], got 2.0"):
        telemetry.success("ann", 1.0, correct=2.0)
    assert not telemetry.mass.any()
    assert "ann" in repr(telemetry)
