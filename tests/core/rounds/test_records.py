"""From padded tensors to the plain data of one task's round."""

import json

import torch

from nsed_torch.core.agent import Agent
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.kinds.answers import Answers
from nsed_torch.core.open_round import OpenRound, SlotText, round_record
from nsed_torch.core.ratings import DIGITS, Hearing
from nsed_torch.core.team import Standing, Team
from nsed_torch.records.transcript import Proposal, Task, Usage

NONE = float("nan")


def records():
    """Two tasks of one batch, the second round of both: 3 voters x 3 proposals, and 1 x 2 padded to that."""
    cell = ConsensusCell(4, agents=3, slots=2).double()
    generator = torch.Generator().manual_seed(0)
    ratings = [
        [[[NONE, 0.5, -0.25], [1.0, NONE, 1 / 3], [0.0, -0.0, NONE]], [[NONE, 0.7, NONE], [NONE] * 3, [NONE] * 3]],
        [[[NONE, -0.5, -1.0], [-1.0, NONE, -0.3], [NONE] * 3], [[NONE] * 3] * 3],
    ]
    state = None
    for rows in ratings:
        table = torch.tensor(rows, dtype=torch.float64)
        answered = torch.tensor([[True, True, True], [True, True, False]])
        output, state = cell(
            torch.randn(2, 3, 4, dtype=torch.float64, generator=generator),
            table,
            ~table.isnan() & answered[:, None, :],
            torch.randn(2, 4, dtype=torch.float64, generator=generator),
            state,
            proposal_mask=answered,
            voter_mask=torch.tensor([[True, True, True], [True, False, False]]),
        )
        last = (
            [[None if r != r else r for r in row] for row in rows[0]],
            [[None if r != r else r for r in rows[1][0][:2]]],
        )
    proposed = ("abc", "bc")
    proposals = [[Proposal(name, f"of {name}", "stop") for name in names] for names in proposed]
    slots = [[SlotText(f"kept {k}", "a", 1) for k in range(int(state.mask[i].sum()))] for i in range(2)]
    made = []
    for i, voters in enumerate(["abc", "a"]):
        agents = [[Agent(name, "one") for name in names] for names in (proposed[i], voters)]
        task, seats = Task("Why?"), [Agent(name, "one") for name in "abc"]
        kind = Answers(task, seats, None)
        turn = OpenRound(i, task, kind, Team((0,), ()), *agents, Standing({}, {}), kind.ask([], 0))
        turn.proposals = proposals[i]
        turn.hearing = Hearing(last[i], [], Usage(), [])
        made.append(round_record(turn, 2, output, state, slots[i], ["shown", None], None))
    return made, output, state


def test_padding_is_gone():
    (first, second), _, _ = records()
    assert (first.voters, first.proposers) == (["a", "b", "c"], ["a", "b", "c"])
    assert (second.voters, second.proposers) == (["a"], ["b", "c"])
    assert [len(row) for row in second.ratings + second.ballots + second.vote_mask] == [2, 2, 2]
    assert len(second.support) == len(second.consensus) == len(second.controversy) == 2
    assert second.trust == [1.0]
    assert second.winner == 0
    assert not second.all_negative
    assert first.all_negative


def test_numbers_are_those_of_the_tensors_to_nine_digits():
    (first, _), output, state = records()
    for name in ("support", "consensus", "controversy", "trust"):
        assert getattr(first, name) == [round(x, DIGITS) for x in getattr(output, name)[0].tolist()]
    assert [slot.retention for slot in first.memory] == [round(x, DIGITS) for x in state.retention[0].tolist()]
    assert [slot.shown for slot in first.memory] == [True, False]


def test_a_slot_just_written_has_gate_one_and_an_older_one_its_factor():
    made, output, _ = records()
    width = output.gate.shape[1]
    for i, record in enumerate(made):
        for slot, source in zip(record.memory, output.source[i].tolist(), strict=True):
            old = round(output.gate[i, source].item(), DIGITS) if source < width else 1.0
            assert slot.gate == old
    assert {round(slot.gate, 6) for record in made for slot in record.memory} == {0.8, 1.0}


def test_none_stays_none_and_zero_has_no_sign():
    (first, second), _, _ = records()
    assert first.ratings[0] == [None, -0.5, -1.0]
    assert first.ratings[2] == [None, None, None]
    assert first.vote_mask[2] == [False] * 3
    assert second.ratings == [[None, None]]
    text = json.dumps([first.ballots, first.support, second.support, second.ballots])
    assert "-0.0]" not in text
    assert "-0.0," not in text
