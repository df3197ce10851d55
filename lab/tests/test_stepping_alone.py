"""Towers done step by step, by each member alone and by all: who errs, how often together, and how far that goes."""

import itertools
import math
import random

import pytest

from nsed_lab.stepwise import stepwise_tasks
from nsed_torch.app.build import consensus_cell
from nsed_torch.app.verbs.evaluate import expected_costs, told_lines
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.horizon import VOTE, horizons, step_errors
from nsed_torch.evaluation.run_methods import Contest, alone
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.records.outcome import Verdict

NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def towers():
    """Of two, three and four disks, twenty times each."""
    pytest.importorskip("reasoning_gym")
    disks = {f"{n}": {"family": "tower_of_hanoi", "min_disks": n, "max_disks": n, "max_pegs": 3} for n in (2, 3, 4)}
    return stepwise_tasks(disks, 3, seed=1).repeated(20)


@pytest.fixture
def rnn(towers, team):
    """Each slips at a work of its own, half of the time, and is lost behind it; dog writes all in one text."""
    chains = [[task.start, *towers.chains[towers.group(task)]] for task in towers.tasks[:3]]
    following = {a: b for chain in chains for a, b in itertools.pairwise(chain)}
    slips = {chain[1 + place]: name for chain in chains for place, name in enumerate(NAMES)}

    def write(request):
        draw, text = random.Random(request.seed), request.messages[-1].content
        if request.agent == "dog":
            chain = next(c for task, c in zip(towers.tasks, chains, strict=False) if task.question in text)
            return "\n".join(chain[1:] if draw.random() < 0.5 else chain[1:3] + chain[-1:])
        work = team.fenced(request)[-1]
        return "slipped" if slips.get(work) == request.agent and draw.random() < 0.5 else following.get(work, "lost")

    agents = [Agent(name, "s", decoding=Decoding(400, 0.7)) for name in (*NAMES, "dog")]
    cell = MacroRNNCell(
        Ensemble({"s": ScriptedEngine(write, lambda *_: 0.0)}, agents),
        HashedEncoder(8),
        consensus_cell(dim=8, agents=4, slots=1),
        rating=AgreementRating(),
        protocol=Protocol(unit="step"),
    )
    return MacroRNN(cell, halting=FixedHalting(24), without=["dog"])


def test_a_member_alone_is_lost_where_it_slips_and_the_team_goes_on(rnn, towers):
    contested = Contest(rnn, towers, {}, batch_tasks=60).run(["deliberation", "single", "best_single"])
    right = {
        name: [o.verdict is Verdict.RIGHT for o in contested.outcomes if o.method == name]
        for name in ("deliberation", "best_single", *(f"single:{agent}" for agent in (*NAMES, "dog")))
    }
    assert all(right.pop("deliberation"))
    assert all(0.2 < sum(flags) / 60 < 0.8 for flags in right.values())
    found = {(o.method, o.task): o for o in contested.outcomes}
    task = towers.tasks[0]
    for name in NAMES:
        one = found[f"single:{name}", task.id]
        assert one.usage.calls == len(one.text.splitlines())
        assert (one.verdict is Verdict.RIGHT) == (one.text == "\n".join(towers.chains[task.id]))
    lengths = {name: len(chain) for name, chain in towers.chains.items()}
    found = horizons(contested.outcomes, lengths)
    assert found["deliberation"].steps == math.inf
    assert list(found) == ["deliberation", *(f"single:{name}" for name in (*NAMES, "dog")), "best_single"]


def test_errors_are_counted_behind_right_work(rnn, towers):
    contested = Contest(rnn, towers, {}, batch_tasks=60).run(["deliberation"])
    found = step_errors(contested.traces)
    steps = sum(len(towers.chains[towers.group(task)]) for task in towers.tasks)
    assert {name: error.n for name, error in found["wrong"].items()} == dict.fromkeys((*NAMES, VOTE), steps)
    assert all(15 < round(found["wrong"][name].mean * steps) < 45 for name in NAMES)
    assert (found["wrong"][VOTE].mean, found["both_wrong"]["ant, bee"].mean) == (0, 0)
    assert found["foretold"]["ant"] == pytest.approx(math.log(0.5) / math.log1p(-found["wrong"]["ant"].mean))
    singles = Contest(rnn, towers, {}, batch_tasks=60).run(["single"]).outcomes
    for name in NAMES:
        right = [o.verdict is Verdict.RIGHT for o in singles if o.method == f"single:{name}"]
        assert (found["alone"][name].mean, found["alone"][name].n) == (pytest.approx(sum(right) / 60), 60)
    lines = told_lines(contested, towers)
    assert lines[0].endswith("every step is right; the answer is right")
    assert lines[-2] == "voted to finish within 2 steps of the end: 1.00 of 60"
    assert lines[-4].startswith("wrong steps, of those whose work was right: ant 0.0")
    assert [line.split(",")[0] for line in lines[-7:-4]] == [f"wrong steps of {disks}" for disks in "234"]
    assert lines[-1] == "horizon of deliberation: inf steps [17, inf]"


def test_behind_a_wrong_step_that_was_elected_nothing_is_counted(rnn, towers):
    rnn = MacroRNN(rnn.cell, halting=rnn.halting, without=["dog", "bee", "cat"])
    traces = Contest(rnn, towers, {}, batch_tasks=60).run(["deliberation"]).traces
    error, lost = step_errors(traces)["wrong"]["ant"], sum(not trace.grades[-1][0] for trace in traces)
    assert 15 < lost < 45
    assert error.mean * error.n == pytest.approx(lost)
    assert step_errors(traces)["alone"]["ant"].mean == pytest.approx(1 - lost / 60)


def test_who_steps_alone_costs_as_many_rounds_as_a_team(rnn, towers):
    costs = expected_costs(rnn, towers, {}, ["deliberation", "single"], equal_tokens=True)
    assert costs["single"].calls == costs["deliberation"].calls + 60  # dog's texts
    assert alone(rnn, "dog") is None
