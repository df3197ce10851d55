"""Workflows run together come to what they come to one call after the other."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_workers import (
    CHAIN,
    NAMES,
    POOL,
    PROMPTS,
    TASKS,
    Recorder,
    answers,
    build,
    council,
    drawn,
    flow,
    with_council,
)
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.conductor.executor import Executor
from nsed_torch.conductor.executor import WorkflowJob as Job
from nsed_torch.conductor.workflow import Workflow, WorkflowError
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import ContextWindowError, Decoding, GenerateRequest, call_seed
from nsed_torch.core.open_round import longest_end
from nsed_torch.core.prompts import unfence
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.execution import Execution, Failure
from nsed_torch.records.transcript import Task, Usage

SUBTASKS = ["Count the apples.", "Check the reply.", "Answer the question.", *(task.question for task in TASKS)]


@st.composite
def jobs(draw):
    """Workflows of up to five steps on a few tasks, with pools in any order."""
    steps = []
    for k in range(draw(st.integers(1, 5))):
        earlier = st.sets(st.integers(0, k - 1)).map(sorted).map(tuple) if k else st.just(())
        steps.append((draw(st.integers(0, 2)), draw(st.sampled_from(SUBTASKS)), draw(st.just("all") | earlier)))
    return Job(draw(st.sampled_from(TASKS)), flow(*steps), tuple(draw(st.permutations(NAMES))))


def says(subtask, task):
    return "" if subtask in {"Answer the question.", task.question} else subtask


def plainly(job, write, window, *, run_seed, limit, attempts=2):
    """The same protocol, one step and one call after the other: a response and what it took, step by step."""
    engine, told = Recorder(write, window=window), []
    team = build(engine=engine)[0].ensemble
    for k, step in enumerate(job.workflow.steps):
        name, own, cut, attempt, calls = job.pool[step.worker], says(step.subtask, job.task), limit, 1, Usage()
        while True:
            seen = [i for i in (range(k) if step.access == "all" else step.access) if told[i][0]]
            shown = [(i, longest_end(told[i][0], cut, engine.count_tokens)) for i in seen]
            history = [(says(job.workflow.steps[i].subtask, job.task), text) for i, text in shown if text]
            kind = "step" if history or own else "propose"
            seed = call_seed(run_seed, job.task.id, k + 1, name, kind, *["level 0, attempt 2"] * (attempt - 1))
            persona = f"You are voice {NAMES.index(name)}."
            if kind == "step":
                chat = PROMPTS.step(job.task.question, own, history=history, persona=persona, seed=seed)
            else:
                chat = PROMPTS.propose(job.task.question, memory=(), critiques=(), persona=persona, seed=seed)
            text, read, failed = ask_one(engine, team.agent(name), chat, seed)
            calls += read
            if failed is Failure.WINDOW and history:
                cut //= 4
            elif failed is Failure.EMPTY and attempt < attempts:
                attempt += 1
            else:
                told.append((text, failed, attempt, calls, [i for i, text in shown if text]))
                break
    return told


def ask_one(engine, agent, chat, seed):
    try:
        (made,) = engine.generate([GenerateRequest(agent.name, chat, agent.decoding, seed)])
    except ContextWindowError:
        return "", Usage(), Failure.WINDOW
    text = unfence(made.text)
    return text, agent.usage(made.prompt_tokens, made.completion_tokens), None if text else Failure.EMPTY


def steps_of(execution):
    return [(s.response, s.failure, s.attempts, s.usage, s.visible) for s in execution.levels[-1].steps]


@settings(max_examples=25)
@given(st.lists(jobs(), min_size=1, max_size=6), st.integers(0, 99), st.integers(30, 80), st.integers(1, 7))
def test_together_is_one_after_the_other(batch, seed, window, max_batch):
    engine = Recorder(drawn, window=window, max_batch=max_batch)
    executor, _ = build(engine=engine, seed=seed, response_tokens=9)
    executions = executor.run(batch)
    for job, execution in zip(batch, executions, strict=True):
        told = plainly(job, drawn, window, run_seed=seed, limit=9)
        assert steps_of(execution) == told
        assert (execution.answer, execution.failure) == told[-1][:2]
        assert execution.usage == Usage.sum(usage for _, _, _, usage, _ in told)
        for step in execution.levels[0].steps:
            assert sum(step.message_tokens) <= window
    again, _ = build(engine=Recorder(drawn, window=window), seed=seed, response_tokens=9)
    assert [again.run([job])[0] for job in reversed(batch)] == executions[::-1]


def test_steps_that_do_not_read_each_other_go_down_together():
    executor, engine = build(lambda request: f"{request.agent} {request.seed}")
    waves = []
    executor.report = lambda wave, done, total: waves.append((wave, total)) if done == total else None
    tree = flow((0, "Left.", ()), (1, "Right.", ()), (2, "Both.", (0, 1)))
    chain = flow((0, "First.", ()), (1, "Second.", (0,)), (2, "Third.", (1,)))
    executor.run([Job(TASKS[0], tree, NAMES), Job(TASKS[1], chain, NAMES), Job(TASKS[1], chain, NAMES)])
    # The two equal workflows are one to the call log.
    assert waves == [("wave 1", 3), ("wave 2", 2), ("wave 3", 1)]
    assert len(engine.asked) == 6


def test_a_level_sees_the_answer_before_it_where_access_is_all():
    executor, engine = build(answers)
    (first,) = executor.run([Job(TASKS[0], flow((0, "Begin.", ())), NAMES)])
    pool = NAMES[::-1]
    (second,) = executor.run([Job(TASKS[0], flow((0, "Check.", ()), (1, "Check.", "all")), pool, first)])
    (third,) = executor.run([Job(TASKS[0], Workflow(()), NAMES, second)])
    chats = [[m.content for m in request.messages if m.role == "assistant"] for request in engine.asked]
    assert chats == [[], [], ["Zebulon", "Oberon"]]
    assert (first.answer, second.answer, third.answer) == ("Zebulon", *["Quillfeather Zebulon Oberon"] * 2)
    assert [len(level.steps) for level in third.levels] == [1, 2, 0]
    assert [level.pool for level in third.levels] == [list(NAMES), list(pool), list(NAMES)]
    assert third.levels[:2] == second.levels
    assert third.usage == second.usage
    assert len({request.seed for request in engine.asked}) == 3
    assert engine.asked[1].seed == call_seed(0, "a", 1, "Oberon", "step", "level 1, attempt 1")


def test_a_failed_level_shows_nothing():
    executor, engine = build(lambda request: "" if request.agent == "Zebulon" else "fine")
    (first,) = executor.run([Job(TASKS[0], flow((0, "Begin.", ())), NAMES)])
    (second,) = executor.run([Job(TASKS[0], flow((1, "Check.", "all")), NAMES, first)])
    assert [m.role for m in engine.asked[-1].messages] == ["system", "user"]
    assert (first.failure, second.failure, second.answer) == (Failure.EMPTY, None, "fine")


@pytest.mark.parametrize("calls", [1, 4, 9])
def test_what_was_made_before_a_kill_is_not_made_again(tmp_path, calls):
    class Killed(Recorder):
        def generate(self, requests):
            if len(self.asked) >= calls:
                raise KeyboardInterrupt
            return super().generate(requests)

    tree = flow((0, "Left.", ()), (1, "Right.", ()), (2, "Both.", "all"))
    batch = [Job(task, work, NAMES) for task in TASKS for work in (CHAIN, tree)]
    straight, _ = build(lambda request: f"{request.seed}")
    with CallLog(tmp_path / "calls.sqlite") as log:
        killed = Killed(lambda request: f"{request.seed}", max_batch=2)
        with pytest.raises(KeyboardInterrupt):
            build(engine=killed, call_log=log)[0].run(batch)
    with CallLog(tmp_path / "calls.sqlite") as log:
        executor, engine = build(lambda request: f"{request.seed}", call_log=log)
        assert executor.run(batch) == straight.run(batch)
    made = Counter(repr(request) for request in killed.asked + engine.asked)
    assert set(made.values()) == {1}
    assert len(made) == len(TASKS) * 6
    assert len(killed.asked) >= calls


def test_an_execution_survives_on_disk(tmp_path):
    executor, _, _ = with_council()
    work = flow((1, "Begin.", ()), (0, 'Go on: "x"\n', (0,)), (2, "End.", "all"))
    (first,) = executor.run([Job(TASKS[0], work, POOL)])
    (second,) = executor.run([Job(TASKS[0], flow((3, "Check.", "all")), POOL, first)])
    second.save(tmp_path / "e.json")
    assert Execution.load(tmp_path / "e.json") == second
    assert second.levels[0].workflow == work.render()
    assert second.settings["templates"]["step"] == PROMPTS.fingerprint("step")
    assert second.agents == executor.ensemble.records()


def test_what_a_caller_can_fix_is_one_line():
    executor, _ = build()
    (first,) = executor.run([Job(TASKS[0], flow((0, "Begin.", ())), NAMES)])
    for job, line in (
        (Job(TASKS[0], CHAIN, ("Zebulon", "Bob")), "expected a pool of workers out of Zebulon, .*, got 'Bob'"),
        (
            Job(TASKS[1], CHAIN, NAMES, first),
            "expected a previous execution of task 'b', got one of 'a': pass its own",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{line}[^\n]*$"):
            executor.run([job])
    for work in (Workflow(()), flow((3, "Begin.", ())), flow(*[(0, "Begin.", ())] * 6), flow((0, "Begin.", (0,)))):
        with pytest.raises(WorkflowError):
            executor.run([Job(TASKS[0], work, NAMES)])
    with pytest.raises(ValueError, match="expected attempts of at least 1, got 0"):
        build(attempts=0)
    with pytest.raises(ValueError, match="a deliberation with a name of its own, got that of agent 'Oberon'"):
        Executor(executor.ensemble, deliberations={"Oberon": council(executor)})


def test_agents_that_only_judge_are_no_workers():
    agents = [Agent("writer", "one"), Agent("judge", "one", roles=("judge",))]
    executor = Executor(Ensemble({"one": Recorder(drawn)}, agents))
    assert executor.workers == ("writer",)
    assert executor.run([]) == []


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A random Llama of two layers that knows bytes and whose chats must alternate, as Gemma's."""
    template = (
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>"
        "{% endfor %}assistant:"
    )
    shape = {"max_position_embeddings": 1024, "initializer_range": 0.3}
    folder = save_tiny(tmp_path_factory.mktemp("tiny"), tiny_tokenizer(template), **shape)
    return load_backbone(Weights("tiny", path=str(folder)), dtype="float32", device="cpu")


def test_a_model_says_the_same_together_and_apart(tiny):
    agents = [Agent(name, "tiny", f"You are voice {i}.", Decoding(6, 0.7)) for i, name in enumerate(NAMES)]
    tree = flow((0, "Left.", ()), (1, "Answer the question.", ()), (2, "Both.", "all"))
    batch = [Job(task, work, NAMES) for task in TASKS[:2] for work in (CHAIN, tree)]

    def run(jobs):
        return Executor(Ensemble({"tiny": tiny}, agents), response_tokens=16).run(jobs)

    together = run(batch)
    assert [run([job])[0] for job in batch] == together
    assert all(step.failure is None for execution in together for step in execution.levels[0].steps)
    long = Task("why " * 300, "long")
    failed, fine = run([Job(long, CHAIN, NAMES), batch[0]])
    assert [step.failure for step in failed.levels[0].steps] == [Failure.WINDOW] * 3
    assert fine == together[0]
