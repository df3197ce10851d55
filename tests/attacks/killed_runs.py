"""Verbs run small in forks of one process that has imported everything: killed, stopped, or kept from writing.

    python killed_runs.py kills|stops|disks|locks HOME DATA SEED COUNT VERB...

writes what happened into `DATA/found.json`. Every run has a folder of its own and settings equal to the straight run's;
agents are scripts behind a local server, in a process of its own that notes every request it is asked.
"""

import contextlib
import hashlib
import importlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import torch
from endpoint_server import Server
from golden import materials
from local_server import serving
from safetensors import safe_open

from nsed_torch.app.cli import main

WRITES = {"os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "shutil.rmtree", "sqlite3.connect"}
"""Python's audit events at which a run is killed, beside files that are opened to be written."""

TIMES = {"seconds", "completion_seconds", "train_runtime"}
"""Keys of files whose values are measured times."""

MOST = 12
"""Requests in flight: all of one phase of a batch may be lost by a kill."""

TEAM = "\0team"  # stands for the words that put the scripted team in place
ACT = "\0act"  # for the one act of the demo, which that team plays
ASKED = "encoder=hashed", "tasks.math_verify=false", "questions={data}/asked.jsonl"
LARGE = "ensemble.engines.large"
MODEL = "weights.path={data}/tiny", "quantization=none", "dtype=float32", "device=cpu"
VERBS = {
    "collect": (TEAM, *ASKED, "rounds=2", "batch_tasks=2", "limit=6"),
    "deliberate": (TEAM, "How much is 4 times 7?", "encoder=hashed", "rating=verdict", "rounds=3"),
    "conduct": (TEAM, "How much is 4 times 7?", "recursion=2", "conductor=smollm2", "conductor.adapter=conductor"),
    "evaluate": (
        *(TEAM, "tasks=recorded", "data_dir={data}/few", "tasks.math_verify=false", "encoder=hashed"),
        *("rounds=2", "methods=[deliberation,single,self_consistency,conductor]", "conductor.adapter=conductor"),
    ),
    "tune": (
        *("data_dir={data}/recorded", "optimizer=adam", "optimizer.lr=0.1", "training.epochs=12", "divisions=2"),
        *("training.checkpoint=3", "coverage=0.9", "resume=true", "encoder=hashed"),
    ),
    "fit-asking": (
        *("data_dir={data}/recorded", "encoder=hashed", "divisions=2", "steps=20", "ridges=[3.0]"),
        *("budgets=[0.2,1.0]", "pool=3"),
    ),
    "fit-broker": (*("data_dir={data}/traces", "divisions=2", "ridges=[3.0]", "prices=[0.0]", "budgets=[0.4,1.0]"),),
    "report": ("run=out",),
    "demo": ("~acts.profile", "~acts.tower", ACT),
    "members": ("data_dir={data}/traces", "votes=[quadratic]", "draws=2", "most_teams=5"),
    "train-judges": (
        *(
            "data_dir={data}/judged",
            "ensemble=demo",
            "lora.steps=2",
            "lora.batch=2",
            "lora.every=1",
            "lora.validation_tasks=2",
        ),
        *("lora.test_tasks=3", "lora.rank=2", *(f"ensemble.engines.smollm2.{word}" for word in MODEL)),
    ),
    "specialize": (
        *("specialist=judge", "name=answers", "lesson.candidates={data}/judged"),
        *("training.steps=4", "training.batch=2", "training.save_steps=1", "adapter.rank=2", "max_new_tokens=2"),
        *(f"backbone.{word}" for word in MODEL if "quantization" not in word),
    ),
    "train-conductor": (
        *(TEAM, "+backbone@ensemble.engines.large=smollm2_135m_instruct", "conductor.backbone=large"),
        *(f"{LARGE}.{word}" for word in MODEL),
        *("grpo.steps=2", "grpo.questions=2", "grpo.rollouts=2", "grpo.chunk=4", "grpo.max_new_tokens=6"),
        *("grpo.save_steps=1", "adapter.rank=2", "warm.lessons=4", "warm.training.steps=2", "warm.training.batch=2"),
        *("warm.training.save_steps=1", "tasks=file", "pools.size=2", *ASKED[1:]),
    ),
}
"""Each verb with the words of a small run; `{data}` is what `prepare` made."""

LIGHT = {"collect", "deliberate", "conduct", "evaluate", "report", "demo"}
"""Verbs that load no model here."""


def forked(act):
    """Start a process that does this and exits with what it returns; no cleaning up of the parent's is done twice."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        code = act()
    except BaseException:  # whatever it was, the parent must hear of it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid):
    """Exit code of a process, or minus its signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve(folder):
    """The scripted team behind a server that notes every request; in `address` stands where."""

    def speak(body):
        if not any(materials.NUMBER.search(message["content"]) for message in body["messages"]):  # of the demo
            body = body | {"messages": [{"role": "system", "content": materials.question(7)}, *body["messages"]]}
        line = json.dumps({k: body[k] for k in ("model", "messages", "seed", "max_tokens") if k in body})
        with server.lock, (folder / "requests").open("a") as file:
            file.write(hashlib.sha256(line.encode()).hexdigest() + "\n")
        time.sleep(0.003)
        return materials.speak(body)

    with serving(Server) as server:
        server.script, server.bodies, server.heads, server.lock = speak, [], [], threading.Lock()
        server.flying = server.most = 0
        server.handle_error = lambda *_: None  # those who asked were killed
        (folder / "part").write_text(str(server.server_port))
        (folder / "part").rename(folder / "address")
        signal.pause()


def team(folder):
    """The words that put the scripted team in the place of the demo's, as in `materials.team`."""
    while not (folder / "address").exists():
        time.sleep(0.01)
    engine = "ensemble.engines.smollm2"
    return [
        *("ensemble=demo", "backbone@ensemble.engines.smollm2=endpoint", f"{engine}.model=m", f"{engine}.max_batch=4"),
        f"{engine}.url=http://127.0.0.1:{(folder / 'address').read_text()}/v1",
        *(f"+ensemble.agents.{name}.adapter={name}" for name in materials.TEAM),
    ]


def prepare(data, verbs):
    """What the verbs read: questions, recorded answers and rounds, a tiny model."""
    materials.questions(data / "asked.jsonl", 24)
    materials.questions(data / "few/questions.jsonl", 3)
    if {"tune", "fit-asking"} & set(verbs):
        materials.recorded(data / "recorded", 60)
    if {"train-judges", "specialize", "train-conductor"} & set(verbs):
        materials.tiny(data / "tiny")
        materials.questions(data / "judged/questions.jsonl", 24)
        for name, off in (("right", 0), ("wrong", 1)):
            said = [str(7 * i + off) for i in range(24)]
            rows = [{"id": f"q{i}", "output": text, "answer": text, "correct": not off} for i, text in enumerate(said)]
            materials.write_lines(data / f"judged/answers/{name}.jsonl", rows)


class Runs:
    """One verb's runs in folders below `home`; `data` is what they read."""

    def __init__(self, verb, home, data, words):
        self.verb, self.home = verb, home / verb
        self.requests = data / "requests"
        act = [*words, "encoder=hashed", "rating=verdict", "rounds=2"]
        marks = {TEAM: words, ACT: ["acts.vote=[{}]".format(",".join(f'"{word}"' for word in act))]}
        told = [marks.get(word) or [word.replace("{data}", str(data))] for word in VERBS[verb]]
        self.data = data
        self.words = [verb, *(word for group in told for word in group), "output_dir=out"]

    def start(self, name, before=lambda folder: None):
        """Run the verb in a folder of its own, as it stands."""
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True)
        if self.verb == "report" and not (folder / "out").exists():  # the run that it is about
            (folder / "out").mkdir()
            for path in (self.data / "traces").glob("*[a-z]"):
                (folder / "out" / path.name).symlink_to(path)

        def act():
            os.chdir(folder)
            said = os.open(self.data / f"{name}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            before(folder)
            return main(self.words)

        return forked(act)

    def run(self, name, before=lambda folder: None):
        """Its exit code."""
        return ended(self.start(name, before))

    def said(self, name):
        """What a run printed last."""
        return (self.data / f"{name}.said").read_text().strip()

    def asked(self):
        """All requests so far, of all runs."""
        return self.requests.read_text().split() if self.requests.exists() else []

    def results(self, name):
        """What stands in the run's folder, as far as it does not tell the time."""
        out = self.home / name / "out"
        there = sorted(path for path in out.rglob("*") if path.is_file())
        return {str(path.relative_to(out)): content(path) for path in there if counts(path.relative_to(out))}


def counts(path):
    """Whether a file is a result: what is left to go on from, and the log of calls, are not."""
    return not any(part.startswith((".", "calls.sqlite", "checkpoint", ".hydra")) for part in path.parts)


def content(path):
    """A file's digest; of JSON and pages without measured times."""
    data = path.read_bytes()
    if path.suffix in {".json", ".jsonl"}:
        lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        data = json.dumps([timeless(json.loads(line)) for line in lines], sort_keys=True).encode()
    elif path.suffix in {".html", ".md", ".tex", ".csv"}:  # all fractions, for `results.json` has them with names
        data = re.sub(rb"\d+\.\d+(e-?\d+)?|\d+( |&nbsp;|\xc2\xa0)?(s|seconds|ms|min)\b", b"NUMBER", data)
    elif path.suffix == ".safetensors":  # in whose header names stand in any order
        with safe_open(path, "pt") as file:
            names = sorted(file.keys())
            values = [file.get_tensor(name).contiguous().view(-1).view(torch.uint8).numpy() for name in names]
            data = (
                b"".join(value.tobytes() for value in values)
                + json.dumps([names, sorted((file.metadata() or {}).items())]).encode()
            )
    return hashlib.sha256(data).hexdigest()


def timeless(value):
    """Without measured times."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not (k in TIMES or k.endswith(("seconds", "runtime")))}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def writing(folder, act):
    """Do this whenever the process is about to change something below a folder."""
    own = (str(folder), "out")

    def hook(event, arguments):
        if event == "open":
            name, mode, flags = arguments
            writes = set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR)
        else:
            name, writes = (*arguments, "")[0], event in WRITES
        if writes and str(name).startswith(own):
            act()

    sys.addaudithook(hook)


def dying(after):
    """Kill this process at its so manieth write, or so many seconds from now."""

    def before(folder):
        if isinstance(after, float):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends a process as SIGKILL does: nothing of it runs on
            signal.setitimer(signal.ITIMER_REAL, after)
        else:
            left = iter(range(after))
            writing(folder, lambda: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL))

    return before


def stopping(after):
    """Ctrl-C, as a terminal has it: the whole group of processes hears of it."""

    def stop():
        os.killpg(0, signal.SIGINT)

    def before(folder):
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        if isinstance(after, float):
            signal.signal(signal.SIGALRM, lambda *_: stop())
            signal.setitimer(signal.ITIMER_REAL, after)
        else:
            left = iter(range(after + 1))
            writing(folder, lambda: next(left, None) == after and stop())

    return before


def closing(after):
    """From its so manieth write on, or from the start, nothing below the run's folder can be written."""

    def before(folder):
        if after < 0:
            permit(folder, write=False)
        else:
            left = iter(range(after + 1))
            writing(folder, lambda: next(left, None) == after and permit(folder, write=False))

    return before


def permit(folder, *, write):
    """Let all below a folder be written, or nothing."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod((0o755 if write else 0o555) if path.is_dir() else (0o644 if write else 0o444))


def measured(one):
    """A straight run: its results, requests, seconds, and how often it writes."""
    begun, before = time.perf_counter(), len(one.asked())
    note = one.requests.with_name("writes")
    note.write_bytes(b"")
    number = os.open(note, os.O_WRONLY | os.O_APPEND)
    code = one.run("straight", lambda folder: writing(folder, lambda: os.write(number, b".")))
    os.close(number)
    assert code == 0, one.said("straight")
    assert one.results("straight")
    seconds = time.perf_counter() - begun
    return one.results("straight"), Counter(one.asked()[before:]), seconds, note.stat().st_size


def torn(found, straight):
    """Files that are neither absent nor whole; logs that grow may be short, and counts come to `collect.json` last."""
    short = (".jsonl", "collect.json")
    return [name for name, digest in found.items() if straight.get(name) != digest and not name.endswith(short)]


def kills(one, draw, count, chain=5):
    """Kill a verb so many times, a few in one folder; what is wrong then, or once it has ended, a line each."""
    straight, asked, seconds, writes = measured(one)
    wrong, done, chains = [], 0, 0
    while done < count:
        name, begun = f"broken{chains}", len(one.asked())
        planned = min(chain, count - done)
        for _ in range(planned):
            after = draw.uniform(0.05, seconds) if draw.random() < 0.5 else draw.randrange(writes)
            code = one.run(name, dying(after))
            if code not in {0, -signal.SIGKILL, -signal.SIGALRM}:
                wrong.append(f"{name}: {after} ended with {code}: {one.said(name)[-600:]}")
            done += code != 0
            wrong += [f"{name}: killed after {after}, torn {file}" for file in torn(one.results(name), straight)]
        wrong += compared(one, name, straight)
        calls = Counter(one.asked()[begun:])
        again = (calls - asked).total()
        if set(calls) != set(asked) or again > planned * MOST:
            wrong.append(f"{name}: {again} of {asked.total()} calls made again, {len(set(calls) ^ set(asked))} others")
        chains += 1
        shutil.rmtree(one.home / name)
    return {"kills": done, "folders": chains, "writes": writes, "seconds": round(seconds, 2), "wrong": wrong}


def stops(one, draw, count):
    """Interrupt a verb so many times, each in a folder of its own; the line tells the command that goes on."""
    straight, asked, seconds, writes = measured(one)
    again = f"interrupted; this (goes on from here|begins anew): {re.escape(shlex.join(['nsed', *one.words]))}"
    wrong, lines = [], Counter()
    for number in range(count):
        name, begun = f"stopped{number}", len(one.asked())
        after = draw.uniform(0.05, seconds) if number % 2 else draw.randrange(writes)
        code, said = one.run(name, stopping(after)), one.said(name)
        last = (said.splitlines() or [""])[-1]
        if code and (code != 130 or not re.fullmatch(f"nsed {one.verb}: {again}", last) or "Traceback" in said):
            wrong.append(f"{name}: {after} ended with {code}: {said[-1500:]}")
        lines[code] += 1
        wrong += [f"{name}: stopped after {after}, torn {file}" for file in torn(one.results(name), straight)]
        wrong += compared(one, name, straight)
        repeated = (Counter(one.asked()[begun:]) - asked).total()
        if repeated > MOST:
            wrong.append(f"{name}: {repeated} of {asked.total()} calls made again")
        shutil.rmtree(one.home / name)
    return {"writes": writes, "seconds": round(seconds, 2), "codes": lines, "wrong": wrong}


def locks(one, draw, count):
    """Forbid a verb to write from the start, and from some of its writes on; then let it."""
    straight, _, _, writes = measured(one)
    wrong, lines = [], set()
    for number in range(count):
        name = f"closed{number}"
        after = draw.randrange(writes) if number else -1
        code, said = one.run(name, closing(after)), one.said(name)
        permit(one.home / name, write=True)
        last = (said.splitlines() or [""])[-1]
        lines.add(re.sub(r"\S*/|[0-9a-f]{8,}", "", last))
        clear = last.startswith(f"nsed {one.verb}: ") and "Traceback" not in said
        if code not in {0, 2} or (code and not (clear and re.search("ermission|read-?only", last))):
            wrong.append(f"{name}: closed at {after} of {writes}: exit {code}: {said[-1500:]}")
        wrong += [f"{name}: closed at {after}, torn {file}" for file in torn(one.results(name), straight)]
        wrong += compared(one, name, straight)
        shutil.rmtree(one.home / name)
    return {"writes": writes, "lines": sorted(lines), "wrong": wrong}


def disks(one, draw, count):
    """Run a verb with less room than it needs, twice in one folder, and once with enough."""
    before = room(one.home)
    straight, *_ = measured(one)
    needs = before - room(one.home)
    wrong, lines = [], set()
    for number in range(count):
        name = f"full{number}"
        for left in sorted(draw.sample(range(needs), 2)):
            fill(one.home, left)
            code, said = one.run(name), one.said(name)
            last = said.splitlines()[-1:]
            lines.add(re.sub(r"\S*/|[0-9a-f]{8,}", "", " ".join(last)))
            clear = last and last[0].startswith(f"nsed {one.verb}: ") and "Traceback" not in said
            if code and (code != 2 or not clear or not re.search("space|full", last[0])):
                wrong.append(f"{name}: {left} of {needs} pages free: exit {code}: {said[-1500:]}")
            wrong += [f"{name}: {left} pages free, torn {file}" for file in torn(one.results(name), straight)]
            (one.home / "filler").unlink()
        wrong += compared(one, name, straight)
        shutil.rmtree(one.home / name)
    return {"pages": needs, "lines": sorted(lines), "wrong": wrong}


def compared(one, name, straight):
    """Run to the end; in what the results differ from a straight run's."""
    if code := one.run(name):
        return [f"{name}: ended with {code}: {one.said(name)[-1500:]}"]
    found = one.results(name)
    files = sorted(file for file in {*found, *straight} if found.get(file) != straight.get(file))
    return [f"{name}: {file} differs" for file in files]


def room(folder):
    """Free pages of its file system."""
    return os.statvfs(folder).f_bavail


def fill(folder, left):
    """Leave so many pages of its file system free."""
    with (folder / "filler").open("wb") as file:
        file.write(bytes((room(folder) - left) * os.statvfs(folder).f_frsize))


def play():
    """What the command line says."""
    act, home, data, seed, count, *verbs = sys.argv[1:]
    home, data = Path(home), Path(data)
    server = forked(lambda: serve(data))
    try:
        prepare(data, verbs)
        words = team(data)
        if {"members", "fit-broker", "report"} & set(verbs):
            asked = "encoder=hashed", "tasks.math_verify=false", f"questions={data}/asked.jsonl"
            code = ended(forked(lambda: main(["collect", *words, *asked, "rounds=1", f"output_dir={data}/traces"])))
            assert code == 0
        found = {}
        for verb in verbs:
            draw = random.Random(f"{verb} {seed}")
            one = Runs(verb, home, data, words)
            one.home.mkdir(parents=True)
            found[verb] = {"kills": kills, "stops": stops, "disks": disks, "locks": locks}[act](one, draw, int(count))
            shutil.rmtree(one.home)
        (data / "found.json").write_text(json.dumps(found, indent=1))
    finally:
        os.kill(server, signal.SIGKILL)
        ended(server)


if __name__ == "__main__":
    chosen = sys.argv[6:]
    models = () if LIGHT.issuperset(chosen) else ("transformers", "peft", "trl", "scipy.optimize")
    for heavy in ("openai", *models, *(f"nsed_torch.app.verbs.{verb.replace('-', '_')}" for verb in chosen)):
        with contextlib.suppress(ImportError):
            importlib.import_module(heavy)
    play()
