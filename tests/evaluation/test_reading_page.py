"""The page of a deliberation that read: pieces, notes, and a strip for what the memory held of each."""

import dataclasses
import re

import pytest
from planted_readings import reading_of
from report_pages import Page, example

from nsed_lab.reading_tasks import reading_tasks
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.pages import longest_kept, memory_moves, render_transcript, write_report
from nsed_torch.records.trace import TraceWriter
from nsed_torch.records.transcript import Task

HOSTILE = "</td></svg><script>alert(1)</script>"


def deliberated(graded, agents=2, slots=4):
    """Agents that note a statement each of every piece."""

    def write(request):
        asked = request.messages[-1].content
        if "answer with a note" not in asked:
            return "done"
        piece = re.findall(r"<text-\w+>\n(.*)\n</text", asked)[-1]
        said = [part.strip() for part in re.findall(r"[^.]+\.", piece)]
        return said[int(request.agent[1:]) % len(said)] if said else piece

    ensemble = Ensemble(
        {"s": ScriptedEngine(write, lambda request, candidate: 0.5)}, [Agent(f"a{i}", "s") for i in range(agents)]
    )
    cell = MacroRNNCell(ensemble, HashedEncoder(16), ConsensusCell(16, agents, slots=slots).double())
    return MacroRNN(cell, halting=FixedHalting(1))(graded.tasks).transcripts


@pytest.fixture(scope="module")
def graded():
    return reading_of(6, 2, families={"last": {"family": "hands", "which": "last", "moves": 3}})


@pytest.fixture(scope="module")
def transcript(graded):
    return deliberated(graded)[0]


def test_a_row_a_round_shows_piece_and_notes(transcript):
    page = Page(render_transcript(transcript))
    rows = [page.words("tr", id=f"t1-r{r}") for r in range(1, 7)]
    for (row,), piece, record in zip(rows, transcript.task.inputs, transcript.rounds, strict=False):
        assert piece in row
        assert all(p.text in row for p in record.proposals)
    assert page.words("section", id="t1-r7")  # the closing round, whole
    assert not page.words("section", id="t1-r6")
    assert len(page.find("ol", class_="way")[0].split("Round")) == 2


def test_a_row_tells_what_befell_its_round(transcript):
    said = f"a0: its piece does not say all of {HOSTILE!r}"
    first, *others = transcript.rounds
    told = dataclasses.replace(transcript, rounds=[dataclasses.replace(first, notes=[said]), *others])
    html = render_transcript(told)
    assert said in Page(html).words("tr", id="t1-r1")[0]
    assert HOSTILE not in html


def test_moves_are_those_of_the_memory(transcript):
    before = set()
    for record, move in zip(transcript.rounds, memory_moves(transcript), strict=True):
        after = {(slot.round, slot.text) for slot in record.memory}
        entered = {(record.index, record.proposals[j].text) for j in move.entered}
        assert entered == after - before
        assert {(slot.born, slot.text) for slot in move.left} == before - after
        before = after


def test_strips_span_the_rounds_that_a_note_was_kept(transcript):
    histories, others = longest_kept(transcript)
    assert others == 0
    for history in histories:
        kept = [i for i, state in enumerate(history.states) if state]
        assert [i for run in history.runs for i in range(run.start, run.start + run.length)] == kept
        for run in history.runs:
            for state in history.states[run.start : run.start + run.length]:
                assert round(state.retention, 2) == run.retention
    page = Page(render_transcript(transcript))
    assert len([1 for tag, attributes in page.elements if tag == "svg"]) == len(histories)


def test_what_matters_is_marked_and_never_left_out(graded):
    (trace, _) = graded.traces(deliberated(graded))
    assert [[bool(n) for n in row] for row in trace.needed] == [
        [any(f.text in p.text for f in graded.facts[trace.transcript.task.id]) for p in record.proposals]
        for record in trace.transcript.rounds
    ]
    histories, others = longest_kept(trace.transcript, trace.needed, most=2)
    assert len(histories) == 2
    assert others > 2
    due = sum(bool(h.until) for h in longest_kept(trace.transcript, trace.needed)[0])
    assert sum(bool(h.until) for h in histories) == min(due, 2)


def test_the_page_of_a_run_shows_what_matters(graded, tmp_path):
    traces = graded.traces(deliberated(graded))
    writer = TraceWriter(tmp_path)
    writer.add(traces)
    writer.finish(HashedEncoder(16).embed)
    html = write_report(tmp_path).read_text()
    page = Page(html)
    noted = sum(bool(n) for trace in traces for row in trace.needed[:6] for n in row)
    assert page.words("b", class_="mark right").count("✓ matters") == noted > 0
    assert html.count('class="due"') > 0
    assert "Reading" in page.words("nav", class_="sections")[0]


def test_private_pieces_name_their_readers():
    graded = reading_tasks({"hidden_profile": {}}, size=1)
    (transcript,) = deliberated(graded, agents=4)
    (row,) = Page(render_transcript(transcript)).words("tr", id="t1-r1")
    for i in range(4):
        assert f"a{i} alone: {transcript.task.inputs[0][str(i)]}" in row
    assert "Votes" in row


def test_foreign_text_stays_text(transcript):
    first = transcript.rounds[0]
    proposals = [dataclasses.replace(p, text=HOSTILE) for p in first.proposals]
    memory = [dataclasses.replace(slot, text=HOSTILE) for slot in first.memory]
    rounds = [dataclasses.replace(first, proposals=proposals, memory=memory), *transcript.rounds[1:]]
    task = Task(transcript.task.question, inputs=(HOSTILE, {HOSTILE: HOSTILE}, *transcript.task.inputs[2:]))
    page = Page(render_transcript(dataclasses.replace(transcript, task=task, rounds=rounds)))
    assert not [tag for tag, _ in page.elements if tag == "script"]


def test_a_long_reading_stays_small_and_readable():
    graded = reading_of(128, 1, families={"last": {"family": "hands", "which": "last", "moves": 4}})
    (transcript,) = deliberated(graded, agents=3, slots=8)
    html = render_transcript(transcript)
    assert len(html.encode()) < 750_000
    page = Page(html)
    assert len([1 for tag, _ in page.elements if tag == "svg"]) == 48
    assert len(page.find("table", class_="pieces")) == 1
    assert not page.find("table", class_="votes")[1:]  # of the closing round alone


def test_without_inputs_nothing_is_new():
    assert "t1-reading" not in render_transcript(example())
