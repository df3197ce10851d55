"""Numbers of pages are those of the stored outcomes: as the pages stand, and not once anything was altered."""

import gzip
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsed_lab.studies import recompute as module
from nsed_lab.studies.recompute import (
    LAB,
    NUMBER,
    TIES,
    UNSTORED,
    Run,
    check,
    compare,
    consistent,
    hold,
    keep,
    redrawn,
    summary,
    told,
    worked_out,
)
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records.files import write_json
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

PAGES = sorted(path.stem for path in (LAB / "data").glob("*.claims"))
RIGHT, WRONG = Verdict.RIGHT, Verdict.WRONG
CLAIMS = '| team | {{ accuracy("run") }} |\n? about 0.5 :: a guess\n'


def outcome(method, task, verdict, answer=None):
    return Outcome(method, task, task, "kind", answer, "", verdict, Usage(1, 8, 2))


def runs(verdicts=(RIGHT, WRONG, RIGHT, RIGHT)):
    return {"run": Run(outcome("deliberation", f"q{i}", verdict) for i, verdict in enumerate(verdicts))}


@pytest.fixture(scope="module")
def sharing():
    """Text, claims and runs of the page that compares teams."""
    stored = {path.name.removesuffix(".jsonl.gz"): Run.load(path) for path in (LAB / "data/sharing").glob("*.gz")}
    return (LAB / "pages/sharing.md").read_text(), (LAB / "data/sharing.claims").read_text(), stored


@pytest.mark.parametrize("page", PAGES)
def test_pages_hold(page):
    report = check(page)
    assert report.wrong == []
    assert report.checked > {"sharing": 180}.get(page, 0)  # most of the page of teams
    assert page != "sharing" or len(report.excused) <= 10


def test_a_wrong_number_of_the_readme_shows():
    text, claims = summary("README"), told("README", (LAB / "data/README.claims").read_text())
    rows = [line for line in text.splitlines() if "lab/pages/" in line]
    assert len(rows) == 6
    for row in rows:
        for figure in {match[0] for match in NUMBER.finditer(row) if "." in match[0]}:
            altered = row.replace(figure, f"{float(figure) + 0.111:.3f}")
            assert compare("README", text.replace(row, altered), claims).wrong, figure
    planted = text + "\nThat is 12.3 times as many.\n"
    assert [line for line in compare("README", planted, claims).wrong if "12.3 is in no claim" in line]


def test_stored_outcomes_are_small_and_name_no_folder():
    files = sorted((LAB / "data").rglob("*.gz"))
    assert files
    assert sum(path.stat().st_size for path in files) <= 5_000_000
    assert not [path for path in files if re.search(rb'"/\w|\\\\|~/', gzip.decompress(path.read_bytes()))]
    assert {path.read_bytes()[4:8] for path in files} == {b"\0\0\0\0"}  # no time of making


def test_every_number_of_the_page_that_was_worked_out_counts(sharing):
    text, claims, stored = sharing
    truth = worked_out("sharing", claims, stored)
    assert compare("sharing", text, truth).wrong == []
    rows = [row for row in text.splitlines() if row.startswith("|") and re.search(r"\d\.\d", row)]
    assert len(rows) > 15
    for row in rows:
        figures = [f for f in NUMBER.finditer(re.sub(r"`[^`]*`", lambda code: "#" * len(code[0]), row)) if "." in f[0]]
        for figure in figures[:: max(1, len(figures) - 1)]:
            altered = row[: figure.end() - 1] + str((int(row[figure.end() - 1]) + 1) % 10) + row[figure.end() :]
            assert compare("sharing", text.replace(row, altered), truth).wrong, altered


@pytest.mark.parametrize("name", ["seed5_activated", "seed6_second", "seed6_int8", "seed6_eight_rounds"])
def test_a_flipped_outcome_shows(sharing, name):
    text, claims, stored = sharing
    run = stored[name]
    of_run = "\n".join(line for line in claims.splitlines() if f'"{name}"' in line)
    assert not [line for line in hold("sharing", text, of_run, stored).wrong if "expected once" in line]
    for method in ["deliberation"] if name == "seed6_int8" else run.methods:  # the page has that run's team alone
        at = next(i for i, o in enumerate(run.outcomes) if o.method == method and o.verdict is RIGHT)
        flipped = [replace(o, verdict=WRONG) if i == at else o for i, o in enumerate(run.outcomes)]
        wrong = hold("sharing", text, of_run, {**stored, name: Run(flipped)}).wrong
        assert [line for line in wrong if "expected once" in line or "plurality of the stored" in line], method


@pytest.mark.parametrize(("rule", "other"), [("first", "last"), ("last", "first"), ("expected", "first")])
def test_another_rule_for_ties_shows(sharing, monkeypatch, rule, other):
    monkeypatch.setitem(TIES, rule, TIES[other])
    assert hold("sharing", *sharing).wrong


def test_a_number_that_nobody_claims_is_named():
    report = hold("page", "| team | 0.750 [0.194, 0.994] |\n\nabout 0.5, and\n0.25 of 12\n", CLAIMS, runs())
    assert report.wrong == ["page.md:4: 0.25 is in no claim of data/page.claims"]
    assert (report.checked, report.left, report.excused) == (3, ["page.md:4: 0.25 12"], ["about 0.5 (a guess)"])


def test_what_does_not_hold_is_shown_beside_what_the_page_has():
    text = "| team | 0.760 [0.194, 0.994] |\nabout 0.5\n"
    first = hold("page", text, CLAIMS, runs()).wrong[0]
    assert first == (
        "data/page.claims:1: expected once, found 0 times: | team | 0.750 [0.194, 0.994] |\n"
        "  the page has: | team | 0.760 [0.194, 0.994] | about 0.5"
    )


