"""Small fixed runs of every verb, driven by the command line alone, and what they come to as plain data.

Each function of `RUNS` takes an empty folder and returns numbers and decisions under keys of its own: whatever the
package names its files and their keys is written here once, so that a renaming there is one line here. Agents are
scripts behind a local endpoint; nothing depends on a model's texts.
"""

import contextlib
import json
import math
import random
import re
import threading
from pathlib import Path

from endpoint_server import Server, completion
from local_server import serving
from report_pages import Page
from safetensors.torch import load_file
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.cli import main

TEAM = {"solver": 0.8, "skeptic": 0.55, "explainer": 0.35}
"""The scripted agents, and how often each is right."""

ANSWERERS = {"ant": (0.45, 1), "bee": (0.5, 2), "cat": (0.8, 9), "dog": (0.55, 3), "eel": (0.4, 1)}
"""Recorded agents: how often each is right, and its billions of parameters."""

METHODS = {
    "somebody right": "oracle",
    "agent left out": "ant",
    "best agent": "best_single",
    "best agent of the category": "best_by_category",
    "plurality": "plurality",
    "log odds": "log_odds",
    "logistic": "logistic_vote",
    "dawid and skene": "dawid_skene",
    "fresh cell": "consensus_untrained",
    "tuned cell": "consensus_tuned",
}
PARAMETERS = {
    "beta": "log_beta",
    "kappa": "kappa",
    "backing": "backing",
    "gate": "gate.weight",
    "gate start": "gate.bias",
    "weight of agents": "trust.bias",
    "weight by question and state": "trust.weight",
    "scale of judges": "calibration.scale",
    "shift of judges": "calibration.shift",
    "common reading of weight": "reading.common",
    "reading of weight": "reading.trust",
    "reading of support": "reading.score",
    "weight by category": "reading.category",
    "bias of sets": "bias",
    "weights of sets": "weight",
    "threshold of sets": "threshold",
    "thresholds by category": "thresholds",
}
"""Of a saved cell and what stands beside it, where it has them."""

ROUGH = "fits and cell, roughly"
"""What stands under this key is compared roughly."""

ADAM = ("optimizer=adam", "optimizer.lr=0.1", "training.epochs=15")
"""So few steps in float32 come to six digits on any machine; L-BFGS to its end does in float64 alone."""

NUMBER = re.compile(r"How much is (\d+) times")


# What every run needs: the command line, files, numbers.


def nsed(folder, *words):
    """Run a verb in this process and this folder."""
    with contextlib.chdir(folder):
        assert main([str(word) for word in words]) == 0, words


def read(path):
    """A JSON file."""
    return json.loads(path.read_text())


def read_lines(path):
    """A file of a JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path, rows):
    """The same, written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rounded(value, digits=8):
    """All floats of a tree to so many significant digits."""
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def interval(entry):
    """A mean with its interval and count."""
    return [entry[key] for key in ("mean", "low", "high", "n")]


def spent(usage):
    """What calls cost, save for their time."""
    return [usage[key] for key in ("calls", "prompt_tokens", "completion_tokens", "price")]


# Scripts in place of models, behind a local endpoint that speaks the public protocol.


@contextlib.contextmanager
def team(price=True):
    """The words that put the scripted agents in the place of the demo's."""
    with serving(Server) as server:
        server.script, server.bodies, server.heads, server.lock = speak, [], [], threading.Lock()
        server.flying = server.most = 0
        engine = "ensemble.engines.smollm2"
        yield [
            *("ensemble=demo", "backbone@ensemble.engines.smollm2=endpoint", f"{engine}.model=m"),
            *(f"{engine}.max_batch=4", f"{engine}.url=http://127.0.0.1:{server.server_port}/v1"),
            *(f"+ensemble.agents.{name}.adapter={name}" for name in TEAM),
            *(f"+ensemble.agents.{name}.prompt_price={i}" for i, name in enumerate(TEAM, start=1) if price),
        ]


