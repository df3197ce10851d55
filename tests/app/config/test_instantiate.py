"""A config builds our own objects and nothing else."""

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue

import nsed_torch
from nsed_torch.app.config.hydra_node import check_hydra
from nsed_torch.app.config.instantiate import CONSTRUCTORS, instantiate
from nsed_torch.core import engine as requests

DECODING = "nsed_torch.core.engine.Decoding"


@dataclass
class Keeper:
    """Keeps what it is given. Stands in a module of ours, see the fixture."""

    value: Any = None
    other: Any = None


def explode(*_args: Any, **_kwargs: Any) -> None:
    raise AssertionError("something was called before the targets were checked")


@pytest.fixture(autouse=True)
def targets(monkeypatch):
    """Make the two above reachable as targets."""
    listed = {f"nsed_torch.core.engine.{name}" for name in ("Keeper", "explode", "Decoding", "Message")}
    monkeypatch.setitem(instantiate.__globals__, "CONSTRUCTORS", CONSTRUCTORS | listed)
    for thing in (Keeper, explode):
        monkeypatch.setattr(thing, "__module__", "nsed_torch.core.engine")
        monkeypatch.setattr(requests, thing.__name__, thing, raising=False)


KEEPER = "nsed_torch.core.engine.Keeper"


def test_builds_nested_nodes_lists_and_positional_arguments():
    node = {
        "_target_": KEEPER,
        "_args_": [[{"_target_": DECODING, "temperature": 0.5}, 2]],
        "other": {"deep": {"_target_": KEEPER, "value": {"a": [1]}}},
    }
    built = instantiate(OmegaConf.create(node))
    assert built == Keeper([requests.Decoding(temperature=0.5), 2], {"deep": Keeper({"a": [1]})})
    assert type(built.value) is list
    assert type(built.other) is dict
    assert type(built.other["deep"].value["a"]) is list
    assert instantiate(node) == built


def test_words_of_hydra_that_would_be_ignored_are_refused():
    for word in ("_convert_", "_recursive_"):
        with pytest.raises(ValueError, match=f"^value: expected _args_, _partial_, _target_, got {word}; remove it$"):
            instantiate({"_target_": KEEPER, "value": {"_target_": KEEPER, word: "all"}})


def test_misspelt_and_missing_arguments_are_one_line():
    with pytest.raises(ValueError, match=r"engine\.Decoding: got an unexpected keyword argument 'temp'; it takes max"):
        instantiate({"_target_": DECODING, "temp": 1})
    with pytest.raises(ValueError, match=r"engine\.Message: missing a required argument: 'content'"):
        instantiate({"_target_": "nsed_torch.core.engine.Message", "role": "user"})
    waiting = instantiate({"_target_": "nsed_torch.core.engine.Message", "_partial_": True, "role": "user"})
    assert waiting(content="hi") == ("user", "hi")


def test_none_lists_and_plain_dicts():
    assert instantiate(None) is None
    assert instantiate([{"_target_": DECODING}, 3]) == [requests.Decoding(), 3]
    assert instantiate({"a": {"_target_": DECODING}}) == {"a": requests.Decoding()}
    with pytest.raises(ValueError, match=r"expected a config with _target_ to pass \['a'\] to"):
        instantiate({"b": 1}, a=2)


def test_partial_waits_for_the_rest():
    waiting = instantiate({"_target_": KEEPER, "_partial_": True, "value": 1}, other=[2])
    assert isinstance(waiting, functools.partial)
    assert waiting() == Keeper(1, [2])


def test_optimizers_of_torch_are_allowed():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = instantiate({"_target_": "torch.optim.AdamW", "lr": 0.5}, params=[weight])
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["params"][0] is weight


def test_kwargs_pass_untouched():
    decoding, module, config = requests.Decoding(), torch.nn.Linear(1, 1), {"_target_": "os.system"}
    built = instantiate({"_target_": KEEPER, "value": "???", "other": "${nowhere}"}, value=decoding, other=module)
    assert built.value is decoding
    assert built.other is module
    assert instantiate({"_target_": KEEPER}, value=config).value is config


def test_interpolations_are_resolved_once_and_reach_the_parent():
    config = OmegaConf.create(
        {"t": 0.25, "a": {"_target_": DECODING, "temperature": "${t}", "top_p": "???"}, "b": r"\${t}"}
    )
    assert instantiate(config.a, top_p=0.5) == requests.Decoding(temperature=0.25, top_p=0.5)
    literal = OmegaConf.create({"t": 1, "a": {"_target_": KEEPER, "value": r"\${t}", "other": "a${t}"}})
    assert instantiate(literal.a) == Keeper("${t}", "a1")
    with pytest.raises(InterpolationKeyError):
        instantiate({"_target_": KEEPER, "value": "${nowhere}"})
    with pytest.raises(MissingMandatoryValue):
        instantiate({"_target_": KEEPER, "value": "???"})


UNSAFE = [
    "os.system",
    "builtins.eval",
    "subprocess.run",
    "torch.load",
    "torch.hub.load",
    "torch.optimizer.Fake",
    "torch.optim.optimizer.torch.load",
    "torch.optim.optimizer.cast",
    "nsed_torch.records.files.os.system",
    "nsed_torch.records.files.write_text",
    "nsed_torch.records.write_json",
    "nsed_torch.app.config.instantiate.hydra.utils.instantiate",
    "nsed_torch.core.engine.Any",
    "nsed_torch.core.engine.dataclass",
    "nsed_torch.core.engine.Keeper.__class__",
    "nsed_torch.core.engine.Keeper.__init__.__globals__",
    "nsed_torch.core.engine.Keeper.__init__.__globals__.get",
    "nsed_torch.core.engine.Keeper.__init__.__builtins__.get",
    "nsed_torchish.anything",
    "nsed_torch",
    "",
    "???",
    7,
    None,
    ["os.system"],
]


