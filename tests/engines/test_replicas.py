"""Replicas of an engine answer as one of them would, also where one is killed, and ask nothing twice."""

import importlib.util
import os
import random
import re
import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from replicated_engine import broken, judge, notes, noting, write

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import (
    ContextWindowError,
    Decoding,
    GenerateRequest,
    LikelihoodRequest,
    Message,
    RateRequest,
)
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.replicas import EngineReplicas, shares
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.engines.weights import Weights
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.extras import install
from nsed_torch.records.ledger import TokenLedger
from nsed_torch.records.transcript import Task

TASKS = [Task(f"How much is {n} and {n}?", f"q{n}") for n in range(6)]
AGENTS = [Agent(name, "noting", persona=f"You are {name}.", decoding=Decoding(24)) for name in ("ant", "bee", "cat")]


@pytest.fixture(scope="module")
def ray():
    """A Ray that the first pool starts; afterwards the process is as it was."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    importlib.import_module("ray")  # as a program that uses it for something else does, before any of our settings
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    yield lambda: sys.modules["ray"]
    sys.modules["ray"].shutdown()
    # Ray reads its token once a process, where another part of these tests may begin anew.
    before |= {name: value for name, value in os.environ.items() if name == "RAY_AUTH_TOKEN"}
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def pool(ray, tmp_path_factory):
    """Two replicas of the engine that notes, and the file it notes in."""
    file = tmp_path_factory.mktemp("noting") / "notes.txt"
    return EngineReplicas(noting(file, 0.02), replicas=2, cpus=0), file


@pytest.fixture(scope="module")
def tiny_pool(ray, tiny_folder, adapter_folders):
    """Two replicas of the tiny model with its adapters."""
    weights, places = Weights(name="tiny", path=str(tiny_folder)), {"dtype": "float32", "device": "cpu"}
    return EngineReplicas(partial(load_backbone, weights, adapters=adapter_folders, **places), replicas=2, cpus=0)


def transcripts(engine, log, folder):
    """What three rounds over all tasks come to, as files."""
    encoder = HashedEncoder(16)
    ensemble = Ensemble({"noting": engine}, AGENTS, call_log=log)
    cell = MacroRNNCell(ensemble, encoder, ConsensusCell(encoder.dim, len(AGENTS)).double())
    for task, transcript in zip(TASKS, MacroRNN(cell, halting=FixedHalting(3))(TASKS).transcripts, strict=True):
        transcript.save(folder / f"{task.id}.json")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What they come to in one process."""
    engine = ScriptedEngine(write, judge, name="noting", max_batch=4)
    return transcripts(engine, CallLog(None), tmp_path_factory.mktemp("alone"))


def writing(text, agent="a", seed=0, tokens=8, **rest):
    return GenerateRequest(agent, (Message("user", text),), Decoding(tokens, **rest), seed)


def test_replicas_come_to_the_same_transcripts_and_share_the_work(pool, alone, tmp_path):
    engine, file = pool
    log = CallLog(None)
    assert transcripts(engine, log, tmp_path) == alone
    asked = notes(file)
    assert len({process for process, _ in asked}) == 2
    assert len({seed for _, seed in asked}) == len(asked) == 3 * len(TASKS) * len(AGENTS)
    # Who answers is no part of a call's key: a run in one process finds what replicas answered, and asks nothing.
    single = ScriptedEngine(pytest.fail, pytest.fail, name="noting")
    assert transcripts(single, log, tmp_path) == alone


def test_results_come_as_they_are_done(pool):
    engine, _ = pool
    parts = list(engine.generations([writing(f"{n}?", seed=n, tokens=64) for n in range(6)]))
    assert [len(part) for part in parts] == [1] * 6
    assert {i: result.text for part in parts for i, result in part.items()} == {
        n: write(writing("", seed=n)) for n in range(6)
    }


def test_the_ray_of_this_machine_listens_on_loopback_and_wants_a_token(pool, ray):
    assert ray().get_runtime_context().gcs_address.startswith("127.0.0.1:")
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert (os.environ["RAY_AUTH_MODE"], os.environ["RAY_USAGE_STATS_ENABLED"]) == ("token", "0")
    port = ray().get_runtime_context().gcs_address.split(":")[1]
    tables = "".join(Path(f"/proc/net/{table}").read_text() for table in ("tcp", "tcp6"))
    places = re.findall(rf"\d+: ([0-9A-F]+):{int(port):04X} [0-9A-F:]+ 0A ", tables)
    assert places
    assert all(place.endswith("0100007F") for place in places)
    assert ray().worker.global_worker.node._ray_params.include_dashboard is False


