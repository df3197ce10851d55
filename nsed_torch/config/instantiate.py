"""Config nodes become objects, but only objects of a few packages: a config file never runs other code.

The words are Hydra's (`_target_`, `_args_`, `_partial_`), the work is not: `hydra.utils.instantiate` resolves
interpolations anew while it builds, so an escaped `${...}` can turn into a target after any check before it.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

ALLOWED = ("nsed_torch", "torch.optim")  # packages whose own classes and functions a `_target_` may name
# Within them, what writes files or reads configs rather than being part of a run.
REFUSED = ("nsed_torch.records", "nsed_torch.config", "nsed_torch.cli")
_WORDS = {"_target_", "_args_", "_partial_"}


def instantiate(node: Any, **kwargs: Any) -> Any:
    """Build what a config node describes, nested nodes first, behind an allow-list.

    Interpolations are resolved once. Then every `_target_` at any depth, below lists, `_args_` and `_partial_`
    too, must name something that was defined in an allowed package (a name imported into one does not count).
    Only then is anything called, with plain dicts and lists. The node is a config or plain dict with `_target_`, a list
    of such, or None, which gives None. `kwargs` override its keys and are passed as they are, never read as config.

    Raises:
        ValueError: in one line, before anything is called, if a target is not allowed or cannot be found; then
            if a target does not take the arguments, and whatever the targets themselves raise.
    """
    if node is None:
        return None
    plain = _plain(node, set(kwargs))
    _check(plain, "")
    if kwargs and "_target_" not in plain:
        raise ValueError(f"expected a config with _target_ to pass {sorted(kwargs)} to, got none")
    return _build(plain, kwargs)


def _plain(node: Any, given: set[str]) -> Any:
    """The node as dicts and lists with every interpolation resolved, without the keys that are given anyway."""
    config = node if isinstance(node, DictConfig | ListConfig) else OmegaConf.create(node)
    if isinstance(config, DictConfig) and given & set(config):
        kept = OmegaConf.masked_copy(config, [str(key) for key in config if key not in given])
        kept._set_parent(config._get_parent())
        config = kept
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def _check(node: Any, where: str) -> None:
    """Refuse the first target, or word of Hydra's, that a config may not use."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            _check(item, f"{where}[{index}]")
    if isinstance(node, dict):
        if "_target_" in node:
            _check_target(node["_target_"], f"{where}._target_".lstrip("."))
        for key, item in node.items():
            if key in {"_recursive_", "_convert_"}:
                raise ValueError(f"{where or 'config'}: expected {', '.join(sorted(_WORDS))}, got {key}; remove it")
            _check(item, f"{where}.{key}".lstrip("."))


def _check_target(name: Any, where: str) -> None:
    # The text is checked before the import, for an import runs code; the object after it, for our modules
    # import foreign names.
    module = None
    if isinstance(name, str) and _allowed(name):
        try:
            module = getattr(_locate(name), "__module__", None)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{where}: cannot find {name!r} ({error}); check the name") from error
    if not isinstance(module, str) or not _allowed(module):
        expected = " or ".join(ALLOWED)
        raise ValueError(f"{where}: expected a class or function defined in {expected}, got {name!r}")


def _allowed(name: str) -> bool:
    def inside(packages: tuple[str, ...]) -> bool:
        return any(name == package or name.startswith(package + ".") for package in packages)

    return inside(ALLOWED) and not inside(REFUSED)


def _locate(name: str) -> Any:
    """The object of a dotted name: attributes first, then submodules."""
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(".".join(parts[:end]))
    return found


def _build(node: Any, kwargs: dict[str, Any]) -> Any:
    """Call the checked targets, innermost first; `kwargs` go to the outermost."""
    if isinstance(node, list):
        return [_build(item, {}) for item in node]
    if not isinstance(node, dict):
        return node
    settings = {key: _build(item, {}) for key, item in node.items() if key not in _WORDS} | kwargs
    if "_target_" not in node:
        return settings
    target, args = _locate(node["_target_"]), _build(node.get("_args_", []), {})
    partial = bool(node.get("_partial_", False))
    _check_arguments(target, args, settings, partial)
    return functools.partial(target, *args, **settings) if partial else target(*args, **settings)


def _check_arguments(target: Callable[..., Any], args: list[Any], settings: dict[str, Any], partial: bool) -> None:
    """Turn a misspelt or missing argument, the config author's fault, into one line."""
    signature = inspect.signature(target)
    try:
        (signature.bind_partial if partial else signature.bind)(*args, **settings)
    except TypeError as error:
        name = f"{target.__module__}.{target.__qualname__}"
        raise ValueError(f"{name}: {error}; it takes {', '.join(signature.parameters)}") from error
