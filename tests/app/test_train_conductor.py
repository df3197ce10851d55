"""A Conductor learns: steps of TRL on packed rows move its adapter alone; a resumed run ends as a straight one does."""

import json
import re
from dataclasses import replace

import pytest
import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file
from torch.testing import assert_close

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.grpo import log_probabilities
from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.reinforcement import Rollouts, questions, train, with_signal
from nsed_torch.conductor.reward import Scored
from nsed_torch.conductor.workflow import Reason, Workflow
from nsed_torch.conductor.workflow import WorkflowStep as Step
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import Decoding
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.adapters import adapter_parameters, add_adapter
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.engines.weights import Weights
from nsed_torch.records.files import read_json, write_json
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.fine_tuning import last_checkpoint
from nsed_torch.tuning.logs import FileLog

pytest.importorskip("trl")

DEFAULTS = OmegaConf.load(conf_dir() / "grpo" / "small.yaml")
SMALL = instantiate(DEFAULTS, steps=2, questions=2, rollouts=4, chunk=4, max_new_tokens=6, save_steps=1, warmup=0.0)
NAMES = ("ant", "bee", "cow")
TASKS = [Task(f"How much is {i} and {i}?", f"t{i}", str(2 * i)) for i in range(3)]
SHORT = "{% block system %}Write.{% endblock %}{% block user %}{{ question }} {{ workers | length }}{% endblock %}"