def test_a_killed_replica_loses_nothing_and_what_it_answered_is_not_asked_again(ray, alone, tmp_path, monkeypatch):
    file, folder = tmp_path / "notes.txt", tmp_path / "transcripts"
    folder.mkdir()
    engine = EngineReplicas(noting(file, 0.02), replicas=2, cpus=0)
    answered, killed = [], []

    def generations(requests):
        for part in EngineReplicas.generations(engine, requests):
            yield part  # now the call log has it
            answered.extend(requests[i].seed for i in part)
            if len(answered) == 24:  # in the middle of the second round
                (process,) = {process for process, seed in notes(file) if seed == answered[-1]}
                killed.extend([process, [*answered]])
                os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(engine, "generations", generations)
    log = CallLog(None)
    assert transcripts(engine, log, folder) == alone
    process, kept = killed
    asked = [seed for _, seed in notes(file)]
    assert {asked.count(seed) for seed in kept} == {1}
    assert len(set(asked)) == 54
    assert 54 <= len(asked) <= 54 + 9  # at most what it had begun and not handed out
    after = [one for one, _ in notes(file)][-18:]
    assert process not in after
    assert transcripts(ScriptedEngine(pytest.fail, pytest.fail, name="noting"), log, folder) == alone

    # The other one, too, while it answers what may be handed to nobody else.
    engine.retries = 0
    asked = [writing("Why?", seed=n) for n in range(50)]
    (last,) = {one for one, _ in notes(file)} - {process}
    results = {}
    for part in EngineReplicas.generations(engine, asked):
        if not results:
            os.kill(last, signal.SIGKILL)
        results |= part
    assert sorted(results) == list(range(50))
    assert results[49].finish_reason == "failed"
    why = "1 replicas died while they were to answer it, the last one: The actor is dead because its worker process"
    assert results[49].failure.startswith(why)
    with pytest.raises(ConnectionError, match=r"^all 2 replicas have died, the last one: The actor is dead because"):
        list(EngineReplicas.generations(engine, asked))
    with pytest.raises(ConnectionError, match=r"^all 2 replicas have died"):
        engine.count_tokens("Why?")


def test_an_engine_that_cannot_be_built_says_why(ray, pool):
    with pytest.raises(ValueError, match=r"^weights 'none': not to be had: fetch them$"):
        EngineReplicas(broken, replicas=1, cpus=0)


def test_more_than_the_machine_has_is_refused(ray, pool):
    with pytest.raises(ValueError, match=r"^expected 512 CPUs for all replicas, got \d+: lower replicas or cpus$"):
        EngineReplicas(broken, replicas=8, cpus=64)
    with pytest.raises(ValueError, match=r"^expected 64 GPUs for all replicas, got \d+: lower replicas or gpus$"):
        EngineReplicas(broken, cpus=0, gpus=32)


def test_replicas_that_do_not_come_in_time_are_one_line(ray, pool, monkeypatch):
    monkeypatch.setattr(ray(), "cluster_resources", lambda: {"CPU": 1e6})  # as where others hold them
    with pytest.raises(ValueError, match=r"^expected 2 replicas within 1 s, got 0; free are [\d.]+ cores and 0 accel"):
        EngineReplicas(noting("none"), cpus=512, start_s=1)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"replicas": 0}, "replicas, replicas: expected at least 1, got 0: correct it"),
        ({"cpus": -1}, "replicas, cpus: expected at least 0, got -1: correct it"),
        ({"gpus": float("nan")}, "replicas, gpus: expected at least 0, got nan: correct it"),
        ({"retries": -1}, "replicas, retries: expected at least 0, got -1: correct it"),
        ({"start_s": 0}, "replicas, start_s: expected at least 1, got 0: correct it"),
        (
            {"engine": ScriptedEngine(write, judge)},
            (
                "replicas, engine: expected what makes an engine, got ScriptedEngine: give "
                "functools.partial(load_backbone, ...), in YAML _partial_: true"
            ),
        ),
    ],
)
def test_bad_settings_are_one_line(fails, setting, line):
    with fails(line):
        EngineReplicas(**{"engine": broken, **setting})


def test_without_ray_it_is_named(monkeypatch, fails):
    monkeypatch.setitem(sys.modules, "ray", None)
    why = "import of ray halted; None in sys.modules"
    with fails(f"expected the package ray for replicas, got {why}: {install('ray')}"):
        EngineReplicas(broken, address="auto")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "[Errno 111] Connection refused"),
        ("there", "invalid literal for int() with base 10: 'there'"),
        ("auto", "Could not find any running Ray instance."),
    ],
)
def test_no_cluster_at_an_address_is_one_line(monkeypatch, fails, address, said):
    def init(**options):
        assert options["address"] == "auto"
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify one.")

    errors = SimpleNamespace(RayError=RuntimeError)
    module = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=errors)
    monkeypatch.setitem(sys.modules, "ray", module)
    remedy = "see that ray start ran on this machine, or leave address null"
    with fails(f"replicas, address: expected a Ray cluster at {address}, got {said}: {remedy}"):
        EngineReplicas(broken, address=address)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_cluster_of_its_own_that_fails_to_begin_begins_once_more(monkeypatch, lost):
    tried = []

    def init(**options):
        tried.append(options["address"])
        if tried.count("local") <= lost:
            raise RuntimeError("Failed to start GCS.")
        raise ConnectionError("begun")

    module = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: tried.append("gone"))
    module.exceptions = SimpleNamespace(RayError=RuntimeError)
    monkeypatch.setitem(sys.modules, "ray", module)
    with pytest.raises(ValueError, match="at this machine, got " + ("begun" if lost == 1 else "Failed to start GCS")):
        EngineReplicas(broken)
    assert tried == ["local", "gone", "local"]


