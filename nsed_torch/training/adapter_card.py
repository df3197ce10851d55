"""The model cards of adapters: what they learned, how well, how they were made, how to use them."""

from collections.abc import Mapping, Sequence
from typing import Any

FRONT = """---
library_name: peft
license: apache-2.0
base_model: {base}
tags:
- nsed_torch
- lora
---
"""

TEMPLATE = (
    FRONT
    + """
# {name}

A LoRA adapter of `{base}` (revision `{revision}`) that learned {learns}. Rank {rank}, alpha {alpha:g}, on {targets}.
{start}
| held out | n | bare backbone | with this adapter |
| --- | --- | --- | --- |
{rows}

{shares} with 95% intervals (Clopper-Pearson). What was held out shares no question
with what was learned from. Elsewhere the adapter was not measured here and is likely to be worse than its backbone.

Made by {steps} steps of {batch} examples, {seconds:.0f} seconds of training on {device}:

```sh
{command}
```

It {does}, in the prompts of `nsed_torch`; it is no assistant.
"""
)

CONDUCTOR = (
    FRONT
    + """
# {name}

A LoRA adapter of `{base}` that learned to write workflows: which worker of a numbered list does
what, and who reads whom. Rank {rank}, alpha {alpha:g}, on {targets}.

{start}
{learned}
What it is worth on questions that it did not learn from: `nsed evaluate methods=[conductor]`. Made by

```sh
{command}
```

It writes `model_id`, `subtasks` and `access_list` in the prompts of `nsed_torch`, at most {max_steps} steps; it is no
assistant.
"""
)

LEARNED = """
| means of a step, texts at temperature {temperature:g} | first tenth | last tenth |
| --- | --- | --- |
{rows}
"""

_ANSWERS = {
    "shares": "Shares of right answers, decoding greedily,",
    "does": "answers the kind of question that it learned with the bare answer",
}
_JUDGES = {"shares": "Shares of right verdicts", "does": "says whether an answer is right, and nothing else"}


def adapter_card(metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """Markdown with YAML front matter.

    Args:
        metrics: what `nsed specialize` writes into `metrics.json`.
        command: the verb and its overrides.
    """
    adapter, backbone, training = (metrics[name] for name in ("adapter", "backbone", "training"))
    return TEMPLATE.format(
        name=metrics["name"],
        base=backbone.get("repo") or backbone["name"],
        revision=backbone["revision"],
        device=backbone["device"],
        learns=metrics["data"]["learns"],
        **(_JUDGES if "candidates" in metrics["data"] else _ANSWERS),
        start=f"It began as `{adapter['start']}`.\n" if adapter.get("start") else "",
        rank=adapter["rank"],
        alpha=adapter["alpha"],
        targets=", ".join(adapter["targets"]),
        rows="\n".join(_row(name, row) for name, row in metrics["held_out"].items()),
        steps=training["steps"],
        batch=training["batch"],
        seconds=metrics["seconds"],
        command=" ".join(command),
    )


def conductor_card(metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """The card of a Conductor's adapter; Markdown with YAML front matter.

    Args:
        metrics: what `nsed conduct train` writes into `metrics.json`.
        command: the verb and its overrides.
    """
    settings, backbone, adapter = metrics["settings"], metrics["backbone"], metrics["adapter"]
    grpo, warm = settings["grpo"], settings["warm"]
    begun = f"It began as `{adapter['start']}`." if adapter["start"] else "It began as a fresh adapter."
    if warm["lessons"]:
        shape = warm["training"]
        told = f", a share of {warm['hinted']:g} of them with hints at whom to ask" if warm["hinted"] else ""
        begun += (
            f" Warm start: {shape['steps']} steps of {shape['batch']} random valid workflows, out of "
            f"{warm['lessons']}{told}."
        )
    learned = ""
    if metrics["steps"]:
        shown = {"parsed": "valid workflows", "right": "right answers", "steps": "steps of a workflow"}
        rows = "\n".join(
            f"| {told} | {_known(metrics['first'][name])} | {_known(metrics['last'][name])} |"
            for name, told in shown.items()
        )
        learned = LEARNED.format(temperature=grpo["temperature"], rows=rows)
        begun += (
            f" GRPO: {metrics['steps']} steps of {grpo['questions']} questions x {grpo['rollouts']} texts, rate "
            f"{grpo['learning_rate']:g}, {metrics['seconds']:.0f} seconds on {backbone['device']}."
        )
    return CONDUCTOR.format(
        name=settings["conductor"]["name"],
        base=backbone.get("repo") or backbone["name"],
        rank=adapter["rank"],
        alpha=adapter["alpha"],
        targets=", ".join(adapter["targets"]),
        start=begun,
        learned=learned,
        max_steps=settings["max_steps"],
        command=" ".join(command),
    )


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _row(name: str, row: Mapping[str, Any]) -> str:
    return f"| {name} | {row['n']} | {_share(row['before'])} | {_share(row['after'])} |"


def _share(value: Sequence[float]) -> str:
    share, low, high = value
    return f"{share:.3f} [{low:.3f}, {high:.3f}]"
