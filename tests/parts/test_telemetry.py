import json

import pytest

from nsed_torch.parts.telemetry import Telemetry, TrackRecord

NAMES = ["ann", "bob"]


class Clock:
    def __init__(self) -> None:
        self.now = 1.8e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_failing_agents_sit_out_longer_and_come_back(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    for strikes, minutes in enumerate((5, 10, 20, 30, 30), start=1):
        telemetry.failure("ann")
        assert telemetry.benched() == {"ann": strikes}
        clock.now += 60 * minutes - 1
        assert telemetry.benched() == {"ann": strikes}
        clock.now += 1
        assert telemetry.benched() == {}
    telemetry.success("ann")
    telemetry.failure("ann")
    clock.now += 300
    assert telemetry.benched() == {}


def test_one_success_ends_the_bench(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.failure("bob")
    telemetry.success("bob")
    assert telemetry.benched() == {}
    assert telemetry.records["bob"] == TrackRecord()


def test_whoever_is_back_first_stands_first(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.failure("bob")
    clock.now += 10
    telemetry.failure("ann")
    assert list(telemetry.benched()) == ["bob", "ann"]


def test_calls_under_way_add_no_strike(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    for _ in range(8):
        telemetry.failure("ann")
    assert telemetry.records["ann"].strikes == 1
    clock.now += 300
    assert telemetry.benched() == {}


def test_many_strikes_do_not_overflow(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.records["ann"].strikes = 5000
    telemetry.failure("ann")
    assert telemetry.records["ann"].benched_until == clock.now + 1800


def busy(clock):
    telemetry = Telemetry(NAMES, clock=clock)
    telemetry.success("ann")
    telemetry.failure("bob")
    return telemetry


def test_a_restart_changes_nothing(clock, tmp_path):
    before, after = busy(clock), Telemetry(NAMES, clock=clock)
    before.save(tmp_path / "telemetry.json")
    after.load(tmp_path / "telemetry.json")
    assert before.records == after.records
    assert after.benched() == {"bob": 1}
    clock.now += 300
    for telemetry in (before, after):
        telemetry.failure("bob")
    assert before.records == after.records
    assert after.benched() == {"bob": 2}


def test_files_know_agents_by_name(clock, tmp_path):
    busy(clock).save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    content["agents"]["bob"]["mean"] = [0.0, 1.0, 0.5]  # as files had it that kept running means
    (tmp_path / "t.json").write_text(json.dumps(content))
    new = Telemetry(["cid", "bob"], clock=clock)
    new.load(tmp_path / "t.json")
    assert new.records == {"cid": TrackRecord(), "bob": busy(clock).records["bob"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=2), "the telemetry that `save` writes, .*expected version 1, got 2"),
        (lambda c: c.pop("agents"), "'agents'"),
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
    assert fresh.records == Telemetry(NAMES).records


def test_bad_arguments():
    with pytest.raises(ValueError, match="different names, got"):
        Telemetry(["a", "a"])
    assert "ann" in repr(Telemetry(NAMES))
