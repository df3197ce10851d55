"""What one sees while a team deliberates or workflows run: rounds in tables, workflows in lines, progress in a bar."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from nsed_torch.conductor.executor import WorkflowJob, WorkflowObserver
from nsed_torch.core.round import Observer
from nsed_torch.evaluation.round_statistics import Summary, elected_steps, steps_held
from nsed_torch.evaluation.tables import terminal_table
from nsed_torch.evaluation.workflows import reading, sources
from nsed_torch.records.execution import Execution, StepRecord
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Round, Task, Transcript, Usage

PREVIEW = 72
"""Characters of a text shown in one line."""

CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What a terminal would obey rather than show: models write data, not cursor movements."""

MARKS = {True: ("✓", "green"), False: ("✗", "red")}


class Screen(NamedTuple):
    """A console: on a terminal with a progress bar, which is there while it is one."""

    console: Console
    bar: Progress | None

    def progress(self, phase: str, done: int, total: int) -> None:
        """Move the bar, or say in a line that a phase is over."""
        if self.bar:
            self.bar.update(self.bar.task_ids[0], description=phase, completed=done, total=total)
        elif done == total:
            self.tell([f"{phase}: {total} of {total} calls"])

    def tell(self, lines: Iterable[str]) -> None:
        """Print lines as they are, for terminals, logs and pipes alike."""
        for line in lines:
            self.console.print(visible(line), markup=False, emoji=False, soft_wrap=True)


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """The console with what shows progress on it."""
    if not console.is_terminal:
        yield Screen(console, None)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    rest = TextColumn("left"), TimeRemainingColumn()
    with Progress(*columns, *rest, console=console, transient=True) as bar:
        bar.add_task("", total=None)
        yield Screen(console, bar)


@contextmanager
def view(
    console: Console, *, rounds: bool = True, steps: bool = False, only: Sequence[Task] | None = None
) -> Iterator[Observer]:
    """The observer of deliberations: of rounds that are `steps` a line each, of some tasks `only`.

    Without `rounds` there is a progress bar on a terminal and nothing elsewhere.
    """
    ids = None if only is None else frozenset(task.id for task in only)
    with screen(console) as shown:
        watch = StepView(shown, ids) if steps else RoundView(shown, ids)
        yield watch if rounds else PhaseView(shown) if shown.bar else Observer()


@contextmanager
def workflow_view(console: Console) -> Iterator["WorkflowView"]:
    """The observer of workflows."""
    with screen(console) as shown:
        yield WorkflowView(shown)


class PhaseView(Observer):
    """Shows progress alone."""

    def __init__(self, shown: Screen) -> None:
        self.screen = shown

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Show progress."""
        self.screen.progress(f"round {index}: {phase}", done, total)


class RoundView(PhaseView):
    """Shows ratings, supports and the memory of every round, of tasks with some ids, or of all."""

    def __init__(self, shown: Screen, ids: frozenset[str] | None = None) -> None:
        super().__init__(shown)
        self.ids = ids

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Show progress, which in a pipe would be a line per phase between those of rounds."""
        if self.screen.bar or self.ids is None:
            super().on_phase(phase, index, done, total)

    def on_round(self, task: Task, record: Round) -> None:
        """Show the round."""
        if self.ids is None or task.id in self.ids:
            self.show(record)

    def show(self, record: Round) -> None:
        """Show a round of a task that is shown."""
        self.screen.console.print(*_round_parts(record), sep="\n")

    def on_end(self, transcript: Transcript) -> None:
        """Say why it stopped and what it cost."""
        if self.ids is not None and transcript.task.id not in self.ids:
            return
        usage, rounds = transcript.usage, len(transcript.rounds)
        line = f"stopped by {transcript.stop_reason} after {rounds} rounds: {_cost(usage)}"
        self.screen.tell([line])


class StepView(RoundView):
    """Shows the step that each round elects, by how many votes, and what it outvoted."""

    def show(self, record: Round) -> None:
        """Show the step."""
        if record.winner is None:
            self.screen.tell([f"step {record.index:>4}  nobody wrote one"])
            return
        votes = len(record.elected)
        elected = Text(f"step {record.index:>4}  {preview(record.proposals[record.winner].text)}")
        elected.append(f"  {votes} of {len(record.proposals)}", style="dim")
        lines = [elected]
        for j, proposal in enumerate(record.proposals):
            if j not in record.elected:
                lines.append(Text(f"           outvoted: {preview(proposal.text)} ({proposal.agent})", style="red"))
        self.screen.console.print(*lines, sep="\n")

    def on_end(self, transcript: Transcript) -> None:
        """Say how the steps came about, why it stopped and what it cost."""
        if self.ids is None:  # where others are compared, a line of each follows
            self.screen.tell([steps_line(transcript)])
        super().on_end(transcript)


