"""One screen about a verb: examples, the groups it chooses from, and its first settings with what they do.

It reads YAML as text and composes nothing, so it is there at once; `nsed VERB --cfg job` has every setting.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from nsed_torch.app.config.paths import conf_file, options_of

WIDTH = 110
"""Characters of a line."""

_SETTING = re.compile(r"( *)([\w.]+):(.*?)(?: +# *(.*))?")


def verb_help(config_name: str) -> str:
    """The help of a verb: its header and examples, its groups, and the settings that `hydra.help.footer` names."""
    told = yaml.safe_load(conf_file(config_name).read_text("utf-8")).get("hydra", {}).get("help", {})
    chosen, settings = _gather(config_name)
    text = told.get("template", "${hydra.help.header}").replace("${hydra.help.header}", told.get("header", config_name))
    lines = [text.rstrip()]
    if chosen:
        lines += ["", "Groups, chosen as group=option:"]
        lines += [_line(group, ", ".join(sorted({path.stem for path in options_of(group)}))) for group in chosen]
    names = told.get("footer", "").split() or [name for name in settings if "." not in name]
    lines += ["", "Settings, changed as name=value:"]
    lines += [_line(f"{name}={settings[name][0]}", settings[name][1]) for name in names if name in settings]
    return "\n".join([*lines, "", f"nsed {config_name.replace('_', '-')} --cfg job prints every setting; -m sweeps."])


def _line(what: str, gloss: str) -> str:
    """Two columns in one line; what does not fit is cut behind its first statement, or where the line ends."""
    for words in (gloss, gloss.split("; ", maxsplit=1)[0]):
        if len(line := f"  {what:<28}  {words}".rstrip()) <= WIDTH:
            return line
    return line[: WIDTH - 1] + "…"


def _gather(config_name: str) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Of a root file, those it includes and the options it begins with: groups, and settings by dotted name."""
    text = conf_file(config_name).read_text("utf-8")
    chosen: dict[str, str] = {}
    settings: dict[str, tuple[str, str]] = {}
    defaults: list[Any] = yaml.safe_load(text).get("defaults", [])
    for entry in defaults:
        if isinstance(entry, dict):
            ((group, option),) = entry.items()
            if not group.startswith("override "):
                chosen[group] = option
        elif entry != "_self_":
            more, its = _gather(entry)
            chosen, settings = more | chosen, its | settings
    for group, option in chosen.items():
        file = conf_file(f"{group}/{option}")
        if file.is_file():
            settings |= {f"{group}.{name}": told for name, told in _settings(file.read_text("utf-8"))}
    return chosen, settings | dict(_settings(text))


def _settings(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Every setting of a YAML file by dotted name: its default as written, and the comment behind it."""
    above: list[tuple[int, str]] = []
    for line in text.partition("\nhydra:")[0].splitlines():
        if match := _SETTING.fullmatch(line):
            depth = len(match[1])
            above = [parent for parent in above if parent[0] < depth]
            above.append((depth, match[2]))
            if not match[2].startswith("_") and above[0][1] != "defaults":
                value = match[3].strip()
                value = "..." if not value or len(value) > 18 or "${" in value else value  # a mapping, list or place
                yield ".".join(name for _, name in above), (value, match[4] or "")
