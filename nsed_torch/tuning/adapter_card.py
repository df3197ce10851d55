"""The model cards of adapters: what they learned, how well, how they were made, how to use them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def adapter_card(kind: str, metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """Markdown with YAML front matter, from what `nsed specialize` or `nsed train-conductor` wrote to `metrics.json`.

    `kind` is "specialist" or "conductor", which names the template beside this file.
    """
    templates = Environment(  # noqa: S701 - Markdown, no HTML
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    backbone = metrics["backbone"]
    return templates.get_template(f"{kind}_card.md").render(
        metrics, base=backbone.get("repo") or backbone["name"], command=" ".join(command)
    )
