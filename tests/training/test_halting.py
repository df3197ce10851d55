"""Learning when to stop: cheap where nothing is gained, to the end where the last round brings the answer."""

from functools import partial

import pytest
import torch

from nsed_torch.nn import ConsensusCell
from nsed_torch.training.halting import course, fit_halting, halted

ADAM = partial(torch.optim.Adam, lr=0.1)


def test_what_the_rule_sees_adds_up(guesses):
    episodes = guesses(20, rounds=3)
    seen = course(ConsensusCell(8, 4), episodes)
    assert seen.cost[:, -1].mean().item() == pytest.approx(1)
    assert (seen.cost.diff(dim=1) > 0).all()
    episodes.cost[:] = torch.nan
    assert course(ConsensusCell(8, 4), episodes).cost[0].tolist() == pytest.approx([1 / 3, 2 / 3, 1])


def test_a_price_above_all_gain_stops_at_once_and_none_never(guesses):
    cell, test = ConsensusCell(8, 4), guesses(30, rounds=3, seed=2)
    fit = partial(fit_halting, cell, guesses(60, rounds=3), guesses(20, rounds=3, seed=1), optimizer=ADAM, epochs=60)
    dear = halted(fit(price=5.0), cell, test)
    assert (dear.rounds == 1).all()
    rule = fit(price=0.0)
    free = halted(rule, cell, test)
    assert free.right.float().mean() >= dear.right.float().mean()
    # The rule agrees with what a live run would do round by round.
    seen = course(cell, test)
    for r in range(1, 4):
        says = rule(seen.convictions[:, :r], seen.hidden[:, :r])
        assert torch.equal(says, free.rounds <= r)


def test_faults(guesses):
    one, more = guesses(10), guesses(10, rounds=2)
    with pytest.raises(ValueError, match="at least 2 recorded rounds to learn when to stop, got 1: raise rounds"):
        fit_halting(ConsensusCell(8, 4), one, one, price=0.1, optimizer=ADAM)
    with pytest.raises(ValueError, match="halting price of at least 0, got -1"):
        fit_halting(ConsensusCell(8, 4), more, more, price=-1.0, optimizer=ADAM)
