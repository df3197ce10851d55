"""A study's page: what a template sees, what is missing, and that texts from files stay texts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markdown_it import MarkdownIt

from nsed_lab.fatigue_law import fit_fatigue_law
from nsed_lab.studies import page as module
from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.set_coverage import coverage_summary
from nsed_torch.evaluation.statistics import Estimate, plain, share
from nsed_torch.records.files import write_json
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

RIGHT, WRONG = Verdict.RIGHT, Verdict.WRONG
COMMAND = ["nsed", "collect", "tasks=file", "methods=[a,b]", "output_dir=runs/x/collect"]
RECORD = {"command": COMMAND, "seconds": 3945.0, "peak_memory_mib": 812, "date": "2026-01-02T03:04:05+00:00"}
PNG = b"\x89PNG of our own"
SPECIAL = "|\\`*_[]<>&~$#%{}^=+-@'\"!:;,.0 \n\r\t\x1b\x00\u2028\u202e"
HOSTILE = "a | b\n\n# Big\n<script>x</script> ![x](y) `c` *d* \\| {{ 7 * 7 }}"


def outcomes(verdicts, strata=("sums", "words")):
    """Of methods with these verdicts."""
    return [
        Outcome(method, f"q{i}", f"q{i}", strata[i % len(strata)], None, "", verdict, Usage(2, 90, 10, 0.5, 4.0))
        for method, row in verdicts.items()
        for i, verdict in enumerate(row)
    ]


def insight(accuracies, *, p_g=0.5):
    """Of deliberations with these accuracies, a round each, over 1000 tasks."""
    rounds = [
        {"round": r, "deliberating": 1000, "accuracy": Estimate(1000, a, a - 0.1, a + 0.1), "tokens": 90.4 * r}
        for r, a in enumerate(accuracies, 1)
    ]
    return plain(
        {
            "tasks": 1000,
            "course": {"rounds": rounds},
            "p_g": {"pooled": Estimate(90, p_g, 0.4, 0.6)},
            "p_v": {"pooled": {"auc": Estimate(0), "sign": Estimate(60, 0.75, 0.7, 0.8)}},
        }
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of a finished step, beside which nothing has run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "TEMPLATES", tmp_path)
    step = Path("runs/x/collect")
    write_json(step / "step.json", RECORD)
    return step


@pytest.fixture
def render(folder, capsys):
    """The page of a template; its steps are `collect`, which has run, and `tune`, which has not."""

    def render(text, *, anew=True):
        Path("page.md.jinja").write_text(text)
        if anew:
            Path("docs/page.md").unlink(missing_ok=True)
        module.main("page", Path("runs/x"), Path("docs/page.md"), ["collect", "tune"])
        assert capsys.readouterr().out == "docs/page.md\n"
        return Path("docs/page.md").read_text()

    return render


def cells(markdown):
    """The cells of the one table that a reader sees; anything but plain text in one fails."""
    rows, tokens = [], MarkdownIt().enable("table").parse(markdown)
    assert [token.type for token in tokens if token.level == 0] == ["table_open", "table_close"]
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and before.type in {"td_open", "th_open"}:
            assert {child.type for child in token.children} <= {"text", "text_special"}
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def test_the_studies_own_pages_tell_what_has_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    makefile = (Path(module.__file__).parents[2] / "Makefile").read_text().replace("\\\n", "")
    for template in ("demo", "results", "results_tables", "results_members", "recorded"):
        name = "EXPERTS" if template.startswith("results") else template.upper()
        (steps,) = (line.split(":=")[1].split() for line in makefile.splitlines() if line.startswith(f"{name} :="))
        module.main(template, Path("runs/x"), Path(f"{template}.md"), steps)
        text = Path(f"{template}.md").read_text()
        assert text.startswith("# ")
        assert text.count("*not run: ") > 5
        assert text.count("| not run |") == (0 if template in {"results", "results_members"} else len(steps))


def test_a_command_with_its_costs(render, folder, tmp_path):
    words = [*COMMAND[:-1], *(f"key_{i}=a value of some length" for i in range(9)), f"data_dir={tmp_path}/data"]
    write_json(folder / "step.json", {**RECORD, "command": words})
    block, cost = render("{{ command(steps.collect) }}").removeprefix("```sh\n").split("\n```\n\n")
    assert cost == "66 min, 812 MiB at most, 2026-01-02.\n"
    assert max(map(len, block.splitlines())) <= 112
    assert block.replace(" \\\n   ", "").split()[:4] == ["nsed", "collect", "tasks=file", "'methods=[a,b]'"]
    assert block.endswith(" data_dir=data")
    *_, collect, tune = render("{{ costs(steps) }}").splitlines()
    assert collect == "| collect | complete | 66 min | 812 | 2026-01-02 |"
    assert tune == "| tune | not run |  |  |  |"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ('{{ steps.tune.json("metrics.json").paired["a"].mean | pct }}', "*not run: tune/metrics.json*"),
        ('{{ 1 - 2 * steps.tune.json("metrics.json").a }}', "*not run: tune/metrics.json*"),
        ('{{ steps.tune.json("metrics.json").rows | table(["a"]) }}', "*not run: tune/metrics.json*"),
        ('{% for x in steps.tune.json("metrics.json").items() %}x{% endfor %}.', "."),
        ("{{ results_table(steps.collect, ['a']) }}", "*not run: collect/results.json*"),
        ("{{ rounds_table(steps.tune) }}{{ law_text(steps.tune) }}", "*not run: tune/results.json*" * 2),
        ('{{ variants_table({"a": steps.collect, "b": steps.tune}) }}', "*not run: collect/outcomes.jsonl*"),
        ('{{ judging_table({"a *b*": steps.tune}) }}', r"*not run: a \*b\**"),
        ("{{ command(steps.tune) }}", "*not run: tune*"),
        ('{{ figure(steps.tune, "plots/cost.png", "cost") }}', "*not run: tune/plots/cost.png*"),
        ('{{ steps.tune.markdown("sweep.md") }}', "*not run: tune/sweep.md*"),
    ],
)
def test_what_is_missing_is_a_visible_line(render, template, text):
    assert render(template) == f"{text}\n"


def test_files_of_an_unfinished_step_are_not_shown(render, folder):
    write_json(folder / "some.json", {"share": 0.25})
    template = '{{ steps.collect.json("some.json").share | pct }}'
    assert render(template) == "25.0%\n"
    (folder / "step.json").unlink()
    assert render(template) == "*not run: collect/some.json*\n"


@pytest.mark.parametrize("template", ["{{ steps.colect }}", "{{ nothing }}", '{{ steps.collect.json("a.json").shar }}'])
def test_misspelled_names_are_errors(render, folder, template):
    write_json(folder / "a.json", {"share": 1})
    with pytest.raises(UndefinedError):
        render(template)
    assert not Path("docs").exists()


def test_figures_are_copied_and_linked_from_the_page(render, folder):
    (folder / "plots").mkdir()
    (folder / "plots/cost.png").write_bytes(PNG)
    text = render('{{ figure(steps.collect, "plots/cost.png", "cost | accuracy") }}')
    assert text == "![cost \\| accuracy](page/collect-plots-cost.png)\n"
    assert Path("docs/page/collect-plots-cost.png").read_bytes() == PNG


def test_headings_of_a_verbs_own_markdown_stand_below_the_pages(render, folder):
    (folder / "sizes.md").write_text("# Sizes\n\n| #1 |\n\n## By kind\n#no heading\n")
    text = render('{{ steps.collect.markdown("sizes.md", below=2) }}')
    assert text == "### Sizes\n\n| #1 |\n\n#### By kind\n#no heading\n"


def test_no_path_of_this_machine(render, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/" + "home/ada")
    write_json(folder / "places.json", [str(tmp_path / "data/x"), "/" + "home/ada/y"])
    assert render('{{ steps.collect.json("places.json") | join(" ") }}') == "data/x \\~/y\n"


@pytest.mark.parametrize(
    "expression", ["some.text", "some", "some.text ~ 1", "[some.text] | join(' ')", "macro(some.text)"]
)
def test_texts_are_never_read_as_markdown(render, folder, expression):
    write_json(folder / "some.json", {"text": HOSTILE})
    head = "{% macro macro(x) %}**{{ x }}**{% endmacro %}"
    text = render(f'{head}{{% set some = steps.collect.json("some.json") %}}| x |\n| --- |\n| {{{{ {expression} }}}} |')
    tokens = MarkdownIt().enable("table").parse(text)
    kinds = {token.type for token in tokens} | {c.type for token in tokens for c in token.children or ()}
    assert kinds.isdisjoint(
        {"heading_open", "html_inline", "html_block", "image", "link_open", "code_inline", "em_open"}
    )
    assert [token.type for token in tokens].count("td_open") == 1
    assert "7 * 7" in "".join(c.content for token in tokens for c in token.children or ())


@given(st.text(st.sampled_from(SPECIAL), max_size=12) | st.just(HOSTILE))
def test_no_text_breaks_out_of_its_cell(text):
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert cells(module.table([[text, 1]], {"a": text, "b": "n"})) == [[line, "n"], [line, "1"]]


def test_hostile_names_stay_in_their_cells(render, folder):
    runs = outcomes({HOSTILE: [RIGHT]}, strata=(HOSTILE,))
    write_json(folder / "results.json", Comparison.of(runs).to_json())
    (folder / "outcomes.jsonl").write_text("".join(outcome.to_line() for outcome in runs))
    assert cells(render("{{ results_table(steps.collect) }}"))[1][0].startswith("a | b # Big <script>x</script>")
    assert cells(render("{{ strata_table(steps.collect) }}"))[0][1].startswith("a | b # Big")
    assert "\n#" not in render("{{ results_notes(steps.collect) }}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"mean": 0.8731, "low": 0.8419, "high": 0.9007}, "0.873 [0.842, 0.901]"),
        ({"mean": 0.5, "low": None, "high": None, "n": 1}, "0.500"),
        ({"mean": None, "low": None, "high": None, "n": 0}, "no score"),
        ({"what": "oracle", "right": 6, "tasks": 8}, "0.750 [0.349, 0.968]"),
    ],
)
def test_numbers_with_their_intervals(value, text):
    assert module.ci(value) == text
    assert module.ci({"mean": 0.02, "low": -0.011, "high": 0.05}, "+") == "+0.020 [-0.011, +0.050]"
    assert (module.pct({"mean": 0.8731, "low": 0.8, "high": 0.9}, 0), module.num(2.5, 1)) == ("87%", "2.5")


def test_rows_become_a_table():
    rows = [{"family": "sums", "n": 8, "accuracy": {"mean": 0.5, "low": 0.25, "high": 0.75}, "more": 0.12345}]
    rows += [{"family": "words", "n": 10, "accuracy": {"mean": None, "low": None, "high": None}, "more": None}]
    assert module.table(rows, {"family": "task", "n": "n", "accuracy": "share", "more": "more"}).splitlines() == [
        "| task | n | share | more |",
        "| --- | ---: | ---: | ---: |",
        "| sums | 8 | 0.500 [0.250, 0.750] | 0.123 |",
        "| words | 10 | no score |  |",
    ]


def test_what_evaluate_wrote(render, folder):
    runs = outcomes({"deliberation": [RIGHT] * 6 + [WRONG] * 2, "plurality": [WRONG] * 7 + [Verdict.NOT_RUN]})
    write_json(folder / "results.json", Comparison.of(runs).to_json())
    (folder / "outcomes.jsonl").write_text("".join(outcome.to_line() for outcome in runs))
    assert render("{{ results_table(steps.collect) }}").splitlines() == [
        "| method | n | accuracy | deliberation minus it | p (Holm) | tokens per task |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| deliberation | 8 | 0.750 [0.349, 0.968] |  |  | 100 |",
        "| plurality | 7 | 0.000 [0.000, 0.410] | +0.857 [+0.199, +0.974] | 0.031 | 100 |",
    ]
    assert [row[0] for row in cells(render("{{ results_table(steps.collect, ['plurality']) }}"))[1:]] == ["plurality"]
    assert "Clopper-Pearson" in render("{{ results_notes(steps.collect) }}")
    assert cells(render("{{ strata_table(steps.collect) }}")) == [
        ["method", "sums (n = 4)", "words"],
        ["deliberation", "0.750 [0.194, 0.994]", "0.750 [0.194, 0.994] of 4"],
        ["plurality", "0.000 [0.000, 0.602]", "0.000 [0.000, 0.708] of 3"],
    ]
    template = '{{ variants_table({"fresh *cell*": steps.collect, "again": steps.collect, "b": steps.tune}) }}'
    assert render(template).splitlines() == [
        r"| method | n | accuracy | fresh \*cell\* minus it | p (Holm) | tokens per task |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        r"| fresh \*cell\* | 8 | 0.750 [0.349, 0.968] |  |  | 100 |",
        "| again | 8 | 0.750 [0.349, 0.968] | +0.000 [-0.324, +0.324] | 1.000 | 100 |",
        "",
        "*not run: b*",
    ]


def test_what_deliberations_tell(render, folder):
    write_json(folder / "results.json", {"insight": insight([0.5, 0.625])})
    assert render("{{ rounds_table(steps.collect) }}").splitlines()[2:] == [
        "| 1 | 1000 | 0.500 [0.400, 0.600] | 90 |",
        "| 2 | 1000 | 0.625 [0.525, 0.725] | 181 |",
    ]
    assert render("{{ law_text(steps.collect) }}") == "No law: a law needs at least 4 rounds, got 2: record more.\n"
    assert render('{{ judging_table({"with | names": steps.collect}) }}').splitlines() == [
        r"| run | p\_g | p\_v, pairs | p\_v, signs | accuracy | gain over p\_g |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        r"| with \| names | 0.500 [0.400, 0.600] | no score | 0.750 [0.700, 0.800] | 0.625 [0.525, 0.725] | +0.125 |",
    ]
    data = {"insight": insight([0.5, 0.7, 0.8, 0.85, 0.87]) | {"tasks": 100}}
    write_json(folder / "results.json", data)
    text = render("{{ law_text(steps.collect) }}")
    law = fit_fatigue_law([0.5, 0.7, 0.8, 0.85, 0.87], 100)
    assert text.startswith(f"p\\_g {law.p_g:.3f} [{law.p_g_interval.low:.3f}, ")
    assert f"peak in rounds {law.t_opt:.3f} [{law.t_opt_interval.low:.3f}, unbounded], R² {law.r_squared:.2f}. " in text
    assert text.endswith("beta may be 0: no fatigue is shown; record more rounds to bound t\\_opt.\n")


def test_what_tune_wrote(render, folder):
    scores = {"plurality": dict.fromkeys("abcd", 0.0), "consensus_tuned": dict(zip("abcd", [1, 1, 1, 0], strict=True))}
    tuned = Comparison.of(scored([scores]), reference="consensus_tuned", by_student=True)
    write_json(folder / "metrics.json", tuned.to_json())
    assert cells(render("{{ metrics_table(steps.collect) }}")) == [
        ["method", "n", "accuracy", "consensus_tuned minus it"],
        ["plurality", "4", "0.000 [0.000, 0.000]", "+0.750 [-0.046, +1.000]"],
        ["consensus_tuned", "4", "0.750 [0.000, 1.000]", ""],
    ]
    curve = [{"budget": 0.1, "cost": 0.0949, "accuracy": {"mean": 0.5, "low": 0.25, "high": 0.75}}]
    write_json(folder / "cost.json", {"curves": {"broker": curve, "oracle": curve}})
    assert render('{{ budgets_table(steps.collect.json("cost.json")) }}').splitlines() == [
        "| budget | cost of the broker | broker | oracle |",
        "| ---: | ---: | ---: | ---: |",
        "| 0.100 | 0.095 | 0.500 [0.250, 0.750] | 0.500 [0.250, 0.750] |",
    ]
    rows = [("law", True, 0.9), ("law", False, 0.4), ("physics", False, 0.8), ("physics", True, 0.6)]
    told = {
        str(i): {"covered": right, "size": 1, "decided": True, "right": right, "chance": chance, "category": category}
        for i, (category, right, chance) in enumerate(rows)
    }
    write_json(folder / "metrics.json", {"sets": plain(coverage_summary(told, 0.8))})
    sets = '{% set sets = steps.collect.json("metrics.json").sets %}'
    assert [row[:2] for row in cells(render(f"{sets}{{{{ coverage_table(sets, sets) }}}}"))[1:]] == [
        ["all", "4"],
        ["law", "2"],
        ["physics", "2"],
    ]
    assert cells(render(f"{sets}{{{{ surest_table(sets) }}}}"))[-1] == ["100%", "4", "0.500 [0.068, 0.932]"]


def test_what_collect_wrote(render, folder):
    accuracies = {"oracle, any proposal": plain(share(6, 8))}
    write_json(folder / "collect.json", {"counts": {"accuracies": accuracies}})
    assert cells(render("{{ accuracy_table(steps.collect) }}")) == [
        ["what", "n", "accuracy"],
        ["oracle, any proposal", "8", "0.750 [0.349, 0.968]"],
    ]


def test_a_part_of_a_study_does_not_overwrite_a_page_that_has_more(folder, render):
    template = '{{ steps.collect.json("one.json") }} {{ steps.tune.json("one.json") }}'
    write_json(folder / "one.json", 7)
    assert render(template, anew=False) == "7 *not run: tune/one.json*\n"
    (folder / "one.json").unlink()
    with pytest.raises(ValueError, match=r"expected no more than 1 places that have not run, .* got 2"):
        render(template, anew=False)
    assert Path("docs/page.md").read_text() == "7 *not run: tune/one.json*\n"
    write_json(folder / "one.json", 8)
    assert render(template, anew=False) == "8 *not run: tune/one.json*\n"


def test_the_claims_of_the_seed_papers_outlive_a_page_that_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module.main(
        "results",
        Path("runs/x"),
        Path("results.md"),
        ["all_cell", "baselines", "confirmed", "confirmed_untrained", "published", "tuned"],
    )
    claims = (module.TEMPLATES / "claims.md").read_text()
    assert claims.count("\n|") > 12
    assert claims in Path("results.md").read_text()
    assert claims in (Path(module.__file__).parents[2] / "pages/results.md").read_text()
