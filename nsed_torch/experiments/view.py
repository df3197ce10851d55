"""What one sees while a team deliberates: tables on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from nsed_torch.deliberation import Observer
from nsed_torch.evaluation.collection import Summary
from nsed_torch.records import MemorySlot, Round, Task, Transcript

PREVIEW = 72
"""Characters of a text shown in one line."""

CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What a terminal would obey rather than show: models write data, not cursor movements."""


@contextmanager
def view(console: Console, *, rounds: bool = True) -> Iterator[Observer]:
    """The observer for a console: live tables on a terminal, plain lines elsewhere.

    Args:
        console: where to draw.
        rounds: whether to show every round; otherwise there is a progress bar on a terminal and nothing elsewhere.
    """
    if not console.is_terminal:
        yield PlainView(console) if rounds else Observer()
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveView(console, progress) if rounds else ProgressView(progress)


class ProgressView(Observer):
    """A progress bar a phase.

    Args:
        progress: rich's progress display.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._phase = progress.add_task("", total=None)

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Move the bar."""
        self.progress.update(self._phase, description=f"round {index} · {phase}", completed=done, total=total)


class LiveView(ProgressView):
    """A progress bar a phase, a vote matrix and the memory a round.

    Args:
        console: where to draw.
        progress: rich's progress display on the same console.
    """

    def __init__(self, console: Console, progress: Progress) -> None:
        super().__init__(progress)
        self.console = console

    def on_round(self, task: Task, record: Round) -> None:
        """Draw the round."""
        winner = [] if record.winner is None else [_winner(record, record.winner)]
        notes = [Text(visible(note)) for note in record.notes]
        self.console.print(Group(vote_table(record), *winner, memory_table(record.memory), *notes))

    def on_end(self, transcript: Transcript) -> None:
        """Say how it ended."""
        self.console.print(ending(transcript), style="bold")


class PlainView(Observer):
    """One line for everything worth a line: for logs, pipes and screen readers.

    Args:
        console: where to print.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def on_phase(self, phase: str, index: int, done: int, total: int) -> None:
        """Say when a phase is over."""
        if done == total:
            self._line(f"round {index}: {phase}: {total} of {total} calls")

    def on_round(self, task: Task, record: Round) -> None:
        """Print ratings, supports and memory."""
        for voter, row in zip(record.voters, record.ratings, strict=True):
            cells = " ".join(f"{name}={_rating(r)}" for name, r in zip(record.proposers, row, strict=True))
            self._line(f"round {record.index}: {voter} rates {cells}")
        for j, proposal in enumerate(record.proposals):
            mark = " (winner)" if j == record.winner else ""
            self._line(
                f"round {record.index}: {proposal.agent}{mark} support={record.support[j]:+.3f} "
                f"consensus={record.consensus[j]:.3f}: {preview(proposal.text)}"
            )
        for slot in record.memory:
            self._line(
                f"round {record.index}: keeps {slot.agent} of round {slot.round} retention={slot.retention:.3f} "
                f"gate={slot.gate:.2f}: {preview(slot.text)}"
            )
        for note in record.notes:
            self._line(f"round {record.index}: note: {note}")

    def on_end(self, transcript: Transcript) -> None:
        """Say how it ended."""
        self._line(ending(transcript))

    def _line(self, text: str) -> None:
        self.console.print(visible(text), markup=False, emoji=False, soft_wrap=True)


def vote_table(record: Round) -> RenderableType:
    """Voters by proposals with the ratings, and below them supports and consensus."""
    table = Table(title=f"Round {record.index}", title_justify="left", title_style="bold", show_footer=False)
    table.add_column("rated by")
    for j, name in enumerate(record.proposers):
        table.add_column(Text(f"★ {name}" if j == record.winner else name), justify="right")
    for voter, row in zip(record.voters, record.ratings, strict=True):
        table.add_row(Text(voter), *map(rating_text, row))
    table.add_section()
    table.add_row("support", *(f"{s:+.3f}" for s in record.support))
    table.add_row("consensus", *(f"{p:.1%}" for p in record.consensus))
    return table


def memory_table(slots: list[MemorySlot]) -> RenderableType:
    """What the gate keeps, strongest first; dim where the token budget hides it from the agents."""
    table = Table.grid(padding=(0, 1))
    table.add_row(Text("memory", style="bold"))
    for slot in slots:
        bar = "█" * round(10 * slot.retention)
        cells = f"{slot.retention:.2f}", f"{bar:<10}", f"{slot.agent}, round {slot.round}", preview(slot.text)
        table.add_row(*(Text(cell, style="" if slot.shown else "dim") for cell in cells))
    return table


def ending(transcript: Transcript) -> str:
    """Why it stopped and what it cost, in one line."""
    usage = transcript.usage
    price = f", ${usage.price:.4f}" if usage.price else ""
    return (
        f"stopped by {transcript.stop_reason} after {len(transcript.rounds)} rounds: {usage.calls} calls, "
        f"{usage.tokens:,} tokens ({usage.completion_tokens:,} written), {usage.seconds:.1f} s of model time{price}"
    )


def summary_table(summary: Summary) -> RenderableType:
    """How often answers were right, with intervals, and what they cost."""
    usage = summary.usage
    cost = f"{usage.calls:,} calls, {usage.tokens:,} tokens, {usage.seconds:.1f} s of model time"
    table = Table(title=f"{summary.tasks} tasks, {cost}", title_justify="left", title_style="bold")
    table.add_column("right")
    for column in ("n", "accuracy", "95% interval"):
        table.add_column(column, justify="right")
    for what, accuracy in summary.accuracies.items():
        ends = f"{accuracy.low:.1%} to {accuracy.high:.1%}"
        table.add_row(Text(what), str(accuracy.n), f"{accuracy.mean:.1%}", ends)
    return table


def visible(text: str) -> str:
    """A text with every control character but line breaks and tabs replaced."""
    return text.translate(CONTROLS)


def preview(text: str) -> str:
    """A text in one line of at most `PREVIEW` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= PREVIEW else line[: PREVIEW - 1] + "…"


def rating_text(rating: float | None) -> Text:
    """A rating, or a dot where there is none, in the colour of what it says."""
    return Text(_rating(rating), style=_colour(rating))


def _winner(record: Round, index: int) -> RenderableType:
    proposal = record.proposals[index]
    title = f"{proposal.agent} wins, conviction {record.conviction:+.2f}"
    return Panel(Text(visible(proposal.text)), title=Text(title), title_align="left")


def _rating(rating: float | None) -> str:
    return "·" if rating is None else f"{rating:+.2f}"


def _colour(rating: float | None) -> str:
    if rating is None:
        return "dim"
    return "green" if rating > 0.1 else "red" if rating < -0.1 else "yellow"


def undecided(transcript: Transcript) -> str:
    """What to say where the last round's set holds more than one answer; "" where it decides, or nobody calibrated."""
    found = transcript.rounds[-1].answer_set if transcript.rounds else None
    if found is None or found.decided:
        return ""
    proposals = transcript.rounds[-1].proposals
    labels = [visible(shortened(proposals[j].text)) for j in found.answers]
    labels += ["none of these"] if found.none_of_these else []
    return f"undecided: the right answer is among these at {found.coverage:.0%} coverage: {' | '.join(labels)}"


def shortened(text: str, most: int = 60) -> str:
    """The end of a text, where answers stand, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"… {line[-most:]}"