class WorkflowView(WorkflowObserver):
    """Shows workflows before they run, and their waves: `Executor(..., report=view.on_phase, observer=view)`."""

    def __init__(self, shown: Screen) -> None:
        self.screen = shown

    def on_phase(self, phase: str, done: int, total: int) -> None:
        """`done` of `total` calls of a phase ("plan", "wave 1", ...) are finished."""
        self.screen.progress(phase, done, total)

    def on_workflow(self, job: WorkflowJob) -> None:
        """Show what the Conductor wrote, what was made of it, and the workflow itself."""
        lines = ["models " + ", ".join(f"{i} {worker}" for i, worker in enumerate(job.pool))]
        if plan := job.plan:
            lines.append(f"the conductor writes ({plan.usage.tokens} tokens): {preview(plan.text)}")
            if plan.reasons:
                default = "the default stands in" if job.workflow.steps else "which counts as accepting"
                made = f"cannot be read, {default}" if plan.fallback else "mended"
                lines.append(f"{made}: {', '.join(plan.reasons)}")
            lines += [f"note: {note}" for note in plan.notes]
        lines += [*job.workflow.render().splitlines(), _outline(job)]
        self.screen.tell(f"workflow {job.level}: {line}" for line in lines)

    def on_wave(self, job: WorkflowJob, number: int, steps: Mapping[int, StepRecord]) -> None:
        """Show what each step reads, is asked and says."""
        previous = job.previous is not None and bool(job.previous.answer)
        for k, step in steps.items():
            reads = reading(sources(job.workflow, k, previous=previous), step.visible)
            said = preview(step.response) if step.failure is None else f"({step.failure})"
            lines = [f"{step.worker} reads {reads}: {preview(step.subtask)}"]
            lines += [f"{step.worker} says ({step.usage.tokens} tokens): {said}", *(f"note: {n}" for n in step.notes)]
            self.screen.tell(f"workflow {job.level}: step {k}: {line}" for line in lines)

    def on_end(self, execution: Execution) -> None:
        """Say what the task's workflows cost so far."""
        self.screen.tell([_cost(execution.usage)])


