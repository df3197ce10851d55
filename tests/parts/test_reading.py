import pytest
import torch
from torch.autograd import gradcheck

from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.election import RoundInput
from nsed_torch.parts.reading import Reading, of_voters
from nsed_torch.parts.saved_cells import with_strangers

REAL = torch.float64
NAN = float("nan")
EVERYBODY = torch.tensor([[0, 1, 2]])


def reading(**kept):
    module = Reading(3, ["length", "digits"], ["law", "physics"]).double()
    with torch.no_grad():
        for name, value in kept.items():
            getattr(module, name).copy_(torch.tensor(value, dtype=REAL))
    return module


def ballots_of(batch=1):
    """Everybody rates the two others, +1 and -1."""
    ratings = torch.tensor([[NAN, 1.0, -1.0], [1.0, NAN, -1.0], [1.0, -1.0, NAN]], dtype=REAL).expand(batch, -1, -1)
    return ratings, ~ratings.isnan()


def test_habits_are_mean_and_deviation_of_what_is_known():
    features = torch.tensor([[[1.0], [5.0]], [[3.0], [5.0]], [[NAN], [5.0]]], dtype=REAL)
    module = Reading(2, ["length"]).double().learn_habits(features)
    assert module.mean.tolist() == [[2.0], [5.0]]
    assert module.deviation[0].item() == pytest.approx(1.0)
    # What never varies for an agent is measured by what varies over all of them.
    assert module.deviation[1].item() == pytest.approx((2.0 / 5) ** 0.5)
    z = module.against_habits(torch.tensor([[[9.0], [NAN], [2.5]]], dtype=REAL), torch.tensor([[0, 1, -1]]))
    assert z.tolist() == [[[3.0], [0.0], [0.0]]]


def test_a_fresh_reading_changes_nothing():
    ratings, mask = ballots_of()
    features = torch.randn(1, 3, 2, dtype=REAL, generator=torch.Generator().manual_seed(0))
    asked = {"voters": EVERYBODY, "authors": EVERYBODY, "features": features, "category": torch.tensor([1])}
    task = torch.zeros(1, 4, dtype=REAL)
    plain = ConsensusCell(4, 3).double().elect(RoundInput(ratings, mask, voters=EVERYBODY, authors=EVERYBODY), task)
    read = ConsensusCell(4, 3, reading=reading()).double().elect(RoundInput(ratings, mask, **asked), task)
    for mine, other in zip(read, plain, strict=True):
        assert torch.equal(mine, other)


def test_trust_goes_by_what_the_voter_said_and_support_by_what_is_said():
    module = reading(trust=[[2.0, 0.0], [0.0] * 2, [0.0] * 2], score=[0.0, 0.5], category=[[0, 0], [0, -3.0], [0, 0]])
    cell = ConsensusCell(4, 3, reading=module).double()
    ratings, mask = ballots_of()
    said = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]], dtype=REAL)
    everybody, task = {"voters": EVERYBODY, "authors": EVERYBODY}, torch.zeros(1, 4, dtype=REAL)
    found = cell.elect(RoundInput(ratings, mask, **everybody, features=said, category=torch.tensor([1])), task)
    assert found.trust.tolist() == [[3.0, -2.0, 1.0]]
    voted = (found.trust[:, :, None] * found.ballots).sum(1)
    torch.testing.assert_close(found.support, voted + torch.tensor([[0.0, 1.0, 0.0]], dtype=REAL))
    # Neither features nor a category that is known: as without them.
    unknown = {"features": torch.full_like(said, NAN), "category": torch.tensor([-1])}
    unread = cell.elect(RoundInput(ratings, mask, **everybody, **unknown), task)
    assert unread.trust.tolist() == [[1.0, 1.0, 1.0]]


def test_what_is_common_to_all_voters_adds_to_what_is_peculiar_to_one():
    module = reading(common=[0.5, -1.0], trust=[[2.0, 0.0], [0.0] * 2, [0.0] * 2])
    own = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]], dtype=REAL)
    assert module.trust_shift(own, EVERYBODY).tolist() == [[2.5, -0.5, 0.0]]


