"""`python -m bench`: every line compares the same work, and what is written can be read."""

import json
import sys

import pytest
import torch

from bench import __main__ as bench
from bench import (
    core,
    experts,
    memory,
    notes,
    phases,
    replicas,
    requests,
    serve,
    startup,
    steps,
    teams,
    timing,
)
from bench.plain import PlainEngine, decode_bare, write_mixed, write_together
from bench.random_weights import SHAPES, write_random
from bench.requests import PREFIX, give_adapters, propose_requests, questions, rate_requests, unstoppable
from bench.timing import Measurement, compare
from nsed_torch.core.engine import Decoding, LikelihoodRequest, Message, RatingScale
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.records.extras import install
from nsed_torch.records.files import read_json
from nsed_torch.records.transcript import Task

GREEDY = Decoding(max_new_tokens=4, temperature=0)


@pytest.fixture
def small(monkeypatch):
    """Little work of every line."""
    for module, name, value in (
        *((phases, name, 2) for name in ("AGENTS", "TASKS", "CANDIDATES", "NEW_TOKENS")),
        (phases, "SCALE", RatingScale()),
        (replicas, "TASKS", 2),
        *((teams, name, value) for name, value in (("TASKS", 3), ("ROUNDS", 2), ("JOBS", 3), ("NEW_TOKENS", 3))),
        (requests, "PREFIX", 20),
        (core, "TASKS", 8),
        (core, "MATRIX", 64),
        (core, "ANSWERED", (60, 4)),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command line; returns its exit code, what it printed, and the lines of bench.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "import_line", lambda repeats: Measurement("import", "both", "torch", (2.0,), (2.0,)))

    def command(*arguments):
        code = bench.main([*arguments, "--repeats", "1", "--output", "out"])
        file = tmp_path / "out/bench.json"
        return code, capsys.readouterr(), read_json(file) if file.exists() else None

    return command


def test_ways_take_turns_parts_are_scaled_and_ratios_are_taken_repeat_by_repeat(monkeypatch):
    now, done = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def way(name, *taken):
        def work():
            done.append(name)
            now[0] += taken[(len(done) - 1) // 3]

        return name, work

    ours, whole, part = way("ours", 1.0, 2.0, 4.0), way("whole", 3.0, 20.0, 16.0), way("part", 1.0, 1.0, 1.0)
    first, second = compare("work", ours=ours, others=[whole, part], repeats=3, scales=[1.0, 8.0], facts={"n": 1})
    assert done == ["ours", "whole", "part"] * 3
    assert (first.ratios, first.ratio) == ([3.0, 10.0, 4.0], 4.0)
    assert second.other_values == (8.0,) * 3
    read = first.as_json()
    assert (read["ratio"], read["least"], read["most"], read["unit"]) == (4.0, 3.0, 10.0, "s")
    assert (read["ours"], read["other"], read["ours_values"], read["facts"]) == ("ours", "whole", (1, 2, 4), {"n": 1})


def test_the_engine_from_end_to_end(run, folder, small):
    names = ["import", "propose", "rate", "whole", "conduct"]
    code, said, result = run(*names, "--backbone", str(folder), "--sample", "2")
    assert (code, said.err) == (0, "")
    assert said.out.endswith("out/bench.json\n")
    assert (result["backbone"]["quantization"], result["sample"], result["repeats"]) == ("none", 2, 1)
    assert {"machine", "threads", "accelerator", "python", "nsed_torch", "torch"} <= set(result["hardware"])
    lines = [*["propose"] * 5, *["rate"] * 2, "deliberate", *["conduct"] * 2, "import"]
    assert [line["name"].split(",")[0] for line in result["lines"]] == lines
    for line in result["lines"]:
        assert f"{line['ratio']:.2f}" in said.out
        assert line["ratio"] == line["other_values"][0] / line["ours_values"][0]
    deliberated, *conducted = (line["facts"] for line in result["lines"][7:10])
    assert 0 < deliberated["same_proposals"] <= 1  # the weights' own precision: near-ties flip
    for facts in (deliberated, *conducted):
        assert facts["tokens"] > 0
        assert 0 < facts["outside_models"] < 1


def test_all_ways_say_the_same(engine, small):
    (deliberated,) = teams.whole_lines(engine, repeats=2, sample=2)
    assert deliberated.facts["same_proposals"] == 1.0
    conducted = teams.conduct_lines(engine, repeats=1, sample=2)
    assert [line.facts["same_responses"] for line in conducted] == [1.0, 1.0]


def test_what_needs_no_model(run, small):
    result = run("--target", "core")[-1]
    assert [line["name"].rsplit(", ", 1)[1] for line in result["lines"]] == ["dim 64", "dim 384"]
    pytest.importorskip("sklearn")
    code, said, result = run("--target", "tune")
    assert code == 0
    assert "tune, 60 tasks x 4 agents x 5 folds" in said.out
    assert result["lines"][0]["facts"]["peak_memory_mib"] > 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["sleep"],
            "experts, steps, conduct, memory, notes, llama_cpp, replicas, serve, startup, embed, import, got sleep",
        ),
        (["--target", "moon"], "argument --target: invalid choice: 'moon'"),
        (["--sample", "0"], "argument --sample: expected at least 1, got 0"),
        (["--device", "moon"], "bench: expected a device out of cpu"),
        (
            ["--random-weights", "moon"],
            "bench: expected a shape out of llama3_1_8b, qwen2_5_7b, qwen3_8b, or a config.json, got 'moon'",
        ),
        (["--backbone", "gpt"], "bench: expected a backbone out of endpoint, "),
        (["--backbone", "endpoint"], "bench: expected a backbone whose weights are loaded here, got endpoint"),
    ],
)
def test_what_a_user_can_fix_is_one_line(run, capsys, arguments, line):
    try:
        code, said, _ = run(*arguments)
    except SystemExit as stop:
        code, said = stop.code, capsys.readouterr()
    assert code == 2
    assert line in said.err.splitlines()[-1]


