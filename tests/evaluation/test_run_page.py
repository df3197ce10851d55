"""The page of a run: everything stands in it, its script only shows and hides, and texts stay texts."""

import base64
import dataclasses
import hashlib
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, Page, answered, example, outcome, trace

from nsed_torch.evaluation.comparison import Comparison, MethodResult, Paired
from nsed_torch.evaluation.pages import render_run, write_report
from nsed_torch.evaluation.run_folder import Run, TaskEntry
from nsed_torch.evaluation.statistics import Estimate
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Proposal, Task, Transcript, Usage
from nsed_torch.records.withholding import WITHHELD

NUMBERS = {
    "benchmark": "digits",
    "reference": "deliberation",
    "insight": {"p_g": 0.123456789, "flips": [{"round": 2, "lost": 0}, {"round": 3, "lost": 1}], "T_opt": None},
    "versions": {"torch": "2.8.0"},
}
RESULTS = Comparison(
    "deliberation",
    {
        "deliberation": MethodResult(3, Estimate(3, 2 / 3, 0.094, 0.992), {}, Usage(9, 15000, 507), {}),
        "debate": MethodResult(3, Estimate(3, 1.0, 0.292, 1.0), {}, Usage(3, 300, 0, 0.0045), {}),
        "single": MethodResult(3, Estimate(0), {}, Usage(), {}),
    },
    {"debate": Paired(Estimate(3, -1 / 3, -0.9, 0.4), 0, 1, "by hand", 1.0, 1.0), "single": Paired(Estimate(0), 0, 0)},
)


def run(numbers=NUMBERS, transcript: Transcript | None = None, text: str = "71, says the debate.") -> Run:
    """Three tasks; the third has no deliberation."""
    entries = [
        TaskEntry(
            name,
            trace(name, first, last, transcript) if first is not None else None,
            (
                outcome("deliberation", name, verdict, example().answer, "71"),
                outcome("debate", name, Verdict.RIGHT, text, text),
            ),
        )
        for name, first, last, verdict in [
            ("one", True, True, Verdict.RIGHT),
            ("two", True, False, Verdict.WRONG),
            ("three", None, None, Verdict.NOT_RUN),
        ]
    ]
    return Run(numbers, RESULTS, entries, [("cost", "data:image/png;base64,iVBORw==")])


@pytest.fixture(scope="module")
def html() -> str:
    return render_run(run())


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def test_methods_stand_side_by_side(page):
    rows = page.words("table", class_="methods")[0]
    assert "deliberation 3 66.7 [9.4, 99.2] - 5,169 (5,169) US$ 0" in rows
    assert "debate 3 100.0 [29.2, 100.0] -33.3 [-90.0, 40.0] p 1 100 (100) US$ 0.0045" in rows
    assert "single 0 - - 0 (0) US$ 0" in rows
    drawn = [attrs["style"] for _, attrs in page.elements if attrs.get("class") in {"range", "dot"}]
    assert drawn == ["--l:9%;--h:99%", "--m:67%", "--l:29%;--h:100%", "--m:100%"]


def test_insight_and_provenance_are_shown(page):
    folded = page.words("details", class_="numbers")
    assert "right before anybody heard another (p_g) 0.1235 T opt -" in page.words("dl", class_="pairs")
    assert "flips round lost 2 0 3 1" in folded
    assert "versions torch 2.8.0" in folded
    assert page.words("figcaption") == ["cost"]


def test_the_headline_says_who_won_by_how_much_at_what_tokens(page):
    told = (
        "debate is right most often: 100.0% of 3 questions, deliberation 66.7%; that is +33.3 points [-40.0, +90.0], "
    )
    assert page.words("p", class_="headline") == [told + "which may be chance, at 100 tokens a task against 5,169."]
    ahead = {**RESULTS.methods, "debate": dataclasses.replace(RESULTS.methods["debate"], accuracy=Estimate(3, 1 / 3))}
    sure = {"debate": Paired(Estimate(3, 1 / 3, 0.1, 0.5), 1, 0)}
    text = dataclasses.replace(run(), results=Comparison("deliberation", ahead, sure)).headline
    assert "deliberation is right most often: 66.7% of 3 questions, debate 33.3%; that is +33.3 points [+10.0," in text
    assert "chance" not in text
    alone = Comparison("deliberation", {"deliberation": RESULTS.methods["deliberation"]}, {})
    assert dataclasses.replace(run(), results=alone).headline == ""