def speak(body):
    """What the scripts say to a request: who is asked is the model's name, words are tokens."""
    who, last = body["model"], body["messages"][-1]["content"]
    asked = "\n".join(message["content"] for message in body["messages"])
    number = int(NUMBER.search(asked)[1])
    if body.get("logprobs"):
        yes = believes(who, number, int(re.findall(r"Answer: (\d+)", last)[-1]))
        return completion("Yes", usage=(len(asked.split()), 1), top={"Yes": yes, "No": 1 - yes})
    text = workflow(number, last) if who == "conductor" else answer(who, number, body)
    return completion(text, usage=(len(asked.split()), len(text.split())))


def believes(who, number, said):
    """A judge's probability that an answer is right: the solver can tell, the others cannot."""
    draw = random.Random(f"{who} {number} {said}")
    likes = said == 7 * number if who == "solver" else draw.random() < 0.5
    return draw.uniform(0.55, 0.95) if likes else draw.uniform(0.05, 0.45)


def answer(who, number, body):
    """An answer of any length with more or less luck; where 40 tokens are allowed, a critique with a score."""
    draw = random.Random(f"{who} {number} {body['seed']}")
    if body["max_tokens"] == 40:
        return f"Hm.\nScore: {draw.randint(-100, 100)}"
    said = 7 * number + (0 if draw.random() < TEAM[who] else draw.randint(1, 2))
    return " ".join(["so"] * draw.randint(1, 30)) + f"\nAnswer: {said}"


def workflow(number, last):
    """A workflow by the question's number: sound, to be mended, or none; odd numbers accept an earlier answer."""
    if "Answer so far" in last and number % 2:
        return "model_id = []\nsubtasks = []\naccess_list = []"
    texts = (
        'model_id = [1, 0]\nsubtasks = ["Begin.", "Check."]\naccess_list = [[], "all"]',
        'model_id = [2, 0, 7]\nsubtasks = ["Begin.", "Go on.", "Stop."]\naccess_list = [[], "all", []]',
        "I would rather not.",
    )
    return texts[number % 3]


# What runs begin with: questions, recorded answers, recorded rounds, a tiny model.


def question(number):
    """A question that scripts can answer."""
    return f"How much is {number} times 7?"


def questions(path, count):
    """A file of such questions."""
    write_lines(path, [{"id": f"q{i}", "question": question(i), "gold": str(7 * i)} for i in range(count)])
    return path


def recorded(folder, tasks=120):
    """Recorded choices: who knows states its letter, mostly; who does not mumbles; bee knows law."""
    draw = random.Random(0)
    rows, lines = [], {name: [] for name in ANSWERERS}
    for i in range(tasks):
        gold, category = draw.choice("ABC"), draw.choice(("law", "physics"))
        text = f"Which of {i}?\nA. one\nB. two\nC. three"
        rows.append({"id": f"q{i}", "question": text, "gold": gold, "category": category})
        for name, (skill, _) in ANSWERERS.items():
            right = draw.random() < (0.95 if (name, category) == ("bee", "law") else skill)
            letter = gold if right else draw.choice("ABC".replace(gold, ""))
            stated = (
                f"Clearly. The answer is ({letter})." if right == (draw.random() < 0.85) else f"Perhaps {letter}, hm"
            )
            output = "so " * draw.randint(1, 40) + stated
            lines[name].append({"id": f"q{i}", "output": output, "answer": letter, "correct": right})
    write_lines(folder / "questions.jsonl", rows)
    for name, said in lines.items():
        write_lines(folder / "answers" / f"{name}.jsonl", said)
    sizes = {name: {"parameters_b": size} for name, (_, size) in ANSWERERS.items()}
    (folder / "agents.json").write_text(json.dumps(sizes))
    return folder


def rounds(folder, count=30):
    """Recorded rounds of the scripted agents, beside the run's folder, so that runs with one parent share them."""
    home = folder.parent / "rounds"
    if not home.exists():
        with team() as words:
            asked = f"questions={questions(home / 'questions.jsonl', count)}"
            quiet = "encoder=hashed", "tasks.math_verify=false", "rounds=1", "batch_tasks=40", "output_dir=traces"
            nsed(home, "collect", *words, asked, *quiet)
    return home / "traces"


def tiny(folder):
    """A random model of two layers that knows ASCII, the same each time; Yes and No are one token each."""
    words = [*map(chr, range(33, 127)), "Ġ", "Ċ", "Ye", "Yes", "No"]
    merges = [("Y", "e"), ("Ye", "s"), ("N", "o")]
    tokenizer = tiny_tokenizer(words=words, merges=merges, bos_token="<|im_start|>")
    return save_tiny(folder, tokenizer, max_position_embeddings=8192, bos_token_id=tokenizer.bos_token_id)