def test_the_shipped_backbone_is_measured_unquantized():
    settings = bench.backbone_settings("smollm2_135m_instruct")
    assert (settings["quantization"], settings["weights"].name) == ("none", "smollm2-135m-instruct")


def test_plain_answers_and_ratings_are_the_engines(engine):
    names = give_adapters(engine, 2)
    assert give_adapters(engine, 2) == names == ["agent0", "agent1"]
    plain = PlainEngine(engine)
    to_answer = propose_requests(2, [None, *names], GREEDY)
    assert [request.adapter for request in to_answer[::2]] == [None, *names]
    assert len({request.messages for request in to_answer}) == 6
    # No stop token of the model's authors cuts a plain answer.
    every_token = list(range(engine.model.get_input_embeddings().num_embeddings))
    engine.model.generation_config.eos_token_id = every_token
    with unstoppable(engine):
        ours, theirs = engine.generate(to_answer), plain.generate(to_answer)
        together = write_together(engine, to_answer[2:4])
        mixed = write_mixed(engine, to_answer)
    assert engine.stop_ids
    assert engine.model.generation_config.eos_token_id == every_token
    assert [g.text for g in theirs] == [g.text for g in ours]
    assert len({g.text for g in ours}) > 1
    assert {g.completion_tokens for g in ours + theirs} == {GREEDY.max_new_tokens}
    decode = engine.chat.tokenizer.decode
    assert [decode(row, skip_special_tokens=True).strip() for row in together] == [g.text for g in ours[2:4]]
    assert [decode(row, skip_special_tokens=True).strip() for row in mixed] == [g.text for g in ours]
    to_rate = rate_requests(engine, 2, 2, [None, *names], RatingScale())
    for mine, other in zip(engine.rate(to_rate), plain.rate(to_rate), strict=True):
        assert other.values == pytest.approx(mine.values, abs=1e-4)
    chat = (Message("user", "What is 1 plus 2?"),)
    to_measure = [LikelihoodRequest("a", chat, ("3", "four"), adapter=name) for name in (None, *names)]
    for mine, other in zip(engine.measure(to_measure), plain.measure(to_measure), strict=True):
        assert other.values == pytest.approx(mine.values, rel=1e-4)
    assert not any(p.requires_grad for p in engine.parameters())


def test_the_bare_loop_is_the_base_model(engine):
    to_answer = propose_requests(3, [None], GREEDY)
    give_adapters(engine, 1)
    steps = []
    base = engine.model.get_base_model()
    hook = base.register_forward_hook(lambda module, args, output: steps.append(output.logits[:, -1].argmax(-1)))
    decode_bare(engine, to_answer)
    hook.remove()
    with unstoppable(engine):
        assert torch.stack(steps, dim=1).tolist() == write_together(engine, to_answer)


