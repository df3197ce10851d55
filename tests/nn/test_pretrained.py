"""Saved cells come back to the last bit, or not at all."""

import hashlib
import json
import os
import pickle

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from nsed_torch.nn import VOTES, Calibration, ConsensusCell, ForgetGate, LearnedHalting, PluralityVote, Reliability

DIM, POOL = 4, 5
NAMES = tuple("abcde")


def cell_of(vote="quadratic", gate="learned", calibration=False, features=False, dtype=torch.float64, seed=0):
    """A cell whose every parameter has left its start."""
    g = torch.Generator().manual_seed(seed)
    phi = torch.randn(POOL, 3, generator=g, dtype=torch.float64) if features else None
    cell = ConsensusCell(
        DIM,
        POOL,
        slots=3,
        vote=VOTES[vote](),
        gate=ForgetGate(gate, leak=0.7, dim=DIM),
        reliability=Reliability(POOL, DIM, features=phi, rank=2),
        calibration=Calibration(POOL) if calibration else None,
    ).to(dtype)
    with torch.no_grad():
        for p in cell.parameters():
            p.add_((torch.randn(p.shape, generator=g) * 0.3).to(dtype))
    return cell


def rounds(voters, dtype=torch.float64):
    """Two recorded rounds of two tasks, four proposals each; the second is where memory speaks."""
    g = torch.Generator().manual_seed(7)
    embeddings, task = torch.randn(2, 2, 4, DIM, generator=g), torch.randn(2, DIM, generator=g)
    ratings = torch.rand(2, 2, voters, 4, generator=g) * 2 - 1
    mask = torch.rand(ratings.shape, generator=g) < 0.8
    return embeddings.to(dtype), ratings.to(dtype), mask, task.to(dtype)


@torch.no_grad()
def outputs(cell, data, **who):
    output, state = cell.unroll(*data, **who)
    return [*output, *state]


def same(ours, theirs):
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def folder(tmp_path):
    """A saved cell with everything that belongs to agents."""
    cell_of(calibration=True).save_pretrained(tmp_path / "cell", agent_names=NAMES)
    return tmp_path / "cell"


