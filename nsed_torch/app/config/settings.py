"""The settings of a verb: where they come from, what they may hold, and a short name for all of them."""

import re
from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from nsed_torch.app.config.paths import conf_file, options_of
from nsed_torch.app.config.type_checks import fault, fits
from nsed_torch.records.portable import config_sha256

# Where or whether a run writes, and what it is told beside, not what it computes.
PLACES = ("hydra", "output_dir", "dry_run", "expect", "calls", "show", "objective", "baseline")
# What settings may hold whose default does not tell.
NAMED: dict[str, Any] = {
    **dict.fromkeys(("agents", "ids", "without"), list[str] | None),
    **dict.fromkeys(("ahead", "coverage", "max_parameters_b", "similarity"), float | None),
    **dict.fromkeys(("baseline", "calls", "objective", "ties"), str | None),
    "resume": bool | None,
    "data_dir": str | list[str] | None,
    **dict.fromkeys(("examples", "limit"), int | None),
}
OPEN = {"method", "avoid", "models"}  # keys that may be added, also to each of the last


def root_config(config_name: str) -> tuple[DictConfig, set[str]]:
    """The settings of a root file and of those it includes, and the config groups that they choose from."""
    root: Any = OmegaConf.load(conf_file(config_name))
    entries = root.pop("defaults", [])
    groups = chosen_from(entries)
    for included in (entry for entry in entries if isinstance(entry, str) and entry != "_self_"):
        its, more = root_config(included)
        root, groups = OmegaConf.merge(its, root), groups | more
    return root, groups


def chosen_from(defaults: Iterable[Any]) -> set[str]:
    """The config groups that a list of defaults chooses from, without those that it only overrides."""
    named = {str(group) for entry in defaults if isinstance(entry, DictConfig) for group in entry}
    return {group.lstrip("/").split("@")[0] for group in named if not group.startswith("override ")}


def check_settings(cfg: DictConfig, config_name: str) -> None:
    """Compare a composed config with the root file that it comes from: its defaults say what a setting may hold.

    Whole numbers pass for numbers, and numbers for texts, as which they are kept. What is built from a config group
    checks itself; of groups that are only read, keys are compared with those that its options have.

    Raises:
        ValueError: for a setting that the file does not have, or one of another type.
    """
    root, groups = root_config(config_name)
    for key in cfg:
        if key not in root and key not in groups:
            raise ValueError(f"unknown setting {str(key)!r}; remove it")
    for group in sorted(groups & set(map(str, cfg))):
        _check_group(cfg, group)
    _check(cfg, {key: value for key, value in plain(root).items() if key not in {"hydra", *groups}}, "")


def plain(value: Any) -> Any:
    """A config's value as dicts and lists."""
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _check_group(cfg: DictConfig, group: str) -> None:
    """Refuse a key that no option of a group has and no interpolation reads, where nothing is built of the whole."""
    node = cfg[group]
    if not isinstance(node, DictConfig) or "_target_" in node:
        return
    options: Any = [OmegaConf.load(path) for path in options_of(group)]
    known, text = {key for option in options for key in option} - {"defaults"}, OmegaConf.to_yaml(cfg)
    for key in node:
        if key not in known and not re.search(rf"\$\{{[^}}]*\b{re.escape(str(key))}\b", text):
            raise ValueError(f"unknown setting '{group}.{key!s}'; remove it")


def _check(node: DictConfig, defaults: Any, prefix: str) -> None:
    for key, default in defaults.items():
        if key not in node or (default is None and key not in NAMED):
            continue
        value, name = node[key], f"{prefix}{key}"
        refers = isinstance(default, str) and default.startswith("${")  # taken from elsewhere, so of any type
        kind = Any if refers else NAMED.get(key, type(default))
        if isinstance(default, dict) and isinstance(value, DictConfig):
            closed = key not in OPEN and prefix != "models." and "_target_" not in default
            for added in value.keys() - default.keys() if closed else ():
                raise ValueError(f"unknown setting '{name}.{added!s}'; remove it")
            _check(value, default, f"{name}.")
        elif type(value) in {int, float} and fits("", kind) and not fits(value, kind):
            node[key] = repr(value)
        elif wrong := fault(str(key), plain(value), kind):
            raise ValueError(f"{name}: {wrong}; correct {name}=...")


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """A composed config as plain data, interpolations resolved, without what only says where it writes."""
    kept = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key not in PLACES])
    settings: Any = OmegaConf.to_container(kept, resolve=True, throw_on_missing=False)
    return dict(settings)


def config_hash(_root_: DictConfig) -> str:
    """Ten hex digits that name a composed config: equal settings, equal name. In a config it is `${config_hash:}`."""
    return config_sha256(plain_config(_root_))[:10]


# OmegaConf hands the whole config to an argument of the name `_root_`.
OmegaConf.register_new_resolver("config_hash", config_hash, replace=True)
