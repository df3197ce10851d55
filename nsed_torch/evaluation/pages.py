"""One self-contained page: how a team got to its answer, or all that a run came to."""

import base64
import functools
import hashlib
import html
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from nsed_torch.evaluation.acts import ALONE, TITLES, Act, disks, frames, let_go, load_acts, outvoted
from nsed_torch.evaluation.run_folder import OUTCOMES, Run
from nsed_torch.evaluation.workflows import HEIGHT, SHAPES, WIDTH, drawings
from nsed_torch.records.execution import Execution
from nsed_torch.records.files import write_text
from nsed_torch.records.trace import TRACES
from nsed_torch.records.transcript import MemorySlot, Transcript

EXECUTION = "conduct.json"
"""What `nsed conduct` writes into its folder."""

_STOP_REASONS = {
    "rounds": "all rounds done",
    "evidence": "enough evidence",
    "fatigue": "the most useful round",
    "broker": "nobody else was worth asking",
    "budget": "budget spent",
    "finished": "the team found nothing left to do",
    "no_answers": "nobody answered",
}

# Browsers drop or reinterpret control characters, and UTF-8 has no lone surrogates: show them, lose nothing.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),
}


@dataclass(frozen=True)
class SlotHistory:
    """One memory slot over all rounds."""

    text: str  # what agents read of it
    agent: str  # who wrote it
    born: int  # index of the round it was proposed in
    states: list[MemorySlot | None]  # one entry per round; None where the slot was not in memory
    last: int = 0  # index of the last round after which it was still kept
    source: tuple[int, int] | None = None  # (round index, proposal index) of the proposal it holds word for word
    until: int = 0  # index of the last round after which a memory should hold it; 0 for none, or where nobody knows

    @property
    def runs(self) -> list["Stay"]:
        """The rounds that it was kept in, those alike as one."""
        kept = ((i, state) for i, state in enumerate(self.states) if state is not None)
        looks = groupby(kept, key=lambda entry: (round(entry[1].retention, 2), entry[1].shown))
        return [Stay(rounds[0][0], len(rounds), *look) for look, group in looks for rounds in [list(group)]]


class Stay(NamedTuple):
    """Rounds in which a slot looked alike."""

    start: int  # how many rounds there were before
    length: int
    retention: float
    shown: bool

    @property
    def opacity(self) -> str:
        """How dark it is drawn; the least that was kept can still be seen."""
        return f"{0.12 + 0.88 * self.retention:.2f}".removeprefix("0")


class Moves(NamedTuple):
    """What a round did to the memory."""

    entered: list[int]  # proposals that are in it
    left: list[SlotHistory]  # what was in it before


def slot_histories(transcript: Transcript) -> list[SlotHistory]:
    """Every memory slot over the rounds, in order of birth; the same while its author, round of birth and text stay."""
    kept: dict[tuple[int, str, str], SlotHistory] = {}
    sources: dict[tuple[int, str, str], tuple[int, int]] = {}
    for position, turn in enumerate(transcript.rounds):
        sources |= {(turn.index, p.agent, p.text): (turn.index, j) for j, p in enumerate(turn.proposals)}
        for slot in turn.memory:
            key = slot.round, slot.agent, slot.text
            states: list[MemorySlot | None] = kept[key].states if key in kept else [None] * len(transcript.rounds)
            states[position] = slot
            kept[key] = SlotHistory(slot.text, slot.agent, slot.round, states, turn.index, sources.get(key))
    return sorted(kept.values(), key=lambda history: history.born)


def memory_moves(transcript: Transcript) -> list[Moves]:
    """What each round let into the memory and what it let go."""
    moves = [Moves([], []) for _ in transcript.rounds]
    for history in slot_histories(transcript):
        if history.source:
            moves[history.born - 1].entered.append(history.source[1])
        if history.last < len(moves):
            moves[history.last].left.append(history)
    return moves


def longest_kept(
    transcript: Transcript, needed: Sequence[Sequence[int]] | None = None, most: int = 48
) -> tuple[list[SlotHistory], int]:
    """The notes that a memory held for the most rounds, all that it should have held among them, in order of birth.

    `needed` is as of a trace.

    Returns:
        Those, and how many others there are.
    """
    histories = [
        replace(h, until=needed[h.source[0] - 1][h.source[1]]) if needed and h.source else h
        for h in slot_histories(transcript)
    ]
    best = sorted(histories, key=lambda h: (bool(h.until), h.last - h.born), reverse=True)[:most]
    return sorted(best, key=lambda h: h.born), len(histories) - len(best)


def render_transcript(transcript: Transcript) -> str:
    """Draw a deliberation as one HTML page that needs no network and runs no script.

    Every text is escaped; control characters are drawn as visible symbols. So the page can be encoded as UTF-8
    whatever the texts hold, as can those of the other functions here.
    """
    return _render("report.html.jinja", transcript=transcript)


