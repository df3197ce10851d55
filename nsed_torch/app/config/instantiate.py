"""Config nodes become objects, but only by constructors that are listed here: a config never runs other code.

The words are Hydra's (`_target_`, `_args_`, `_partial_`), the work is not: `hydra.utils.instantiate` resolves
interpolations anew while it builds, so an escaped `${...}` can turn into a target after any check before it.
"""

import functools
import importlib.metadata
import inspect
import os
import pydoc
from collections.abc import Callable
from typing import Any

from jinja2 import TemplateError
from omegaconf import OmegaConf
from safetensors import SafetensorError

from nsed_torch.app.config.settings import annotations, fault
from nsed_torch.core.named import NAMED
from nsed_torch.records.extras import install

_LISTED = {
    "nsed_torch.core.encoder": "HashedEncoder",
    "nsed_torch.core.engine": "Decoding RatingScale",
    "nsed_torch.core.prompts": "Prompts",
    "nsed_torch.engines.backbones": "load_backbone load_encoder",
    "nsed_torch.engines.endpoint": "EndpointEngine",
    "nsed_torch.engines.replicas": "EngineReplicas",
    "nsed_torch.engines.vllm_engine": "VllmEngine",
    "nsed_torch.engines.weights": "PackagedWeights Weights Wheel",
    "nsed_torch.questions.generated": "generated_tasks mixed_tasks",
    "nsed_torch.questions.graded": "file_tasks recorded_tasks",
    "nsed_torch.questions.sources": "hub_tasks",
    "nsed_torch.questions.choice_tasks": "gpqa hellaswag mmlu",
    "nsed_torch.questions.code_tasks": "humaneval livecodebench mbpp",
    "nsed_torch.questions.math_tasks": "aime gsm8k math500",
    "nsed_torch.conductor.conductor_broker": "ConductorBroker",
    "nsed_torch.conductor.policy": "PromptedAgent WritingAgent",
    "nsed_torch.conductor.pools": "Pools",
    "nsed_torch.conductor.grpo": "GRPO",
    "nsed_torch.parts.budget_broker": "Budget BudgetBroker",
    "nsed_torch.parts.halting_rules": "EvidenceHalting FatigueHalting",
    "nsed_torch.parts.round_vote": "RoundVoteHalting",
    "nsed_torch.evaluation.methods.conducted": "Conducted RandomRouting",
    "nsed_torch.evaluation.methods.independent": "BestOf Plurality Router SelfConsistency",
    "nsed_torch.evaluation.methods.interactive": "Debate MixtureOfAgents SelfCorrection SelfMoA",
    "nsed_torch.app.build": "consensus_cell",
    "nsed_torch.core.halting": "FixedHalting",
    "nsed_torch.tuning.fine_tuning": "FineTuning",
    "nsed_torch.tuning.trainer": "Schedule",
    "torch.optim": "SGD Adam AdamW NAdam RAdam Adagrad RMSprop LBFGS",
}
CONSTRUCTORS = {f"{module}.{name}" for module, names in _LISTED.items() for name in names.split()}
CONSTRUCTORS |= {f"nsed_torch.{home}" for known in NAMED.values() for home in known.values()}
"""All that a `_target_` may name, unless the user allows more: see `own_targets`."""
GROUP = "nsed_torch.targets"
"""The entry points by which an installed package offers constructors of its own, each by any name.

    [project.entry-points."nsed_torch.targets"]
    thing = "my_package.parts:Thing"

A config may then say `_target_: my_package.parts.Thing`; the user installed the package, so no config allowed it.
"""
BROKEN: tuple[type[Exception], ...] = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError)
BROKEN += (SafetensorError, TemplateError, TypeError, MemoryError)
_WORDS = {"_target_", "_args_", "_partial_"}


