"""Fixed runs of what is tuned on recorded answers and rounds."""

from golden.materials import (
    PUBLISHED,
    interval,
    nsed,
    question,
    read,
    read_lines,
    recorded,
    rounded,
    rounds,
    team,
    tiny,
    write_lines,
)
from safetensors.torch import load_file

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


def tuned(folder, data, *words, rough=False):
    """Tune on a folder: accuracies and differences, fits, decisions, the cell for use.

    Args:
        folder: of the run.
        data: what is tuned on.
        words: settings.
        rough: whether fits are of float32 and go on to their end, where machines share two or three digits.
    """
    nsed(folder, "tune", f"data_dir={data}", "encoder=hashed", "output_dir=out", *words)
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
    return tuned(folder, recorded(folder / "data"), rules, "divisions=2", rough=True)


def tune_ballots(folder):
    """Another vote, another pooling, some of the agents, the first division's cell."""
    other = "consensus.vote=linear", "consensus.pooling=logsumexp", "consensus.gate=none", "refit=false"
    team = "agents=[cat,bee,dog]", "against=[ant]"
    return tuned(folder, recorded(folder / "data"), *other, *team, *ADAM, "divisions=2")


def tune_reading(folder):
    """Trust and support that read what answers say and what the question is about."""
    reads = "reading=[text,support]", "categories=true", "training.firmness=[3.0,10.0]"
    return tuned(folder, recorded(folder / "data"), *reads, *ADAM, "divisions=2")


def tune_coverage(folder):
    """Sets of answers that hold the truth as often as promised."""
    found = tuned(folder, recorded(folder / "data"), "coverage=0.9", "by_category=true", "divisions=2", rough=True)
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
    words = "waves=3", "consensus.gate=learned", "training.every_round=true", "divisions=2"
    return tuned(folder, recorded(folder / "data", 80), *words, *slow, rough=True)


def tune_cost(folder):
    """Cost against accuracy of asking one after the other."""
    data = recorded(folder / "data", 80)
    found = tuned(folder, data, "divisions=2")
    quick = "steps=40", "ridges=[3.0,30.0]", "budgets=[0.2,0.5,1.0]", "pool=4"
    nsed(folder, "fit-asking", f"data_dir={data}", "encoder=hashed", "output_dir=fitted", "divisions=2", *quick)
    return {"tuned cell": found["accuracy"]["tuned cell"], **curves(read(folder / "fitted/cost.json"))}


def tune_utility(folder):
    """Whom a question is worth asking, learned from rounds; whom the learned brokers then ask."""
    data = rounds(folder)
    found = tuned(folder, data, "consensus.calibration=true", "divisions=3")
    quick = "ridges=[3.0,30.0]", "prices=[0.0,10.0]", "budgets=[0.3,0.6,1.0]", "judging=0.5"
    nsed(folder, "fit-broker", f"data_dir={data}", "cell=out", "ties=first", "output_dir=fitted", "divisions=3", *quick)
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
    nsed(folder, "train-judges", "ensemble=demo", "data_dir=data", "output_dir=out", *words, *model, *small)
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
    nsed(folder, "tune", f"data_dir={data}", "output_dir=out", "divisions=2", "training.epochs=3")
    votes = "votes=[quadratic]", "draws=2", "cell=out/cell", "ties=lot"
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
