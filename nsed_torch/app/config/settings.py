"""The settings of a verb: where they come from, what each may hold, and a short name for all of them."""

import copy
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf

from nsed_torch.app.config.paths import conf_file, options_of
from nsed_torch.records.portable import config_sha256

# Where or whether a run writes, and what it is told beside, not what it computes.
PLACES = ("hydra", "output_dir", "dry_run", "expect", "calls", "show", "objective", "baseline")
# What settings may hold whose default does not tell.
NAMED: dict[str, Any] = {
    **dict.fromkeys(("agents", "ids", "without"), list[str] | None),
    **dict.fromkeys(("ahead", "coverage", "max_parameters_b", "similarity"), float | None),
    **dict.fromkeys(("baseline", "calls", "objective", "ties"), str | None),
    **dict.fromkeys(("examples", "limit"), int | None),
    "resume": bool | None,
    "data_dir": str | list[str] | None,
}
OPEN = {"method", "avoid", "models"}  # keys that may be added, also to each of the last
SIGNED = {"values", "threshold", "seed"}  # numbers that may be negative
# Numbers of at least 1; all others may be 0. The last three are speeds.
_COUNTS = """rounds max_batch context_window pass_tokens batch_tasks epochs divisions waves max_steps dim slots samples
    layers batch limit examples round questions rollouts rank size patience probe checkpoint read written learned"""
COUNTS = set(_COUNTS.split())
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "keys"}


def root_config(config_name: str) -> tuple[DictConfig, set[str]]:
    """The settings of a root file and of those it includes, and the config groups that they choose from."""
    root: Any = copy.deepcopy(_parsed(conf_file(config_name).read_text("utf-8")))
    groups = set[str]()
    for entry in root.pop("defaults", []):
        if isinstance(entry, DictConfig):  # a group, unless it overrides what was chosen before
            groups |= {str(key).lstrip("/").split("@")[0] for key in entry if not str(key).startswith("override ")}
        elif entry != "_self_":
            its, more = root_config(entry)
            root, groups = OmegaConf.merge(its, root), groups | more
    return root, groups


def check_settings(cfg: DictConfig, config_name: str) -> None:
    """Compare a composed config with the root file that it comes from: its defaults say what a setting may hold.

    Whole numbers pass for numbers, and numbers for texts, as which they are kept. What is built from a config group
    checks itself; of groups that are only read, keys are compared with those that its options have.
    """
    root, groups = root_config(config_name)
    for key in cfg:
        if key not in root and key not in groups:
            raise ValueError(f"unknown setting {str(key)!r}; remove it")
    for group in sorted(groups & set(map(str, cfg))):
        _check_group(cfg, group)
    _check(cfg, {key: value for key, value in plain(root).items() if key not in {"hydra", *groups}}, "")


def _check_group(cfg: DictConfig, group: str) -> None:
    """Refuse a key that no option of a group has and no interpolation reads, where nothing is built of the whole."""
    node = cfg[group]
    if not isinstance(node, DictConfig) or "_target_" in node:
        return
    known = frozenset().union(*(_keys(path.read_bytes()) for path in options_of(group))) - {"defaults"}
    for key in map(str, node):
        if key not in known and not re.search(rf"\$\{{[^}}]*\b{re.escape(key)}\b", OmegaConf.to_yaml(cfg)):
            raise ValueError(f"unknown setting '{group}.{key}'; remove it")


@functools.lru_cache(1024)
def _keys(text: bytes) -> frozenset[str]:
    """The keys at the top of a config file; nothing is made of the rest."""
    node = yaml.compose(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return frozenset(key.value for key, _ in node.value) if isinstance(node, yaml.MappingNode) else frozenset()


@functools.lru_cache(64)
def _parsed(text: str) -> Any:
    """A root file's settings. Shared: take a copy."""
    return OmegaConf.create(text)


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


def fault(name: str, value: Any, annotation: Any) -> str | None:
    """What is wrong with a value that `name` is to have, as "expected ..., got ..."; None if nothing is."""
    if not fits(value, annotation):
        return f"expected {_described(annotation)}, got {value!r}"
    least = -math.inf if name in SIGNED else int(name in COUNTS)
    for number in value if isinstance(value, list) else [value]:
        if type(number) in {int, float} and not least <= number < math.inf:
            return f"expected a value of at least {least}, got {value!r}"
    return None


def fits(value: Any, annotation: Any) -> bool:  # noqa: PLR0911 - a line per kind
    """Whether a value is what an annotation says; whole numbers pass for numbers, and YAML's lists for any sequence."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return any(fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is Any or not isinstance(origin, type):
        return True
    if isinstance(value, list) and issubclass(origin, Sequence) and origin is not str:
        return all(fits(item, inner[0]) for item in value) if inner else True
    if isinstance(value, dict) and origin in {dict, Mapping}:
        return all(fits(item, inner[1]) for item in value.values()) if inner else True
    if type(value) in {int, bool}:
        return origin is type(value) or (origin is float and type(value) is int)
    return isinstance(value, origin)


def _described(annotation: Any) -> str:
    """An annotation in words."""
    origin, inner = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(map(_described, inner))
    if origin is type(None):
        return "null"
    kind = dict if origin is Mapping else list if origin in {Sequence, tuple} else origin
    words = _WORDS.get(kind, getattr(kind, "__name__", str(kind)))
    of = inner[kind is dict] if kind in {dict, list} and inner and inner[-1] is not Any else None
    return words if of is None else f"{words} with {_described(of)} each"


@functools.cache
def annotations(target: Callable[..., Any]) -> Mapping[str, Any]:
    """What a function, or a class's constructor, says of its arguments."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {name: hints.get(name, Any) for name in inspect.signature(target).parameters}


def plain(value: Any, *, resolve: bool = False) -> Any:
    """A config's value as dicts and lists."""
    return OmegaConf.to_container(value, resolve=resolve) if OmegaConf.is_config(value) else value


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
