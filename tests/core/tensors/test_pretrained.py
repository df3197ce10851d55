"""Saved cells come back to the last bit."""

import json
import pickle

import pytest
import torch
import yaml
from saved_cells import DIM, NAMES, POOL, OwnVote, cell_of, reweighed, with_part

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.named import NAMED
from nsed_torch.core.trust import Calibration
from nsed_torch.parts.votes import PluralityVote


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


@pytest.mark.parametrize("vote", NAMED["vote"])
@pytest.mark.parametrize("gate", ["learned", "notes", "leaky", "none"])
@pytest.mark.parametrize("calibration", [False, True])
def test_outputs_are_equal_to_the_last_bit(tmp_path, vote, gate, calibration):
    cell = cell_of(vote, gate, calibration)
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
def test_dtype_is_kept(tmp_path, dtype):
    cell = cell_of(gate="leaky", calibration=True, dtype=dtype)
    cell.save_pretrained(tmp_path)
    loaded = ConsensusCell.from_pretrained(tmp_path)
    ours, theirs = ({**c.state_dict(), **dict(c.named_buffers())} for c in (cell, loaded))
    assert ours.keys() == theirs.keys()
    assert {value.dtype for value in theirs.values()} == {dtype}
    assert same(ours.values(), theirs.values())


def test_save_load_save_writes_the_same_bytes(tmp_path):
    cell = cell_of("entmax", "notes", True)
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


@pytest.mark.parametrize("team", ["dba", "c", "edcba"])
def test_a_team_of_the_pool_votes_as_it_did_within_it(tmp_path, team):
    cell = cell_of(calibration=True)
    cell.save_pretrained(tmp_path, agent_names=NAMES)
    picked = ConsensusCell.from_pretrained(tmp_path, agents=list(team))
    assert (picked.agents, picked.agent_names) == (len(team), tuple(team))
    data = rounds(len(team))
    index = torch.tensor([NAMES.index(name) for name in team]).expand(2, 2, -1)
    for ours, theirs in zip(outputs(cell, data, voters=index), outputs(picked, data), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    picked.save_pretrained(tmp_path / "team")
    assert same(outputs(ConsensusCell.from_pretrained(tmp_path / "team"), data), outputs(picked, data))


def test_other_files_of_the_folder_stay(folder):
    (folder / "metrics.json").write_text("{}")
    cell_of(seed=1).save_pretrained(folder)
    assert (folder / "metrics.json").read_text() == "{}"
    assert ConsensusCell.from_pretrained(folder).fingerprint() == cell_of(seed=1).fingerprint()


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
    files = ["config.json", "model.safetensors", "README.md", "conformal.safetensors", "rounds.safetensors"]
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
    names = ['ev"il` --- # x', "b|c"]
    cell.save_pretrained(tmp_path, agent_names=names, card="## Measured\n\n{accuracy} 80%\n\n")
    head, body = front_matter(tmp_path)
    assert head["library_name"] == "nsed_torch"
    assert head["license"] == "apache-2.0"
    assert "nsed_torch" in head["tags"]
    block = [line for line in body.splitlines() if line.startswith("    ")]
    assert json.loads("\n".join(block)) == json.loads((tmp_path / "config.json").read_text())
    assert "# x" not in body.splitlines()
    assert cell.fingerprint() in body
    assert body.endswith("\n\n## Measured\n\n{accuracy} 80%\n")


def test_cells_saved_with_a_pull_that_was_never_tuned_are_read(folder):
    """Earlier cells had kappa, a pull of the state on support; one that was tuned is refused."""
    before = ConsensusCell.from_pretrained(folder).fingerprint()
    reweighed(folder, kappa=torch.zeros((), dtype=torch.float64))
    assert ConsensusCell.from_pretrained(folder).fingerprint() == before
    reweighed(folder, kappa=torch.ones((), dtype=torch.float64))
    with pytest.raises(ValueError, match=r"expected no pull of the state on support \(kappa\), which has left"):
        ConsensusCell.from_pretrained(folder)


def test_the_fingerprint_tells_cells_apart():
    cells = [cell_of(), cell_of(seed=1), cell_of("linear"), cell_of(dtype=torch.float32)]
    prints = [cell.fingerprint() for cell in cells]
    assert len(set(prints)) == len(prints)
    assert cell_of().fingerprint() == prints[0]
    assert with_part("vote", OwnVote()).fingerprint() not in prints  # a transcript of one's own parts has one too


def test_loading_runs_no_pickle(folder, monkeypatch):
    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a pickle was read"))
    assert ConsensusCell.from_pretrained(folder).agents == POOL