# Live teams.

PUBLISHED = "rating=verdict", "prompts.style=short"  # unlike the verb's own, which are those of the shipped experts


def deliberate(folder):
    """One question under the published protocol, under most other settings, and by agents who only judge."""
    variants = {
        "published": ["rounds=3"],
        "critiques, evidence and a budget": [
            *("rating=critique", "rating.decoding.max_new_tokens=40", "halting=evidence", "halting.min_rounds=2"),
            *("rounds=4", "broker=knapsack", "broker.max_proposers=2", "consensus.slots=2", "memory_tokens=40"),
        ],
        "one who only judges": [
            *("rounds=2", "+ensemble.agents.solver.roles=[judge]", "consensus.vote=linear", "consensus.gate=leaky"),
            *("+consensus.pooling=sum", "protocol.anonymous=false", "seed=5"),
        ],
        "likeness of texts": ["rounds=2", "protocol.similarity=0.8", "halting=fatigue", "seed=1"],
    }
    found = {}
    with team() as words:
        for number, (name, settings) in enumerate(variants.items(), start=4):
            run = f"run{number}"
            nsed(
                folder,
                "deliberate",
                question(number),
                *words,
                "encoder=hashed",
                *PUBLISHED,
                *settings,
                f"output_dir={run}",
            )
            found[name] = held(read(folder / run / "transcript.json"))
    return found


def held(transcript):
    """A deliberation: its answer, why it ended, what it cost, every round."""
    return {
        "answer": transcript["answer"].split()[-1],
        "ended by": transcript["stop_reason"],
        "cost": spent(transcript["usage"]),
        **{f"round {turn['index']}": voted(turn) for turn in transcript["rounds"]},
    }


def voted(turn):
    """A round: who spoke, what ratings came to, what is kept."""
    return {
        "proposers": turn["proposers"],
        "voters": turn["voters"],
        "answers": [proposal["text"].split()[-1] for proposal in turn["proposals"]],
        "ratings": turn["ratings"],
        "ballots": turn["ballots"],
        "trust": turn["trust"],
        "support": turn["support"],
        "consensus": turn["consensus"],
        "winner": turn["winner"],
        "conviction": turn["conviction"],
        "controversy": turn["controversy"],
        "kept": [[slot[key] for key in ("agent", "round", "retention", "gate", "shown")] for slot in turn["memory"]],
        "critiques": len(turn["critiques"]),
        "cost": spent(turn["usage"]),
    }


def collect(folder):
    """Graded rounds, and what they come to."""
    with team() as words:
        asked = f"questions={questions(folder / 'questions.jsonl', 8)}"
        quiet = "encoder=hashed", "tasks.math_verify=false", "rounds=2", "output_dir=traces"
        nsed(folder, "collect", *words, asked, *quiet)
    counts = read(folder / "traces/collect.json")["counts"]
    return {
        "tasks": counts["tasks"],
        "cost": spent(counts["usage"]),
        "right": [[round(entry["mean"] * entry["n"]), entry["n"]] for entry in counts["accuracies"].values()],
        "rounds": {trace["task"]["id"]: graded(trace) for trace in read_lines(folder / "traces/traces.jsonl")},
    }


def graded(trace):
    """Of each round: answers, grades, winner, its support."""
    turns = zip(trace["answers"], trace["grades"], trace["rounds"], strict=True)
    return [[said, grades, turn["winner"], max(turn["support"])] for said, grades, turn in turns]


def evaluate(folder):
    """All methods on a few questions at equal cost, workflows among them."""
    questions(folder / "data/questions.jsonl", 4)
    methods = ["deliberation", "single", "best_single", "plurality", "self_consistency", "self_correction", "best_of_n"]
    methods += ["self_moa", "moa", "debate", "conductor", "random_routing"]
    with team() as words:
        asked = "benchmark=recorded", "data_dir=data", "benchmark.math_verify=false", "conductor.adapter=conductor"
        run = "encoder=hashed", "rounds=2", f"methods=[{','.join(methods)}]", "output_dir=run"
        nsed(folder, "evaluate", *words, *asked, *run)
    results = read(folder / "run/results.json")
    page = (folder / "run/report.html").read_text()
    return {
        "methods": {name: scored(entry) for name, entry in results["methods"].items()},
        "deliberation minus": {name: won(entry) for name, entry in results["paired"].items()},
        "insight": insight(results["insight"]),
        "answers": answers(read_lines(folder / "run/outcomes.jsonl")),
        "methods that the page names": sum(name in page for name in results["methods"]),
    }


