"""What one sees while workflows run: a tree a wave on a terminal, plain lines elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text
from rich.tree import Tree

from nsed_torch.conductor import WorkflowJob, WorkflowObserver
from nsed_torch.evaluation.workflows import reading, sources
from nsed_torch.experiments.view import preview, visible
from nsed_torch.records import Execution, PlanRecord, StepRecord


class WorkflowView(WorkflowObserver):
    """An observer that hears of calls as well: `Executor(..., report=view.on_phase, observer=view)`.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_phase(self, phase: str, done: int, total: int) -> None:
        """`done` of `total` calls of a phase ("plan", "wave 1", ...) are finished."""


@contextmanager
def workflow_view(console: Console) -> Iterator[WorkflowView]:
    """The observer for a console: live trees on a terminal, plain lines elsewhere.

    Args:
        console: where to draw.
    """
    if not console.is_terminal:
        yield PlainWorkflows(console)
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveWorkflows(console, progress)


class LiveWorkflows(WorkflowView):
    """A progress bar, what a workflow looks like before it runs, and a tree a wave as soon as it is over.

    Args:
        console: where to draw.
        progress: rich's progress display on the same console.
    """

    def __init__(self, console: Console, progress: Progress) -> None:
        super().__init__(console)
        self.progress = progress
        self._phase = progress.add_task("", total=None)

    def on_phase(self, phase: str, done: int, total: int) -> None:
        """Move the bar."""
        self.progress.update(self._phase, description=phase, completed=done, total=total)

    def on_workflow(self, job: WorkflowJob) -> None:
        """Draw its heading."""
        self.console.print(Text.assemble((f"Workflow {job.level}", "bold"), f": {outline(job)}"))
        self.console.print(Text(visible(f"models: {models(job)}"), style="dim"))
        if job.plan is not None:
            self.console.print(Text.assemble(("written: ", "dim"), preview(job.plan.text)))
            if job.plan.reasons:
                self.console.print(Text(visible(mended(job, job.plan)), style="yellow"))
            for note in job.plan.notes:
                self.console.print(Text(visible(note), style="dim"))

    def on_wave(self, job: WorkflowJob, number: int, steps: Mapping[int, StepRecord]) -> None:
        """Draw its steps; a star stands at the one that answers."""
        self.console.print(wave_tree(job, number, steps))

    def on_end(self, execution: Execution) -> None:
        """Say what it cost."""
        self.console.print(ending(execution), style="bold")


class PlainWorkflows(WorkflowView):
    """One line for everything worth a line: for logs, pipes and screen readers."""

    def on_phase(self, phase: str, done: int, total: int) -> None:
        """Say when a phase is over."""
        if done == total:
            self._line(f"{phase}: {total} of {total} calls")

    def on_workflow(self, job: WorkflowJob) -> None:
        """Print what the Conductor wrote, what was made of it, and the workflow itself."""
        name = f"workflow {job.level}"
        self._line(f"{name}: models {models(job)}")
        if job.plan is not None:
            self._line(f"{name}: the conductor writes ({job.plan.usage.tokens} tokens): {preview(job.plan.text)}")
            if job.plan.reasons:
                self._line(f"{name}: {mended(job, job.plan)}")
            for note in job.plan.notes:
                self._line(f"{name}: note: {note}")
        for line in job.workflow.render().splitlines():
            self._line(f"{name}: {line}")
        self._line(f"{name}: {outline(job)}")

    def on_wave(self, job: WorkflowJob, number: int, steps: Mapping[int, StepRecord]) -> None:
        """Print what each of its steps reads, is asked and says."""
        for k, step in steps.items():
            name = f"workflow {job.level}: step {k}"
            self._line(f"{name}: {step.worker} reads {reads(job, k, step)}: {preview(step.subtask)}")
            self._line(f"{name}: {step.worker} says ({step.usage.tokens} tokens): {said(step)}")
            for note in step.notes:
                self._line(f"{name}: note: {note}")

    def on_end(self, execution: Execution) -> None:
        """Say what it cost."""
        self._line(ending(execution))

    def _line(self, text: str) -> None:
        self.console.print(visible(text), markup=False, emoji=False, soft_wrap=True)


def wave_tree(job: WorkflowJob, number: int, steps: Mapping[int, StepRecord]) -> Tree:
    """The steps of a wave: what each reads, is asked and says."""
    tree = Tree(Text(f"wave {number}", style="bold"), guide_style="dim")
    for k, step in steps.items():
        star = "★ " if k == len(job.workflow.steps) - 1 else ""
        cost = f"{step.usage.tokens:,} tokens"
        branch = tree.add(
            Text.assemble(
                (visible(f"{star}{k} {step.worker}"), "bold"), f" reads {reads(job, k, step)} ", (f"· {cost}", "dim")
            )
        )
        branch.add(Text(preview(step.subtask), style="italic"))
        branch.add(Text(said(step), style="red" if step.failure else ""))
        for note in step.notes:
            branch.add(Text(visible(note), style="dim"))
    return tree


def outline(job: WorkflowJob) -> str:
    """A workflow's shape and size, in words."""
    steps, waves = len(job.workflow.steps), len(job.workflow.waves())
    if not steps:
        return "accepts the answer"
    return f"{job.workflow.topology()}, {steps} step{'s'[: steps > 1]} in {waves} wave{'s'[: waves > 1]}"


def models(job: WorkflowJob) -> str:
    """The pool by number."""
    return ", ".join(f"{i} {worker}" for i, worker in enumerate(job.pool))


def mended(job: WorkflowJob, plan: PlanRecord) -> str:
    """What was made of a text that is no valid workflow, and why."""
    default = "the default stands in" if job.workflow.steps else "which counts as accepting"
    made = f"cannot be read, {default}" if plan.fallback else "mended"
    return f"{made}: {', '.join(plan.reasons)}"


def reads(job: WorkflowJob, k: int, step: StepRecord) -> str:
    """What a step read, in words."""
    previous = job.previous is not None and bool(job.previous.answer)
    return reading(sources(job.workflow, k, previous=previous), step.visible)


def said(step: StepRecord) -> str:
    """The response in one line, or why there is none."""
    return preview(step.response) if step.failure is None else f"({step.failure})"


def ending(execution: Execution) -> str:
    """What a task's workflows cost so far, in one line."""
    usage = execution.usage
    price = f", ${usage.price:.4f}" if usage.price else ""
    return f"{usage.calls} calls, {usage.tokens:,} tokens, {usage.seconds:.1f} s of model time{price}"
