"""`nsed bench`: what its lines compare is the same work, and what it writes can be read."""

import pytest

from nsed_torch.agents import ScriptedEngine
from nsed_torch.experiments import bench
from nsed_torch.experiments.bench import CANDIDATE, NEW_TOKENS, PERSONAS, QUESTIONS, propose_line, rate_line
from nsed_torch.records import read_json


class Counting(ScriptedEngine):
    """Keeps the batches it is given."""

    def __init__(self):
        super().__init__(lambda request: "word " * 99, lambda request, candidate: 0.0)
        self.batches = []

    def generate(self, requests):
        self.batches.append(list(requests))
        return super().generate(requests)

    def rate(self, requests):
        self.batches.append([(r.messages[-1].content + c, r.agent) for r in requests for c in r.candidates])
        return super().rate(requests)


CALLS = len(QUESTIONS) * len(PERSONAS)


@pytest.mark.parametrize(("line", "calls"), [(propose_line, CALLS), (rate_line, 3 * CALLS)])
def test_both_sides_do_the_same_work(line, calls):
    engine = Counting()
    comparison = line(engine, repeats=2)
    together = [batch for batch in engine.batches if len(batch) == calls]
    apart = [batch[0] for batch in engine.batches if len(batch) == 1]
    assert len(together) == 3  # one to warm up
    assert len(together) + len(apart) == len(engine.batches)
    assert apart == together[0] * 3
    assert len(comparison.ours_seconds) == len(comparison.other_seconds) == 2
    if line is propose_line:
        assert {request.decoding.max_new_tokens for request in apart} == {NEW_TOKENS}
        assert all(CANDIDATE in request.messages[-1].content for request in apart)


def test_bench_from_end_to_end(nsed, tiny_model, monkeypatch):
    # What an import costs is held elsewhere; four interpreters here would only take time.
    monkeypatch.setattr(bench.subprocess, "run", lambda *args, **kwargs: None)
    out = nsed.ok("bench", f"backbone.weights.path={tiny_model}", "repeats=1", "output_dir=out")
    assert out.endswith("out/bench.json\n")
    result = read_json(nsed.folder / "out/bench.json")
    assert result["backbone"]["quantization"] == "none"
    names = [line["name"] for line in result["lines"]]
    assert names == [
        f"propose, {CALLS} calls x {NEW_TOKENS} tokens",
        f"rate, {3 * CALLS} pairs",
        "import in a new process",
    ]
    for line in result["lines"]:
        assert f"{line['ratio']:.2f}" in out
        assert len(line["ours_seconds"]) == len(line["other_seconds"]) == 1
        assert line["ratio"] == line["other_seconds"][0] / line["ours_seconds"][0]


def test_the_core_is_measured_against_a_matrix_product(nsed, monkeypatch):
    monkeypatch.setattr(bench, "TASKS", 8)
    monkeypatch.setattr(bench, "MATRIX", 64)
    out = nsed.ok("bench", "target=core", "repeats=2", "output_dir=out")
    lines = read_json(nsed.folder / "out/bench.json")["lines"]
    assert [line["name"].rsplit(", ", 1)[1] for line in lines] == ["dim 64", "dim 384"]
    assert all(line["name"].startswith("train, 8 tasks x 10 voters x 10 proposals x 4 rounds") for line in lines)
    assert all(f"{1 / line['ratio']:.2f}" in out for line in lines)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["target=moon"], "expected target=engine or target=core, got target=moon"),
        (["repeats=many"], "Error merging override repeats=many: Value 'many'"),
        (["backbone=gpt"], "could not find 'backbone/gpt'; available: gemma3_270m, smollm2_135m_instruct"),
        (["backbone.quantization=nf3"], "expected quantization to be one of none, nf4, int8, got 'nf3'"),
    ],
)
def test_what_a_user_can_fix_is_one_line(nsed, arguments, line):
    assert nsed.fault("bench", *arguments).startswith(line)