def scored(entry):
    """A method: accuracy, verdicts, cost."""
    told = entry["accuracy"]
    return [interval(told), told["interval"], entry["verdicts"], spent(entry["usage"])]


def won(entry):
    """A comparison: difference, wins and losses, p alone and among all."""
    return [interval(entry["difference"]), entry["wins"], entry["losses"], entry["p"], entry["p_holm"]]


def answers(outcomes):
    """What each method said to each task."""
    found = {}
    for outcome in outcomes:
        found.setdefault(outcome["method"], []).append(outcome["answer"])
    return found


def insight(found):
    """The main numbers of what deliberations tell."""
    return {
        "rounds": [interval(turn["accuracy"]) for turn in found["course"]["rounds"]],
        "right alone": interval(found["p_g"]["pooled"]),
        "tells right from wrong": interval(found["p_v"]["pooled"]["auc"]),
    }


def conduct(folder):
    """Workflows as written, mended and refused; one after the other; with the whole team as a worker."""
    variants = {
        "sound": (3, []),
        "mended, drawn pools": (4, ["recursion=2", "pools.kind=random", "pools.size=2", "seed=3"]),
        "refused, permuted pools": (5, ["recursion=2", "pools.kind=permuted"]),
        "the team as a worker": (6, ["council=true", "rounds=1", "rating=verdict", "encoder=hashed"]),
    }
    found = {}
    with team() as words:
        for name, (number, settings) in variants.items():
            run = f"run{number}"
            orders = "conductor=smollm2", "conductor.adapter=conductor", f"output_dir={run}"
            nsed(folder, "conduct", question(number), *words, *settings, *orders)
            found[name] = executed(read(folder / run / "conduct.json"))
    return found


def executed(execution):
    """A run of workflows: their pools, why they were mended or refused, who did which step and read what."""
    levels = execution["levels"]
    steps = [step for level in levels for step in level["steps"]]
    usages = [step["usage"] for step in steps] + [level["plan"]["usage"] for level in levels]
    return {
        "pools": [level["pool"] for level in levels],
        "faults": [[level["plan"]["reasons"], level["plan"]["fallback"]] for level in levels],
        "steps": [[[step["worker"], step["subtask"], step["visible"]] for step in level["steps"]] for level in levels],
        "replies": [step["response"].split()[-1] for step in steps],
        "costs": [spent(usage) for usage in usages],
    }


def report(folder):
    """A page names everybody, shows what was asked, and fetches nothing."""
    with team() as words:
        nsed(folder, "deliberate", question(9), *words, "encoder=hashed", *PUBLISHED, "rounds=2", "output_dir=run")
    nsed(folder, "report", "run=run")
    html = (folder / "run/report.html").read_text()
    text = " ".join(Page(html).find("body"))
    return {
        "agents named": [name for name in TEAM if name in text],
        "question shown": question(9) in text,
        "answer shown": read(folder / "run/transcript.json")["answer"].split()[-1] in text,
        "rounds told": sorted(set(re.findall(r"[Rr]ound (\d+)", text))),
        "fetches": re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html),
        "scripts": html.count("<script"),
    }


# Tuning on what was recorded.


def tuned(folder, data, *words, rough=False):
    """Tune on a folder: accuracies and differences, fits, decisions, the cell for use.

    Args:
        folder: of the run.
        data: what is tuned on.
        words: settings.
        rough: whether fits are of float32 and go on to their end, where machines share two or three digits.
    """
    nsed(folder, "tune", f"data_dir={data}", "output_dir=out", *words)
    metrics = read(folder / "out/metrics.json")
    return {
        **compared(metrics),
        "tasks": metrics["tasks"],
        "best agents": [seed["best_single"] for seed in metrics["seeds"]],
        "right with the tuned cell": [decided(path) for path in sorted((folder / "out").glob("seed_*/result.json"))],
        "ends of fits": [seed["fit"]["last"]["stopped"] for seed in metrics["seeds"]],
        ROUGH if rough else "fits and cell": {
            "fits": [fitted(seed["fit"], rough) for seed in metrics["seeds"]],
            **parameters(folder / "out/cell"),
        },
    }


