"""One graded question at a glance: who was right, who believed whom, and what the vote made of it."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nsed_torch.experiments.view import preview, rating_text
from nsed_torch.records import Trace

MARKS = {True: ("✓", "green"), False: ("✗", "red")}


def question_table(trace: Trace) -> RenderableType:
    """The last round of a graded deliberation: a column a proposal, a row a judge with its trust and its ratings.

    Args:
        trace: with its grades.
    """
    record, grades, answers = trace.transcript.rounds[-1], trace.grades[-1], trace.answers[-1]
    table = Table(title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("judge (trust)")
    for j, name in enumerate(record.proposers):
        table.add_column(Text(f"★ {name}" if j == record.winner else name), justify="right")
    table.add_row(
        "answers", *(Text(preview(p.text), style=MARKS[g][1]) for p, g in zip(record.proposals, grades, strict=True))
    )
    table.add_row("", *(Text(*MARKS[grade]) for grade in grades))
    for voter, trust, row in zip(record.voters, record.trust, record.ratings, strict=True):
        table.add_row(Text(f"{voter} ({trust:.2f})"), *(rating_text(rating) for rating in row))
    table.add_row("support", *(f"{support:+.2f}" for support in record.support))
    table.add_row("consensus", *(f"{share:.0%}" for share in record.consensus))
    question = Text(" ".join(trace.transcript.task.question.split()), style="bold")
    return Group(Text(), question, table, Text(_outcome(trace, answers, grades, record.winner)))


def _outcome(trace: Trace, answers: list[str | None], grades: list[bool], winner: int | None) -> str:
    """The vote's answer beside the commonest one, the first of equally common ones."""
    right = dict(zip(answers, grades, strict=True))
    said = [answer for answer in answers if answer is not None]
    commonest = Counter(said).most_common(1)[0][0] if said else None
    elected = None if winner is None else answers[winner]
    parts = [f"target: {trace.transcript.task.target}"] if trace.transcript.task.target else []
    for what, answer in (("the vote", elected), ("the commonest answer", commonest)):
        parts.append(f"{what}: {'none' if answer is None else f'{preview(answer)} {MARKS[right[answer]][0]}'}")
    return " · ".join(parts)
