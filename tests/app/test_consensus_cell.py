import pytest
import torch
from omegaconf import OmegaConf

from nsed_torch.app.build import consensus_cell, saved_cell
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.named import NAMED, name_of
from nsed_torch.core.vote import QuadraticVote
from nsed_torch.parts.votes import ApprovalVote


def published():
    return OmegaConf.load(conf_dir() / "consensus" / "published.yaml")


def test_published_config_builds_the_quadratic_vote():
    cell = instantiate(published(), dim=4, agents=3)
    assert isinstance(cell.vote, QuadraticVote)
    assert (name_of("gate", cell.gate), cell.slots) == ("learned", 4)


@pytest.mark.parametrize("vote", NAMED["vote"])
@pytest.mark.parametrize("gate", ["leaky", "notes"])
def test_votes_and_gates_by_name(vote, gate):
    cell = instantiate(OmegaConf.merge(published(), {"vote": vote, "gate": gate}), dim=4, agents=3)
    assert name_of("vote", cell.vote) == vote
    assert name_of("gate", cell.gate) == gate
    assert {p.dtype for p in cell.parameters()} == {torch.float64}


def test_a_vote_of_other_settings():
    config = published()
    config.vote = {"_target_": "nsed_torch.parts.votes.ApprovalVote", "threshold": 0.2}
    vote = instantiate(config, dim=4, agents=3).vote
    assert isinstance(vote, ApprovalVote)
    assert vote.threshold.item() == pytest.approx(0.2)


def test_judges_may_have_a_reading_of_the_scale_each():
    cell = instantiate(OmegaConf.merge(published(), {"calibration": True}), dim=4, agents=3)
    assert cell.calibration.scale.shape == (3,)
    assert cell.calibration.scale.dtype == torch.float64
    assert instantiate(published(), dim=4, agents=3).calibration is None


def test_unknown_vote():
    with pytest.raises(ValueError, match=r"vote: expected one of quadratic, token, .*, got 'veto'"):
        consensus_cell(dim=4, agents=3, vote="veto")


NAMES = "solver", "skeptic", "explainer"


def saved(folder, names=("explainer", "idler", "solver", "skeptic"), dim=4):
    """A cell of a larger pool, of which every agent weighs something else."""
    cell = ConsensusCell(dim, len(names), slots=5)
    with torch.no_grad():
        cell.trust.bias.copy_(torch.arange(1.0, len(names) + 1))
    cell.save_pretrained(folder, agent_names=names)
    return cell


def test_a_saved_cell_serves_a_team_by_name(tmp_path):
    saved(tmp_path)
    cell = saved_cell(str(tmp_path), NAMES)
    assert (cell.agents, cell.slots) == (3, 5)
    assert cell.agent_names == ("solver", "skeptic", "explainer")
    assert cell.trust.bias.tolist() == [3, 4, 1]
    assert {p.dtype for p in cell.parameters()} == {torch.float64}


def test_a_saved_cell_that_does_not_know_the_team(tmp_path):
    saved(tmp_path, ("solver", "skeptic"))
    with pytest.raises(
        ValueError, match=r"config\.json: expected different agents out of solver, skeptic, got solver, "
    ):
        saved_cell(str(tmp_path), NAMES)
