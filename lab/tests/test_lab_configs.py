"""Every YAML file of the laboratory composes, and names only what an installed package offers."""

import functools

import pytest
from hydra import compose
from omegaconf import OmegaConf

from nsed_lab import readers
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate, own_targets
from nsed_torch.app.config.paths import added_dirs, conf_file
from nsed_torch.app.config.settings import check_settings

FOLDER = conf_file("members").parent
VERBS = dict.fromkeys(("ensemble", "experiment", "halting", "method", "tasks"), "evaluate")
VERBS |= {"specialist": "specialize", "grpo": "train_conductor", "experiment/conductor_7b": "train_conductor"}
ADDED = {"experiment", "method"}
FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml"))


def targets(node):
    """Every node that is built, at any depth."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    found = [node] if isinstance(node, dict) and "_target_" in node else []
    return found + [inner for child in children for inner in targets(child)]


@pytest.mark.parametrize("file", FILES)
def test_it_composes_and_every_target_is_offered_and_takes_its_arguments(file):
    group, _, option = file.partition("/")
    verb = VERBS.get(file, VERBS.get(group, group))
    words = [f"{'+' * (group in ADDED)}{group}={option}"] if option else []
    if group == "backbone":
        verb, words = "fetch", ["ensemble=demo", f"backbone@ensemble.engines.smollm2={option}"]
    with composing():
        config = compose(verb, overrides=words)
        check_settings(config, verb)
        nodes = targets(OmegaConf.to_container(config, resolve=True))
    for node in nodes:
        assert isinstance(instantiate({**node, "_partial_": True}), functools.partial)


def test_the_laboratory_is_among_the_folders_and_offers_what_its_files_name():
    assert FOLDER in added_dirs()
    assert {f"nsed_lab.readers.{name}" for name in ("CutToWindow", "PerfectMemory")} <= set(own_targets())
    assert all(getattr(readers, name.rpartition(".")[2]).one_size for name in own_targets() if ".readers." in name)
