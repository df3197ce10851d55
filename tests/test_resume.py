"""Killed at any moment and started again, a run makes only the calls that were not yet in its log."""

import json
import os
from collections import Counter

import pytest

from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Transcript

KILLS = 7
BATCH = 3

SCRIPT = """
import json, os, random, signal, sqlite3, sys, time
from contextlib import closing
from pathlib import Path

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task

TASKS = [Task(f"What is {i} times 7?", id=str(i)) for i in range(3)]


class Slow(ScriptedEngine):
    '''Takes a moment a call; every finished call leaves a line that tells it from all others.'''

    def __init__(self, made):
        def judge(request, candidate):
            return random.Random(f"{request.seed}{candidate}").random()

        super().__init__(lambda request: f"answer {request.seed}", judge, max_batch=BATCH)
        self.made = made

    def generate(self, requests):
        return [self.slowly(super(Slow, self).generate, request) for request in requests]

    def rate(self, requests):
        return [self.slowly(super(Slow, self).rate, request) for request in requests]

    def slowly(self, call, request):
        time.sleep(0.004)
        (result,) = call([request])
        line = getattr(result, "text", None) or str(list(result.values))
        with self.made.open("a") as file:
            file.write(line + "\\n")
        return result


def run(folder):
    '''One deliberation from whatever lies in the folder to its transcripts.'''
    with CallLog(folder / "calls.sqlite") as log:
        agents = [Agent(name, "slow") for name in ("ada", "ben", "cleo")]
        ensemble = Ensemble({"slow": Slow(folder / "made.txt")}, agents, call_log=log)
        cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=3).double(), seed=5)
        for transcript in MacroRNN(cell)(TASKS).transcripts:
            transcript.save(folder / f"{transcript.task.id}.json")


def lines(folder):
    file = folder / "made.txt"
    return file.read_text().splitlines() if file.exists() else []


def logged(folder):
    file = folder / "calls.sqlite"
    with CallLog(file):  # a log that a killed process left behind opens
        pass
    with closing(sqlite3.connect(file)) as database:  # or it would be open in the next fork
        values = [json.loads(value[16:]) for (value,) in database.execute("SELECT value FROM calls")]
    return [value.get("text") or str(value["values"]) for value in values]


def killed(folder, draw):
    '''Start a run, kill it after some more calls, and say how far it had come.'''
    target = len(lines(folder)) + draw.randint(1, 7)  # in all fewer than a whole run makes
    if (pid := os.fork()) == 0:
        run(folder)
        os._exit(0)
    while len(lines(folder)) < target:
        time.sleep(0.0005)
    time.sleep(draw.random() * 0.006)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return {"signal": os.WTERMSIG(status), "made": len(lines(folder)), "logged": logged(folder)}


straight, broken = map(Path, sys.argv[1:3])
draw = random.Random(int(sys.argv[3]))
kills = [killed(broken, draw) for _ in range(KILLS)]
run(broken)
run(straight)
print(json.dumps(kills))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_kill_and_resume(tmp_path, plain_python):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    straight.mkdir()
    broken.mkdir()
    script = SCRIPT.replace("KILLS", str(KILLS)).replace("BATCH", str(BATCH))
    done = plain_python(script, straight, broken, "1")
    assert done.returncode == 0, done.err
    kills = json.loads(done.out)
    made = (broken / "made.txt").read_text().splitlines()
    once = (straight / "made.txt").read_text().splitlines()
    calls = 3 * 3 * 3 * 2  # tasks, agents, rounds, phases
    assert len(once) == len(set(once)) == calls

    assert [kill["signal"] for kill in kills] == [9] * KILLS
    for before, kill in zip([{"logged": []}, *kills], kills, strict=False):
        assert set(before["logged"]) <= set(kill["logged"])
        # What was in the log is never asked for again, and only the batch in flight was lost.
        assert not set(kill["logged"]) & set(made[kill["made"] :])
        assert len(set(made[: kill["made"]]) - set(kill["logged"])) <= BATCH
    assert any(0 < len(kill["logged"]) < calls for kill in kills)
    assert set(made) == set(once)
    assert sum(Counter(made).values()) <= calls + KILLS * BATCH

    for folder in (straight, broken):
        with CallLog(folder / "calls.sqlite") as log:
            assert len(log) == calls
    for task in range(3):
        assert Transcript.load(broken / f"{task}.json") == Transcript.load(straight / f"{task}.json")