def test_what_helps_most_is_open_and_plots_follow_the_dark(html):
    numbers = {**NUMBERS, "insight": {"course": {"rounds": []}, "p_v": {"auc": 0.5}, "adoption": {"rounds": []}}}
    opened = re.findall(r"<details class=\"numbers\" open><summary><bdi>(\w+)", render_run(run(numbers)))
    assert opened == ["course", "adoption"]
    assert "[data-theme=dark] img { filter: invert" in html
    assert "hidden ones did not\n    fit into their prompts, or repeat a shown one" in html


def test_an_estimate_takes_one_line_of_a_table():
    half = {"n": 4, "mean": 0.5, "low": 0.1, "high": 0.9, "interval": "Wilson"}
    course = {"rounds": [{"round": 1, "accuracy": half}, {"round": 2, "accuracy": {**half, "mean": 1}}]}
    told = render_run(run({**NUMBERS, "insight": {"course": course}}))
    assert re.findall(r"<span title=\"Wilson\">([^<]*)</span>", told) == ["0.5 [0.1, 0.9], n 4", "1 [0.1, 0.9], n 4"]


def test_one_task_has_no_interval_and_a_long_table_shows_some_of_its_rows():
    one = {"n": 1, "mean": 0.0, "low": 0.0, "high": 0.79, "interval": "Wilson"}
    insight = {"tasks": 1, "course": {"rounds": [{"round": r, "accuracy": one} for r in range(1, 136)]}, "p_g": 0.5}
    told = render_run(run({**NUMBERS, "insight": insight}))
    assert "0.79]" not in told
    shown = re.findall(r"<td>([0-9]+)</td><td>\s*<span title=\"Wilson\">([^<]*)</span>", told)
    assert (len(shown), shown[-2:]) == (20, [("133", "0 of 1"), ("135", "0 of 1")])
    assert "One of 7 rows is shown, and the last; there are 135." in told
    assert "right before anybody heard another (p_g)" in told
    assert not re.findall(r"<details class=\"numbers\" open>", told)


def test_steps_are_told_as_steps_in_the_page_of_a_run():
    settings = {**example().settings, "unit": "step"}
    steps = render_run(run(transcript=dataclasses.replace(example(), settings=settings)))
    assert 'id="t1-steps"' in steps
    assert 'id="t1-r1"' in steps
    assert 'id="t1-memory"' not in steps
    assert "by round" not in steps


def test_the_list_says_what_became_of_each_task(page):
    items = page.words("li")
    first = next(item for item in items if item.startswith("one "))
    for words in ("Which is larger, 17 or 71?", "✓ right", "by round ✓ right ✓ right ✓ right", "2 of 2 methods right"):
        assert words in first
    rows = [attrs for tag, attrs in page.elements if tag == "li" and "data-tags" in attrs]
    assert [row["data-tags"] for row in rows] == ["right disagree", "wrong lost disagree", "ungraded"]
    assert [row["data-share"] for row in rows] == ["1.0", "0.5", "1.0"]
    chips = page.words("label", class_="chip")
    assert chips == [
        "All 3",
        "Right 1",
        "Wrong 1",
        "Right → wrong 1",
        "Wrong → right 0",
        "Agents disagree 2",
        "Not graded 1",
    ]


def test_each_task_has_its_deliberation_with_marks(page):
    articles = page.words("article")
    assert len(articles) == 3
    assert "✗ wrong right → wrong agents disagree sums Question Which is larger, 17 or 71?" in articles[1]
    assert "Ada ✓ right 71 winner" in articles[1]
    assert "Ben ✗ wrong 17 cut at its allowance" in articles[1]
    assert "Cleo ✗ wrong no final answer" in articles[1]
    assert "debate ✓ right 71, says the debate. text 71, says the debate. 150" in articles[1]
    assert "deliberation ✗ wrong 71 word for word this proposal 150" in articles[1]
    assert "No deliberation of this task is recorded here." in articles[2]
    assert "deliberation not run 71" in articles[2]


def test_links_ids_and_headings_hold_together(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = [attrs["href"] for tag, attrs in page.elements if tag == "a" and "href" in attrs]
    assert {href[1:] for href in used if href.startswith("#")} <= set(ids)
    assert all(href.startswith("#") for href in used)
    named = [attrs[key] for _, attrs in page.elements for key in ("aria-labelledby", "for") if key in attrs]
    assert set(named) <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in page.elements if tag == "th")