def test_rated_prompts_share_what_they_should(engine):
    to_rate = rate_requests(engine, 2, 3, [None, None], RatingScale())
    assert {len(set(request.candidates)) for request in to_rate} == {3}
    prompts = [engine.rating_prompts(request) for request in to_rate]
    for rows in prompts:
        assert all(rows[0][:PREFIX] == row[:PREFIX] for row in rows)
    assert prompts[0][0][: PREFIX // 2] == prompts[2][0][: PREFIX // 2]  # judges share the task
    assert prompts[0][0][:PREFIX] != prompts[1][0][:PREFIX]
    assert len(set(questions(9))) == 9


def test_loops_are_scaled_to_the_whole_work(engine, small, monkeypatch):
    monkeypatch.setattr(phases, "TASKS", 3)
    monkeypatch.setattr(timing, "seconds", lambda work: (work(), 2.0)[1])
    lines = phases.propose_lines(engine, repeats=1, sample=4)
    assert [line.other_values for line in lines] == [(6.0,), (2.0,), (2.0,), (2.0,), (2.0,)]  # 2 of 6 calls were made
    lines = phases.rate_lines(engine, repeats=1, sample=3)
    assert [line.other_values for line in lines] == [(6.0,), (4.0,)]  # 2 of 6, 2 of 4


def test_workflows_are_chains_and_trees():
    chain, tree = teams.workflows(2, ["a", "b", "c"])[::-1]
    assert [job.workflow.waves() for job in (chain, tree)] == [((0,), (1,), (2,)), ((0, 1), (2,))]
    assert teams.same(["a", "b"], ["a", "c"]) == 0.5


def test_memory_is_measured_in_a_process_of_its_own(folder):
    backbone = {"weights": {"name": "tiny", "path": str(folder)}, "dtype": "float32", "device": "cpu"}
    found = memory.run({"backbone": {**backbone, "quantization": "none"}, "rounds": 2})
    assert 50 < found["loaded"] <= found["peaks"][0] <= found["peaks"][1]
    with pytest.raises(ChildProcessError, match="expected quantization to be one of none, nf4, int8, got 'nf3'"):
        memory.run({"backbone": {**backbone, "quantization": "nf3"}, "agents": 1})


def test_a_further_round_reads_its_question_and_new_notes_at_most(folder, monkeypatch):
    backbone = {"weights": {"name": "tiny", "path": str(folder)}, "dtype": "float32", "device": "cpu"}
    monkeypatch.setattr(notes, "NOTED", 12)
    cost, peaks = notes.notes_lines(backbone)
    assert cost.facts["kept_notes"] == 8
    assert 0 < cost.facts["least"] <= cost.facts["most"] <= max(cost.other_values)
    assert cost.ratio >= 1
    assert (peaks.ours, peaks.other) == ("12", "2")


def test_every_agent_has_an_adapter_that_speaks(engine):
    assert memory.of_agents(engine, 2) > 50
    assert set(engine.adapters) == {"agent0", "agent1"}
    ups = [p for name, p in engine.named_parameters() if "lora_B" in name]
    assert ups
    assert all(p.any() for p in ups)


def test_memory_lines_leave_out_what_a_machine_cannot_do(monkeypatch):
    def run(arguments):
        if arguments["backbone"]["quantization"] != "int8":
            raise ChildProcessError("no bitsandbytes")
        most = arguments.get("agents", 8)
        return {"loaded": 90.0, "peaks": [100.0 + n for n in range(1, most + 1)]}

    monkeypatch.setattr(memory, "run", run)
    notes = []
    lines = memory.memory_lines({}, report=notes.append)
    assert notes == ["memory, none: left out: no bitsandbytes", "memory, nf4: left out: no bitsandbytes"]
    agents, rounds = lines[:3], lines[3:]
    assert {line.name for line in agents} == {"memory, agents on one backbone, int8"}
    assert {line.name for line in rounds} == {"memory, rounds, int8"}
    assert [(line.ours, line.other, line.ours_values, line.other_values) for line in agents] == [
        (str(n), "1", (100.0 + n,), (101.0,)) for n in (2, 4, 8)
    ]
    assert {line.unit for line in lines} == {"MiB"}
    assert [line.facts["times_as_much"] for line in agents] == [(100.0 + n) / 101.0 for n in (2, 4, 8)]


def test_the_peak_is_read_from_the_process_or_the_system(monkeypatch, tmp_path):
    assert memory.resident_peak("Name:\tpython\nVmPeak:\t 9 kB\nVmHWM:\t 2048 kB\nVmRSS:\t 1 kB\n") == 2.0
    here = memory.peak()
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    # What the system accounts for may be inherited from the process that started this one: never less.
    assert memory.peak() > 0.9 * here


@pytest.mark.skipif(not memory.CLEAR.exists(), reason="this system does not forget a process's peak")
def test_loading_is_forgotten():
    large = torch.ones(64 * 2**20)  # 256 MiB
    most = memory.peak()
    del large
    memory.forget_peak()
    assert memory.peak() < most - 128


def test_questions_of_one_deliberation_take_as_many_rounds_as_asked(engine, small):
    (transcript,) = teams.deliberate(engine, [Task("What is 1 plus 1?", "a")])
    assert len(transcript.rounds) == 2


@pytest.fixture
def team(folder):
    """Overrides of a team of three voices on the tiny model."""
    agents = (f"ensemble.agents.{name}.decoding" for name in ("solver", "skeptic", "explainer"))
    return [
        "ensemble=demo",
        "encoder=hashed",
        "prompts.style=short",
        "rounds=1",
        "rating=likelihood",
        f"ensemble.engines.smollm2.weights.path={folder}",
        "ensemble.engines.smollm2.quantization=none",
        *(f"{decoding}.{setting}" for decoding in agents for setting in ("max_new_tokens=4", "temperature=0")),
    ]


def test_the_shipped_team_is_counted_token_by_token(team, monkeypatch):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setattr(experts, "QUESTIONS", 7)
    (line,) = experts.experts_lines(1, 3, startup.placed(team, "cpu", "float32"))
    assert line.name == "deliberate, 3 experts x 1 round x 7 questions of their benchmark"
    facts = line.facts
    # 9 answers of 4 tokens, of which the last is never read, and 18 texts of likelihoods at the least.
    assert 3 * 3 + 6 < facts["tokens_computed_a_question"] < facts["tokens_computed_a_question_plainly"]
    assert facts["deliberations_a_second"] == 7 / line.ours_values[0]
    assert facts["same_proposals"] == 1.0


def test_steps_are_written_both_ways(folder, monkeypatch):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setattr(steps, "WORKS", 2)
    team = [f"ensemble.engines.smollm2.{setting}" for setting in (f"weights.path={folder}", "dtype=float32")]
    for name in ("b", "c"):
        agent = f"ensemble.agents.{name}1"
        team += [
            f"~ensemble.engines.smollm2.adapters.towers_{name}",
            f"{agent}.adapter=null",
            f"{agent}.decoding.max_new_tokens=9",
        ]
    (line,) = steps.steps_lines(1, team)
    assert line.name == "2 steps of a tower, 2 members a step"
    assert line.facts == {"same_texts": 1.0}


def test_a_served_team_says_what_it_says_here(team, monkeypatch):
    pytest.importorskip("reasoning_gym")
    pytest.importorskip("fastapi")
    for name, value in (("QUESTIONS", 7), ("CLIENTS", 3), ("ALONE", 2), ("DAY", 60), ("EARLY", 40)):
        monkeypatch.setattr(serve, name, value)
    line, memory = serve.serve_lines(1, startup.placed(team, "cpu", "float32"))
    assert line.name == "serve, 3 clients x 7 questions"
    assert (line.facts["failed"], line.facts["same_answers"]) == (0, 1.0)
    assert (memory.ours, memory.other, memory.facts["failed"]) == ("after 60", "after 40", 0)
    assert memory.ratio > 0.9


def test_tokens_are_counted_where_they_are_embedded(engine):
    to_answer = propose_requests(1, give_adapters(engine, 2), GREEDY)
    plain = PlainEngine(engine)
    lengths = [len(engine.chat.ids(request.messages)) for request in to_answer]
    with experts.counted([engine]) as tokens, unstoppable(engine):
        tokens.of("plain", lambda: plain.generate(to_answer))
        tokens.of("ours", lambda: engine.generate(to_answer))
    engine.generate(to_answer)
    # The last token of an answer is not read; adapters share nothing.
    assert tokens.found == {"plain": sum(lengths) + 2 * 3, "ours": sum(lengths) + 2 * 3}
    assert tokens.total == sum(tokens.found.values())


def test_without_reasoning_gym_there_are_no_experts_no_steps_and_no_server_but_a_note(monkeypatch):
    monkeypatch.setattr(experts.importlib.util, "find_spec", lambda name: None)
    notes = []
    assert experts.experts_lines(1, 1, report=notes.append) == []
    assert steps.steps_lines(1, report=notes.append) == []
    reason = f"left out: reasoning-gym is not installed: {install('gym')}"
    assert notes == [f"experts: {reason}", f"steps: {reason}"]
    assert serve.serve_lines(1, report=notes.append) == []
    assert notes[2:] == [f"serve: left out: fastapi is not installed: {install('serve,gym')}"]


def test_without_ray_there_are_no_replicas_but_a_note(monkeypatch):
    monkeypatch.setattr(replicas.importlib.util, "find_spec", lambda name: None)
    notes = []
    assert replicas.replicas_lines({}, 1, report=notes.append) == []
    assert notes == [f"replicas: left out: ray is not installed: {install('ray')}"]


def test_two_replicas_are_timed_against_one(engine, small, monkeypatch):
    pools = []

    class Pool:
        def __init__(self, build, *, replicas, cpus):
            assert build.func is load_backbone
            assert (build.keywords["device"], cpus) == ("cpu", 0.5)
            self.generate, self.replicas = engine.generate, replicas
            pools.append(self)

        def forget(self):
            self.forgot = True

    monkeypatch.setattr(replicas, "EngineReplicas", Pool)
    (line,) = replicas.replicas_lines({"device": None}, 2)
    assert [(pool.replicas, pool.forgot) for pool in pools] == [(2, True), (1, True)]
    assert (line.ours, line.other, len(line.ratios)) == ("two replicas of one thread", "one replica of one thread", 2)
    assert line.facts == {"same_answers": 1.0}


def test_start_up_is_watched_from_outside(team, folder):
    weights = Weights("tiny", path=str(folder))
    line = startup.startup_line(weights, 1, team=team, device="cpu", dtype="float32", warm=False)
    facts = line.facts
    assert 0 < facts["ours_before_loading"] < line.ours_values[0] < facts["ours_to_the_end"]
    parts = [facts[f"other_{part}"] for part in ("import", "load", "answer")]
    assert sum(parts) == pytest.approx(line.other_values[0])
    assert min(parts) > 0


def test_a_process_that_fails_says_why():
    with pytest.raises(ChildProcessError, match=r"^no luck$"):
        startup.watch([sys.executable, "-c", "raise SystemExit('no luck')"], ())
    with pytest.raises(ChildProcessError, match="ended with 0"):
        startup.watch([sys.executable, "-c", "print('loaded')"], ("loaded", "answered"))


def test_calls_are_counted_while_another_process_makes_the_file(tmp_path):
    from nsed_torch.records.call_log import CallLog

    file = tmp_path / "calls.sqlite"
    assert startup.finished_calls(file) == 0
    file.touch()
    assert startup.finished_calls(file) == 0
    with CallLog(file) as log:
        assert startup.finished_calls(file) == 0
        log.put({"a" * 64: {"text": "4"}})
        assert startup.finished_calls(file) == 1


@pytest.fixture(scope="module")
def random_llama(folder, tmp_path_factory):
    """Random weights with the structure of Llama 3.1 8B, at two narrow layers."""
    small = {"vocab_size": 300, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    file = tmp_path_factory.mktemp("shape") / "small.json"
    file.write_text(json.dumps({**SHAPES["llama3_1_8b"], **small}))
    return file


@pytest.mark.parametrize("quantization", ["none", "nf4"])
def test_random_weights_are_measured_on_a_named_device(run, folder, small, random_llama, quantization):
    words = ["propose", "rate", "whole", "--backbone", str(folder), "--sample", "2", "--device", "cpu"]
    words += ["--dtype", "bfloat16", "--quantization", quantization, "--random-weights", str(random_llama)]
    code, said, result = run(*words)
    assert (code, said.err) == (0, "")
    title = f"random-small, {quantization}, bfloat16, {torch.get_num_threads()} threads of the CPU"
    assert title in said.out
    found = {key: result["backbone"][key] for key in ("device", "dtype", "quantization")}
    assert found == {"device": "cpu", "dtype": "bfloat16", "quantization": quantization}
    assert len(result["lines"]) == 8


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_those_of_models_of_7_and_8_billion_parameters(shape):
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPES[shape]))
    assert 7.6e9 < sum(p.numel() for p in model.parameters()) < 8.3e9
    assert model.lm_head.weight is not model.model.embed_tokens.weight


def test_a_vocabulary_too_small_for_the_tokenizer_is_one_line(folder, tmp_path):
    file = tmp_path / "few.json"
    file.write_text(json.dumps({**SHAPES["qwen3_8b"], "vocab_size": 100}))
    with pytest.raises(ValueError, match="expected a vocabulary of 257 or more, got 100"):
        write_random(str(file), Weights("tiny", path=str(folder)), tmp_path)
