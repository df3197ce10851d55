"""What all tests share: threads, offline switches, Hypothesis profile, the `weights` marker, recorded guesses.

Environment, read once here:
    NSED_CACHE: where fetched and converted weights lie. Left as it is, so that a machine converts
        them once.
    NSED_OFFLINE: 1 leaves out every test marked `weights`.
    CI: any value makes Hypothesis draw the same examples each time.
"""

import contextlib
import dataclasses
import functools
import gc
import os
import pickle
from pathlib import Path

import pytest
import shape_checks
from hypothesis import settings
from plain_python import PlainPython


def _cores() -> int:
    """Cores this process may use, its share of them in a parallel run; containers often grant fewer than there are."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


# Libraries read these when first imported, so they are set before any test module is. Small tensors lose time
# on more than a few threads. Whoever sets one of them before the run keeps that value.
for _name, _value in (
    ("OMP_NUM_THREADS", str(min(4, _cores()))),
    ("HF_HUB_OFFLINE", "1"),
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ("TOKENIZERS_PARALLELISM", "false"),
):
    os.environ.setdefault(_name, _value)
# Workers of a parallel run inherit what was set here for the whole machine; each takes its share.
os.environ["OMP_NUM_THREADS"] = str(min(int(os.environ["OMP_NUM_THREADS"]), max(1, _cores())))

# Modules, configs and tests are millions of objects that stay. Looking through them every few hundred new ones, as
# Python does on its own, took a fifth of the whole run.
gc.set_threshold(50_000, 10, 10)

shape_checks.install()

# No deadline: a shared machine stalls now and then, and a slow example is no wrong one.
settings.register_profile("nsed", deadline=None, max_examples=40, derandomize="CI" in os.environ)
settings.load_profile("nsed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put real weights first, for they take longest; skip them where NSED_OFFLINE forbids fetching them."""
    items.sort(key=lambda item: item.get_closest_marker("weights") is None)
    if os.environ.get("NSED_OFFLINE", "0") in {"", "0"}:
        return
    skip = pytest.mark.skip(reason="NSED_OFFLINE is set: real weights are not fetched")
    for item in items:
        if item.get_closest_marker("weights"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Spare the collector what was imported to collect the tests: it stays to the end."""
    gc.collect()
    gc.freeze()


def _read_once(source, ours):
    """Wrap how a class of Hydra's reads config files, so that one of ours is read and parsed once."""
    kept, read = {}, source.load_config

    def load_config(self, config_path):
        place = self.path, config_path
        if place not in kept:
            result = read(self, config_path)
            if not ours(self.path):
                return result
            kept[place] = pickle.dumps(result)
        return pickle.loads(kept[place])

    return load_config


def _composed_once(compose):
    """Wrap how Hydra composes a verb's config, which it does twice: first to see whether the verb is to sweep.

    What was composed for that is taken, if nothing else has been asked for since.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    kept = []

    def load_configuration(self, config_name, overrides, run_mode, from_shell=True, validate_sweep_overrides=True):
        if not validate_sweep_overrides:  # its first look, which can tell a sweep from a run and changes nothing
            config = compose(self, config_name, overrides, run_mode, from_shell, False)
            kept[:] = [self, config_name, list(overrides), config]
            return config
        last, kept[:] = tuple(kept), []
        if last and (self, config_name) == last[:2] and overrides == [*last[2], f"hydra.mode={run_mode.name}"]:
            self.validate_sweep_overrides_legal(
                OverridesParser.create().parse_overrides(overrides), run_mode, from_shell
            )
            last[3].hydra.overrides.hydra.append(overrides[-1])
            last[3].hydra.mode = run_mode
            return last[3]
        return compose(self, config_name, overrides, run_mode, from_shell, True)

    return load_configuration


def _chosen_once(listed, merged, ours):
    """Wrap the two steps in which Hydra finds the files of a verb and of what is chosen, and merges them.

    The same choices among files of ours come to the same; settings are changed afterwards.
    """
    kept, numbers = {}, {}

    def create_defaults_list(repo, config_name, overrides_list, prepend_hydra, skip_missing):
        asked = [override for override in overrides_list if not override.is_sweep_override()]
        groups = [o for o in asked if repo.group_exists(o.key_or_group) and not isinstance(o.value(), dict)]
        places = tuple((source.scheme(), source.path) for source in repo.get_sources())
        key = config_name, places, tuple(override.input_line for override in groups), prepend_hydra, skip_missing
        if key not in kept:
            found = listed(repo, config_name, overrides_list, prepend_hydra, skip_missing)
            if not all(ours(path) for scheme, path in places if scheme == "file"):
                return found
            kept[key] = found
            numbers[id(found.defaults)] = key
        changed = [override for override in asked if not any(override is group for group in groups)]
        return dataclasses.replace(kept[key], config_overrides=changed)

    texts = {}

    def compose(self, defaults, repo):
        if (key := numbers.get(id(defaults))) is None:
            return merged(self, defaults, repo)
        if key not in texts:
            texts[key] = pickle.dumps(merged(self, defaults, repo))
        return pickle.loads(texts[key])

    return create_defaults_list, compose


@pytest.fixture(scope="session", autouse=True)
def _configs_are_read_once():
    """Whenever a test composes a verb's config, Hydra reads twenty files, ours and its own; they stay as they are.

    Nor do interpolations change: each text is parsed once.
    """
    from hydra._internal import config_loader_impl
    from hydra._internal.sources_registry import SourcesRegistry
    from hydra.core.plugins import Plugins
    from omegaconf import base, grammar_parser

    from nsed_torch.app.config.hydra_node import CheckedLoader

    Plugins.instance()  # which fills the registry
    folders = Path(__file__).parent / "conf", Path(__file__).parent / "lab"

    def ours(path):
        return any(Path(path).is_relative_to(folder) for folder in folders)

    with pytest.MonkeyPatch.context() as patch:
        for scheme, known in (
            ("file", ours),
            ("pkg", lambda path: path == "hydra.conf"),
        ):
            source = SourcesRegistry.instance().resolve(scheme)
            patch.setattr(source, "load_config", _read_once(source, known))
        patch.setattr(CheckedLoader, "load_configuration", _composed_once(CheckedLoader.load_configuration))
        loader = config_loader_impl.ConfigLoaderImpl
        found, merged = _chosen_once(
            config_loader_impl.create_defaults_list, loader._compose_config_from_defaults_list, ours
        )
        patch.setattr(config_loader_impl, "create_defaults_list", found)
        patch.setattr(loader, "_compose_config_from_defaults_list", merged)
        patch.setattr(base, "parse", functools.lru_cache(4096)(grammar_parser.parse))
        yield


@pytest.fixture(scope="session")
def plain_python(tmp_path_factory):
    """Runs scripts in processes of their own, without pytest's type checks."""
    with contextlib.closing(PlainPython(tmp_path_factory.mktemp("plain"))) as python:
        yield python


@pytest.fixture
def guesses():
    """A function from sizes to episodes: agent 2 is right nine times in ten, the others agree on a wrong answer."""
    import torch

    from nsed_torch.core.encoder import HashedEncoder
    from nsed_torch.records.transcript import Task
    from nsed_torch.traces.episodes import recorded_episodes
    from nsed_torch.traces.recorded import RecordedAnswers

    def make(tasks=60, rounds=1, seed=0):
        g = torch.Generator().manual_seed(seed)
        knows = torch.rand(tasks, generator=g) < 0.9
        misled = torch.rand(tasks, generator=g) < 0.6
        rows = tuple(
            ("no" if m else "yes", "no" if m else "perhaps", "yes" if k else "no", "no")
            for k, m in zip(knows.tolist(), misled.tolist(), strict=True)
        )
        recorded = RecordedAnswers(
            tasks=tuple(Task(f"question {i}?", f"q{i}", "yes") for i in range(tasks)),
            agents=("ant", "bee", "cat", "dog"),
            answers=rows,
            outputs=tuple(tuple(f"{answer:<8}" for answer in row) for row in rows),
            correct=torch.tensor([[a == "yes" for a in row] for row in rows]),
            answered=torch.ones(tasks, 4, dtype=torch.bool),
            parameters=torch.ones(4, dtype=torch.float64),
            digest="",
        )
        return recorded_episodes(recorded, HashedEncoder(8), rounds=rounds)

    return make
