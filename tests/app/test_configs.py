"""Every YAML file composes with every verb that knows its group, and names only what may be built."""

import functools
import importlib
import re

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from preset_verbs import PRESETS

from nsed_torch.app.cli import VERBS
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.app.config.settings import check_settings, root_config
from nsed_torch.engines.backbones import load_backbone

ELSEWHERE = {
    "backbone=endpoint": "EndpointEngine",
    "backbone=gpt_oss_20b": "EndpointEngine",
    "backbone=ray": "EngineReplicas",
    "backbone=vllm": "VllmEngine",
}  # nothing to train in this process
FILES = sorted(path.relative_to(conf_dir()).with_suffix("").as_posix() for path in conf_dir().rglob("*.yaml"))
OPTIONS = {}  # group -> its options
for _file in FILES:
    if "/" in _file:
        OPTIONS.setdefault(_file.split("/")[0], []).append(_file.split("/")[1])


def config_name(verb):
    return verb.replace("-", "_")


def groups(verb):
    """The groups that a verb chooses from."""
    return sorted(root_config(config_name(verb))[1])


def columns(verb):
    """Settings that choose every option of every group of a verb once, an option of each group together."""
    offered = [[choice for o in OPTIONS[g] if (choice := f"{g}={o}") not in ELSEWHERE] for g in groups(verb)]
    return [" ".join(own[i % len(own)] for own in offered) for i in range(max(map(len, offered), default=0))]


CHOICES = [(verb, choices) for verb in VERBS for choices in columns(verb)]
CHOICES += [(verb, "") for verb in VERBS]
CHOICES += [(verb, f"+experiment={name}") for name, verb in PRESETS.items()]
CHOICES += [("fetch", f"ensemble=demo backbone@ensemble.engines.smollm2={option}") for option in OPTIONS["backbone"]]


