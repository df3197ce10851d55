"""Small fixed runs of every verb, driven by the command line alone, and what they come to as plain data.

Each function of `RUNS` takes an empty folder and returns numbers and decisions under keys of its own: whatever the
package names its files and their keys is written in this folder once. Agents are scripts behind a local endpoint;
nothing depends on a model's texts.
"""

import re
from pathlib import Path

from golden.materials import (
    PUBLISHED,
    TEAM,
    interval,
    nsed,
    question,
    questions,
    read,
    read_lines,
    spent,
    team,
    tiny,
    write_lines,
)
from golden.tuning import (
    compared,
    members,
    tune_ballots,
    tune_cost,
    tune_coverage,
    tune_judges,
    tune_reading,
    tune_rounds,
    tune_utility,
    tune_votes,
)
from report_pages import Page

# Live teams.


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
            *("consensus.pooling=sum", "protocol.anonymous=false", "seed=5"),
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
        asked = "tasks=recorded", "data_dir=data", "tasks.math_verify=false", "conductor.adapter=conductor"
        run = "encoder=hashed", "prompts.style=worked", "rounds=2", f"methods=[{','.join(methods)}]", "output_dir=run"
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
            orders = "conductor=smollm2", "conductor.adapter=conductor", "prompts.style=direct", f"output_dir={run}"
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
    small = "training.steps=3", "training.batch=4", "training.save_steps=3", "max_new_tokens=2"
    small += "adapter.rank=2", "adapter.alpha=8.0", "prompts.style=direct"
    found = {}
    judged = "specialist=judge", "lesson.candidates=data"
    for name, data in (("answers", ("specialist=none", f"questions={asked}")), ("judges", judged)):
        nsed(folder, "specialize", *data, f"name={name}", f"output_dir={name}", *model, *small)
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
        data = "tasks.math_verify=false", f"questions={asked}", "pools.size=2", "prompts.style=direct"
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
        "encoder=hashed",
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
