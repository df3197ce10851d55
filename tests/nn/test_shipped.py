"""Tuned cells and brokers that ship are loaded by the name of their team."""

import pytest

from nsed_torch.nn import ConsensusCell, LearnedBroker
from nsed_torch.nn.pretrained import shipped

EXPERTS = ("sums", "siblings", "words", "relations", "generalist")


def test_the_experts_cell_and_broker_know_their_agents():
    cell = ConsensusCell.from_pretrained("experts")
    assert cell.agent_names == EXPERTS
    assert any(not parameter.eq(0).all() for parameter in cell.trust.parameters())
    assert LearnedBroker.from_pretrained("experts").agents == EXPERTS


@pytest.mark.parametrize("name", ["nobody", "../cells/experts", "Experts", "experts/"])
def test_no_other_name_is_one(name):
    assert shipped(name) is None