def test_digits_in_commands_are_no_claims():
    text = "```sh\nnsed x=0.125\n```\n`y=0.25` [here](x-0.5.md)\n| team | 0.750 [0.194, 0.994] | about 0.5\n"
    assert hold("page", text, CLAIMS, runs()).wrong == []


def test_a_recorded_plurality_that_the_answers_do_not_give_is_named():
    said = [("a", "1", WRONG), ("b", "2", RIGHT)]
    singles = [outcome(f"single:{name}", "q", verdict, answer) for name, answer, verdict in said]
    assert list(Run([*singles, outcome("plurality", "q", WRONG, "1")]).problems("run")) == []
    wrong = list(Run([*singles, outcome("plurality", "q", RIGHT, "2")]).problems("run"))
    assert wrong == ["run: plurality of the stored answers is not the stored plurality for q"]


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from([90, 95]))
def test_bootstrap_quantiles_are_those_of_all_draws(wins, losses, even, level):
    values = [1] * wins + [-1] * losses + [0] * even
    if not 1 <= (n := len(values)) <= 5:
        return
    means = np.sort([sum(draw) / n for draw in product(values, repeat=n)])
    ends = [means[int(np.ceil(round(q * len(means), 9))) - 1] for q in (0.5 - level / 200, 0.5 + level / 200)]
    found = redrawn(wins, losses, level, Estimate(n, (wins - losses) / n))
    assert [found.low, found.high] == pytest.approx(ends)


def test_what_is_kept_has_no_texts_and_one_word_for_equal_answers(tmp_path):
    folder, file = tmp_path / "run", tmp_path / "data/run.jsonl.gz"
    folder.mkdir()
    row = replace(outcome("single:b", "q", RIGHT, "The"), text="secret", note="why", usage=Usage(1, 8, 2, 0.5, 3.0, 4))
    (folder / "outcomes.jsonl").write_text(row.to_line())
    write_json(folder / "one.json", {"task": {"id": "q"}, "rounds": [{"classes": [0, 0]}], "answers": [["the", "The"]]})
    (folder / "traces.jsonl").write_text((folder / "one.json").read_text().replace("\n", " ") + "\n")
    keep(folder, file)
    first = file.read_bytes()
    keep(folder, file)
    assert file.read_bytes() == first
    (stored,) = Run.load(file).outcomes
    assert stored == replace(row, answer="the", text="", note="", usage=Usage(1, 8, 2, computed_tokens=4))


def test_the_command_fails_where_a_page_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "UNSTORED", ())
    monkeypatch.setattr(module, "check", lambda name: hold(name, "0.5", "", {}))
    assert module.main(["page"]) == 1
    assert "WRONG page.md:1: 0.5 is in no claim" in capsys.readouterr().out
    monkeypatch.setattr(module, "check", lambda name: hold(name, "5", "", {}))
    assert module.main(["page"]) == 0
    assert "unchecked page.md:1: 5" in capsys.readouterr().out


def test_make_runs_it():
    makefile = (LAB.parent / "Makefile").read_text()
    assert "-m nsed_lab.studies.recompute" in makefile.split("check-results:")[1].split("\n\n")[0]
    assert Path(module.__file__).name == "recompute.py"


@pytest.mark.parametrize("page", UNSTORED)
def test_tables_without_outcomes_follow_from_their_n(page):
    text = (LAB / f"pages/{page}.md").read_text()
    report = consistent(page, text)
    assert report.wrong == []
    assert report.checked > 40


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("| b | 12 | 0.250 [0.055, 0.572] | +0.500 [0.1, 0.8] |", ""),
        ("| b | 12 | 0.251 [0.055, 0.572] | |", "is the interval of no number of right answers out of 12"),
        ("| b | 12 | 0.250 [0.055, 0.573] | |", "is the interval of no number of right answers out of 12"),
        ("| b | 12 | 0.250 [0.055, 0.572] | +0.417 [0.1, 0.8] |", "is no difference of the accuracies beside it"),
        ("| b | 11 | 0.273 [0.060, 0.610] | +0.417 [0.1, 0.8] |", ""),  # of other questions
    ],
)
def test_a_table_that_contradicts_itself_is_named(row, wrong):
    head = "| method | n | accuracy | a minus it |\n| --- | --- | --- | --- |\n| a | 12 | 0.750 [0.428, 0.945] | |\n"
    report = consistent("page", head + row + "\n")
    assert [line.startswith("page.md:4: ") and wrong in line for line in report.wrong] == [True] * bool(wrong)


def test_a_quoted_number_must_stand_where_the_row_says(tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages/source.md").write_text("it has +0.125 [0.100, 0.150]")
    head = "| claim | numbers | where |\n| --- | --- | --- |\n"
    right, other = (f"{head}| a | {number} | [there](source.md#part) |\n" for number in ("0.125", "0.126"))
    assert consistent("page", right, tmp_path).wrong == []
    assert consistent("page", other, tmp_path).wrong == ["page.md:3: 0.126 is not on source.md"]


def test_the_claims_of_the_seed_papers_quote_what_other_pages_have():
    text = (LAB / "pages/results.md").read_text()
    claims = [line for line in text.splitlines() if re.match(r"\| .*\]\([\w/]+\.md\) \|$", line)]
    assert len(claims) > 12
    for line in claims:
        for figure in re.findall(r"\d\.\d{3}", line)[:2]:
            altered = line.replace(figure, f"{(float(figure) + 0.3331) % 1:.4f}", 1)
            assert consistent("results", text.replace(line, altered)).wrong, altered
