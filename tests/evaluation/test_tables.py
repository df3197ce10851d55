"""Tables: the numbers of the results, and names that stay data in every format."""

import csv as reading
import io

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.tables import UNNAMED, csv, latex, markdown, markdown_text, notes, terminal
from nsed_torch.parts.ties import Ties
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

SPECIAL = "|\\`*_[]<>&~$#%{}^=+-@'\"!:;,.0 \n\r\t\x1b\x00\u2028\u202e"
NAMES = st.text(st.sampled_from(SPECIAL) | st.characters(exclude_categories=["Cs"]), max_size=12)


def results(verdicts, *, strata=("",), epochs=1, ties=None):
    """Method -> verdicts, in the order of the methods."""
    outcomes = [
        Outcome(
            method, f"q{i}", f"g{i // epochs}", strata[i % len(strata)], None, "", verdict, Usage(2, 90, 10, 0.5, 4.0)
        )
        for method, row in verdicts.items()
        for i, verdict in enumerate(row)
    ]
    return Comparison.of(outcomes, ties=ties)


def two(mine="deliberation", other="plurality", **more):
    right, wrong = Verdict.RIGHT, Verdict.WRONG
    return results({mine: [right] * 6 + [wrong] * 2, other: [wrong] * 7 + [Verdict.FAILED]}, **more)


def one_line(text):
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def rendered(text):
    """Tables of a Markdown text as a reader sees them; anything but plain text in a cell fails."""
    tables = []
    tokens = MarkdownIt().enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and before.type in ("td_open", "th_open"):
            assert {child.type for child in token.children} <= {"text"}
            tables[-1][-1].append("".join(child.content for child in token.children))
    return tables


def read(text):
    return list(reading.DictReader(io.StringIO(text, newline="")))


DIFFERENCES = (
    "Differences are taken question by question, with 95% intervals (Tango); p by McNemar, exact, two-sided, "
    "adjusted by Holm for 1 comparison."
)


def test_markdown_holds_the_numbers():
    head, *lines = markdown(two(ties=Ties.FIRST)).splitlines()
    assert head.startswith("| method | n | accuracy | deliberation minus it | p (Holm) | tokens per task (billed) |")
    assert head.endswith(r"| relative tokens | US\$ | seconds |")
    assert lines == [
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| deliberation | 8 | 0.750 [0.349, 0.968] |  |  | 100 (100) | 1.00 | 4.0000 | 32.0 |",
        "| plurality | 8 | 0.000 [0.000, 0.369] | +0.750 [+0.182, +0.929] | 0.031 | 100 (100) | 1.00 | 4.0000 | 32.0 |",
        "",
        "n counts questions with a score; epochs of one question are averaged first.",
        "Accuracy with 95% intervals over questions (Clopper-Pearson).",
        DIFFERENCES,
        "Tokens are those computed: what the calls of a task share counts once. In brackets are those billed.",
        "Ties go to what stands first: a team's first proposal, a plurality's first agent or sample.",
        "Failed, and so counted as wrong: 1 of 8 tasks of plurality.",
    ]


def test_csv_holds_what_results_hold():
    rows = read(csv(two(strata=("easy", ""))))
    assert [(row["method"], row["stratum"]) for row in rows] == [
        ("deliberation", ""),
        ("plurality", ""),
        ("deliberation", UNNAMED),
        ("deliberation", "easy"),
        ("plurality", UNNAMED),
        ("plurality", "easy"),
    ]
    first, second, third = rows[:3]

    def shown(row, *columns):
        return [row[column] for column in columns]

    difference = ("reference", "paired.difference.mean", "paired.difference.n", "paired.test", "paired.p_holm")
    assert shown(first, "accuracy.n", "accuracy.mean", *difference) == ["8", "0.75", "deliberation", *[""] * 4]
    assert shown(second, *difference) == ["deliberation", "0.75", "8", "McNemar, exact", "0.03125"]
    assert shown(second, "verdicts.failed", "usage.price", "seconds", "usage.calls") == ["1", "4", "32", "16"]
    assert shown(third, "accuracy.n", "accuracy.interval", "usage.price") == ["4", "Clopper-Pearson", ""]


def test_strata_have_a_table_of_their_own():
    _, strata = rendered(markdown(two(strata=("easy", ""))))
    assert [row[:3] for row in strata] == [
        ["stratum", "method", "n"],
        [UNNAMED, "deliberation", "4"],
        [UNNAMED, "plurality", "4"],
        ["easy", "deliberation", "4"],
        ["easy", "plurality", "4"],
    ]
    assert strata[3][3] == "0.750 [0.194, 0.994]"


def test_what_has_no_number_says_so():
    unrun = results({"a": [Verdict.NOT_RUN] * 2, "b": [Verdict.RIGHT] * 2})
    (table,) = rendered(markdown(unrun))
    assert table[1][1:5] == ["0", "no score", "", ""]
    assert table[2][1:5] == ["2", "1.000 [0.158, 1.000]", "no score", ""]
    assert notes(unrun)[-1] == "Not run, and so without a score: 2 of 2 answers of a."
    assert not any("Differences" in note for note in notes(unrun))


def test_notes_name_the_intervals_and_tests_of_epochs():
    verdicts = [Verdict.RIGHT, Verdict.WRONG, Verdict.RIGHT, Verdict.RIGHT]
    text = " ".join(notes(results({"a": verdicts, "b": [Verdict.WRONG] * 4}, epochs=2)))
    assert "(Clopper-Pearson, Student)" in text  # all of b's are wrong
    assert "intervals (Student); p by sign flips, exact, two-sided" in text


@given(NAMES, NAMES)
def test_names_come_back_from_markdown(name, stratum):
    tables = rendered(markdown(two(name, name + "2", strata=(stratum,))))
    assert [row[0] for row in tables[0][1:]] == [one_line(name), one_line(name + "2")]
    assert tables[0][0][3] == one_line(f"{name} minus it")
    assert all(len(row) == len(tables[0][0]) for row in tables[0])
    if stratum:
        assert [row[:2] for row in tables[1][1:]] == [[one_line(stratum), one_line(n)] for n in (name, name + "2")]


def test_latex_has_the_tables_with_names_as_text():
    text = latex(two("a_b & c\n$x$"))
    assert text.count(r"\begin{tabular}") == len(rendered(markdown(two("a_b"))))
    assert r"a\_b \& c \$x\$ & 8 & 0.750" in text


@example("\t=1+1", "'=1")
@example("\r-1", "@x")
@example("'", "+")
@given(NAMES, NAMES)
def test_names_come_back_from_csv_and_start_no_formula(name, stratum):
    rows = read(csv(two(name, name + "2", strata=(stratum,))))
    for row in rows:
        for column in ("method", "stratum", "reference"):
            assert not row[column].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert [row["method"].removeprefix("'") for row in rows[:2]] == [name, name + "2"]


@given(NAMES)
def test_a_terminal_obeys_no_name(name):
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(terminal(two(name)))
    text = console.export_text()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert one_line(name) in " ".join(text.split()) or not one_line(name)
    assert "+0.750 [+0.182, +0.929]" in text


@given(NAMES)
def test_text_in_a_line_is_shown_as_it_is(text):
    assert "\n" not in markdown_text(text)
    (inline,) = [t for t in MarkdownIt().parse("so: " + markdown_text(text)) if t.type == "inline"]
    assert "".join(child.content for child in inline.children) == ("so: " + one_line(text)).strip()
