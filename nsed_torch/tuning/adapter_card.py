"""The model cards of adapters: what they learned, how well, how they were made, how to use them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

CARD = Path(__file__).parent / "specialist_card.md"


def adapter_card(template: Path, metrics: Mapping[str, Any], *, command: Sequence[str]) -> str:
    """Markdown with YAML front matter, from a template and what a training wrote to `metrics.json`."""
    templates = Environment(  # noqa: S701 - Markdown, no HTML
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    backbone = metrics["backbone"]
    return templates.get_template(template.name).render(
        metrics, base=backbone.get("repo") or backbone["name"], command=" ".join(command)
    )
