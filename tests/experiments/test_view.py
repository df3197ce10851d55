"""What one sees: plain lines in a pipe, tables on a terminal, and text that is never taken for markup."""

import io

import pytest
from rich.console import Console

from nsed_torch.experiments.view import PREVIEW, LiveView, PlainView, preview, view, visible
from nsed_torch.records import MemorySlot, Proposal, Round, Task, Transcript, Usage

MARKUP = "[bold]x[/bold] [/] :key: \\[y] \x1b[31mred"
SHOWN = MARKUP.replace("\x1b", "\ufffd")
NAMES = ["ada[b]", "ben", "[/cleo]"]


def a_round(winner=1):
    return Round(
        index=2,
        proposers=NAMES,
        voters=NAMES[:2],
        proposals=[
            Proposal(NAMES[0], "first\nline", "stop"),
            Proposal(NAMES[1], MARKUP, "stop"),
            Proposal(NAMES[2], "", "stop"),
        ],
        ratings=[[None, 0.5, None], [-0.25, None, None]],
        vote_mask=[[False, True, False], [True, False, False]],
        ballots=[[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]],
        trust=[1.0, 1.0],
        support=[-1.0, 1.0, 0.0],
        consensus=[0.119, 0.881, 0.0],
        winner=winner,
        all_negative=False,
        conviction=0.5,
        decisiveness=2.0,
        controversy=[0.0, 0.0, 0.0],
        memory=[MemorySlot(MARKUP, NAMES[1], 2, 0.881, 1.0, True), MemorySlot("old", NAMES[0], 1, 0.3, 0.8, False)],
        notes=[f"{NAMES[2]}: gave no answer {MARKUP}"],
    )


def a_transcript(task, record):
    return Transcript(task, [], [record], MARKUP, "rounds", Usage(7, 1000, 234, 0.5, 1.25), seed=0)


def watched(record, *, terminal, tasks=1):
    """Everything that a console shows of that many deliberations."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120, color_system=None, highlight=False)
    with view(console) as observer:
        for i in range(tasks):
            task = Task("Why?", id=str(i))
            observer.on_phase("propose", 2, 0, 3)
            observer.on_phase("propose", 2, 3, 3)
            observer.on_round(task, record)
        for i in range(tasks):
            observer.on_end(a_transcript(Task("Why?", id=str(i)), record))
    return observer, file.getvalue()


def test_plain_lines():
    observer, text = watched(a_round(), terminal=False)
    assert type(observer) is PlainView
    assert text.splitlines() == [
        "round 2: propose: 3 of 3 calls",
        "round 2: ada[b] rates ada[b]=· ben=+0.50 [/cleo]=·",
        "round 2: ben rates ada[b]=-0.25 ben=· [/cleo]=·",
        "round 2: ada[b] support=-1.000 consensus=0.119: first line",
        f"round 2: ben (winner) support=+1.000 consensus=0.881: {SHOWN}",
        "round 2: [/cleo] support=+0.000 consensus=0.000: ",
        f"round 2: keeps ben of round 2 retention=0.881 gate=1.00: {SHOWN}",
        "round 2: keeps ada[b] of round 1 retention=0.300 gate=0.80: old",
        f"round 2: note: [/cleo]: gave no answer {SHOWN}",
        "stopped by rounds after 1 rounds: 7 calls, 1,234 tokens (234 written), 1.2 s of model time, $0.5000",
    ]


def test_tables_on_a_terminal():
    observer, text = watched(a_round(), terminal=True)
    assert type(observer) is LiveView
    assert "Round 2" in text
    assert "★ ben" in text
    assert "ben wins, conviction +0.50" in text
    for shown in (
        "+0.50",
        "-0.25",
        "·",
        "88.1%",
        "0.88   █████████",
        "ada[b], round 1",
        "gave no answer",
        "stopped by rounds",
    ):
        assert shown in text
    # The winner's panel, the memory and the note; the panel keeps the text whole.
    assert text.count(SHOWN) == 3
    assert "\x1b[31m" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_round_without_a_winner(terminal):
    _, text = watched(a_round(winner=None), terminal=terminal)
    assert "win" not in text.replace("stopped", "")
    assert "★" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_several_tasks_end_one_after_the_other(terminal):
    _, text = watched(a_round(), terminal=terminal, tasks=3)
    assert text.count("stopped by rounds") == 3


def test_a_long_line_is_not_broken_in_a_pipe():
    record = a_round()
    record.notes.append("word " * 60)
    _, text = watched(record, terminal=False)
    assert f"round 2: note: {'word ' * 60}\n" in text


def test_preview_is_one_line():
    assert preview("a\n\n b\tc") == "a b c"
    assert preview("x" * PREVIEW) == "x" * PREVIEW
    assert preview("x" * (PREVIEW + 1)) == "x" * (PREVIEW - 1) + "…"


def test_visible_keeps_text_and_replaces_controls():
    assert visible("où? 🦉\n\tx") == "où? 🦉\n\tx"
    assert visible("\0\x07\x08\r\x1b\x7f\x9b") == "\ufffd" * 7
