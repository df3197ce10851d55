"""The model card of an adapter: what it learned, how well, how it was made, how to use it."""

from collections.abc import Mapping, Sequence
from typing import Any

TEMPLATE = """---
library_name: peft
license: apache-2.0
base_model: {base}
tags:
- nsed_torch
- lora
---

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


def _row(name: str, row: Mapping[str, Any]) -> str:
    return f"| {name} | {row['n']} | {_share(row['before'])} | {_share(row['after'])} |"


def _share(value: Sequence[float]) -> str:
    share, low, high = value
    return f"{share:.3f} [{low:.3f}, {high:.3f}]"