def test_only_the_page_s_own_script_may_run(page):
    policy = next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    [script] = page.find("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert all(attrs["src"].startswith("data:image/png;base64,") for tag, attrs in page.elements if tag == "img")


def test_the_script_makes_no_markup_and_asks_no_network(page):
    [script] = page.find("script")
    banned = r"(inner|outer)HTML|insertAdjacent|createElement|document\.write|DOMParser|eval|Function|setTimeout|fetch"
    assert not re.search(banned + r"|XMLHttpRequest|WebSocket|import|localStorage|https?:", script)


def test_what_the_script_looks_for_is_there(page):
    [script] = page.find("script")
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    wanted = set(re.findall(r'byId\("(\w+)"\)', script)) | set(
        re.findall(r'"(\w+)"', script.split("map(byId)")[0].split("= [")[-1])
    )
    assert {"list", "search", "order", "stratum", "help", "count", "overview"} <= wanted <= ids
    classes = {name for _, attrs in page.elements for name in (attrs.get("class") or "").split()}
    assert {"previous", "next", "place"} <= classes
    rows = [attrs for tag, attrs in page.elements if tag == "li" and "data-tags" in attrs]
    orders = [attrs["value"] for tag, attrs in page.elements if tag == "option" and "value" in attrs and attrs["value"]]
    assert len(orders) == 4
    assert all(float(row[f"data-{order}"]) is not None for row in rows for order in orders)


def test_without_a_script_everything_can_be_read(html, page):
    assert not [attrs for _, attrs in page.elements if "hidden" in attrs]
    style = html.split("<script>")[0]
    assert "html:not(.js) .script { display: none; }" in style
    assert not re.search(r"(?<!\.js )article \{[^}]*display: none", style)


def test_hostile_text_stays_text():
    plain = Page(render_run(run(transcript=answered("q", "a"), text="b")))
    hostile = Page(render_run(run({**NUMBERS, "benchmark": HOSTILE}, answered(HOSTILE, HOSTILE), HOSTILE)))
    assert {tag for tag, _ in hostile.elements} == {tag for tag, _ in plain.elements}
    assert HOSTILE in hostile.find("h1")[0]
    assert hostile.find("div", class_="text").count(HOSTILE) == 4 * 2 + 1  # the debate said what a proposal says


@settings(max_examples=8, deadline=None)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=200))
def test_no_text_changes_the_page_around_it(text):
    def skeleton(words: str) -> list[tuple[str, list[str]]]:
        numbers = {**NUMBERS, "benchmark": "n" + words, "insight": {"i" + words: ["x" + words]}}
        html = render_run(run(numbers, answered("q" + words, "a" + words), "b" + words))
        return [(tag, sorted(attrs)) for tag, attrs in Page(html.encode().decode()).elements]

    assert skeleton(text) == skeleton("c")


def test_withheld_texts_are_nowhere():
    html = render_run(run({**NUMBERS, "withheld": True}))
    texts = [example().task.question, "says the debate", "On reflection", "subtraction proves", "71, as 71 ="]
    shown = render_run(run())
    assert [text in shown for text in texts] == [True] * len(texts)
    assert [text in html for text in texts] == [False] * len(texts)
    assert Page(html).find("div", class_="text")[0] == WITHHELD
    assert "Ada ✓ right" in Page(html).words("article")[0]


def test_a_large_run_stays_small():
    """Five hundred tasks of three rounds in 20 MB leave 40 kB a task; markup takes less than half of it."""

    def size(count: int) -> int:
        base = example()
        entries = []
        for k in range(count):
            rounds = [
                dataclasses.replace(
                    turn,
                    proposals=[Proposal(p.agent, f"{p.agent} {k}", "stop") for p in turn.proposals],
                )
                for turn in (base.rounds[0], base.rounds[2], base.rounds[2])
            ]
            rounds = [dataclasses.replace(turn, index=i, critiques=[]) for i, turn in enumerate(rounds, 1)]
            transcript = dataclasses.replace(base, task=Task("Why?", f"t{k}"), rounds=rounds)
            entries.append(TaskEntry(f"t{k}", trace(f"t{k}", True, True, transcript)))
        return len(render_run(Run({}, Comparison("", {}, {}), entries, [])))

    assert (size(6) - size(1)) / 5 < 20_000


def test_a_folder_of_traces_becomes_the_page_of_a_run(tmp_path):
    lines = [trace("one", True, True).to_line(), trace("two", True, False).to_line()]
    (tmp_path / "traces.jsonl").write_text("".join(lines), encoding="utf-8")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert page.words("h1") == ["2 tasks"]
    assert "oracle, any proposal" in page.words("table", class_="methods")[0]
    assert len(page.find("article")) == 2


def test_a_single_broken_line_leaves_no_page(tmp_path):
    (tmp_path / "traces.jsonl").write_text(trace("one", True, True).to_line() + "{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"traces\.jsonl:2"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
