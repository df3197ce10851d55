"""A study's page: what a template sees, what is missing, and that model text stays text."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from nsed_torch.evaluation.page import StepResults, write_page
from nsed_torch.records import Outcome, Usage, Verdict, write_json

RECORD = {
    "command": ["nsed", "collect", "tasks=file", "methods=[a,b]", "output_dir=runs/x/collect"],
    "fingerprint": "0",
    "version": "1",
    "seconds": 61.2,
    "peak_memory_mib": 812,
    "date": "2026-01-02T03:04:05+00:00",
}
PNG = b"\x89PNG of our own"
HOSTILE = "a | b\n\n# Big\n<script>x</script> ![x](y) `c` *d* {{ 7 * 7 }}"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Renders a template over a finished step, `collect`, and one that has not run, `tune`."""
    monkeypatch.chdir(tmp_path)
    root = Path("runs/x")
    write_json(root / "collect/some.json", {"share": 0.25, "rows": [{"a": HOSTILE, "n": 3}], "text": HOSTILE})
    (root / "collect/plots").mkdir()
    (root / "collect/plots/cost.png").write_bytes(PNG)

    def render(text, record=RECORD, root=root, outdated=False):
        Path("page.md.jinja").write_text(text)
        steps = [StepResults("collect", root, record, outdated=outdated), StepResults("tune", root, None)]
        return write_page("page.md.jinja", steps, Path("docs/page.md"), figures=Path("docs/page")).read_text()

    return render


def test_values_of_a_step(page):
    text = page('{{ steps.collect.json("some.json").share | pct }}, {{ steps.collect.json("some.json").share + 1 }}')
    assert text == "25.0%, 1.25\n"


def test_a_command_with_its_cost(page):
    block = "```sh\nnsed collect tasks=file 'methods=[a,b]' output_dir=runs/x/collect\n```\n\n"
    block += "61 s, 812 MiB at most, 2026-01-02"
    assert page("{{ command(steps.collect) }}") == f"{block}.\n"
    assert page("{{ command(steps.collect) }}", outdated=True) == f"{block}; the study has changed since.\n"


def test_a_long_command_is_one_command_in_lines(page):
    words = ["nsed", "collect", *(f"key_{i}=a value of some length" for i in range(9))]
    text = page("{{ steps.collect.command }}", {**RECORD, "command": words})
    assert max(map(len, text.splitlines())) <= 112
    assert text.count("\\\n") == text.count("\n") - 1 > 1
    assert text.replace(" \\\n   ", "") == "nsed collect " + " ".join(f"'{word}'" for word in words[2:]) + "\n"


def test_figures_are_copied_and_linked_from_the_page(page, tmp_path):
    text = page('{{ figure(steps.collect, "plots/cost.png", "cost | accuracy") }}')
    assert text == "![cost \\| accuracy](page/collect-plots-cost.png)\n"
    assert (tmp_path / "docs/page/collect-plots-cost.png").read_bytes() == PNG


MISSING = [
    ('{{ steps.tune.json("metrics.json") }}', "*not run: tune/metrics.json*"),
    ('{{ steps.tune.json("metrics.json").paired["a"].mean | pct }}', "*not run: tune/metrics.json*"),
    ('{{ 1 - 2 * steps.tune.json("metrics.json").a }}', "*not run: tune/metrics.json*"),
    ('{{ steps.tune.json("metrics.json").rows | table(["a"]) }}', "*not run: tune/metrics.json*"),
    ('{% for x in steps.tune.json("metrics.json").items() %}x{% endfor %}.', "."),
    ('{{ steps.collect.json("metrics.json") | ci }}', "*not run: collect/metrics.json*"),
    ("{{ metrics_table(steps.tune) }}", "*not run: tune/metrics.json*"),
    ("{{ results_table(steps.collect, ['a']) }}", "*not run: collect/results.json*"),
    ("{{ rounds_table(steps.tune) }}{{ law_text(steps.tune) }}", "*not run: tune/results.json*" * 2),
    ('{{ variants_table({"a": steps.collect, "b": steps.tune}) }}', "*not run: collect/outcomes.jsonl*"),
    ('{{ judging_table({"a *b*": steps.tune}) }}', r"*not run: a \*b\**"),
    ("{{ command(steps.tune) }}", "*not run: tune*"),
    ("{{ steps.tune.seconds }}", "*not run: tune*"),
    ('{{ figure(steps.tune, "plots/cost.png", "cost") }}', "*not run: tune/plots/cost.png*"),
    ('{{ steps.tune.markdown("sweep.md") }}', "*not run: tune/sweep.md*"),
]


@pytest.mark.parametrize(("template", "text"), MISSING)
def test_what_is_missing_is_a_visible_line(page, template, text):
    assert page(template) == f"{text}\n"


def test_files_of_an_unfinished_step_are_not_shown(page):
    assert page('{{ steps.collect.json("some.json") }}', record=None) == "*not run: collect/some.json*\n"


def test_costs_tell_of_every_step(page):
    *_, collect, tune = page("{{ costs(steps) }}", outdated=True).splitlines()
    assert collect == "| collect | outdated | 61 s | 812 | 2026-01-02 |"
    assert tune == "| tune | not run |  |  |  |"