def question_table(trace: Trace) -> RenderableType:
    """The last round of a graded deliberation: a column a proposal, a row per judge with its trust and its ratings."""
    record, grades, answers = trace.transcript.rounds[-1], trace.grades[-1], trace.answers[-1]
    table = Table(title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    _add_columns(table, "judge (trust)", record)
    table.add_row(
        "answers", *(Text(preview(p.text), style=MARKS[g][1]) for p, g in zip(record.proposals, grades, strict=True))
    )
    table.add_row("", *(Text(*MARKS[grade]) for grade in grades))
    for voter, trust, row in zip(record.voters, record.trust, record.ratings, strict=True):
        table.add_row(Text(f"{voter} ({trust:.2f})"), *map(_rating_text, row))
    table.add_row("support", *(f"{support:+.2f}" for support in record.support))
    table.add_row("consensus", *(f"{share:.0%}" for share in record.consensus))
    question = Text(" ".join(trace.transcript.task.question.split()), style="bold")
    # The vote's answer beside the commonest one, the first of equally common ones.
    right = dict(zip(answers, grades, strict=True))
    said = Counter(answer for answer in answers if answer is not None).most_common(1)
    elected = None if record.winner is None else answers[record.winner]
    parts = [f"target: {trace.transcript.task.target}"] if trace.transcript.task.target else []
    for what, answer in (("the vote", elected), ("the commonest answer", said[0][0] if said else None)):
        parts.append(f"{what}: {'none' if answer is None else f'{preview(answer)} {MARKS[right[answer]][0]}'}")
    return Group(Text(), question, table, Text(" · ".join(parts)))


def summary_table(summary: Summary) -> RenderableType:
    """How often answers were right, with intervals, and what they cost."""
    usage = summary.usage
    cost = f"{usage.calls:,} calls, {_tokens(usage)}, {usage.seconds:.1f} s of model time"
    rows = [["right", "n", "accuracy", "95% interval"]]
    for what, accuracy in summary.accuracies.items():
        rows.append([what, str(accuracy.n), f"{accuracy.mean:.1%}", f"{accuracy.low:.1%} to {accuracy.high:.1%}"])
    return terminal_table(rows, title=f"{summary.tasks} tasks, {cost}")


def steps_line(transcript: Transcript, right: bool | None = None, chain: Sequence[str] = ()) -> str:
    """How many steps were elected, against how many others, and what it came to, as far as anybody knows."""
    elected = elected_steps(transcript)
    parts = [
        f"{sum(map(bool, elected))} steps elected, somebody outvoted in {sum(r.contested for r in transcript.rounds)}"
    ]
    if chain:
        held = steps_held(elected, chain)
        all_right = held == len(chain) == len(elected)
        parts.append("every step is right" if all_right else f"the first {held} of {len(chain)} are right")
    if right is not None:
        parts.append(f"the answer is {'right' if right else 'wrong'}")
    return "; ".join(parts)


def undecided(transcript: Transcript) -> str:
    """What to say where nobody was convinced, or the last round's set holds more than one answer; else ""."""
    if transcript.rounds and transcript.rounds[-1].all_negative:
        return "nobody was convinced: the ratings speak against every answer, and the one below is the least disliked"
    answers = transcript.rounds[-1].answer_set if transcript.rounds else None
    if answers is None or answers.decided:
        return ""
    lines = [" ".join(transcript.rounds[-1].proposals[j].text.split()) for j in answers.answers]
    # Answers stand at the end of a text.
    labels = [visible(line if len(line) <= 60 else f"… {line[-60:]}") for line in lines]
    labels += ["none of these"] if answers.none_of_these else []
    return f"undecided: the right answer is among these at {answers.coverage:.0%} coverage: {' | '.join(labels)}"


def visible(text: str) -> str:
    """A text with every control character but line breaks and tabs replaced."""
    return text.translate(CONTROLS)


def preview(text: str) -> str:
    """A text in one line of at most `PREVIEW` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def _round_parts(record: Round) -> Iterator[RenderableType]:
    table = Table(title=f"Round {record.index}", title_justify="left", title_style="bold", show_footer=False)
    _add_columns(table, "rated by", record)
    for voter, row in zip(record.voters, record.ratings, strict=True):
        table.add_row(Text(voter), *map(_rating_text, row))
    table.add_section()
    table.add_row("support", *(f"{s:+.3f}" for s in record.support))
    table.add_row("consensus", *(f"{p:.1%}" for p in record.consensus))
    yield table
    if record.winner is not None:
        winner = record.proposals[record.winner]
        title = Text(f"{winner.agent} wins, conviction {record.conviction:+.2f}")
        yield Panel(Text(visible(winner.text)), title=title, title_align="left")
    memory = Table.grid(padding=(0, 1))
    memory.add_row(Text("memory", style="bold"))
    for slot in record.memory:
        bar = "█" * round(10 * slot.retention)
        cells = f"{slot.retention:.2f}", f"{bar:<10}", f"{slot.agent}, round {slot.round}", preview(slot.text)
        # Dim where the token budget hides it from the agents.
        memory.add_row(*(Text(cell, style="" if slot.shown else "dim") for cell in cells))
    yield memory
    yield from (Text(visible(note)) for note in record.notes)


def _add_columns(table: Table, first: str, record: Round) -> None:
    """One for the judges, and one per proposal with a star at the winner."""
    table.add_column(first)
    for j, name in enumerate(record.proposers):
        table.add_column(Text(f"★ {name}" if j == record.winner else name), justify="right")


def _rating_text(rating: float | None) -> Text:
    """A rating, or a dot where there is none, in the colour of what it says."""
    if rating is None:
        return Text("·", style="dim")
    return Text(f"{rating:+.2f}", style="green" if rating > 0.1 else "red" if rating < -0.1 else "yellow")


def _outline(job: WorkflowJob) -> str:
    """A workflow's shape and size, in words."""
    steps, waves = len(job.workflow.steps), len(job.workflow.waves())
    if not steps:
        return "accepts the answer"
    return f"{job.workflow.topology()}, {steps} step{'s'[: steps > 1]} in {waves} wave{'s'[: waves > 1]}"


def _cost(usage: Usage) -> str:
    price = f", ${usage.price:.4f}" if usage.price else ""
    return f"{usage.calls} calls, {_tokens(usage)}, {usage.seconds:.1f} s of model time{price}"


def _tokens(usage: Usage) -> str:
    return f"{usage.tokens:,} tokens computed ({usage.billed:,} billed, {usage.completion_tokens:,} of them written)"
