"""One settings schema: a word means the same under every verb, with the same default, and has no second name."""

import functools
import re

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from nsed_torch.app.cli import VERBS
from nsed_torch.app.config.overrides import FORMER, refuse_former
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.app.config.settings import plain, root_config
from nsed_torch.app.door import composed
from nsed_torch.app.opening import leaves

NAMES = [verb.replace("-", "_") for verb in VERBS]
TEAMS = {"deliberate", "conduct", "evaluate", "collect", "train_conductor", "train_judges", "fetch"}
DIFFERENT = {
    "output_dir": "of each verb its own",
    "conductor": "the shipped one brings its own workers in place of the team, which only `nsed conduct` is for",
    "pools.kind": "a Conductor learns from pools that are drawn anew, and is asked with everybody",
    "pools.size": "likewise",
    "training._target_": "a cell is fitted, an adapter fine-tuned",
    "training.batch": "a cell learns from all tasks at once, an adapter from some texts",
}
"""What may have another default under another verb, and why."""


@functools.cache
def chosen(file):
    """Group -> option of a root file and those that it includes."""
    found = {}
    for entry in OmegaConf.load(conf_dir() / f"{file}.yaml").get("defaults", []):
        if isinstance(entry, str):
            found |= {} if entry == "_self_" else chosen(entry)
        else:
            found |= {group: option for group, option in entry.items() if not group.startswith("override ")}
    return found


@functools.cache
def defaults(name):
    """Every setting of a verb by its dotted name, and every group with the option that it starts with."""
    root = {key: value for key, value in plain(root_config(name)[0]).items() if key != "hydra"}
    return {**dict(leaves(root, "")), **chosen(name)}


def test_a_word_has_one_default_under_every_verb():
    found = {}
    for name in NAMES:
        for key, value in defaults(name).items():
            found.setdefault(key, {}).setdefault(repr(value), []).append(name)
    several = {key: values for key, values in found.items() if len(values) > 1}
    assert {key: values for key, values in several.items() if key not in DIFFERENT} == {}
    assert set(several) == set(DIFFERENT)


def test_no_word_is_a_setting_of_one_verb_and_a_group_of_settings_of_another():
    names = {key for name in NAMES for key in defaults(name) if "." in key or key not in chosen(name)}
    assert [name for name in names if names & {name[: dot.start()] for dot in re.finditer(r"\.", name)}] == []


def test_whatever_has_a_team_has_all_of_its_words():
    words = set(defaults("team"))
    assert {"ensemble", "rating", "rounds", "prompts.style", "protocol.anonymous", "seed", "cell", "calls"} < words
    assert {name for name in NAMES if words <= set(defaults(name))} == TEAMS


@pytest.mark.parametrize("ensemble", ["experts", "demo", "workers"])
def test_an_ensemble_is_asked_alike_under_every_verb(ensemble):
    """Settings that a shipped ensemble brings, and the published ones of the others."""
    seen = set()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for name in sorted(TEAMS):
            cfg = compose(name, overrides=[f"ensemble={ensemble}"])
            seen.add(
                (cfg.rounds, cfg.prompts.style, cfg.rating._target_.rpartition(".")[2], tuple(cfg.ensemble.agents))
            )
            own = compose(
                name, overrides=["rounds=2", "rating=critique", "prompts.style=worked", f"ensemble={ensemble}"]
            )
            asked = own.rounds, own.prompts.style, own.rating._target_.rpartition(".")[2]
            assert asked == (2, "worked", "CritiqueRating")
    ((*said, _),) = seen
    shipped = {"experts": "LikelihoodRating", "workers": "LikelihoodRating"}
    expected = [1, "direct", shipped[ensemble]] if ensemble in shipped else [3, "short", "VerdictRating"]
    assert said == expected


def test_no_former_name_is_a_second_one():
    verbs = {name: {*root_config(name)[1], *(key.partition(".")[0] for key in defaults(name))} for name in NAMES}
    for old, new in FORMER.items():
        heads = old.partition(".")[0], new.partition(".")[0]
        assert any(heads[1] in words for words in verbs.values())
        for name, words in verbs.items():
            if set(heads) <= words and "." not in old:  # the first is something else there
                assert name == "specialize" or old == "rounds"
                refuse_former([f"{old}=1"], name)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("tune gate=none", "gate: is consensus.gate now"),
        ("specialize unit=step", "unit: is lesson now"),
        ("specialize by_length=true", "by_length: is lesson.by_length now"),
        ("train-conductor warm.by_hand=true", "warm.by_hand: is warm.workflows now"),
        ("tune -m voting=quadratic,linear", "voting: is consensus.vote now"),
        ("tune pooling=sum", "pooling: is consensus.pooling now"),
        ("tune slots=3", "slots: is consensus.slots now"),
        ("tune calibration=true", "calibration: is consensus.calibration now"),
        ("tune without=[a]", "without: is protocol.without now"),
        ("tune rounds=2", "rounds: is waves now"),
        ("tune seeds=2", "seeds: is divisions now"),
        ("fit-broker seeds=2", "seeds: is divisions now"),
        ("tune logger.tracker=wandb", "logger.tracker: is logger now"),
        ("deliberate Why? gate=none", "gate: is consensus.gate now"),
        ("evaluate benchmark=gsm8k", "benchmark: is tasks now"),
        ("evaluate tasks=hub benchmark.gold=answer", "benchmark.gold: is tasks.target now"),
        ("evaluate +benchmark.options={a:1}", "benchmark.options: is tasks.options now"),
        ("collect tasks=hub tasks.gold=answer", "tasks.gold: is tasks.target now"),
        ("conduct Why? benchmark=gsm8k", "unknown setting 'benchmark'; nsed conduct --cfg job lists all"),
    ],
)
def test_a_former_name_is_refused_with_the_new_one(nsed, words, line):
    verb, *rest = words.split()
    assert (
        nsed.fault(verb, *rest).replace("nsed conduct has no group 'benchmark'", "unknown setting 'benchmark'") == line
    )


def test_a_tool_s_former_names_are_refused_too():
    with pytest.raises(ValueError, match=r"^gate: is consensus.gate now$"):
        composed({"ensemble": "demo", "gate": "none"})


def test_a_question_may_begin_like_a_former_name(nsed):
    _, transcript = nsed.deliberate("gate=none, is that a setting?", "rounds=1")
    assert transcript["task"]["question"] == "gate=none, is that a setting?"