def instantiate(node: Any, **kwargs: Any) -> Any:
    """Build what a config node describes, nested nodes first, behind an allow-list.

    Interpolations are resolved once. Then every `_target_` at any depth, below lists, `_args_` and `_partial_`
    too, must be listed. Only then is anything called, with plain dicts and lists. The node is a config or plain dict
    with `_target_`, a list of such, or None, which gives None. `kwargs` override its keys and are passed as they are,
    never read as config.
    """
    if node is None:
        return None
    config = node if OmegaConf.is_config(node) else OmegaConf.create(node)
    if kwargs:
        if "_target_" not in config:
            raise ValueError(f"expected a config with _target_ to pass {sorted(kwargs)} to, got none")
        # What is given anyway need not have a value.
        kept = OmegaConf.masked_copy(config, [key for key in config if key not in kwargs])
        kept._set_parent(config._get_parent())
        config = kept
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    _check(plain, "")
    return _build(plain, kwargs)


def _check(node: Any, where: str) -> None:
    """Refuse the first target, or word of Hydra's, that a config may not use."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            _check(item, f"{where}[{index}]")
    if not isinstance(node, dict):
        return
    if "_target_" in node:
        _check_target(node["_target_"], f"{where}._target_".lstrip("."))
    for key, item in node.items():
        if key in {"_recursive_", "_convert_"}:
            raise ValueError(f"{where or 'config'}: expected {', '.join(sorted(_WORDS))}, got {key}; remove it")
        _check(item, f"{where}.{key}".lstrip("."))


def _check_target(name: Any, where: str) -> None:
    if not isinstance(name, str) or name not in CONSTRUCTORS:
        if name in own_targets():
            return
        expected = f"expected one of {__name__}.CONSTRUCTORS"
        lab = isinstance(name, str) and name.startswith("nsed_lab.")
        remedy = install("lab") if lab else "if it is your own code, name it in NSED_TARGETS"
        raise ValueError(f"{where}: {expected}, got {name!r}; {remedy}")


def arguments_of(name: Any, where: str) -> list[str]:
    """What a target takes; one that no config may name is a ValueError."""
    _check_target(name, where)
    return list(annotations(_located(name)))


def own_targets() -> list[str]:
    """What the user allows besides, which no config can: names in the environment, and installed packages' entries."""
    named = os.environ.get("NSED_TARGETS", "").replace(",", " ").split()
    return [*named, *(f"{entry.module}.{entry.attr}" for entry in importlib.metadata.entry_points(group=GROUP))]


def _build(node: Any, kwargs: dict[str, Any]) -> Any:
    """Call the checked targets, innermost first; `kwargs` go to the outermost."""
    if isinstance(node, list):
        return [_build(item, {}) for item in node]
    if not isinstance(node, dict):
        return node
    settings = {key: _build(item, {}) for key, item in node.items() if key not in _WORDS} | kwargs
    if "_target_" not in node:
        return settings
    target = _located(node["_target_"])
    return call(target, _build(node.get("_args_", []), {}), settings, partial=bool(node.get("_partial_", False)))


def _located(name: str) -> Any:
    """What a checked target names; one of the user's own that cannot be imported is a ValueError."""
    try:
        found = pydoc.locate(name, forceload=False)
    except pydoc.ErrorDuringImport as error:
        raise ValueError(f"{name}: cannot be imported ({error.value!r}); correct it") from error
    if not callable(found):
        raise ValueError(f"{name}: expected a class or function, got none; is its folder on PYTHONPATH?")
    return found


def call(target: Callable[..., Any], args: list[Any], settings: dict[str, Any], *, partial: bool = False) -> Any:
    """Call with arguments out of a config; one that is misspelt, missing or of another type is a ValueError."""
    name, signature = f"{target.__module__}.{target.__qualname__}", inspect.signature(target)
    try:
        given = (signature.bind_partial if partial else signature.bind)(*args, **settings)
    except TypeError as error:
        raise ValueError(f"{name}: {error}; it takes {', '.join(signature.parameters)}") from error
    for argument, value in given.arguments.items():
        if wrong := fault(argument, value, annotations(target).get(argument, Any)):
            raise ValueError(f"{name}: {argument}: {wrong}; correct {argument}=...")
    try:
        return functools.partial(target, *args, **settings) if partial else target(*args, **settings)
    except BROKEN as error:  # a device that is not there, weights that were cut, an adapter of other shapes
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        told = f"{name}: cannot be built ({reason[:300]}); check its settings and the files it reads"
        raise ValueError(told) from error
