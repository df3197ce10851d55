"""The settings of a verb: where they come from, what they may hold, and a short name for all of them."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from nsed_torch.config.paths import conf_dir
from nsed_torch.records.portable import config_sha256

PLACES = ("hydra", "output_dir", "dry_run", "calls", "show")  # where or whether a run writes, not what it computes
# What settings may hold whose default does not tell.
NAMED: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("agents", "ids"), (list,)),
    **dict.fromkeys(("coverage", "max_parameters_b", "similarity"), (float,)),
    **dict.fromkeys(("calls", "output_dir"), (str,)),
    "data_dir": (str, list),
    "limit": (int,),
    "voting": (str, dict),
}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "keys"}


def root_config(config_name: str) -> tuple[DictConfig, set[str]]:
    """A root file's own settings, and the config groups that it chooses from."""
    root: Any = OmegaConf.load(conf_dir() / f"{config_name}.yaml")
    defaults = [entry for entry in root.pop("defaults", []) if isinstance(entry, DictConfig)]
    return root, {str(group) for entry in defaults for group in entry}


def check_settings(cfg: DictConfig, config_name: str) -> None:
    """Compare a composed config with the root file that it comes from: its defaults say what a setting may hold.

    Whole numbers pass for numbers, and numbers for texts, as which they are kept. Config groups are not looked at:
    what is built from them checks itself.

    Raises:
        ValueError: for a setting that the file does not have, or one of another type.
    """
    root, groups = root_config(config_name)
    for key in cfg:
        if key not in root and key not in groups:
            raise ValueError(f"unknown setting {str(key)!r}; remove it")
    root.pop("hydra", None)
    _check(cfg, OmegaConf.to_container(root), "")


def _check(node: DictConfig, defaults: Any, prefix: str) -> None:
    for key, default in defaults.items():
        if key not in node or (default is None and key not in NAMED):
            continue
        value, name = node[key], f"{prefix}{key}"
        refers = isinstance(default, str) and default.startswith("${")  # taken from elsewhere, so of any type
        kinds = NAMED.get(key, (type(default),))
        if isinstance(default, dict) and isinstance(value, DictConfig):
            _check(value, default, f"{name}.")
        elif str in kinds and type(value) in {int, float}:
            node[key] = str(value)
        elif not (_fits(value, kinds) or (value is None and default is None) or refers):
            expected = " or ".join(_WORDS[kind] for kind in kinds)
            raise ValueError(f"{name}: expected {expected}, got {value!r}; correct {name}=...")


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return type(plain) in kinds or (float in kinds and type(plain) is int)


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """A composed config as plain data, interpolations resolved, without what only says where it writes."""
    kept = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key not in PLACES])
    plain: Any = OmegaConf.to_container(kept, resolve=True, throw_on_missing=False)
    return dict(plain)


def config_hash(_root_: DictConfig) -> str:
    """Ten hex digits that name a composed config: equal settings, equal name. In a config it is `${config_hash:}`."""
    return config_sha256(plain_config(_root_))[:10]


# OmegaConf hands the whole config to an argument of the name `_root_`.
OmegaConf.register_new_resolver("config_hash", config_hash, replace=True)
