"""`nsed bench`: what its lines compare is the same work, and what it writes can be read."""

import pytest

from nsed_torch.agents import RatingScale
from nsed_torch.evaluation.measurement import Measurement
from nsed_torch.evaluation.speed import conduct, phases, whole
from nsed_torch.experiments import bench
from nsed_torch.records import read_json


@pytest.fixture
def small(monkeypatch):
    """Little work, and no new interpreters: what an import costs is held elsewhere."""
    line = Measurement("import in a new process", "both", "torch", (2.0,), (2.0,))
    monkeypatch.setattr(bench, "import_line", lambda repeats: line)
    for module, name, value in (
        (phases, "AGENTS", 2),
        (phases, "TASKS", 2),
        (phases, "CANDIDATES", 2),
        (phases, "NEW_TOKENS", 3),
        (phases, "SCALE", RatingScale()),
        (whole, "TASKS", 2),
        (whole, "ROUNDS", 1),
        (whole, "NEW_TOKENS", 3),
        (conduct, "JOBS", 2),
        (conduct, "NEW_TOKENS", 3),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("nsed_torch.evaluation.speed.requests.PREFIX", 20)


def test_bench_from_end_to_end(nsed, tiny_model, small):
    out = nsed.ok(
        "bench",
        f"backbone.weights.path={tiny_model}",
        "repeats=1",
        "sample=2",
        "lines=[import,propose,rate,whole,conduct]",
        "output_dir=out",
    )
    assert out.endswith("out/bench.json\n")
    result = read_json(nsed.folder / "out/bench.json")
    assert (result["backbone"]["quantization"], result["sample"]) == ("none", 2)
    assert [line["name"].split(",")[0] for line in result["lines"]] == [
        *["propose"] * 4,
        *["rate"] * 2,
        "deliberate",
        *["conduct"] * 2,
        "import in a new process",
    ]
    for line in result["lines"]:
        assert f"{line['ratio']:.2f}" in out
        assert len(line["ours_values"]) == len(line["other_values"]) == 1
        assert line["ratio"] == line["other_values"][0] / line["ours_values"][0]


def test_the_table_tells_values_ratios_and_facts(capsys):
    bench.show([Measurement("work", "fast", "slow", (1.0, 2.0, 4.0), (3.0, 8.0, 8.0), "s", {"same": 0.5})], "title")
    out = " ".join(capsys.readouterr().out.split())
    assert "│ work │ fast: 2 s │ slow: 8 s │ 3.00 │ 2.00 to 4.00 │" in out
    assert out.endswith("work, against slow: same 0.5")


def test_the_core_is_measured_against_a_matrix_product(nsed, monkeypatch):
    monkeypatch.setattr(bench, "TASKS", 8)
    monkeypatch.setattr(bench, "MATRIX", 64)
    nsed.ok("bench", "target=core", "repeats=2", "output_dir=out")
    lines = read_json(nsed.folder / "out/bench.json")["lines"]
    assert [line["name"].rsplit(", ", 1)[1] for line in lines] == ["dim 64", "dim 384"]
    assert all(line["name"].startswith("train, 8 tasks x 10 voters x 10 proposals x 4 rounds") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["target=moon"], "expected target=engine, target=core or target=tune, got target=moon"),
        (
            ["lines=[propose,sleep]"],
            "expected lines out of propose, rate, whole, conduct, memory, llama_cpp, import, got sleep",
        ),
        (["lines=[]"], "expected lines out of propose, rate, whole, conduct, memory, llama_cpp, import, got none"),
        (["sample=0"], "expected sample of at least 1, got 0"),
        (["repeats=many"], "repeats: expected a whole number, got 'many'"),
        (["backbone=gpt"], "could not find 'backbone/gpt'; available: endpoint, gemma3_270m, qwen2_5_7b_instruct, "),
        (["backbone.quantization=nf3"], "expected quantization to be one of none, nf4, int8, got 'nf3'"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, arguments, line):
    assert nsed.fault("bench", *arguments).startswith(line)


def test_tuning_is_measured_against_a_logistic_vote(nsed, monkeypatch):
    monkeypatch.setattr("nsed_torch.experiments.bench.ANSWERED", (60, 4))
    out = nsed.ok("bench", "target=tune", "repeats=1", "output_dir=out")
    assert "tune, 60 tasks x 4 agents x 5 folds" in out
    (line,) = read_json(nsed.folder / "out/bench.json")["lines"]
    assert line["facts"]["peak_memory_mib"] > 0