def framed_transcript(transcript: Transcript) -> str:
    """The page of a deliberation as an element of another page, as a notebook is.

    The frame keeps its style to itself, and runs and loads nothing, whatever a text holds.
    """
    page = html.escape(render_transcript(transcript))
    style = "width: 100%; height: 42em; border: 1px solid #8888"
    return f'<iframe sandbox title="Deliberation" style="{style}" srcdoc="{page}"></iframe>'


def render_execution(execution: Execution) -> str:
    """Draw a question's workflows as one HTML page that needs no network and runs no script.

    A step in a graph is a link to its subtask and its response below.
    """
    return _render("report_conduct.html.jinja", execution=execution)


def render_run(run: Run) -> str:
    """Draw a run as one HTML page that needs no network: overview, list of tasks, every deliberation.

    Everything stands in the page as escaped HTML and can be read without a script; the page's own script, the only
    one its policy allows, filters the list and shows one deliberation at a time.
    """
    script = _environment().get_template("report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _render("report_run.html.jinja", run=run.shown(), digest=digest)


def render_acts(acts: Sequence[Act]) -> str:
    """Draw the acts of `nsed demo` as one HTML page that needs no network and runs no script."""
    return _render("report_acts.html.jinja", acts=acts, titles=TITLES)


def write_report(folder: Path) -> Path:
    """Read a run folder and write `report.html` into it, whole or not at all.

    A folder of `nsed evaluate` or `nsed collect` becomes the page of a run, one of `nsed deliberate` that of its
    transcript, one of `nsed conduct` that of its workflows, one of `nsed demo` that of its acts.
    """
    there = [name for name in (TRACES, OUTCOMES, "transcript.json", ALONE, EXECUTION) if (folder / name).is_file()]
    if {TRACES, OUTCOMES} & set(there):
        page = render_run(Run.load(folder))
    elif "transcript.json" in there:
        page = render_transcript(Transcript.load(folder / "transcript.json"))
    elif ALONE in there:
        page = render_acts(load_acts(folder))
    elif there:
        page = render_execution(Execution.load(folder / EXECUTION))
    else:
        raise ValueError(
            f"{folder}: expected a run folder with a transcript.json, a {EXECUTION} or a {TRACES}, found none; "
            "name the output_dir of a finished `nsed deliberate`, `nsed conduct`, `nsed collect` or `nsed evaluate`"
        )
    target = folder / "report.html"
    write_text(target, page)
    return target


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values) + "\n"


@functools.cache
def _environment() -> Environment:
    # Model text reaches templates as values only, never as template source, so plain autoescaping is enough.
    environment = Environment(
        loader=PackageLoader("nsed_torch.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (_signed, _percent, _number, _seconds, _price, _preview, _lines, _flatten)
    environment.filters |= {function.__name__.removeprefix("_"): function for function in filters}
    environment.globals |= {
        "longest_kept": longest_kept,
        "memory_moves": memory_moves,
        "slot_histories": slot_histories,
        "disks": disks,
        "drawings": drawings,
        "frames": frames,
        "let_go": let_go,
        "outvoted": outvoted,
        "node_width": WIDTH,
        "node_height": HEIGHT,
        "shapes": SHAPES,
        "stop_reasons": _STOP_REASONS,
    }
    return environment


def _visible(value: Any) -> Any:
    """Make what a page cannot carry visible; applied to every value that a template prints."""
    return value.replace("\r\n", "\n").translate(_VISIBLE) if isinstance(value, str) else value


def _signed(number: float) -> str:
    """Two decimals with a sign; what rounds to zero has none."""
    text = f"{number:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def _percent(share: float, whole: float = 1.0) -> str:
    """A share's size as a CSS percentage in 0..100."""
    return f"{min(100 * abs(share) / whole, 100):.0f}%" if whole else "0%"


def _number(value: Any) -> str:
    """Any JSON value in few words: four digits of a number, a dash for nothing."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, list):
        return ", ".join(map(_number, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "\N{MINUS SIGN}")


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _price(dollars: float) -> str:
    if 0 < dollars < 0.0001:
        return "under US$ 0.0001"
    return "US$ 0" if dollars == 0 else "US$ " + f"{dollars:,.4f}".removesuffix("00")


def _preview(text: str, length: int = 140) -> str:
    """The text's beginning on one line."""
    # Only the beginning is split, so a very long text costs nothing.
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length and len(text) <= 4 * length else line[: length - 1].rstrip() + "…"


def _lines(text: str, width: int, count: int) -> list[str]:
    """The text's beginning on a few short lines."""
    return textwrap.wrap(_preview(text, width * count), width, max_lines=count, placeholder="…")


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as (dotted name, value) pairs; what is no text is written as JSON."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
