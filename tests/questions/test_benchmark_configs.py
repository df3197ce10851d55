"""Every set of tasks has a config that builds what its loader documents: repository, revision and prompt."""

import inspect
import pydoc

import pytest
from omegaconf import OmegaConf

from nsed_torch.app.config.paths import options_of

# `pressed` asks another set.
FILES = sorted(path for path in options_of("tasks") if not path.stem.endswith(("_tuning", "pressed")))
NAMES = {
    *("aime2024", "aime2025", "darkbench", "gpqa", "gsm8k", "hellaswag", "humaneval", "livecodebench", "math500"),
    *(
        "long_reading",
        "mbpp",
        "mixed",
        "mmlu",
        "natural_words",
        "reading",
        "reasoning_gym",
        "recorded",
        "additions",
        "composite",
        "experts",
        "file",
        "hub",
        "profiles",
        "sorting",
        "steps",
        "ten_disks",
        "transfer",
    ),
}

OWN_SEEDS = {"additions", "composite", "experts", "natural_words", "sorting", "steps", "ten_disks", "transfer"}
"""Their tasks are held out by their seed."""


def test_every_benchmark_has_its_config():
    assert {path.stem for path in FILES} == NAMES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_config_says_what_the_loader_does_by_itself(path):
    config = OmegaConf.merge({"data_dir": "below/here", "questions": ""}, {"tasks": OmegaConf.load(path)})
    settings = OmegaConf.to_container(config.tasks, resolve=True)
    loader = pydoc.locate(settings.pop("_target_"))
    assert settings.pop("data_dir", "below/here") == "below/here"
    signature = inspect.signature(loader)
    signature.bind(**settings)
    own = {key: parameter.default for key, parameter in signature.parameters.items()}
    free = {"year", "family", "families", "options", "unlike", "learned", "questions", "repo", "question", "target"} | (
        {"size", "seed"} if path.stem in OWN_SEEDS else set()
    )
    assert {key: value for key, value in settings.items() if key not in free and own[key] != value} == {}
    word = "questions=FILE" if path.stem == "file" else f"tasks={path.stem} "
    assert word in path.read_text().partition("_target_")[0]
