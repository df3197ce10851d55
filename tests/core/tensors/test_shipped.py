"""Tuned cells and brokers that ship are loaded by the name of their team, adapters by their own."""

import pytest
from omegaconf import OmegaConf

from nsed_torch.app.config.paths import options_of
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.engines.adapters import adapter_folder
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.parts.saved_cells import shipped

EXPERTS = ("sums", "siblings", "words", "relations", "generalist")


def test_the_experts_cell_and_broker_know_their_agents():
    cell = ConsensusCell.from_pretrained("experts")
    assert cell.agent_names == EXPERTS
    assert any(not parameter.eq(0).all() for parameter in cell.trust.parameters())
    assert LearnedBroker.from_pretrained("experts").agents == EXPERTS


@pytest.mark.parametrize("name", ["nobody", "../cells/experts", "Experts", "experts/"])
def test_no_other_name_is_one(name):
    assert shipped(name) is None


@pytest.mark.parametrize("path", list(options_of("ensemble")), ids=lambda path: path.stem)
def test_adapters_that_an_ensemble_names_ship(path):
    engines = OmegaConf.to_container(OmegaConf.load(path), resolve=False).get("engines") or {}
    for name, place in [pair for engine in engines.values() for pair in (engine.get("adapters") or {}).items()]:
        assert adapter_folder(name, place).is_dir()
