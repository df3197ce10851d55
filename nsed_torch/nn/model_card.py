"""The model card of a saved consensus cell: what it is, how far it went from its start, how to load it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn


def model_card(cell: nn.Module, config: Mapping[str, Any], start: Mapping[str, Tensor], fingerprint: str) -> str:
    """Markdown with YAML front matter, from what `config.json` has and the parameters of a fresh cell like it."""
    template = (Path(__file__).parent / "model_card.md").read_text(encoding="utf-8")
    features, rank = config["trust"]["features"], config["trust"]["rank"]
    reading, names = config["reading"], config["agent_names"]
    # JSON in an indented block: no name can break out of it.
    known = f"The agents, in the order of their rows:\n\n    {json.dumps(names, ensure_ascii=False)}"
    return template.format(
        fingerprint=fingerprint,
        **{name: config[name] for name in ("dim", "agents", "slots", "dtype")},
        vote=cell.vote,
        gate=cell.gate,
        trust="parameters of each agent" if features is None else f"rank {rank}, from {features} features",
        calibration="of each judge" if config["calibration"] else "none",
        pooling=config["pooling"],
        reading="none"
        if reading is None
        else f"{len(reading['features'])} features of proposals, {len(reading['categories'])} categories of tasks",
        names=known if names else "The agents have no names; row i of a parameter is agent i.",
        rows="\n".join(_row(name, value.detach(), start[name].detach()) for name, value in cell.named_parameters()),
    )


def _row(name: str, value: Tensor, start: Tensor) -> str:
    shape = list(value.shape)
    if name == "trust.left":
        return f"| `{name}` | {shape} | starts at random | |"
    if not value.numel():
        return f"| `{name}` | {shape} | nothing in it | |"
    change = (value.cpu() - start).double()
    return f"| `{name}` | {shape} | {change.norm():.4g} | {change.abs().max():.4g} |"