def compared(metrics):
    """Accuracy of every method, and what the tuned cell has over it."""
    methods, paired = metrics["methods"], metrics["paired"]
    assert metrics["reference"] == METHODS["tuned cell"]
    assert set(methods) <= set(METHODS.values())
    return {
        "accuracy": {name: interval(methods[own]["accuracy"]) for name, own in METHODS.items() if own in methods},
        "tuned cell minus": {
            name: interval(paired[own]["difference"]) for name, own in METHODS.items() if own in paired
        },
    }


def fitted(fit, rough):
    """How strongly it was pulled, and its epochs and loss: on a part of the tasks where that chose, on all of them."""
    keys = ("loss",) if rough else ("epochs", "best_epoch", "loss")
    return [fit["firmness"], *(fit[when] and [fit[when][key] for key in keys] for when in ("chosen", "last"))]


def decided(path):
    """One digit a held-out task, in the order of their names: whether the tuned cell was right."""
    scores = read(path)["scores"][METHODS["tuned cell"]]
    return "".join(str(int(scores[task])) for task in sorted(scores))


def parameters(folder):
    """Those of a saved cell, to 6 significant digits; of a long one the length of each row."""
    kept = {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}
    there = {name: kept[own] for name, own in PARAMETERS.items() if own in kept}
    return {name: rounded((v if v.numel() <= 32 else v.norm(dim=-1)).tolist(), 6) for name, v in there.items()}


def curves(found):
    """Cost and accuracy of every policy at every budget, and the first one minus the others."""
    (minus,) = (value for key, value in found.items() if key.endswith("_minus"))
    return {
        "full team": interval(found["full_team"]),
        "policies": {
            name: [[point["budget"], point["cost"], *interval(point["accuracy"])] for point in points]
            for name, points in found["curves"].items()
        },
        "first minus": {name: [interval(point) for point in points] for name, points in minus.items()},
    }


def tune_votes(folder):
    """Votes alone, beside rules of the field."""
    rules = "rules=[best_by_category,log_odds,logistic_vote,dawid_skene]"
    return tuned(folder, recorded(folder / "data"), rules, "seeds=2", rough=True)


def tune_ballots(folder):
    """Another vote, another pooling, some of the agents, the first division's cell."""
    other = "voting=linear", "pooling=logsumexp", "gate=none", "refit=false", "agents=[cat,bee,dog]", "against=[ant]"
    return tuned(folder, recorded(folder / "data"), *other, *ADAM, "seeds=2")


def tune_reading(folder):
    """Trust and support that read what answers say and what the question is about."""
    reads = "reading=[text,support]", "categories=true", "training.firmness=[3.0,10.0]"
    return tuned(folder, recorded(folder / "data"), *reads, *ADAM, "seeds=2")


def tune_coverage(folder):
    """Sets of answers that hold the truth as often as promised."""
    found = tuned(folder, recorded(folder / "data"), "coverage=0.9", "by_category=true", "seeds=2", rough=True)
    sets = read(folder / "out/metrics.json")["sets"]
    told = {
        "hold the truth": interval(sets["covered"]),
        "decide": interval(sets["decided"]),
        "right where they decide": interval(sets["accuracy_of_decided"]),
        "size": sets["mean_size"],
        "by category": {name: interval(value) for name, value in sets["by_category"].items()},
        "surest": {share: interval(value) for share, value in sets["surest"].items()},
    }
    return {**found, "sets": told}


def tune_rounds(folder):
    """Waves of agents, and a gate that is trained by Adam with patience."""
    slow = "optimizer=adam", "optimizer.lr=0.1", "training.epochs=25", "training.patience=4", "training.frozen=[]"
    words = "rounds=3", "gate=learned", "training.every_round=true", "seeds=2"
    return tuned(folder, recorded(folder / "data", 80), *words, *slow, rough=True)