def placed(target):
    bad = {"_target_": target}
    return {
        "top": bad,
        "partial": {**bad, "_partial_": True},
        "key": {"_target_": KEEPER, "value": bad},
        "list": {"_target_": KEEPER, "value": [1, [bad]]},
        "args": {"_target_": KEEPER, "_args_": [bad]},
        "late": {"_target_": KEEPER, "value": {"_target_": "nsed_torch.core.engine.explode"}, "other": bad},
        "list root": [bad],
    }


@pytest.mark.parametrize("place", list(placed("")))
@pytest.mark.parametrize("target", UNSAFE, ids=repr)
def test_unsafe_targets_are_refused_in_one_line(target, place):
    with pytest.raises((ValueError, MissingMandatoryValue)) as error:
        instantiate(placed(target)[place])
    if target != "???":
        assert "expected one of nsed_torch.app.config.instantiate.CONSTRUCTORS, got" in str(error.value)
        assert "\n" not in str(error.value)


def test_refused_before_anything_is_called(tmp_path):
    witness = tmp_path / "witness"
    for target in ("os.mkdir", "nsed_torch.records.files.os.mkdir"):
        with pytest.raises(ValueError, match="expected one of nsed_torch"):
            instantiate({"_target_": target, "_args_": [str(witness)]})
    assert not witness.exists()


def test_a_refused_module_is_not_even_imported(tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="evil_module"):
        instantiate({"_target_": "evil_module.anything"})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "trick",
    [
        {"_target_": "${name}", "name": "os.system"},
        {"_target_": KEEPER, "value": "${hidden}", "hidden": {"_target_": "os.system"}},
        {"_target_": KEEPER, "value": "${oc.create:{_target_: os.system}}"},
    ],
)
def test_interpolated_targets_are_refused(trick):
    with pytest.raises(ValueError, match=r"got 'os\.system'"):
        instantiate(OmegaConf.create(trick))


def test_a_text_that_looks_like_an_interpolation_stays_a_text():
    inner = "${oc.create:{_target_: nsed_torch.core.engine.explode}}"
    assert instantiate(OmegaConf.create({"_target_": KEEPER, "value": "\\" + inner})) == Keeper(inner)


def test_errors_of_constructors_come_out_bare():
    for node in (
        {"_target_": DECODING, "top_p": 2},
        {"_target_": KEEPER, "value": {"_target_": DECODING, "top_p": 2}},
    ):
        with pytest.raises(ValueError, match=r"^decoding\.top_p: expected a value in \(0, 1\], got 2$"):
            instantiate(node)


def test_this_test_reaches_real_modules():
    # The refusals above would be vacuous if these did not exist.
    assert callable(os.system)
    assert callable(torch.hub.load)
    assert Path(nsed_torch.__path__[0]).is_dir()


def test_arguments_of_another_type_are_refused_before_the_call():
    node = {"_target_": "nsed_torch.core.engine.Decoding", "max_new_tokens": 2.5}
    with pytest.raises(ValueError, match=r"Decoding: max_new_tokens: expected a whole number, got 2\.5; correct"):
        instantiate(node)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's, `own_part`, beside which packages may be installed."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_part", raising=False)
    (tmp_path / "own_part.py").write_text(
        "class Thing:\n    def __init__(self, size: int = 1):\n        self.size = size\n"
    )
    (tmp_path / "own_broken.py").write_text("1 / 0\n")
    return tmp_path


def test_what_the_environment_names_may_be_built_and_nothing_beside_it(own, monkeypatch):
    node = {"_target_": "own_part.Thing", "size": 3}
    with pytest.raises(ValueError, match=r"got 'own_part\.Thing'; if it is your own code, name it in NSED_TARGETS"):
        instantiate(node)
    monkeypatch.setenv("NSED_TARGETS", "own_broken.Thing, own_part.Thing,nowhere.Thing")
    assert instantiate(node).size == 3
    with pytest.raises(ValueError, match=r"own_part\.Thing: size: expected a whole number, got 'x'"):
        instantiate({**node, "size": "x"})
    for target in ("own_part", "own_part.sys", "own_part.Thing.__init__", "os.system", ["own_part.Thing"]):
        with pytest.raises(ValueError, match=r"expected one of nsed_torch\.app\.config\.instantiate\.CONSTRUCTORS"):
            instantiate({"_target_": target})
    with pytest.raises(ValueError, match=r"^own_broken\.Thing: cannot be imported \(ZeroDivisionError"):
        instantiate({"_target_": "own_broken.Thing"})
    with pytest.raises(ValueError, match=r"^nowhere\.Thing: expected a class or function, got none"):
        instantiate({"_target_": "nowhere.Thing"})


def test_an_installed_package_may_offer_parts(own):
    about = own / "own_part-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-part\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[nsed_torch.targets]\nthing = own_part:Thing\n")
    assert instantiate({"_target_": "own_part.Thing"}).size == 1


def test_no_config_may_allow_targets():
    with pytest.raises(ValueError, match="expected nothing, got"):
        check_hydra(OmegaConf.create({"job": {"env_set": {"NSED_TARGETS": "os.system"}}}))
