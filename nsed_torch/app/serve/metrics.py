"""What the server counts, as Prometheus reads it."""

from collections import Counter

HELP = {
    "requests_total": ("counter", "Chat completions by model and HTTP status; 499 is a client that left."),
    "tokens_total": ("counter", "Tokens of all calls as billed, by model and kind."),
    "request_seconds_total": ("counter", "Seconds from a request to the end of its answer, by model."),
    "batches_total": ("counter", "Batches that went through the models."),
    "batch_tasks_total": ("counter", "Tasks of all batches."),
    "batch_seconds_total": ("counter", "Seconds of all batches."),
    "queue_length": ("gauge", "Questions that wait."),
    "running": ("gauge", "Questions that are deliberated on."),
}


class Metrics:
    """Numbers by name and labels. Labels are the server's own words, never a client's: nobody can make them many."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, number: float = 1, **labels: str | int) -> None:
        """Count on."""
        shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
        self._numbers[name, shown and f"{{{shown}}}"] += number  # type: ignore[assignment] # seconds are no whole numbers

    def text(self, **now: float) -> str:
        """All numbers in Prometheus' text format, with those of this moment."""
        values = [*self._numbers.items(), *(((name, ""), value) for name, value in now.items())]
        lines = []
        for name, (kind, gloss) in HELP.items():
            lines += [f"# HELP nsed_{name} {gloss}", f"# TYPE nsed_{name} {kind}"]
            lines += [f"nsed_{name}{labels} {value:.10g}" for (of, labels), value in values if of == name]
        return "\n".join(lines) + "\n"