def tune_cost(folder):
    """Cost against accuracy of asking one after the other."""
    data = recorded(folder / "data", 80)
    found = tuned(folder, data, "seeds=2")
    quick = "steps=40", "ridges=[3.0,30.0]", "budgets=[0.2,0.5,1.0]", "pool=4"
    nsed(folder, "fit-broker", f"data_dir={data}", "output_dir=fitted", "seeds=2", *quick)
    return {"tuned cell": found["accuracy"]["tuned cell"], **curves(read(folder / "fitted/cost.json"))}


def tune_utility(folder):
    """Whom a question is worth asking, learned from rounds; whom the learned brokers then ask."""
    data = rounds(folder)
    found = tuned(folder, data, "calibration=true", "seeds=3")
    quick = "ridges=[3.0,30.0]", "prices=[0.0,10.0]", "budgets=[0.3,0.6,1.0]", "judging=0.5"
    nsed(folder, "fit-broker", f"data_dir={data}", "cell=out", "output_dir=fitted", "seeds=3", *quick)
    teams = read(folder / "fitted/cost.json")
    return {
        **found,
        **curves(teams),
        "full team's tokens": teams["full_team_cost"],
        "ridges": [seed["ridges"] for seed in teams["seeds"]],
        "policies chosen": [[list(policy.values()) for policy in seed["policies"]] for seed in teams["seeds"]],
        "teams asked": asked(folder, ("0.30", "0.60", "1.00")),
    }


def asked(folder, budgets):
    """Proposers and judges that learned brokers choose live."""
    found = {}
    with team() as words:
        for number, budget in enumerate(budgets, start=30):
            live = "broker=learned", f"broker.learned=fitted/broker/{budget}.safetensors", "rounds=1", "cell=out/cell"
            run = f"output_dir=live{number}"
            nsed(folder, "deliberate", question(number), *words, "encoder=hashed", *PUBLISHED, *live, run)
            (turn,) = read(folder / f"live{number}/transcript.json")["rounds"]
            found[budget] = [turn["proposers"], turn["voters"], turn["support"]]
    return found


def tune_judges(folder):
    """Adapters of a tiny random model as judges, on answers of which one is right."""
    numbers = [{"id": f"t{i}", "question": f"{i} + {i} = ?", "gold": str(2 * i)} for i in range(16)]
    write_lines(folder / "data/questions.jsonl", numbers)
    for name, off in (("right", 0), ("wrong", 1)):
        said = [
            {"id": f"t{i}", "output": f"{2 * i + off}", "answer": f"{2 * i + off}", "correct": not off}
            for i in range(16)
        ]
        write_lines(folder / f"data/answers/{name}.jsonl", said)
    small = (
        "lora.steps=2",
        "lora.batch=2",
        "lora.every=1",
        "lora.validation_tasks=2",
        "lora.test_tasks=3",
        "lora.rank=2",
    )
    model = f"ensemble.engines.smollm2.weights.path={tiny(folder / 'tiny')}", "ensemble.engines.smollm2.dtype=float32"
    words = "ensemble.engines.smollm2.quantization=none", "ensemble.engines.smollm2.device=cpu"
    nsed(folder, "train-judges", "data_dir=data", "output_dir=out", *words, *model, *small)
    metrics = read(folder / "out/metrics.json")
    whole = ("pairs, all judges", "signs, all judges", "consensus")
    return {
        "tasks": [metrics["tasks"][part] for part in ("train", "validation", "test")],
        "candidates": metrics["candidates"],
        "judges": list(metrics["judges"]),
        "before": [interval(metrics["test"][name]["before"]) for name in whole],
        "steps": [line["step"] for line in read_lines(folder / "out/judges.jsonl") if "gradient" in line],
    }


def members(folder):
    """Smaller, weaker and faulty teams on recorded rounds, under fresh votes and a tuned cell."""
    data = rounds(folder)
    nsed(folder, "tune", f"data_dir={data}", "output_dir=out", "seeds=2", "training.epochs=3")
    votes = "votes=[quadratic]", "draws=2", "cell=out/cell"
    nsed(folder, "members", f"data_dir={data}", "output_dir=members", *votes)
    found = read(folder / "members/members.json")
    return {
        "tasks": found["tasks"],
        "sizes": [
            [
                row["vote"],
                row["size"],
                row["teams"],
                interval(row["accuracy"]),
                *map(chosen, (row["best"], row["worst"])),
            ]
            for row in found["sizes"]
        ],
        "faulty": [
            [row["vote"], row["kind"], row["members"], interval(row["accuracy"]), interval(row["difference"])]
            for row in found["faulty"]
        ],
    }


