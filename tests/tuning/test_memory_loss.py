"""What a gate is to keep: the loss by hand, its gradients, and a replayed reading whose gate learns."""

import math
import re

import pytest
import torch
from torch.autograd import gradcheck

from nsed_lab.reading_tasks import reading_tasks
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.functional import held
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.records.trace import TraceWriter
from nsed_torch.traces.load import load_traces
from nsed_torch.tuning.losses import memory_loss

REAL = torch.float64
DIM, SLOTS = 256, 4


def test_by_hand():
    retention = torch.tensor([[0.6, 0.3, 0.1], [0.5, 0.5, 0.5], [0.9, 0.1, math.nan], [0.0, 0.0, 0.0]], dtype=REAL)
    matters = torch.tensor([[True, False, True], [True] * 3, [False, True, True], [True, False, False]])
    mask = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [True] * 3])
    expected = (-math.log(0.7) - math.log(0.1)) / 2  # the second teaches nothing, the last has forgotten everything
    assert memory_loss(retention, matters, mask).item() == pytest.approx(expected)
    assert memory_loss(retention * 0.01, matters, mask).item() == pytest.approx(expected)
    assert memory_loss(retention[1:2], matters[1:2], mask[1:2]).item() == 0


def test_gradients():
    retention = torch.rand(4, 3, dtype=REAL, generator=torch.Generator().manual_seed(0)) + 0.1
    matters = torch.tensor([[True, False, True], [True] * 3, [False, True, True], [False] * 3])
    mask = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [True] * 3])
    assert gradcheck(lambda r: memory_loss(r, matters, mask), retention.requires_grad_())
    hidden = torch.where(mask, retention.detach(), math.nan).requires_grad_()
    memory_loss(hidden, matters, mask).backward()
    assert hidden.grad.isfinite().all()
    empty = torch.zeros(2, 3, dtype=REAL, requires_grad=True)
    memory_loss(empty, matters[:2], mask[:2]).backward()
    assert (empty.grad == 0).all()


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    """Traces of agents that note every statement of every piece, so that a memory has to choose."""
    graded = reading_tasks({"needles": {"pieces": 8, "statements": 2, "needles": 2}}, size=30, seed=5)

    def write(request):
        text = request.messages[-1].content
        if "answer with a note" not in text:
            return "done"
        first, second = re.findall(r"[^.\n]+\.", re.findall(r"<text-\w+>\n(.*)\n</text", text)[-1])
        return first if request.agent == "ant" else second

    encoder, cell = HashedEncoder(DIM), ConsensusCell(DIM, 2, slots=SLOTS).double()
    engine = ScriptedEngine(write, lambda request, candidate: 0.5)
    ensemble = Ensemble({"tiny": engine}, [Agent("ant", "tiny"), Agent("bee", "tiny")])
    rnn = MacroRNN(MacroRNNCell(ensemble, encoder, cell), halting=FixedHalting(1))
    traces = graded.traces(rnn(graded.tasks).transcripts)
    writer = TraceWriter(tmp_path_factory.mktemp("reading"))
    writer.add(traces)
    writer.finish(encoder.embed)
    return graded, traces, load_traces(writer.folder)


def replay(cell, episodes):
    """The cell over the rounds that read: what it decided, and the memory that it answers from."""
    rounds = torch.arange(episodes.round_mask.shape[1]) < 8
    return cell.unroll(
        episodes.embeddings,
        episodes.ratings,
        episodes.vote_mask,
        episodes.task,
        voters=episodes.voters,
        authors=episodes.authors,
        classes=episodes.classes,
        proposal_mask=episodes.proposal_mask,
        voter_mask=episodes.voter_mask,
        round_mask=episodes.round_mask & rounds,
    )


def labels(graded, traces, output, proposals):
    """Of each slot after the last round that read, whether it matters."""
    last = [len(trace.transcript.task.inputs) for trace in traces]
    table = torch.tensor([trace.needed for trace in traces]).flatten(1) == torch.tensor(last)[:, None]
    origin = held(output.source, proposals)
    return table.gather(1, origin.clamp(min=0)) & (origin >= 0)


def test_a_replayed_reading_holds_what_the_team_held(reading):
    graded, traces, episodes = reading
    output, state = replay(ConsensusCell(DIM, 2, slots=SLOTS).double(), episodes)
    matters = labels(graded, traces, output, 2)
    for i, trace in enumerate(traces):
        record, task = trace.transcript.rounds[7], trace.transcript.task
        assert state.retention[i].tolist() == pytest.approx([slot.retention for slot in record.memory], abs=1e-8)
        needed = [fact.text for fact in graded.facts[task.id]]
        assert matters[i].tolist() == [slot.text in needed for slot in record.memory]
    assert matters.any()
    assert not matters.all()


def test_a_gate_learns_to_keep_what_matters(reading):
    """A fresh gate keeps the newest; one that is fitted keeps what the question speaks of, in other tasks too.

    The two newest notes are among the four slots whatever the gate does: half of all retention is the best there is.
    """
    graded, traces, episodes = reading
    cell = ConsensusCell(DIM, 2, slots=SLOTS).double()
    fitted = list(range(20))

    def kept(rows):
        with torch.no_grad():
            output, _ = replay(cell, episodes.select(rows))
        return labels(graded, [traces[i] for i in rows], output, 2).sum().item() / (2 * len(rows))

    others = list(range(20, 30))
    before = kept(fitted), kept(others)
    optimizer = torch.optim.Adam(cell.gate.parameters(), lr=0.3)
    losses = []
    for _ in range(40):
        output, state = replay(cell, episodes.select(fitted))
        matters = labels(graded, traces[:20], output, 2)
        loss = memory_loss(state.retention, matters, state.mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert max(before) < 0.3
    assert (kept(fitted), kept(others)) == (1, 1)
    assert losses[-1] == pytest.approx(math.log(2), abs=0.02)
    assert losses[-1] < losses[0] / 1.5


def test_the_loss_reaches_the_gate_through_every_round(reading):
    graded, traces, episodes = reading
    some = episodes.select(range(3))
    cell = ConsensusCell(DIM, 2, slots=SLOTS).double()
    with torch.no_grad():  # away from the start, where slots of equal strength would change places
        cell.gate.weight.copy_(torch.tensor([0.3, 0.7, -0.2, -0.1]))
    output, _ = replay(cell, some)
    matters = labels(graded, traces[:3], output, 2)

    def loss(weight, bias):
        outcome, state = torch.func.functional_call(
            _Replay(cell), {"cell.gate.weight": weight, "cell.gate.bias": bias}, (some,)
        )
        assert torch.equal(outcome.source, output.source)  # a step so small displaces nothing else
        return memory_loss(state.retention, matters, state.mask)

    assert gradcheck(loss, [p.detach().clone().requires_grad_() for p in (cell.gate.weight, cell.gate.bias)])


class _Replay(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, episodes):
        return replay(self.cell, episodes)
