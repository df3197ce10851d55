"""What one sees: rounds in tables, workflows in lines, and text that is never taken for markup."""

import io
import re

import pytest
from executed_workflows import everything, executed, said
from rich.console import Console
from scripted_workers import flow
from team_traces import trace, turn

from nsed_torch.app.view import PREVIEW, preview, question_table, steps_line, view, visible, workflow_view
from nsed_torch.conductor.executor import WorkflowJob
from nsed_torch.conductor.parsing import parse
from nsed_torch.records.transcript import MemorySlot, Proposal, Round, Task, Transcript, Usage

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
    return Transcript(task, [], [record], MARKUP, "rounds", Usage(7, 1000, 234, 0.5, 1.25, 900), seed=0)


def seen(show, way=view, *, terminal, **options):
    """Everything that a console shows of what `show(observer)` does."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120, color_system=None, highlight=False)
    with way(console, **options) as observer:
        show(observer)
    return file.getvalue()


def watched(record, *, terminal, tasks=1, **options):
    """The same of that many deliberations."""

    def show(observer):
        for i in range(tasks):
            task = Task("Why?", id=str(i))
            observer.on_phase("propose", 2, 0, 3)
            observer.on_phase("propose", 2, 3, 3)
            observer.on_round(task, record)
        for i in range(tasks):
            observer.on_end(a_transcript(Task("Why?", id=str(i)), record))

    return seen(show, terminal=terminal, **options)


def test_without_rounds_there_is_a_bar_on_a_terminal_and_nothing_elsewhere():
    assert watched(a_round(), terminal=False, rounds=False) == ""
    bar = watched(a_round(), terminal=True, rounds=False)
    assert "round 2: propose" in bar
    assert "stopped by" not in bar


@pytest.mark.parametrize("terminal", [True, False])
def test_a_round_is_a_table(terminal):
    text = watched(a_round(), terminal=terminal)
    assert "Round 2" in text
    assert "★ ben" in text
    assert "ben wins, conviction +0.50" in text
    wanted = ["+0.50", "-0.25", "·", "88.1%", "0.88   █████████", "ada[b], round 1", "gave no answer"]
    for shown in (*wanted, "round 2: propose"):
        assert shown in text
    # The winner's panel, the memory and the note; the panel keeps the text whole.
    assert text.count(SHOWN) == 3
    assert "\x1b[31m" not in text
    tokens = "900 tokens computed (1,234 billed, 234 of them written)"
    last = f"stopped by rounds after 1 rounds: 7 calls, {tokens}, 1.2 s of model time, $0.5000"
    assert last in text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_round_without_a_winner(terminal):
    text = watched(a_round(winner=None), terminal=terminal)
    assert "win" not in text.replace("stopped", "")
    assert "★" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_several_tasks_end_one_after_the_other(terminal):
    text = watched(a_round(), terminal=terminal, tasks=3)
    assert text.count("stopped by rounds") == 3


def test_preview_is_one_line():
    assert preview("a\n\n b\tc") == "a b c"
    assert preview("x" * PREVIEW) == "x" * PREVIEW
    assert preview("x" * (PREVIEW + 1)) == "x" * (PREVIEW - 1) + "…"


def test_visible_keeps_text_and_replaces_controls():
    assert visible("où? 🦉\n\tx") == "où? 🦉\n\tx"
    assert visible("\0\x07\x08\r\x1b\x7f\x9b") == "\ufffd" * 7


@pytest.mark.parametrize("terminal", [True, False])
def test_a_workflow_is_a_line_for_everything(terminal):
    text = seen(everything, workflow_view, terminal=terminal)
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9?]*[a-zA-Z]", "", text).splitlines()]
    wanted = [
        "workflow 0: models 0 Zebulon, 1 Quillfeather, 2 Oberon",
        "workflow 0: the conductor writes (460 tokens): I would ask two of them. model_id = [0, 9]",
        "workflow 0: mended: unknown_worker, too_many_steps",
        "workflow 0: note: its allowance shrank",
        'workflow 0: access_list = [[], [], [0, 1], "all", [0, 3]]',
        "workflow 0: tree, 5 steps in 4 waves",
        "workflow 0: step 0: Zebulon reads nothing: Solve it with an equation.",
        "workflow 0: step 0: Zebulon says (35 tokens): Zebulon",
        "workflow 0: step 1: Quillfeather says (68 tokens): (empty answer)",
        "workflow 0: step 1: note: attempt 2: empty answer",
        "workflow 0: step 2: Oberon says (72 tokens): Oberon Zebulon",
        "workflow 0: step 3: Zebulon says (85 tokens): Zebulon Zebulon Oberon Zebulon",
        "7 calls, 803 tokens computed (803 billed, 73 of them written), 0.0 s of model time, $0.0003",
        "workflow 1: chain, 2 steps in 2 waves",
        "workflow 1: step 1: Zebulon reads the previous answer, step 0: Correct it.",
        "9 calls, 915 tokens computed (915 billed, 82 of them written), 0.0 s of model time, $0.0004",
        "workflow 2: cannot be read, which counts as accepting: no_lists",
        "workflow 2: accepts the answer",
    ]
    assert any(line.startswith("workflow 0: step 2: Oberon reads step 0, step 1 (no response): Comp") for line in lines)
    places = [lines.index(line) for line in wanted]
    assert places == sorted(places)


@pytest.mark.parametrize("terminal", [True, False])
def test_texts_are_shown_as_they_are(terminal):
    def show(observer):
        execution = said("q", MARKUP)
        level = execution.levels[0]
        workflow = parse(level.workflow, workers=1)
        job = WorkflowJob(execution.task, workflow, tuple(level.pool), plan=level.plan)
        observer.on_workflow(job)
        observer.on_wave(job, 1, dict(enumerate(level.steps)))

    text = seen(show, workflow_view, terminal=terminal)
    assert "\x1b[31m" not in text
    # Pool, plan, reason and its note; of each step worker, subtask and response, of one a note.
    assert text.count(SHOWN) == 13


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_or_told(terminal):
    def show(observer):
        for done in range(4):
            observer.on_phase("wave 1", done, 3)

    text = seen(show, workflow_view, terminal=terminal)
    assert "3/3" in text if terminal else text == "wave 1: 3 of 3 calls\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_one_step_is_no_plural(terminal):
    text = seen(lambda observer: executed(flow((0, "Count.", ())), observer=observer), workflow_view, terminal=terminal)
    assert "single, 1 step in 1 wave\n" in text


def drawn(one):
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(question_table(one))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_it_tells_who_was_right_and_whom_the_judges_believed():
    ratings = [[None, 0.5, -0.25], [0.75, None, -1.0], [0.1, 0.2, None]]
    lines = drawn(trace("t", turn(["no", "no", "yes"], winner=1, ratings=ratings)))
    assert lines[1:4] == ["?", "judge (trust) a ★ b c", "answers no no yes"]
    assert lines[4] == "✗ ✗ ✓"
    assert "a (1.00) · +0.50 -0.25" in lines
    assert "c (1.00) +0.10 +0.20 ·" in lines
    assert lines[-1] == "the vote: no ✗ · the commonest answer: no ✗"


def test_it_shows_the_last_round_and_answers_that_are_none():
    lines = drawn(trace("t", turn(["no", "no"]), turn([None, "yes"], winner=1)))
    assert lines[-1] == "the vote: yes ✓ · the commonest answer: yes ✓"
    lines = drawn(trace("t", turn([None, None], winner=None)))
    assert lines[-1] == "the vote: none · the commonest answer: none"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_takes_a_line_and_each_that_it_outvoted_another(terminal):
    record = a_round()
    shown = seen(lambda watch: watch.on_round(Task("Q"), record), terminal=terminal, steps=True)
    lines = [line for line in shown.splitlines() if re.search("step    2|outvoted", line)]
    assert ["outvoted:" in line for line in lines] == [False, True, True]
    assert f"step    2  {preview(SHOWN)}  1 of 3" in lines[0]
    assert f"({NAMES[0]})" in lines[1]
    nobody = seen(lambda watch: watch.on_round(Task("Q"), a_round(winner=None)), terminal=terminal, steps=True)
    assert "step    2  nobody wrote one" in nobody


@pytest.mark.parametrize("terminal", [True, False])
def test_steps_end_in_a_line_on_how_they_came_about(terminal):
    alone, against = (trace("t", turn(answers)).transcript.rounds[0] for answers in (["a"], ["b", "c"]))
    several = a_transcript(Task("Q"), alone)
    several.rounds[:] = [alone, against, a_round(winner=None), against]
    shown = seen(lambda watch: watch.on_end(several), terminal=terminal, steps=True)
    assert "3 steps elected, somebody outvoted in 2\n" in shown
    assert "stopped by rounds after 4 rounds: 7 calls" in shown
    line = "3 steps elected, somebody outvoted in 2; the first 2 of 5 are right; the answer is wrong"
    assert steps_line(several, False, ["a", "b", "c", "d", "e"]) == line
    several.rounds[:] = [alone, against]
    line = "2 steps elected, somebody outvoted in 1; every step is right; the answer is right"
    assert steps_line(several, True, ["a", "b"]) == line