def test_a_masked_voter_is_a_deleted_one():
    module = reading(trust=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], score=[0.3, 0.1])
    cell = ConsensusCell(4, 3, reading=module).double()
    ratings, mask = ballots_of()
    said = torch.randn(1, 3, 2, dtype=REAL, generator=torch.Generator().manual_seed(1))
    there = torch.tensor([[True, True, False]])
    task = torch.zeros(1, 4, dtype=REAL)
    two = torch.tensor([[0, 1, -1]])
    masked = RoundInput(ratings, mask, two, two, features=said, proposal_mask=there, voter_mask=there)
    whole = cell.elect(masked, task)
    two = two[:, :2]
    part = cell.elect(RoundInput(ratings[:, :2, :2], mask[:, :2, :2], two, two, features=said[:, :2]), task)
    torch.testing.assert_close(whole.support[:, :2], part.support)
    torch.testing.assert_close(whole.trust[:, :2], part.trust)
    assert whole.winner.tolist() == part.winner.tolist()


def test_gradcheck_through_features_and_classes():
    ratings, mask = ballots_of(2)
    cell = ConsensusCell(4, 3, reading=reading()).double()
    names, values = zip(
        *[(n, p) for n, p in cell.named_parameters() if n.startswith(("reading", "trust.bias"))], strict=True
    )
    classes = torch.tensor([[0, 1, 0], [0, 0, 0]])
    said = torch.randn(2, 3, 2, dtype=REAL, generator=torch.Generator().manual_seed(2))

    def consensus(features, *parameters):
        given = dict(zip(names, parameters, strict=True))
        kwargs = {
            "voters": EVERYBODY.expand(2, -1), "authors": EVERYBODY.expand(2, -1), "classes": classes,
            "category": torch.tensor([0, 1]), "features": features,
        }  # fmt: skip
        election = torch.func.functional_call(
            Electing(cell), {f"cell.{n}": p for n, p in given.items()}, (ratings, mask), kwargs
        )
        return election.consensus, election.answer_support

    moved = [(value.detach() + 0.1 * torch.randn_like(value)).requires_grad_() for value in values]
    assert gradcheck(consensus, (said.requires_grad_(), *moved))


class Electing(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, ratings, mask, **kwargs):
        return self.cell.elect(RoundInput(ratings, mask, **kwargs), torch.zeros(len(ratings), 4, dtype=REAL))


def test_voters_without_a_proposal_said_nothing():
    z = torch.tensor([[[1.0], [3.0]]])
    own = of_voters(z, torch.tensor([[0, 5]]), torch.tensor([[0, 0]]), torch.ones(1, 2, dtype=torch.bool))
    assert own.tolist() == [[[2.0], [0.0]]]


def test_saved_and_loaded_for_other_agents(tmp_path):
    module = reading(trust=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], score=[0.3, 0.1])
    cell = ConsensusCell(4, 3, reading=module).double()
    cell.save_pretrained(tmp_path, agent_names=["a", "b", "c"])
    team = ConsensusCell.from_pretrained(tmp_path, agents=["c", "a"])
    assert team.reading.trust.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert (team.reading.features, team.reading.categories) == (("length", "digits"), ("law", "physics"))
    larger = with_strangers(cell, 1)
    assert larger.reading.trust.tolist()[3] == [0.0, 0.0]
    torch.testing.assert_close(larger.reading.mean[3], module.mean.mean(0))


def test_nothing_to_read():
    with pytest.raises(ValueError, match="expected different names of features or categories, got"):
        Reading(3, [])
    with pytest.raises(ValueError, match="expected different names"):
        Reading(3, ["length", "length"])


def test_categories_alone_are_saved_too(tmp_path):
    cell = ConsensusCell(4, 3, reading=Reading(3, [], ["law"])).double()
    cell.save_pretrained(tmp_path)
    assert ConsensusCell.from_pretrained(tmp_path).reading.categories == ("law",)