def chosen(team):
    """A chosen team and how it did elsewhere."""
    return [team["agents"], interval(team["accuracy"])]


# Training.


def specialize(folder):
    """An adapter that answers, and one that judges: sizes and shares, and how far the first step was off."""
    asked = questions(folder / "questions.jsonl", 40)
    for name, off in (("right", 0), ("wrong", 1)):
        said = [str(7 * i + off) for i in range(40)]
        rows = [{"id": f"q{i}", "output": text, "answer": text, "correct": not off} for i, text in enumerate(said)]
        write_lines(folder / f"data/answers/{name}.jsonl", rows)
    questions(folder / "data/questions.jsonl", 40)
    model = f"backbone.weights.path={tiny(folder / 'tiny')}", "backbone.device=cpu", "backbone.dtype=float32"
    small = "training.steps=3", "training.batch=4", "training.save_steps=3", "adapter.rank=2", "max_new_tokens=2"
    found = {}
    for name, data in (("answers", f"questions={asked}"), ("judges", "candidates=data")):
        words = f"name={name}", data, f"output_dir={name}"
        nsed(folder, "specialize", "specialist=none", *words, *model, *small)
        found[name] = learned(folder / name)
    return found


def learned(folder):
    """What a training of an adapter was."""
    metrics, steps = read(folder / "metrics.json"), read_lines(folder / "log.jsonl")
    return {
        "examples": metrics["examples"],
        "rank": metrics["adapter"]["rank"],
        "steps": len(steps),
        "loss of the first step": float(f"{steps[0]['loss']:.4g}"),
        "held out": {name: [row["n"], row["before"]] for name, row in metrics["held_out"].items()},
    }


def conduct_train(folder):
    """A tiny Conductor after a warm start: what it was asked, that its random texts earn nothing."""
    asked = questions(folder / "questions.jsonl", 6)
    engine = "ensemble.engines.large"
    policy = [
        *("+backbone@ensemble.engines.large=smollm2_135m_instruct", "conductor.backbone=large"),
        *(f"{engine}.weights.path={tiny(folder / 'tiny')}", f"{engine}.quantization=none", f"{engine}.dtype=float32"),
        f"{engine}.device=cpu",
    ]
    small = [
        *("grpo.steps=2", "grpo.questions=2", "grpo.rollouts=2", "grpo.chunk=4", "grpo.max_new_tokens=6"),
        *("grpo.save_steps=2", "adapter.rank=2", "warm.lessons=4", "warm.training.steps=2", "warm.training.batch=2"),
    ]
    with team(price=False) as words:
        data = "tasks=file", "tasks.math_verify=false", f"questions={asked}", "pools.size=2"
        nsed(folder, "train-conductor", *words, *policy, *small, *data, "output_dir=out")
    metrics = read(folder / "out/metrics.json")
    texts = [text for line in read_lines(folder / "out/rollouts.jsonl") for text in line["rollouts"]]
    warm = read_lines(folder / "out/warm.jsonl")
    return {
        "steps": metrics["steps"],
        "rank": metrics["adapter"]["rank"],
        "workers": [worker["name"] for worker in metrics["workers"]],
        "pools": [text["pool"] for text in texts],
        "rewards": [text["reward"] for text in texts],
        "steps of the warm start": len(warm),
        "loss of its first step": float(f"{warm[0]['loss']:.4g}"),
    }


def real(folder, data):
    """Accuracies and differences on a folder of real recorded answers."""
    nsed(
        folder,
        "tune",
        f"data_dir={data}",
        "max_parameters_b=20",
        "rules=[logistic_vote]",
        f"output_dir={Path(data).name}",
    )
    return compared(read(folder / Path(data).name / "metrics.json"))


RUNS = {
    run.__name__: run
    for run in (
        *(deliberate, collect, evaluate, conduct, report, members, specialize, conduct_train),
        *(tune_votes, tune_ballots, tune_reading, tune_coverage, tune_rounds, tune_cost, tune_utility, tune_judges),
    )
}
