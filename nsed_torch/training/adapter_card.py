"""The model cards of adapters: what they learned, how well, how they were made, how to use them."""

from collections.abc import Mapping, Sequence
from typing import Any

CARD = """---
library_name: peft
license: apache-2.0
base_model: {base}
tags:
- nsed_torch
- lora
---

# {name}

{learned}{body}
```sh
{command}
```

It {does}"""

HELD_OUT = """
| held out | n | bare backbone | with this adapter |
| --- | --- | --- | --- |
{rows}

{shares} with 95% intervals (Clopper-Pearson). What was held out shares no question
with what was learned from. Elsewhere the adapter was not measured here and is likely to be worse than its backbone.

Made by {steps} steps of {batch} examples, {seconds:.0f} seconds of training on {device}:
"""

CURVE = """
| means of a step, texts at temperature {temperature:g} | first tenth | last tenth |
| --- | --- | --- |
{rows}
"""

WORTH = "\nWhat it is worth on questions that it did not learn from: `nsed evaluate methods=[conductor]`. Made by\n"


def adapter_card(metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """The card of what `nsed specialize` wrote into `metrics.json`; Markdown with YAML front matter."""
    adapter, backbone, training = (metrics[name] for name in ("adapter", "backbone", "training"))
    base, judges = backbone.get("repo") or backbone["name"], "candidates" in metrics["data"]
    start = f"It began as `{adapter['start']}`.\n" if adapter.get("start") else ""
    does = "says whether an answer is right, and nothing else"
    rows = [
        f"| {name} | {row['n']} | {_share(row['before'])} | {_share(row['after'])} |"
        for name, row in metrics["held_out"].items()
    ]
    return CARD.format(
        name=metrics["name"],
        base=base,
        learned=f"A LoRA adapter of `{base}` (revision `{backbone['revision']}`) that learned "
        f"{metrics['data']['learns']}. {_shape(adapter)}\n{start}",
        body=HELD_OUT.format(
            rows="\n".join(rows),
            shares="Shares of right verdicts" if judges else "Shares of right answers, decoding greedily,",
            steps=training["steps"],
            batch=training["batch"],
            seconds=metrics["seconds"],
            device=backbone["device"],
        ),
        command=" ".join(command),
        does=(does if judges else "answers the kind of question that it learned with the bare answer")
        + ", in the prompts of `nsed_torch`; it is no assistant.\n",
    )


def conductor_card(metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """The card of what `nsed train-conductor` wrote into `metrics.json`; Markdown with YAML front matter."""
    settings, backbone, adapter = metrics["settings"], metrics["backbone"], metrics["adapter"]
    grpo, warm, base = settings["grpo"], settings["warm"], backbone.get("repo") or backbone["name"]
    begun = f"It began as `{adapter['start']}`." if adapter["start"] else "It began as a fresh adapter."
    if warm["lessons"]:
        shape = warm["training"]
        hints = f", a share of {warm['hinted']:g} of them with hints at whom to ask" if warm["hinted"] else ""
        begun += f" Warm start: {shape['steps']} steps of {shape['batch']} random valid workflows, out of "
        begun += f"{warm['lessons']}{hints}."
    curve = ""
    if metrics["steps"]:
        shown = {"parsed": "valid workflows", "right": "right answers", "steps": "steps of a workflow"}
        rows = [
            f"| {label} | {_known(metrics['first'][name])} | {_known(metrics['last'][name])} |"
            for name, label in shown.items()
        ]
        curve = CURVE.format(temperature=grpo["temperature"], rows="\n".join(rows))
        begun += f" GRPO: {metrics['steps']} steps of {grpo['questions']} questions x {grpo['rollouts']} texts, rate "
        begun += f"{grpo['learning_rate']:g}, {metrics['seconds']:.0f} seconds on {backbone['device']}."
    return CARD.format(
        name=settings["conductor"]["name"],
        base=base,
        learned=f"A LoRA adapter of `{base}` that learned to write workflows: which worker of a numbered list does\n"
        f"what, and who reads whom. {_shape(adapter)}\n\n{begun}\n",
        body=f"{curve}{WORTH}",
        command=" ".join(command),
        does="writes `model_id`, `subtasks` and `access_list` in the prompts of `nsed_torch`, at most "
        f"{settings['max_steps']} steps; it is no\nassistant.\n",
    )


def _shape(adapter: Mapping[str, Any]) -> str:
    return f"Rank {adapter['rank']}, alpha {adapter['alpha']:g}, on {', '.join(adapter['targets'])}."


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _share(value: Sequence[float]) -> str:
    share, low, high = value
    return f"{share:.3f} [{low:.3f}, {high:.3f}]"
