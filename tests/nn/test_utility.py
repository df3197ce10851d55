import pytest
import torch
from safetensors.torch import save_file

from nsed_torch.nn.broker import KnapsackBroker, SmoothedBroker
from nsed_torch.nn.utility import Utility


def test_all_agents_are_worth_one_at_the_start():
    u = Utility(3, 2, 4)(torch.randn(5, 4), torch.randn(3, 3), torch.randn(5, 4))
    assert torch.equal(u, torch.ones(5, 3, 2))


def test_formula():
    torch.manual_seed(0)
    utility = Utility(3, 2, 4).double()
    for parameter in utility.parameters():
        torch.nn.init.normal_(parameter)
    x, h, f = torch.randn(2, 4).double(), torch.randn(2, 4).double(), torch.randn(2, 3, 3).double()
    u = utility(x, f, h)
    for b, a, r in ((0, 0, 0), (1, 2, 1)):
        fit = sum((utility.weight[a, r] * torch.cat([x[b], h[b]])).tolist())
        track = sum((utility.telemetry_weight[r] * f[b, a]).tolist())
        assert u[b, a, r].item() == pytest.approx(1 + utility.bias[a, r].item() + fit + track)
    torch.testing.assert_close(utility(x, f[0])[0], utility(x, f, torch.zeros_like(h))[0])


def test_gradients():
    utility = Utility(2, 1, 3).double()
    inputs = [torch.randn(2, 3).double(), torch.randn(2, 3).double(), torch.randn(2, 3).double()]
    torch.nn.init.normal_(utility.weight)
    assert torch.autograd.gradcheck(utility, [x.requires_grad_() for x in inputs])


def test_training_through_the_smoothed_broker_finds_the_specialists():
    """Two kinds of tasks, one agent good at each, money for one agent."""
    torch.manual_seed(0)
    task = torch.eye(2).repeat(8, 1)
    utility, broker = Utility(2, 1, 2), SmoothedBroker(["money"], 0.2)
    optimizer = torch.optim.Adam(utility.parameters(), lr=0.1)
    costs, budgets = torch.ones(16, 2, 1, 1), torch.ones(16, 1)
    sizes = {"minimum": torch.tensor([0]), "maximum": torch.tensor([2])}
    telemetry = torch.zeros(2, 3)
    for _ in range(30):
        shares = broker(utility(task, telemetry), costs, budgets, **sizes).shares[..., 0]
        optimizer.zero_grad()
        (-(shares * task).sum(1).mean()).backward()
        optimizer.step()
    team = KnapsackBroker(["money"])(utility(task, telemetry), costs, budgets, **sizes)
    assert torch.equal(team[..., 0], task > 0)


def test_bad_sizes():
    with pytest.raises(ValueError, match="agents, roles and dim of at least 1"):
        Utility(0, 1, 1)
    assert repr(Utility(3, 2, 4)) == "Utility(agents=3, roles=2, dim=4, features=3)"


def trained(agents=("ann", "bob", "cyd"), seed=0):
    utility = Utility(len(agents), 2, 4).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in utility.parameters():
            parameter.normal_(generator=generator)
    utility.agent_names, utility.encoder = tuple(agents), {"name": "hashed", "dim": 4}
    return utility


def test_a_saved_utility_comes_back_to_the_last_bit(tmp_path):
    path, again = tmp_path / "deep/utility.safetensors", tmp_path / "again.safetensors"
    trained().save_pretrained(path)
    found = Utility.from_pretrained(path)
    assert found.state_dict().keys() == trained().state_dict().keys()
    assert all(torch.equal(value, trained().state_dict()[name]) for name, value in found.state_dict().items())
    assert (found.agent_names, found.encoder) == (("ann", "bob", "cyd"), {"name": "hashed", "dim": 4})
    found.save_pretrained(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_team_is_picked_by_name_in_its_own_order(tmp_path):
    path = tmp_path / "utility.safetensors"
    trained().save_pretrained(path)
    team = Utility.from_pretrained(path, agents=["cyd", "ann"])
    task, track = torch.randn(5, 4).double(), torch.randn(3, 3).double()
    torch.testing.assert_close(team(task, track[[2, 0]]), trained()(task, track)[:, [2, 0]])
    assert team.agent_names == ("cyd", "ann")
    team.check(["cyd", "ann"], {"dim": 4, "name": "hashed"})
    Utility(2, 2, 4).check(["anybody"], {"name": "whatever"})


@pytest.mark.parametrize(
    ("agents", "line"),
    [
        (["ann", "eve"], "expected different agents out of ann, bob, cyd, got ann, eve: train it anew"),
        (["ann", "ann"], "expected different agents out of ann, bob, cyd, got ann, ann: train it anew"),
        ([], "expected different agents out of ann, bob, cyd, got none: train it anew"),
    ],
)
def test_agents_it_does_not_know_are_refused(tmp_path, agents, line):
    path = tmp_path / "utility.safetensors"
    trained().save_pretrained(path)
    with pytest.raises(ValueError, match=f"^{path}: {line}$"):
        Utility.from_pretrained(path, agents=agents)


def test_another_team_or_encoder_is_refused():
    with pytest.raises(
        ValueError, match=r"^utility: expected the agents ann, bob, cyd, got ann, bob: load it for them$"
    ):
        trained().check(["ann", "bob"], {"name": "hashed", "dim": 4})
    with pytest.raises(
        ValueError, match=r'^utility: expected the encoder {"name": "hashed", "dim": 4}, got {"dim": 8}: '
    ):
        trained().check(["ann", "bob", "cyd"], {"dim": 8})


def test_what_is_no_trained_utility_is_one_line(tmp_path):
    missing, text, other = (tmp_path / name for name in ("missing", "text", "other"))
    text.write_text("no tensors")
    save_file({"weight": torch.zeros(2, 2, 8)}, other)
    for path, line in (
        (missing, "expected a trained utility, got none there: check the path"),
        (text, r"not a trained utility \(.*\): train it again"),
        (other, r"not a trained utility \(.*\): train it again"),
    ):
        with pytest.raises(ValueError, match=f"^{path}: {line}$") as caught:
            Utility.from_pretrained(path)
        assert "\n" not in str(caught.value)
    torn = tmp_path / "torn"
    trained().save_pretrained(torn)
    torn.write_bytes(torn.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"^.*torn: not a trained utility"):
        Utility.from_pretrained(torn)


def test_without_names_and_encoder_nothing_is_saved(tmp_path):
    with pytest.raises(
        ValueError, match="expected agent_names and encoder to save with it, got None and None: set both"
    ):
        Utility(2, 2, 4).save_pretrained(tmp_path / "utility.safetensors")
    assert not list(tmp_path.iterdir())