def edited(folder, **changes):
    """Rewrite settings of a saved cell."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not ...}))


def reweighed(folder, **changes):
    """Rewrite tensors, with a hash that fits."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | changes
    save_file({key: value for key, value in tensors.items() if value is not None}, path)
    edited(folder, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("vote", VOTES)
@pytest.mark.parametrize("gate", ["learned", "leaky", "vector", "none"])
@pytest.mark.parametrize(("calibration", "features"), [(False, False), (True, True)])
def test_outputs_are_equal_to_the_last_bit(tmp_path, vote, gate, calibration, features):
    cell = cell_of(vote, gate, calibration, features)
    cell.save_pretrained(tmp_path, agent_names=NAMES)
    before = torch.get_rng_state()
    loaded = ConsensusCell.from_pretrained(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    data = rounds(POOL)
    assert same(outputs(cell, data), outputs(loaded, data))
    assert str(loaded) == str(cell)
    assert loaded.fingerprint() == cell.fingerprint()
    assert all(p.requires_grad for p in loaded.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("features", [False, True])
def test_dtype_is_kept(tmp_path, dtype, features):
    cell = cell_of(gate="leaky", features=features, calibration=True, dtype=dtype)
    cell.save_pretrained(tmp_path)
    loaded = ConsensusCell.from_pretrained(tmp_path)
    ours, theirs = ({**c.state_dict(), **dict(c.named_buffers())} for c in (cell, loaded))
    assert ours.keys() == theirs.keys()
    assert {value.dtype for value in theirs.values()} == {dtype}
    assert same(ours.values(), theirs.values())


def test_save_load_save_writes_the_same_bytes(tmp_path):
    cell = cell_of("entmax", "vector", True, True)
    cell.agent_names = NAMES
    cell.save_pretrained(tmp_path / "one")
    again = ConsensusCell.from_pretrained(tmp_path / "one")
    assert again.agent_names == NAMES
    again.save_pretrained(tmp_path / "two")
    files = ["README.md", "config.json", "model.safetensors"]
    assert [sorted(p.name for p in (tmp_path / d).iterdir()) for d in ("one", "two")] == [files, files]
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)


def test_settings_of_a_vote_are_kept(tmp_path):
    ConsensusCell(DIM, POOL, vote=PluralityVote(temperature=3.0)).save_pretrained(tmp_path)
    assert ConsensusCell.from_pretrained(tmp_path).vote.temperature == 3


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("team", ["dba", "c", "edcba"])
def test_a_team_of_the_pool_votes_as_it_did_within_it(tmp_path, features, team):
    cell = cell_of(calibration=True, features=features)
    cell.save_pretrained(tmp_path, agent_names=NAMES)
    picked = ConsensusCell.from_pretrained(tmp_path, agents=list(team))
    assert (picked.agents, picked.agent_names) == (len(team), tuple(team))
    data = rounds(len(team))
    index = torch.tensor([NAMES.index(name) for name in team]).expand(2, 2, -1)
    for ours, theirs in zip(outputs(cell, data, voters=index), outputs(picked, data), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    picked.save_pretrained(tmp_path / "team")
    assert same(outputs(ConsensusCell.from_pretrained(tmp_path / "team"), data), outputs(picked, data))


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


class OwnVote(VOTES["linear"]):
    """Another's."""


def with_part(name, part):
    cell = cell_of()
    setattr(cell, name, part)
    return cell


@pytest.mark.parametrize(
    ("cell", "names", "line"),
    [
        (with_part("vote", OwnVote()), None, "cell.vote: expected a part that nsed_torch.nn knows, got OwnVote"),
        (with_part("gate", torch.nn.Identity()), None, "cell.gate: expected a part .* got Identity"),
        (with_part("reliability", torch.nn.Identity()), None, "cell.reliability: expected a part .* got Identity"),
        (with_part("calibration", torch.nn.Identity()), None, "cell.calibration: expected a part .* got Identity"),
        (with_part("gate", ForgetGate(dtype=torch.float32)), None, "one dtype, got float32 and float64: call cell.d"),
        (with_part("calibration", Calibration(2).double()), None, "could not be loaded again: .*size mismatch.*scale"),
        (with_part("reliability", Reliability(3, DIM).double()), None, "loaded again: agents: expected 3, got 5"),
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


def test_other_files_of_the_folder_stay(folder):
    (folder / "metrics.json").write_text("{}")
    cell_of(seed=1).save_pretrained(folder)
    assert (folder / "metrics.json").read_text() == "{}"
    assert ConsensusCell.from_pretrained(folder).fingerprint() == cell_of(seed=1).fingerprint()


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
        (lambda f: (f / "config.json").write_text('{"model_type": "llama"}'), r"config\.json: .* schema 1, got None"),
        (lambda f: edited(f, schema_version=2), r"config\.json: .* schema 1, got 2"),
        (lambda f: edited(f, dim=5), r"config\.json: .*\(dim: expected 4, got 5\)"),
        (lambda f: edited(f, agents=True), r"\(agents: expected 5, got True\)"),
        (lambda f: edited(f, slots=3.0), r"config\.json: .*float"),
        (lambda f: edited(f, slots=...), r"there is no 'slots'"),
        (lambda f: edited(f, slots=0), r"expected dim, agents and slots of at least 1"),
        (lambda f: edited(f, dtype="float32"), r"dtype: expected tensors of float32, got torch.float64"),
        (lambda f: edited(f, vote={"name": "veto"}), r"there is no 'veto'"),
        (lambda f: edited(f, vote={"name": "linear", "temperature": 1}), r"config\.json: .*temperature"),
        (lambda f: edited(f, vote={"name": "plurality"}), r"vote: expected .*temperature"),
        (lambda f: edited(f, vote="quadratic"), r"config\.json: does not fit"),
        (lambda f: edited(f, gate={"mode": "leaky"}), r"config\.json: .*gate\.leak"),
        (lambda f: edited(f, calibration=False), r"Unexpected key.*calibration"),
        (lambda f: edited(f, calibration=1), r"calibration: expected True, got 1"),
        (lambda f: edited(f, reliability={"features": 3, "rank": 1}), r"reliability: expected"),
        (lambda f: edited(f, _target_="os.system"), r"_target_: expected None, got os.system"),
        (lambda f: edited(f, agent_names=["a"]), r"agent_names: expected 5 different names"),
        (lambda f: edited(f, agent_names=5), r"agent_names: expected 5 different names, got 5"),
        (lambda f: reweighed(f, log_beta=None), r"there is no 'log_beta'"),
        (lambda f: reweighed(f, kappa=None), r"Missing key.*kappa"),
        (lambda f: reweighed(f, more=ONE), r"Unexpected key.*more"),
        (lambda f: reweighed(f, kappa=ONE.float()), r"got torch.float32 and torch.float64"),
        (lambda f: reweighed(f, kappa=ONE.expand(2).clone()), r"size mismatch for kappa"),
        (lambda f: reweighed(f, **{"reliability.weight": ONE}), r"config\.json: does not fit"),
    ],
)
def test_a_faulty_folder_is_refused_in_one_line(folder, fault, line):
    ConsensusCell.from_pretrained(folder)
    fault(folder)
    with pytest.raises(ValueError, match=line) as caught:
        ConsensusCell.from_pretrained(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_where_a_cell_is_looked_for(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    folder.rename("owner/name")
    assert ConsensusCell.from_pretrained("owner/name").agents == POOL  # a folder here comes before the Hub
    (tmp_path / "file").touch()
    for wrong in ("file", "nowhere", "a/b/c", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="expected the folder of a saved cell, got none there: check the path"):
            ConsensusCell.from_pretrained(wrong)


def test_the_hub_is_asked_for_our_files_alone(folder, tmp_path, monkeypatch):
    """A repo in the Hub's own cache layout, found without a network; a repo that is not there is one line."""
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    commit = "0" * 40
    repo = tmp_path / "hub" / "models--owner--name"
    (repo / "snapshots").mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    folder.rename(repo / "snapshots" / commit)
    download, asked = huggingface_hub.snapshot_download, []

    def cached(*args, **options):
        asked.append(options)
        return download(*args, **options, cache_dir=tmp_path / "hub", local_files_only=True)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert ConsensusCell.from_pretrained("owner/name", revision=commit).agent_names == NAMES
    files = ["config.json", "model.safetensors", "README.md", "halting.safetensors"]
    assert (asked[0]["allow_patterns"], asked[0]["revision"]) == (files, commit)
    with pytest.raises(
        ValueError, match=r"^owner/other: no such folder, and none on the Hugging Face Hub \("
    ) as caught:
        ConsensusCell.from_pretrained("owner/other")
    assert "\n" not in str(caught.value)


def front_matter(folder):
    text = (folder / "README.md").read_text()
    _, head, body = text.split("---\n", 2)
    return yaml.safe_load(head), body


def test_the_card(tmp_path):
    cell = ConsensusCell(DIM, 2, calibration=Calibration(2))
    with torch.no_grad():
        cell.reliability.weight[0, 0] = 3
        cell.reliability.weight[1, 1] = -4
    names = ['ev"il`\n---\n# x', "b|c"]
    cell.save_pretrained(tmp_path, agent_names=names, card="## Measured\n\n{accuracy} 80%\n\n")
    head, body = front_matter(tmp_path)
    assert head["library_name"] == "nsed_torch"
    assert head["license"] == "apache-2.0"
    assert "nsed_torch" in head["tags"]
    assert "| `reliability.weight` | [2, 8] | 5 | 4 |" in body
    rows = [line for line in body.splitlines() if line.startswith("| `") and line != rows_of_weight(body)]
    assert len(rows) == len(list(cell.parameters())) - 1
    assert all(line.endswith("| 0 | 0 |") for line in rows)
    assert f"    {json.dumps(names)}\n" in body
    assert cell.fingerprint() in body
    assert body.endswith("\n\n## Measured\n\n{accuracy} 80%\n")


def rows_of_weight(body):
    return next(line for line in body.splitlines() if line.startswith("| `reliability.weight`"))


def test_the_card_of_a_cell_on_features(tmp_path):
    cell_of(features=True).save_pretrained(tmp_path)
    _, body = front_matter(tmp_path)
    assert "| reliability | rank 2, from 3 features |" in body
    assert "| `reliability.left` | [3, 2] | starts at random | |" in body
    assert "The agents have no names" in body


def test_the_fingerprint_tells_cells_apart():
    cells = [cell_of(), cell_of(seed=1), cell_of("linear"), cell_of(dtype=torch.float32), cell_of(features=True)]
    other = cell_of(features=True)
    other.reliability.features[0, 0] += 1  # outside the state dict
    prints = [cell.fingerprint() for cell in [*cells, other]]
    assert len(set(prints)) == len(prints)
    assert cell_of().fingerprint() == prints[0]
    assert with_part("vote", OwnVote()).fingerprint() not in prints  # a transcript of one's own parts has one too


def test_loading_runs_no_pickle(folder, monkeypatch):
    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a pickle was read"))
    assert ConsensusCell.from_pretrained(folder).agents == POOL


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trained_halting_rule(folder, dtype):
    rule = LearnedHalting(DIM, rounds=5).to(dtype)
    with torch.no_grad():
        rule.weight.normal_(generator=torch.Generator().manual_seed(0))
    rule.save_pretrained(folder)
    loaded = LearnedHalting.from_pretrained(folder)
    assert (loaded.dim, loaded.rounds, loaded.bias.dtype) == (DIM, 5, dtype)
    convictions, hidden = torch.rand(3, 4, dtype=dtype), torch.rand(3, 4, DIM, dtype=dtype)
    assert torch.equal(loaded.logits(convictions, hidden), rule.logits(convictions, hidden))
    assert ConsensusCell.from_pretrained(folder).agents == POOL


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "expected a trained halting rule, got none there"),
        (b"garbage", "not a trained halting rule"),
        ({"weight": torch.zeros(6), "bias": torch.tensor(0.0)}, "not a trained halting rule"),
    ],
)
def test_a_faulty_halting_rule(folder, content, line):
    path = folder / "halting.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        save_file(content, path)
    with pytest.raises(ValueError, match=line) as caught:
        LearnedHalting.from_pretrained(folder)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