@functools.cache
def composed(verb, *overrides):
    """A verb's config as plain data. Shared: leave it as it is."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose(config_name(verb), overrides=[word for o in overrides for word in o.split()])
        check_settings(config, config_name(verb))
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def targets(node):
    """Every node that is built, at any depth."""
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    found = [node] if isinstance(node, dict) and "_target_" in node else []
    return found + [inner for child in children for inner in targets(child)]


def test_no_file_is_left_out():
    reached = (
        {re.sub("(@.*)?=", "/", word.removeprefix("+")) for _, choices in CHOICES for word in choices.split()}
        | {config_name(verb) for verb in VERBS}
        | {"base", "team"}
    )
    assert reached >= set(FILES)
    assert set(OPTIONS) == {"experiment"} | {group for verb in VERBS for group in groups(verb)}


@pytest.mark.parametrize(("verb", "choice"), CHOICES)
def test_it_composes_and_every_target_exists_and_takes_its_arguments(verb, choice):
    config = composed(verb, choice)
    nodes = targets(config)
    for node in nodes:
        # Partial: names and arguments are checked, but no weights are loaded. `learned` names a file, which
        # `build_broker` reads.
        arguments = {key: value for key, value in node.items() if key != "learned"}
        built = instantiate({**arguments, "_partial_": True})
        assert isinstance(built, functools.partial)
        assert built.func.__module__.startswith(("nsed_torch.", "nsed_lab.", "torch.optim"))
    assert nodes or verb in {"demo", "fit-broker", "report", "serve"}


@pytest.mark.parametrize(("choice", "kind"), ELSEWHERE.items())
def test_a_model_elsewhere_is_refused_where_one_here_is_trained(choice, kind):
    with pytest.raises(ValueError, match=rf"{kind}: got an unexpected keyword argument 'quantization'; it takes"):
        instantiate(composed("specialize", choice)["backbone"])


def test_replicas_take_any_backbone_and_say_in_which_folder_its_weights_are():
    choice = "backbone@ensemble.engines.smollm2=ray"
    inside = "backbone@ensemble.engines.smollm2.engine=qwen2_5_7b_instruct"
    config = composed("deliberate", choice, inside, "ensemble.engines.smollm2.engine.weights.path=here")
    node = config["ensemble"]["engines"]["smollm2"]
    assert (node["replicas"], node["address"], node["engine"]["weights"]["name"]) == (2, None, "qwen2.5-7b-instruct")
    built = instantiate(node["engine"])
    assert built.func is load_backbone
    assert built.keywords["weights"].path == "here"


@pytest.mark.parametrize("verb", VERBS)
def test_cfg_job_prints_what_it_would_run(nsed, verb):
    assert callable(importlib.import_module(f"nsed_torch.app.verbs.{config_name(verb)}").main)
    config = OmegaConf.create(nsed.ok(verb, "--cfg", "job"))
    assert set(config) == set(composed(verb))
    assert "output_dir" in config


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_one_screen_of_an_example_the_groups_and_settings_with_a_sentence_each(nsed, verb):
    lines = nsed.ok(verb, "--help").splitlines()
    assert len(lines) <= 45
    assert any(line.startswith(f"  nsed {verb}") for line in lines)
    found = [line.split()[0] for line in lines if re.match(r"  \w+   ", line)]
    assert sorted(found) == groups(verb)
    settings = lines[lines.index("Settings, changed as name=value:") + 1 : -2]
    names = [line.split("=")[0].strip() for line in settings]
    assert names == root_config(config_name(verb))[0].hydra.help.footer.split()
    assert 2 <= len(names) <= 16
    assert [line for line in settings if "  " not in line.strip()] == []


@pytest.mark.parametrize(
    ("verb", "override"),
    [
        ("deliberate", "rounds=three"),
        ("deliberate", "rounds=2.5"),
        ("deliberate", "seed=x"),
        ("deliberate", "memory_tokens=[1]"),
        ("deliberate", "prompts=text"),
        ("deliberate", "protocol.shuffled=perhaps"),
        ("fetch", "offline=perhaps"),
        ("report", "run=[a]"),
        ("evaluate", "limit=few"),
        ("evaluate", "protocol.similarity=high"),
        ("evaluate", "ids=seven"),
        ("evaluate", "rounds=true"),
        ("train-conductor", "warm.lessons=none"),
        ("train-conductor", "seed=null"),
        ("specialize", "seeds.train=x"),
    ],
)
def test_wrong_types_are_refused_in_one_line(nsed, verb, override):
    question = ["Why?"] if verb == "deliberate" else []
    line = nsed.fault(verb, *question, override)
    key, value = override.split("=")
    assert line.startswith(f"{key}: expected ")
    assert {"true": "True", "null": "None"}.get(value, value.strip("[]")) in line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["fetch", "+offlin=true"], "unknown setting 'offlin'; did you mean 'offline'? nsed fetch --cfg job lists all"),
        (["fetch", "+ensemble.agent=1"], "unknown setting 'ensemble.agent'; did you mean 'ensemble.agents'?"),
        (
            ["train-judges", "+lora.rnk=2"],
            "unknown setting 'lora.rnk'; did you mean 'lora.rank'?",
        ),
        (
            ["deliberate", "Why?", "+protocol.anonymos=1"],
            "unknown setting 'protocol.anonymos'; did you mean 'protocol.an",
        ),
        (["deliberate", "Why?", "+broker.patience=1"], "unknown setting 'broker.patience'; nsed deliberate --cfg job"),
        (
            ["deliberate", "Why?", "+broker.min_judges=1"],
            "broker: expected one that has settings, got none with ['min_j",
        ),
    ],
)
def test_settings_that_nothing_reads_are_refused_even_if_added(nsed, words, line):
    assert nsed.fault(*words).startswith(line)


def test_a_key_of_a_group_that_an_interpolation_reads_may_be_added(nsed):
    words = (
        "ensemble=demo",
        "+ensemble.allowance=7",
        "ensemble.agents.solver.decoding.max_new_tokens=${ensemble.allowance}",
    )
    assert "ensemble.engine'" in nsed.fault("fetch", *words, "+ensemble.engine=1")


def test_a_number_is_kept_as_the_text_that_is_wanted(nsed):
    assert nsed.fault("report", "run=2024").startswith("2024")