@pytest.fixture
def conductor(tiny_model, tmp_path):
    """Makes a Conductor on the tiny model, with a fresh adapter and short prompts; its workers are scripted."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "conduct.jinja").write_text(SHORT)

    def make():
        engine = load_backbone(Weights(name="tiny", path=str(tiny_model)), dtype="float32", device="cpu")
        add_adapter(engine, "other", rank=2, seed=7)
        add_adapter(engine, "learner", rank=4, seed=1)
        scripted = ScriptedEngine(lambda request: request.agent, lambda request, text: 0.0)
        ensemble = Ensemble({"one": scripted, "tiny": engine}, [Agent(name, "one") for name in NAMES])
        executor = Executor(ensemble, prompts=Prompts(folder=str(tmp_path / "templates")))
        agent = Agent("conductor", "tiny", adapter="learner", decoding=Decoding(6, 0.0))
        return Conductor(executor, agent, pools=Pools("random", 2)), engine

    return make


def by_length(rollouts):
    """A hand-made reward: texts without a capital letter are right; some are not graded, some are no workflow."""
    flow = Workflow((Step(0, "Add.", ()),))
    found = []
    for i, rollout in enumerate(rollouts):
        low = rollout.text == rollout.text.lower()
        read = Scored(1.0 if low else 0.5, workflow=flow, workers=rollout.pool[:1])
        found.append(Scored(0.0, reason=Reason.NO_LISTS) if i % 4 == 3 else read)
    return found


def learned(made, folder, settings=SMALL, reward=by_length, **options):
    conducts, engine = made
    log = FileLog(folder / "log.jsonl")
    train(conducts, TASKS, reward, folder, settings=settings, log=log.write, **options)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    return {k: v.detach().clone() for k, v in adapter_parameters(engine, "learner").items()}, lines


def test_two_steps_change_the_adapter_alone(conductor, tmp_path):
    made = conductor()
    before = {k: v.detach().clone() for k, v in made[1].named_parameters()}
    _, lines = learned(made, tmp_path / "run")
    changed = {k for k, v in made[1].named_parameters() if not torch.equal(v, before[k])}
    assert changed == set(adapter_parameters(made[1], "learner"))
    assert [line["step"] for line in lines] == [1, 2]
    assert {*lines[0]} >= {"reward", "parsed", "reasons", "no_signal", "workers", "topologies", "policy_tokens", "loss"}


def test_trl_can_draw_and_read_by_itself(conductor, tmp_path):
    made = conductor()
    before = {k: v.detach().clone() for k, v in made[1].named_parameters()}
    settings = replace(SMALL, steps=1, packed=False, options={"top_k": 50})
    _, (line,) = learned(made, tmp_path / "run", settings)
    changed = {k for k, v in made[1].named_parameters() if not torch.equal(v, before[k])}
    assert changed == {k for k in adapter_parameters(made[1], "learner") if "lora_B" in k}  # A waits for B
    assert line["policy_tokens"] > 0


def test_half_of_the_groups_look_back(conductor, tmp_path):
    """Their first texts come first, and count a quarter; each of the others reads what one of those came to."""
    seen = []

    def notes(rollouts):
        seen.append(rollouts)
        return by_length(rollouts)

    made = conductor()
    log = FileLog(tmp_path / "rollouts.jsonl")
    learned(made, tmp_path / "run", replace(SMALL, recursion=0.5), notes, rollout_log=log.write)
    for rollouts in seen:
        before = [rollout.previous for rollout in rollouts]
        assert [p is None for p in before] == [True, True, False, False, True, True, True, True]
        for earlier, first in zip(before[2:4], rollouts[:2], strict=True):
            assert (earlier.task, earlier.levels[0].pool) == (first.task, list(first.pool))
            assert earlier.levels[0].plan.text == first.text
            assert earlier.answer in first.pool  # scripted workers say their names
    drawn = Rollouts(*made, [], replace(SMALL, recursion=0.5))
    assert [drawn.weight(i) for i in range(8)] == [0.25, 0.25, 1, 1, 1, 1, 1, 1]
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [[text["level"] for text in line["rollouts"]] for line in lines] == [[0, 0, 1, 1, 0, 0, 0, 0]] * 2


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"recursion": 1.5}, "expected recursion in [0, 1]"),
        ({"recursion": 0.5, "rollouts": 2}, "even number of rollouts from 4 on"),
        ({"recursion": 0.5, "packed": False}, "expected packed=true"),
        ({"first": 0.0}, "first in (0, 1]"),
    ],
)
def test_recursion_out_of_range_is_told(wrong, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        replace(SMALL, **wrong)


def test_a_resumed_run_ends_where_a_straight_one_does(conductor, tmp_path):
    settings = replace(SMALL, steps=3)
    straight, lines = learned(conductor(), tmp_path / "a", settings)

    class Killed(Exception):
        pass

    calls = []

    def kills(rollouts):
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return by_length(rollouts)

    with pytest.raises(Killed):
        learned(conductor(), tmp_path / "b", settings, kills)
    step, last = last_checkpoint(tmp_path / "b")
    assert step == 2
    FileLog(tmp_path / "b" / "log.jsonl").resume(step)
    resumed, again = learned(conductor(), tmp_path / "b", settings, resume=last)
    for line, other in zip(lines, again, strict=True):
        assert_close({**line, "seconds": 0}, {**other, "seconds": 0}, atol=1e-6, rtol=1e-4)
    for name, value in straight.items():
        assert_close(resumed[name], value)


def test_probabilities_are_those_of_each_text_alone(conductor):
    _, engine = conductor()
    with torch.no_grad():
        for name, p in adapter_parameters(engine, "learner").items():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(len(name))))
    engine.model.set_adapter("learner")
    prompts, said = [[5, 6, 7, 8], [5, 6], [5, 6, 7, 8]], [[9, 10], [11, 12, 13], [9, 14]]
    tokens, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.bool)
    for i, (prompt, text) in enumerate(zip(prompts, said, strict=True)):
        tokens[i, 4 - len(prompt) : 4 + len(text)] = torch.tensor(prompt + text)
        mask[i, 4 - len(prompt) : 4 + len(text)] = True
    found, entropies = log_probabilities(engine, "learner", tokens, mask, 3, temperature=0.7)
    found.sum().backward()
    packed = {k: p.grad.clone() for k, p in adapter_parameters(engine, "learner").items()}
    engine.zero_grad()
    total = torch.zeros(())
    for i, (prompt, text) in enumerate(zip(prompts, said, strict=True)):
        logs = (engine.model(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1] / 0.7).log_softmax(-1)
        own = logs[range(len(text)), text]
        assert_close(found[i, : len(text)], own, atol=1e-5, rtol=1e-4)
        assert_close(entropies[i, : len(text)], -(logs.exp() * logs).sum(-1), atol=1e-5, rtol=1e-4)
        assert not found[i, len(text) :].any()
        total = total + own.sum()
    total.backward()
    for name, p in adapter_parameters(engine, "learner").items():
        assert_close(p.grad, packed[name], atol=1e-5, rtol=1e-3)


def test_what_is_rewarded_becomes_likelier(conductor, tmp_path):
    def no_letters(rollouts):
        """Texts with a digit or two are better than others; one of them nobody could grade."""
        found = [Scored(min(sum(c.isdigit() for c in r.text), 2) / 2, reason=Reason.NO_LISTS) for r in rollouts]
        return [replace(s, reward=None) if i == 5 else s for i, s in enumerate(found)]

    settings = replace(SMALL, steps=8, rollouts=16, chunk=16, learning_rate=3e-2, save_steps=100)
    conducts, engine = conductor()
    engine.model.get_output_embeddings().weight.data.mul_(20)  # a random model is nearly indifferent
    _, lines = learned((conducts, engine), tmp_path / "run", settings, no_letters)
    rewards = [line["reward"] for line in lines]
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.6
    assert all(line["masked"] == 1 / 32 for line in lines)


def test_without_signal_nothing_moves_and_it_is_counted(conductor, tmp_path):
    made = conductor()
    before = {k: v.detach().clone() for k, v in adapter_parameters(made[1], "learner").items()}
    after, lines = learned(made, tmp_path / "run", reward=lambda rollouts: [Scored(0.5)] * len(rollouts))
    assert [line["no_signal"] for line in lines] == [1.0, 1.0]
    assert [line["grad_norm"] for line in lines] == [0.0, 0.0]
    assert all(torch.equal(after[k], before[k]) for k in before)


def test_questions_come_once_before_any_comes_again_with_other_pools(conductor):
    conducts, _ = conductor()
    asked = questions(conducts, TASKS, replace(SMALL, steps=6, questions=2))
    assert len(asked) == 12
    for turn in range(0, 12, 3):
        assert {a.task.id for a in asked[turn : turn + 3]} == {"t0", "t1", "t2"}
    assert all(len(set(a.pool)) == 2 and set(a.pool) <= set(NAMES) for a in asked)
    assert len({a.pool for a in asked if a.task.id == "t0"}) > 1
    assert questions(conducts, TASKS, replace(SMALL, steps=2)) == asked[:4]


def test_wrong_settings_are_refused_in_one_line(conductor, tmp_path):
    for wrong in ({"rollouts": 1}, {"chunk": 3}, {"temperature": 0.0}, {"options": {"use_vllm": True}}):
        with pytest.raises(ValueError, match="expected"):
            replace(SMALL, **wrong)
    conducts, _ = conductor()
    with pytest.raises(ValueError, match="expected tasks to learn on"):
        questions(conducts, [], SMALL)


def test_questions_without_a_signal_are_left_out(conductor):
    conducts, _ = conductor()
    told = []

    def reward(rollouts):
        """Texts about the second task differ in what they come to, those about others do not."""
        return [Scored(float(i % 2) if r.task.id == "t1" else 0.5) for i, r in enumerate(rollouts)]

    found = with_signal(conducts, TASKS, reward, replace(SMALL, sieve=3, recursion=0.5), told.append)
    assert [task.id for task in found] == ["t1"]
    assert told[-1] == "1 of 4 questions have a signal"  # two a step
    with pytest.raises(ValueError, match=r"^grpo\.sieve: expected texts that differ in what they come to, got none"):
        with_signal(conducts, TASKS, lambda r: [Scored(0.5)] * len(r), replace(SMALL, sieve=3), told.append)


@pytest.fixture
def small(tiny_model, tmp_path):
    """What makes `nsed train-conductor` a matter of seconds."""
    path = tmp_path / "questions.jsonl"
    lines = [{"id": str(i), "question": f"How much is {i} + {i}?", "target": str(2 * i)} for i in range(6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = "ensemble.engines.smollm2"
    return [
        *("ensemble=demo", "tasks=file", f"questions={path}", "pools.size=2"),
        *(f"{engine}.weights.path={tiny_model}", f"{engine}.quantization=none", f"{engine}.dtype=float32"),
        *(f"ensemble.agents.{name}.decoding.max_new_tokens=4" for name in ("solver", "skeptic", "explainer")),
        *("grpo.steps=2", "grpo.questions=2", "grpo.rollouts=2", "grpo.chunk=4", "grpo.max_new_tokens=6"),
        *("grpo.save_steps=1", "adapter.rank=2", "warm.lessons=4", "warm.training.steps=2", "warm.training.batch=2"),
    ]


def test_the_verb_trains_writes_and_repeats_nothing(nsed, small, tmp_path):
    out = nsed.ok("train-conductor", *small, "output_dir=out")
    folder = tmp_path / "out"
    assert out.splitlines()[-1].endswith("out/adapter")
    assert (folder / "adapter" / "adapter_model.safetensors").is_file()
    metrics = read_json(folder / "metrics.json")
    assert metrics["steps"] == 2
    rollouts = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    assert [len(line["rollouts"]) for line in rollouts] == [4, 4]
    for text in rollouts[0]["rollouts"]:
        assert text["reward"] == 0.0  # a random model writes no workflows
        assert text["reason"] in set(Reason)
        assert {*text["pool"]} < {"solver", "skeptic", "explainer"}
    assert len((folder / "warm.jsonl").read_text().splitlines()) == 2
    before = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert "step 0 of 2" not in nsed.ok("train-conductor", *small, "output_dir=out")
    after = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert read_json(folder / "metrics.json") == metrics


def test_a_training_goes_on_with_the_questions_that_it_chose(nsed, small, tmp_path):
    kept = tmp_path / "out" / "sieved.json"
    fault = nsed.fault("train-conductor", *small, "grpo.sieve=4", "output_dir=out")
    assert "grpo.sieve: expected texts that differ in what they come to, got none" in fault  # a random model
    assert not kept.exists()
    write_json(kept, ["2", "4"])
    nsed.ok("train-conductor", *small, "grpo.sieve=4", "output_dir=out")
    rollouts = [json.loads(line) for line in (kept.parent / "rollouts.jsonl").read_text().splitlines()]
    assert {text["task"] for line in rollouts for text in line["rollouts"]} == {"2", "4"}
    assert "on those of 4 questions whose texts did not all come to the same" in " ".join(
        (kept.parent / "adapter" / "README.md").read_text().split()
    )


def test_a_warm_start_alone_is_an_adapter_too(nsed, small, tmp_path):
    out = nsed.ok("train-conductor", *small, "grpo.steps=0", "conductor.persona=You write.", "output_dir=out")
    assert "step 0 of" not in out
    assert "tenth" not in out
    assert read_json(tmp_path / "out/metrics.json")["steps"] == 0
    warm = load_file(tmp_path / "out/adapter/adapter_model.safetensors")
    assert any(value.any() for name, value in warm.items() if "lora_B" in name)
    card = (tmp_path / "out/adapter/README.md").read_text()
    assert "2 steps of 2 random valid workflows, out of 4" in card
    assert "GRPO" not in card
    assert 'In place of rules and examples it reads "You write."' in card
    assert "tenth" not in card
    nsed.ok(
        "train-conductor",
        *small,
        "grpo.steps=1",
        "warm.lessons=0",
        "adapter.start=out/adapter",
        "adapter.rank=4",
        "output_dir=on",
    )
    assert (tmp_path / "on/learning.png").is_file()
    card = (tmp_path / "on/adapter/README.md").read_text()
    assert "It began as `out/adapter`. GRPO: 1 steps of 2 questions x 2 texts" in card
    assert "Rank 2," in card
    assert "| valid workflows | 0.000 | 0.000 |" in card
    assert "warm start" not in card.lower()


def test_questions_with_hops_say_what_workflows_to_learn(nsed, small, tmp_path):
    """The file that is a benchmark, a lesson of workers and what a team is recorded on."""
    hops = [{"subtask": "1 + 2?", "reply": 3, "kind": "skeptic"}, {"subtask": "Add 3.", "reply": 6, "kind": "solver"}]
    row = {"question": "1 + 2 + 3?", "answer": 6, "hops": hops}
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps({**row, "id": str(i)}) + "\n" for i in range(6)))
    nsed.ok("train-conductor", *small, "grpo.steps=0", "output_dir=out")
    assert (
        "2 workflows that the hops of its questions say, out of 4" in (tmp_path / "out/adapter/README.md").read_text()
    )
    team = [word for word in small if word.startswith("ensemble")]
    own = ["questions=questions.jsonl", "encoder=hashed", "limit=2"]
    nsed.ok("collect", *team, *own, "rounds=1", "output_dir=collected")
    alone = ["methods=[conductor]", "budget=own", "conductor=smollm2", "output_dir=compared"]
    assert "single:" not in nsed.ok("evaluate", *team, *own, *alone)
    for file in ("collected/traces.jsonl", "compared/executions/conductor.jsonl", "compared/outcomes.jsonl"):
        assert len((tmp_path / file).read_text().splitlines()) == 2
    row["hops"][0]["kind"] = "adder"
    (tmp_path / "questions.jsonl").write_text(json.dumps({**row, "id": "q"}) + "\n")
    fault = nsed.fault("train-conductor", *small, "grpo.steps=0", "output_dir=other")
    assert fault == "task 'q': expected hops of a kind out of solver, skeptic, explainer, got 'adder': rename it"


@pytest.mark.parametrize("scale", ["small", "cluster"])
def test_a_dry_run_says_what_it_would_cost(nsed, small, scale, tmp_path):
    small = [word for word in small if not word.startswith("grpo.")]
    out = nsed.ok("train-conductor", *small, f"grpo={scale}", "dry_run=true", "output_dir=out")
    for word in ("policy writes", "policy learns", "workers", "all", "hours"):
        assert word in out
    assert not (tmp_path / "out" / "metrics.json").exists()
