"""`python -m bench gpu`: every part gives its lines, and one that is over its time or fails is named."""

import json
import time

import pytest

from bench import __main__ as bench
from bench import floors, gpu, phases
from bench.random_weights import SHAPES, speak_plainly, write_bytes_tokenizer, write_random
from bench.requests import propose_requests, unstoppable
from bench.timing import Measurement
from nsed_torch.core.engine import Decoding
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.records.files import read_json

SMALL = {"vocab_size": 400, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}

LINES = {"reading": 1, "writing": 3, "cell": 1, "memory": 2, "proposing": 5, "rating": 2, "weighing": 1, "training": 1}


@pytest.fixture
def little(monkeypatch, tmp_path):
    """Small sizes of every part, and a file with a small shape."""
    cell = {"agents": 2, "rounds": 2, "questions": 3, "tokens": 4, "at_once": 2}
    sizes = {
        "READ": (2, 32),
        "STEPS": 3,
        "ROWS": (1, 2),
        "ADAPTERS": 2,
        "EXAMPLES": 2,
        "LATE": 2,
        "CELL": cell,
        "TASKS": 2,
    }
    for module, name, value in (
        *((gpu, name, value) for name, value in sizes.items()),
        *((phases, name, 2) for name in ("TASKS", "CANDIDATES", "NEW_TOKENS")),
        *((floors, name, 2**9) for name in ("COPY", "MATRIX")),
    ):
        monkeypatch.setattr(module, name, value)
    file = tmp_path / "small.json"
    file.write_text(json.dumps({**SHAPES["llama3_1_8b"], **SMALL}))
    return file


def test_every_part_gives_its_lines(little, folder, tmp_path, capsys):
    words = ["gpu", "--device", "cpu", "--backbone", str(folder), "--random-weights", str(little)]
    assert (
        bench.main([*words, "--dtype", "float32", "--seconds", "9000", "--repeats", "1", "--output", str(tmp_path)])
        == 0
    )
    found, said = read_json(tmp_path / "gpu.json"), capsys.readouterr().out
    assert [part["part"] for part in found["parts"] if part["outcome"] != "done"] == []
    lines = [line["name"].split(": ")[0] for line in found["lines"]]
    for quantization, parts in gpu.FIRST.items():
        for part in parts:
            assert lines.count(f"small {quantization}, {part}") == LINES[part]
    assert found["card"] in said
    assert found["card"] in (tmp_path / "gpu.txt").read_text()
    assert (found["dtype"], min(found["bandwidth"], found["products"]) > 0) == ("float32", True)
    (cell,) = (line for line in found["lines"] if ", cell: " in line["name"])
    assert cell["facts"]["rounds_measured"] == 4
    assert cell["ours_values"][0] == pytest.approx(3 * 3600 / cell["facts"]["deliberations_an_hour"])


def test_a_part_that_is_over_its_time_or_fails_is_named():
    saved, runs = [], []
    budget = gpu.Budget(time.perf_counter() + 60, 3, lambda found: saved.append(len(found.parts)))
    line = Measurement("work", "ours", "other", (1.0,), (2.0,))

    def endless():
        while True:
            pass

    def slow_the_second_time():
        runs.append(1)
        return [line] if len(runs) == 1 else endless()

    def broken():
        raise RuntimeError("no luck\nat all")

    budget.spend("quick", 50, lambda: [line])
    budget.spend("endless", 0.05, endless)
    budget.spend("second", 0.5, slow_the_second_time)
    budget.spend("broken", 50, broken)
    budget.ends = 0.0
    budget.spend("late", 50, lambda: [line])
    outcomes = {part["part"]: part["outcome"] for part in budget.parts}
    assert outcomes["quick"] == "done"
    assert outcomes["endless"] == "not reached in its 0.05 s"
    assert outcomes["second"] == "stopped after its 0.5 s"
    assert outcomes["broken"] == "failed: RuntimeError: no luck"
    assert outcomes["late"] == "not reached: no time was left"
    assert [(one.name, len(one.ours_values)) for one in budget.lines] == [("quick: work", 3), ("second: work", 1)]
    assert saved == [1, 2, 3, 4, 5]


def test_what_a_random_model_writes_is_read_again(little, tmp_path):
    """Though its vocabulary is larger than its tokenizer's, which is made where none is at hand."""
    place = gpu.at_hand(Weights("none", path=str(tmp_path / "nowhere")), tmp_path)
    assert place == write_bytes_tokenizer(tmp_path)
    weights = write_random(str(little), place, tmp_path / "model", dtype="float32")
    engine = load_backbone(weights, dtype="float32", device="cpu")
    speak_plainly(engine)
    with unstoppable(engine):
        (answer,) = engine.generate(propose_requests(1, [None], Decoding(24, temperature=1.0)))
    assert answer.text.isprintable()
    assert engine.count_tokens(answer.text) >= 22  # spaces at the ends are cut


def test_a_floor_is_what_a_pass_must_move_or_compute(engine):
    weights, head = list(engine.model.parameters()), engine.model.get_output_embeddings()
    floor = floors.Floor(engine, floors.Rates(bandwidth=1.0, products=1e30))
    everything = sum(p.numel() * 4 for p in weights)
    apart = engine.model.get_input_embeddings().weight
    assert floor.reading([8]) == everything - (0 if apart is head.weight else apart.numel() * 4)
    kept = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width, bytes
    assert floor.step(3, 10) - floor.step(1, 10) == 20 * kept
    floor = floors.Floor(engine, floors.Rates(bandwidth=1e30, products=1.0))
    assert floor.reading([4, 4]) == pytest.approx(2 * floor.reading([4]))
    assert floor.step(2, 1) > floor.step(1, 1)
