"""Memory is measured in processes of their own."""

import pytest
import torch

from nsed_torch.agents import Weights, load_backbone
from nsed_torch.evaluation.speed import memory, memory_worker
from nsed_torch.evaluation.speed.memory import agents_lines, memory_lines, rounds_lines
from nsed_torch.evaluation.speed.memory_worker import of_agents, resident_peak


@pytest.fixture
def backbone(tiny_folder):
    return {"weights": {"name": "tiny", "path": str(tiny_folder)}, "dtype": "float32", "device": "cpu"}


def test_rounds_are_measured_in_one_process(backbone, monkeypatch):
    monkeypatch.setattr(memory, "ROUNDS", (1, 2))
    lines = rounds_lines({**backbone, "quantization": "none"}, repeats=1)
    assert [(line.name, line.ours, line.other) for line in lines] == [("memory, rounds, none", "2", "1")]
    peaks = [lines[0].other_values[0], *(line.ours_values[0] for line in lines)]
    assert 50 < lines[0].facts["loaded"] <= peaks[0]
    assert peaks == sorted(peaks)
    assert {line.unit for line in lines} == {"MiB"}


def test_every_agent_has_an_adapter_that_speaks(backbone, monkeypatch):
    engine = load_backbone(Weights(**backbone.pop("weights")), **backbone)
    asked, answers = [], {}
    for phase in ("generate", "rate"):
        work = getattr(engine, phase)

        def noted(requests, work=work, phase=phase):
            asked.append((phase, [request.adapter for request in requests]))
            answers[phase] = work(requests)
            return answers[phase]

        monkeypatch.setattr(engine, phase, noted)
    (most,) = of_agents(engine, 2)
    both = ["agent0", "agent1"]
    assert asked == [("generate", both), ("rate", both)]
    assert set(engine.adapters) == {"agent0", "agent1"}
    assert most > 50
    assert len({engine.identity(name)["adapter"] for name in ("agent0", "agent1")}) == 2
    assert all(len(rating.values) == 2 for rating in answers["rate"])
    ups = [p for name, p in engine.named_parameters() if "lora_B" in name]
    assert ups
    assert all(p.any() for p in ups)


def test_a_point_is_measured_as_often_as_asked(backbone, monkeypatch):
    asked = []

    def run(arguments):
        asked.append(arguments)
        return {"loaded": 90.0, "peaks": [100.0 + arguments["agents"] + len(asked)]}

    monkeypatch.setattr(memory, "_run", run)
    lines = agents_lines({**backbone, "quantization": "int8"}, repeats=2)
    assert [a["agents"] for a in asked] == [1, 1, 2, 2, 4, 4, 8, 8]
    assert lines[-1].other_values == (102.0, 103.0)
    assert lines[-1].ours_values == (115.0, 116.0)
    assert lines[-1].ratio == pytest.approx((102 / 115 + 103 / 116) / 2)
    assert lines[-1].name == "memory, agents on one backbone, int8"


def test_what_a_machine_cannot_do_is_left_out(backbone, monkeypatch):
    def run(arguments):
        if arguments["backbone"]["quantization"] == "nf4":
            raise ChildProcessError("no bitsandbytes")
        return {"loaded": 1.0, "peaks": [2.0] * 8}

    monkeypatch.setattr(memory, "_run", run)
    notes = []
    lines = memory_lines(backbone, ("none", "nf4"), report=notes.append)
    assert len(lines) == 6
    assert {line.name.rsplit(", ", 1)[1] for line in lines} == {"none"}
    assert notes == ["memory, nf4: left out: no bitsandbytes"]


def test_a_process_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(memory, "WORKER", "nsed_torch.nowhere")
    with pytest.raises(ChildProcessError, match=r"No module named nsed_torch\.nowhere$"):
        memory._run({})


def test_no_repeats_are_refused(backbone):
    with pytest.raises(ValueError, match=r"^expected at least 1 repeat, got 0$"):
        memory_lines(backbone, repeats=0)


def test_the_peak_is_read_from_the_process_or_the_system(monkeypatch, tmp_path):
    assert resident_peak("Name:\tpython\nVmPeak:\t 9 kB\nVmHWM:\t 2048 kB\nVmRSS:\t 1 kB\n") == 2.0
    here = memory_worker.peak()
    monkeypatch.setattr(memory_worker, "STATUS", tmp_path / "status")
    # What the system accounts for may be inherited from the process that started this one: never less.
    assert memory_worker.peak() > 0.9 * here


@pytest.mark.skipif(not memory_worker.CLEAR.exists(), reason="this system does not forget a process's peak")
def test_loading_is_forgotten():
    large = torch.ones(64 * 2**20)  # 256 MiB
    most = memory_worker.peak()
    del large
    memory_worker.forget_peak()
    assert memory_worker.peak() < most - 128