def test_a_real_model_answers_as_in_one_process(tiny_pool, tiny, adapter_folders):
    assert tiny_pool.identity("poet") == tiny.identity("poet")
    with pytest.raises(ValueError, match=r"^expected a loaded adapter, got 'nobody'"):
        tiny_pool.identity("nobody")
    facts = ("shares_prefixes", "context_window", "measures")
    assert [getattr(tiny_pool, name) for name in facts] == [getattr(tiny, name) for name in facts]
    assert tiny_pool.max_batch == 2 * tiny.max_batch
    assert tiny_pool.count_tokens("seven red") == tiny.count_tokens("seven red")
    requests = [
        GenerateRequest(
            "a", (Message("user", f"Number {n}?"),), Decoding(6), n, adapter=(None, "poet")[n % 2], ledger=TokenLedger()
        )
        for n in range(8)
    ]
    mine, theirs = tiny_pool.generate(requests), tiny.generate(requests)
    assert mine == theirs  # logits of the tiny model lie far apart
    for _ in range(2):  # as they came with the result, and asked for
        assert tiny_pool.readings(requests[1], mine[1]) == tiny.readings(requests[1], theirs[1])
    chat = (Message("user", "Rate."),)
    judging = [RateRequest("a", chat, (f" {n}", " no")) for n in range(4)]
    for a, b in zip(tiny_pool.rate(judging), tiny.rate(judging), strict=True):
        assert a.values == pytest.approx(b.values, abs=1e-5)
        assert a.prompt_tokens == b.prompt_tokens
    weighing = [LikelihoodRequest("a", chat, (f"{n}", "no")) for n in range(4)]
    for a, b in zip(tiny_pool.measure(weighing), tiny.measure(weighing), strict=True):
        assert a.values == pytest.approx(b.values, rel=1e-4)
    tiny_pool.forget()


def test_a_prompt_that_is_too_long_is_the_engines_own_error(tiny_pool, tiny):
    request = writing("x" * 600)
    with pytest.raises(ContextWindowError) as alone:
        tiny.generate([request])
    with pytest.raises(ContextWindowError, match=f"^{re.escape(str(alone.value))}$"):
        tiny_pool.generate([writing("fits"), request])


def test_prompts_that_begin_alike_stay_together():
    requests = [writing(f"Task {t}: {'long text ' * 50} agent {a}", seed=a) for a in range(3) for t in range(4)]
    parts = shares(requests, 2)
    assert sorted(i for part in parts for i in part) == list(range(12))
    assert [{i % 4 for i in part} for part in parts] == [{0, 1}, {2, 3}]
    assert [len(part) for part in shares(requests, 4)] == [3, 3, 3, 3]


def test_shares_are_of_like_size_in_tokens():
    draw = random.Random(0)
    requests = [writing(f"{draw.random()}", tokens=draw.randint(1, 200)) for _ in range(64)]
    requests.append(writing("x", tokens=900))
    tokens = [sum(requests[i].decoding.max_new_tokens for i in part) for part in shares(requests, 4)]
    assert len(tokens) == 4
    assert max(tokens) < 1.2 * sum(tokens) / 4
    assert shares(requests[:1], 4) == [[0]]
    assert shares([], 4) == []


def test_candidates_and_texts_count_as_tokens():
    chats = [(Message("user", f"{n}"),) for n in range(4)]
    rated = [RateRequest("a", chat, ("x" * 4000 if n == 3 else "x",)) for n, chat in enumerate(chats)]
    weighed = [LikelihoodRequest("a", chat, ("x" * 4000 if n == 3 else "x",)) for n, chat in enumerate(chats)]
    for requests in (rated, weighed):
        assert [sorted(part) for part in shares(requests, 2)] == [[0, 1, 2], [3]]


def test_a_replica_that_lacks_a_package_is_one_line(ray, pool, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def engine(): ...")
    monkeypatch.syspath_prepend(tmp_path)
    line = r"^replicas: System error: No module named 'only_here': see that every replica's machine has the packages"
    with pytest.raises(ValueError, match=line):
        EngineReplicas(importlib.import_module("only_here").engine, replicas=1, cpus=0)


def test_what_a_dead_replica_kept_is_forgotten_with_it(pool):
    engine, file = pool
    engine.generate([writing("Who is there?", seed=0)])  # and notes who it is
    os.kill(notes(file)[-1][0], signal.SIGKILL)
    engine.forget()
    assert engine.count_tokens("of the other one") == 4
