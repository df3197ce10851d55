"""`nsed serve` from the command line, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from served_team import PATIENCE, Client, about, until

from nsed_torch.app.cli import main

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}


@contextmanager
def program(*arguments):
    command = [sys.executable, *map(str, arguments)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, env=ENVIRONMENT, **pipes) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_runs_and_lets_nobody_else_in(number):
    with program(ROOT / "tests" / "served_team.py") as child:
        client = Client(int(child.stdout.readline()))
        until(lambda: reachable(client))
        replies = []
        asking = [threading.Thread(target=lambda i=i: replies.append(client.chat(about(i)))) for i in (1, 2)]
        asking[0].start()
        until(lambda: "nsed_running 1" in client.get("/metrics")[1])
        asking[1].start()  # waits while the first one runs
        until(lambda: "nsed_queue_length 1" in client.get("/metrics")[1])
        child.send_signal(number)
        until(lambda: not reachable(client))
        child.stdin.write("answer\n")
        child.stdin.flush()
        for thread in asking:
            thread.join()
        out, err = child.communicate(timeout=PATIENCE)
    assert [status for status, _ in replies] == [200, 200]
    assert sorted(reply["choices"][0]["message"]["content"][:2] for _, reply in replies) == ["1 ", "2 "]
    assert (child.returncode, out, err) == (0, "finished 12\n", "")


def reachable(client):
    try:
        return client.get("/health")[0] == 200
    except OSError:
        return False


@pytest.fixture
def fault(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSED_API_KEY", raising=False)
    monkeypatch.delenv("NSED_DEBUG", raising=False)

    def run(*arguments):
        assert main(["serve", *arguments]) == 2
        _, err = capfd.readouterr()
        assert err.count("\n") == 1
        return err.removeprefix("nsed serve: ").rstrip("\n")

    return run


HERE = "port=0"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["host=0.0.0.0"],
            "api_key_env: expected a key in the environment variable NSED_API_KEY to listen at 0.0.0.0, got none",
        ),
        (["port=70000"], "port: cannot listen at 127.0.0.1:70000 ("),
        (
            ["~models.experts", "~models.demo", HERE],
            "models: expected a model at least, got none: pass models.NAME={ensemble: demo}",
        ),
        (["+models.a=3", HERE], "models.a: expected settings of nsed deliberate, got 3: pass ensemble=..."),
        (["+models.a={ensemble: nobody}", HERE], "models.a: "),
        (["+models.a={roundz: 3}", HERE], "models.a: Could not override 'roundz'; nsed deliberate --cfg job lists all"),
        (["+models.a={rounds: many}", HERE], "models.a: rounds: expected a whole number, got 'many'"),
        (["limits.max_queue=few"], "limits.max_queue: expected a whole number, got 'few'"),
        (["limits.max_queues=1"], "unknown setting 'limits.max_queues'"),
    ],
)
def test_what_a_user_can_fix_is_one_line_before_anything_is_loaded(fault, arguments, line, monkeypatch):
    monkeypatch.setattr("nsed_torch.app.verbs.serve.build_rnn", lambda *_: pytest.fail("too late"))
    assert fault(*arguments).startswith(line)


def test_a_file_of_calls_that_is_none_is_told_before_anything_is_loaded(fault, tmp_path, monkeypatch):
    monkeypatch.setattr("nsed_torch.app.verbs.serve.build_rnn", lambda *_: pytest.fail("too late"))
    (tmp_path / "file").write_text("no log of calls")
    assert "file: not a readable call log" in fault(HERE, "calls=file")
    assert "file" in fault(HERE, "calls=file/below/it")


def test_a_port_in_use_is_one_line(fault):
    from nsed_torch.app.verbs.serve import bound

    with bound("127.0.0.1", 0) as taken:
        taken.listen()
        assert "choose another port=..." in fault(f"port={taken.getsockname()[1]}")


def test_models_are_teams_of_nsed_deliberate(monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NSED_API_KEY", " key ")
    built, served, embedded = [], [], []
    team = SimpleNamespace(cell=SimpleNamespace(encoder=SimpleNamespace(embed=embedded.extend)))
    monkeypatch.setattr("nsed_torch.app.verbs.serve.build_rnn", lambda cfg, *_: built.append(cfg) or team)
    monkeypatch.setattr("nsed_torch.app.verbs.serve.Batches", lambda teams, **queue: (teams, queue))
    monkeypatch.setattr("nsed_torch.app.verbs.serve.listen", lambda *given: served.append(given))
    pair = "+models.pair={ensemble: two_families, halting: evidence, rounds: 8, +ensemble.agents.solver.roles: [judge]}"
    (block,) = re.findall(
        r"```yaml\n(?:#.*?\n)?(conductor:.*?)```", (ROOT / "docs/serve.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "mine/models").mkdir(parents=True)
    (tmp_path / "mine/models/conducted.yaml").write_text(block)
    also = ["-cd", "mine", "+models=conducted"]
    assert main(["serve", *also, "host=0.0.0.0", HERE, pair, "limits.max_batch=7", "limits.rounds=3"]) == 0
    ((_, (teams, queue), limits, key),) = served
    assert list(teams) == ["nsed/experts", "nsed/demo", "nsed/conductor", "nsed/pair"]
    assert embedded == list(teams)  # so the encoders are loaded
    assert (queue["max_batch"], limits.rounds, key) == (7, 3, "key")
    experts, demo, conducted, two = built
    assert "LikelihoodRating" in experts.rating._target_
    assert (experts.prompts.style, experts.rounds, min(demo.ensemble.agents)) == ("direct", 1, "explainer")
    assert (conducted.broker.conductor.adapter, conducted.broker.conductor.persona[:9]) == ("conductor", "You write")
    assert conducted.ensemble.engines.smollm2.adapters.conductor == "experts:conductor_words"
    assert (two.halting.min_rounds, two.halting.rounds) == (3, 8)
    assert list(two.ensemble.engines) == ["smollm2", "gemma3"]
    assert two.ensemble.agents.solver.roles == ["judge"]
    assert "serving nsed/experts, nsed/demo, nsed/conductor, nsed/pair at http://0.0.0.0:" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


PROBE = """
import json, sys
{block}
from nsed_torch.app.cli import main
code = main(json.loads(sys.argv[1]))
print(json.dumps([code, [m for m in ("fastapi", "uvicorn", "starlette") if sys.modules.get(m)]]))
"""


@pytest.mark.parametrize(
    ("arguments", "block", "expected", "line"),
    [
        (["report", "run=nowhere"], "", 2, "nsed report: nowhere"),
        (["serve", "--help"], "", 0, ""),
        (
            ["serve"],
            "sys.modules['uvicorn'] = None",
            2,
            "nsed serve: expected the packages fastapi and uvicorn for a server, got ",
        ),
    ],
)
def test_other_verbs_and_help_do_without_the_packages(tmp_path, arguments, block, expected, line):
    with program("-P", "-c", PROBE.format(block=block), json.dumps(arguments)) as child:
        out, err = child.communicate(timeout=PATIENCE)
    assert json.loads(out.splitlines()[-1]) == [expected, []]
    assert err.startswith(line)
    assert err.count("\n") == (1 if line else 0)