@pytest.mark.parametrize(
    "expression",
    ["some.text", "some", "some.rows", "some.text ~ 1", "[some.text] | join(' ')", "macro(some.text)"],
)
def test_texts_are_never_read_as_markdown(page, expression):
    head = "{% macro macro(x) %}**{{ x }}**{% endmacro %}"
    text = page(f'{head}{{% set some = steps.collect.json("some.json") %}}| x |\n| --- |\n| {{{{ {expression} }}}} |')
    tokens = MarkdownIt().enable("table").parse(text)
    kinds = {token.type for token in tokens} | {c.type for token in tokens for c in token.children or ()}
    assert kinds.isdisjoint(
        {"heading_open", "html_inline", "html_block", "image", "link_open", "code_inline", "em_open"}
    )
    assert [token.type for token in tokens].count("td_open") == 1
    assert "7 * 7" in "".join(c.content for token in tokens for c in token.children or ())


def test_macros_and_tables_stay_markdown(page):
    template = '{% macro bold(x) %}**{{ x }}**{% endmacro %}{{ bold("*") }}\n\n'
    text = page(template + '{{ steps.collect.json("some.json").rows | table({"n": "n"}) }}')
    assert text == "**\\***\n\n| n |\n| ---: |\n| 3 |\n"


def test_headings_of_a_verbs_own_markdown_stand_below_the_pages(page, tmp_path):
    (tmp_path / "runs/x/collect/sizes.md").write_text("# Sizes\n\n| #1 |\n\n## By kind\n#no heading\n")
    text = page('{{ steps.collect.markdown("sizes.md", below=2) }}')
    assert text == "### Sizes\n\n| #1 |\n\n#### By kind\n#no heading\n"
    assert page('{{ steps.collect.markdown("sizes.md") }}').startswith("# Sizes\n")


def test_equal_bytes_each_time_and_no_path_of_this_machine(page, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/" + "home/ada")
    places = {"a": str(tmp_path / "data/x"), "b": str(tmp_path / "runs/x/collect"), "c": "/" + "home/ada/y"}
    write_json(tmp_path / "runs/x/collect/places.json", places)
    record = {**RECORD, "command": ["nsed", "collect", f"output_dir={tmp_path}/runs/x/collect"]}
    template = '{{ steps.collect.command }} {{ steps.collect.json("places.json").values() | join(" ") }}'
    text = page(template, record, tmp_path / "runs/x")
    assert text == "nsed collect output_dir=runs/x/collect data/x runs/x/collect \\~/y\n"
    assert page(template, record, tmp_path / "runs/x") == text
    monkeypatch.chdir(tmp_path / "docs")  # the study lies elsewhere
    assert page(template, record, tmp_path / "runs/x").startswith("nsed collect output_dir=x/collect ")


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("\n{{ steps.colect }}", "line 2: 'dict object' has no attribute 'colect'"),
        ('{{ steps.collect.json("some.json").shar }}', "line 1: 'dict object' has no attribute 'shar'"),
        ("\n\n{% if %}", "line 3: Expected an expression"),
        ("{{ nothing }}", "line 1: 'nothing' is undefined"),
        ('{{ steps.collect.json("../../secret.json") }}', "line 1: step collect: expected a file in its folder"),
        ("{{ steps.collect._root.unlink() }}", "line 1: access to attribute '_root' of 'StepResults' object is unsafe"),
        ('{{ steps.collect.json("some.json").text | ci }}', "line 1: expected a mapping with mean, low and high"),
        ('{{ steps.collect.json("some.json").text + 1 }}', "line 1: can only concatenate str"),
    ],
)
def test_faults_of_a_template_are_one_line(page, tmp_path, template, line):
    with pytest.raises(ValueError, match=r"^page template page.md.jinja: ") as fault:
        page(template)
    assert str(fault.value).removeprefix("page template page.md.jinja: ").startswith(line)
    assert not (tmp_path / "docs").exists()


def test_the_package_s_own_templates_are_found_by_name_and_others_refused(tmp_path):
    steps = [StepResults(name, tmp_path, None) for name in ("collect", "tune", "evaluate")]
    path = write_page("study_demo.md.jinja", steps, tmp_path / "page.md", figures=tmp_path)
    assert path.read_text().count("*not run:") >= 9
    with pytest.raises(ValueError, match=r"^page template nowhere.jinja: .*nowhere.jinja"):
        write_page("nowhere.jinja", steps, tmp_path / "page.md", figures=tmp_path)


def test_one_method_as_several_runs_had_it(page, tmp_path):
    def outcome(method, task, verdict):
        return Outcome(method, task, task, "", None, "", verdict, Usage(2, 90, 10, 0.5, 4.0)).to_line()

    lines = [outcome("deliberation", f"q{i}", Verdict.RIGHT if i < 6 else Verdict.WRONG) for i in range(8)]
    lines += [outcome("plurality", "q0", Verdict.WRONG)]
    (tmp_path / "runs/x/collect/outcomes.jsonl").write_text("".join(lines))
    text = page('{{ variants_table({"fresh *cell*": steps.collect, "again": steps.collect}) }}')
    head, _, *rows = text.splitlines()
    assert head.startswith(r"| method | n | accuracy | fresh \*cell\* minus it |")
    assert rows == [
        r"| fresh \*cell\* | 8 | 0.750 [0.349, 0.968] |  |  | 100 |",
        "| again | 8 | 0.750 [0.349, 0.968] | +0.000 [-0.324, +0.324] | 1.000 | 100 |",
    ]
    text = page('{{ variants_table({"a": steps.collect, "b": steps.tune}) }}')
    assert text.splitlines()[2:] == ["| a | 8 | 0.750 [0.349, 0.968] |  |  | 100 |", "", "*not run: b*"]
    text = page('{{ variants_table({"a": steps.collect}, "plurality") }}')
    assert text.splitlines()[2:] == ["| a | 1 | 0.000 [0.000, 0.975] |  |  | 100 |"]
