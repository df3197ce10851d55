"""Weighted memory: what agents are told of each slot's retention."""

import pytest

from nsed_torch.core.gate import Gate
from nsed_torch.records.transcript import Task

BOOK = Task("Where is the key?", id="book", inputs=("Ann has the key.", "Bo met Ann.", "The key is old."))


def notes(scripted, memory, **options):
    """Every request of a deliberation that reads three pieces, and its transcript."""
    rated = []

    def judge(request, candidate):
        rated.append(request)
        return 0.5

    def write(request):
        return next((piece for piece in BOOK.inputs if f"\n{piece}\n" in asked(request)), "done")

    def asked(request):
        return request.messages[-1].content.rpartition("A piece to read now")[2]

    rnn, engine = scripted.build(2, write=write, judge=judge, slots=4, rounds=1, memory=memory, **options)
    return engine.generated, rated, rnn([BOOK]).transcripts[0]


@pytest.mark.parametrize("memory", ["weighted", "beside"])
def test_every_note_is_heard_as_far_as_its_slot_is_retained(scripted, memory):
    written, rated, transcript = notes(scripted, memory)
    for index, record in enumerate(transcript.rounds[:3], 2):
        wanted = {slot.text: slot.retention for slot in record.memory}
        heard = [request.notes for request in written if len(request.notes) == len(wanted)]
        assert heard, f"round {index}"
        for told in heard:
            texts = [note.text.splitlines()[1] for note in told]
            assert [note.retention for note in told] == pytest.approx([wanted[text] for text in texts], abs=1e-4)
            ages = [BOOK.inputs.index(text) for text in texts]
            assert ages == sorted(ages, reverse=memory == "weighted")  # side by side the oldest comes first
    for request in (*written, *rated):
        content = "\n".join(message.content for message in request.messages)
        assert all(note.text in content for note in request.notes)
        assert request.beside == (memory == "beside")
    assert any(request.notes for request in rated)  # judges of notes read them too


def test_as_published_nothing_is_said_of_retention(scripted):
    written, rated, _ = notes(scripted, "shown")
    assert not any(request.notes or request.beside for request in (*written, *rated))


def test_a_slot_that_is_all_but_let_go_of_is_not_read(scripted):
    class Gone(Gate):
        def forward(self, state, news):
            return 1e-5, 1.0

    rnn, engine = scripted.build(2, write=lambda request: "done", slots=4, rounds=3, memory="weighted")
    rnn = rnn.with_(cell=rnn.cell.with_(consensus=rnn.cell.like(gate=Gone())))
    transcript = rnn([Task("Where is the key?")]).transcripts[0]
    assert [slot.round for slot in transcript.rounds[1].memory] == [2, 2, 1, 1]
    assert [len(request.notes) for request in engine.generated] == [0, 0, 1, 1, 1, 1]


def test_agents_that_cannot_weigh_are_one_line(scripted):
    engine = scripted.Recorder(scripted.write, scripted.judge)
    engine.weighs = False
    wanted = "memory=weighted, .*, got others of Zebulon, Quillfeather: set protocol.memory=shown"
    with pytest.raises(ValueError, match=wanted):
        scripted.build(2, engine=engine, memory="weighted")
