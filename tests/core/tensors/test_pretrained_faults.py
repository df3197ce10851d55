"""Cells that could not be loaded are not saved, and faulty folders are refused in one line."""

import hashlib
import math
import os
import pickle

import pytest
import torch
from saved_cells import DIM, NAMES, cell_of, edited, reweighed, with_part

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.gate import ForgetGate
from nsed_torch.core.trust import Calibration, Trust


@pytest.mark.parametrize(
    ("agents", "got"), [(["a", "zoe"], "a, zoe"), (["a", "a"], "a, a"), ([], "none"), ("xy", "x, y")]
)
def test_agents_it_does_not_know(folder, agents, got):
    with pytest.raises(ValueError, match=rf"config\.json: expected different agents out of a, b, c, d, e, got {got}$"):
        ConsensusCell.from_pretrained(folder, agents=agents)


def test_a_cell_without_names_picks_nobody(tmp_path):
    cell_of().save_pretrained(tmp_path)
    assert ConsensusCell.from_pretrained(tmp_path).agent_names is None
    with pytest.raises(ValueError, match="expected agent_names to pick agents from, got none: save the cell with"):
        ConsensusCell.from_pretrained(tmp_path, agents=["a"])


@pytest.mark.parametrize(
    ("cell", "names", "line"),
    [
        (with_part("gate", ForgetGate()), None, "one dtype, got float32 and float64: call cell.d"),
        (with_part("calibration", Calibration(2).double()), None, "could not be loaded again: .*size mismatch.*scale"),
        (with_part("trust", Trust(3, DIM).double()), None, "loaded again: agents: expected 3, got 5"),
        (with_part("extra", torch.nn.Linear(1, 1).double()), None, "loaded again: .*Unexpected key.*extra.weight"),
        (cell_of(), ["a", "b"], r"agent_names: expected 5 different names, got \['a', 'b'\]"),
        (cell_of(), ["a"] * 5, "agent_names: expected 5 different names"),
        (cell_of(), "abcde", "agent_names: expected 5 different names, got 'abcde'"),
        (cell_of(), ["a", "b", "c", "d", ""], "agent_names: expected 5 different names"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, cell, names, line):
    with pytest.raises(ValueError, match=line) as caught:
        cell.save_pretrained(tmp_path / "cell", agent_names=names)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cell").exists()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failing_disk_leaves_the_saved_cell(folder, monkeypatch, failing):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    written = []

    def full(_descriptor):
        written.append(1)
        if len(written) == failing:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="cannot write this file: No space left"):
        cell_of(seed=1).save_pretrained(folder)
    assert len(written) == failing
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_weights_of_another_save_are_refused(folder, tmp_path):
    cell_of(calibration=True, seed=1).save_pretrained(tmp_path / "other", agent_names=NAMES)
    (tmp_path / "other" / "model.safetensors").replace(folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"model\.safetensors: not the weights that config\.json was written with"):
        ConsensusCell.from_pretrained(folder)


def nothing(folder, name):
    (folder / name).unlink()


def garbage(folder, name):
    (folder / name).write_bytes(b"\x00\x01 nothing")


def no_safetensors(folder):
    data = pickle.dumps({"log_beta": 1.0})
    (folder / "model.safetensors").write_bytes(data)
    edited(folder, sha256=hashlib.sha256(data).hexdigest())


ONE = torch.tensor(1.0, dtype=torch.float64)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (lambda f: nothing(f, "config.json"), r"config\.json: there is no such file"),
        (lambda f: nothing(f, "model.safetensors"), r"model\.safetensors: cannot be read \(No such file"),
        (lambda f: garbage(f, "config.json"), r"config\.json: not valid JSON"),
        (lambda f: garbage(f, "model.safetensors"), r"model\.safetensors: not the weights"),
        (no_safetensors, r"model\.safetensors: not safetensors"),
        (lambda f: (f / "config.json").write_text("[1]"), r"config\.json: expected a saved consensus cell .* got list"),
        (lambda f: (f / "config.json").write_text('{"model_type": "llama"}'), r"config\.json: .* schema 2, got None"),
        (lambda f: edited(f, schema_version=3), r"config\.json: .* schema 2, got 3"),
        (lambda f: edited(f, dim=5), r"config\.json: .*\(dim: expected 4, got 5\)"),
        (lambda f: edited(f, agents=True), r"\(agents: expected 5, got True\)"),
        (lambda f: edited(f, slots=3.0), r"config\.json: .*float"),
        (lambda f: edited(f, slots=...), r"there is no 'slots'"),
        (lambda f: edited(f, slots=0), r"slots: expected 1 to 4096, got 0"),
        (lambda f: edited(f, dtype="float32"), r"dtype: expected tensors of float32, got torch.float64"),
        (lambda f: edited(f, vote={"name": "veto"}), r"vote: expected one of quadratic, .*got 'veto'"),
        (lambda f: edited(f, vote={"name": "linear", "temperature": 1}), r"config\.json: .*temperature"),
        (lambda f: edited(f, vote={"name": "plurality"}), r"vote: expected .*temperature"),
        (lambda f: edited(f, vote="quadratic"), r"config\.json: does not fit"),
        (lambda f: edited(f, gate={"mode": "leaky"}), r"config\.json: .*gate\.leak"),
        (lambda f: edited(f, calibration=False), r"Unexpected key.*calibration"),
        (lambda f: edited(f, calibration=1), r"calibration: expected True, got 1"),
        (lambda f: edited(f, _target_="os.system"), r"_target_: expected None, got os.system"),
        (lambda f: edited(f, agent_names=["a"]), r"agent_names: expected 5 different names"),
        (lambda f: edited(f, agent_names=5), r"agent_names: expected 5 different names, got 5"),
        (lambda f: reweighed(f, log_beta=None), r"there is no 'log_beta'"),
        (lambda f: reweighed(f, backing=None), r"Missing key.*backing"),
        (lambda f: edited(f, slots=10**9), r"slots: expected 1 to 4096, got 1000000000"),
        (lambda f: edited(f, slots=10**300), r"slots: expected 1 to 4096, got 1000"),
        (lambda f: edited(f, agent_names=["a", "b", "c", "d", "\x1b[31m"]), r"agent_names: expected 5 different names"),
        (lambda f: edited(f, vote={"name": "\x1b[31m"}), r"expected printable names, got '\\x1b\[31m'"),
        (
            lambda f: reweighed(f, backing=ONE * math.nan),
            r"'backing': expected numbers in \[-1e\+06, 1e\+06\]",
        ),
        (lambda f: reweighed(f, backing=-ONE * math.inf), r"'backing': expected numbers in"),
        (lambda f: reweighed(f, backing=ONE * 1e300), r"'backing': expected numbers in"),
        (lambda f: reweighed(f, log_beta=ONE * 1e30), r"'log_beta': expected numbers in \[-50, 50\], got others"),
        (lambda f: reweighed(f, log_beta=ONE * 60), r"'log_beta': expected numbers in"),
        (lambda f: reweighed(f, log_beta=ONE.to(torch.complex64)), r"'log_beta': expected numbers in"),
        (lambda f: reweighed(f, log_beta=ONE.long()), r"'log_beta': expected numbers in"),
        (
            lambda f: reweighed(f, **{"trust.weight": torch.zeros(0, 10**12).double()}),
            r"dim: expected 1 to 65536, got 5000",
        ),
        (lambda f: reweighed(f, more=ONE), r"Unexpected key.*more"),
        (lambda f: reweighed(f, backing=ONE.float()), r"got torch.float32 and torch.float64"),
        (lambda f: reweighed(f, backing=ONE.expand(2).clone()), r"size mismatch for backing"),
        (lambda f: reweighed(f, **{"trust.weight": ONE}), r"config\.json: does not fit"),
    ],
)
def test_a_faulty_folder_is_refused_in_one_line(folder, fault, line):
    ConsensusCell.from_pretrained(folder)
    fault(folder)
    with pytest.raises(ValueError, match=line) as caught:
        ConsensusCell.from_pretrained(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
