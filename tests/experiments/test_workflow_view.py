"""What one sees of workflows: lines in a pipe, trees on a terminal, and text that is never taken for markup."""

import io

import pytest
from executed_workflows import everything, executed, said
from rich.console import Console
from scripted_workers import flow

from nsed_torch.conductor import WorkflowJob as Job
from nsed_torch.conductor import parse
from nsed_torch.experiments.workflow_view import LiveWorkflows, PlainWorkflows, workflow_view

MARKUP = "[bold]x[/bold] [/] :key: \\[y] \x1b[31mred"
SHOWN = MARKUP.replace("\x1b", "\ufffd")


def watched(show, *, terminal):
    """Everything that a console shows of what `show(observer)` runs, without what draws the bar."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120, color_system=None, highlight=False)
    with workflow_view(console) as observer:
        show(observer)
    assert isinstance(observer, LiveWorkflows if terminal else PlainWorkflows)
    return file.getvalue()


def test_a_pipe_gets_a_line_for_everything():
    lines = watched(everything, terminal=False).splitlines()
    wanted = [
        "workflow 0: models 0 Zebulon, 1 Quillfeather, 2 Oberon",
        "workflow 0: the conductor writes (460 tokens): I would ask two of them. model_id = [0, 9]",
        "workflow 0: mended: unknown_worker, too_many_steps",
        "workflow 0: note: its allowance shrank",
        'workflow 0: access_list = [[], [], [0, 1], "all", [0, 3]]',
        "workflow 0: tree, 5 steps in 4 waves",
        "workflow 0: step 0: Zebulon reads nothing: Solve it with an equation.",
        "workflow 0: step 0: Zebulon says (32 tokens): Zebulon",
        "workflow 0: step 1: Quillfeather says (62 tokens): (empty answer)",
        "workflow 0: step 1: note: attempt 2: empty answer",
        "workflow 0: step 2: Oberon says (66 tokens): Oberon Zebulon",
        "workflow 0: step 3: Zebulon says (76 tokens): Zebulon Zebulon Oberon Zebulon",
        "7 calls, 770 tokens, 0.0 s of model time, $0.0003",
        "workflow 1: chain, 2 steps in 2 waves",
        "workflow 1: step 1: Zebulon reads the previous answer, step 0: Correct it.",
        "9 calls, 873 tokens, 0.0 s of model time, $0.0004",
        "workflow 2: cannot be read, which counts as accepting: no_lists",
        "workflow 2: accepts the answer",
    ]
    assert any(line.startswith("workflow 0: step 2: Oberon reads step 0, step 1 (no response): Comp") for line in lines)
    places = [lines.index(line) for line in wanted]
    assert places == sorted(places)


def test_a_terminal_gets_a_tree_a_wave():
    text = watched(everything, terminal=True)
    wanted = [
        "Workflow 0: tree, 5 steps in 4 waves",
        "models: 0 Zebulon, 1 Quillfeather, 2 Oberon",
        "mended: unknown_worker, too_many_steps",
        "wave 1\n├── 0 Zebulon reads nothing · 32 tokens\n│   ├── Solve it with an equation.\n│   └── Zebulon\n└── 1",
        "├── (empty answer)\n",
        "wave 4\n└── ★ 4 Quillfeather reads step 0, step 3 · 74 tokens\n    ├── Write the final answer.\n",
        "Workflow 1: chain, 2 steps in 2 waves",
        "★ 1 Zebulon reads the previous answer, step 0",
        "Workflow 2: accepts the answer",
        "cannot be read, which counts as accepting: no_lists",
    ]
    places = [text.find(line) for line in wanted]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("terminal", [True, False])
def test_texts_are_shown_as_they_are(terminal):
    def show(observer):
        execution = said("q", MARKUP)
        level = execution.levels[0]
        workflow = parse(level.workflow, workers=1)
        job = Job(execution.task, workflow, tuple(level.pool), plan=level.plan)
        observer.on_workflow(job)
        observer.on_wave(job, 1, dict(enumerate(level.steps)))

    text = watched(show, terminal=terminal)
    assert "\x1b[31m" not in text
    # Pool, plan, reason and its note; of each step worker, subtask and response, of one a note.
    assert text.count(SHOWN) == (11 if terminal else 13)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_or_told(terminal):
    def show(observer):
        for done in range(4):
            observer.on_phase("wave 1", done, 3)

    text = watched(show, terminal=terminal)
    assert "3/3" in text if terminal else text == "wave 1: 3 of 3 calls\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_one_step_is_no_plural(terminal):
    text = watched(lambda observer: executed(flow((0, "Count.", ())), observer=observer), terminal=terminal)
    assert "single, 1 step in 1 wave\n" in text
