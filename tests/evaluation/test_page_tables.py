"""Numbers and tables of a study's page, from what the verbs write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nsed_torch.evaluation.comparison import Comparison, scored
from nsed_torch.evaluation.page_tables import (
    accuracy_table,
    budgets_table,
    ci,
    metrics_table,
    num,
    pct,
    results_notes,
    results_table,
    strata_table,
    table,
)
from nsed_torch.evaluation.statistics import share, student
from nsed_torch.records import Outcome, Usage, Verdict

RIGHT, WRONG = Verdict.RIGHT, Verdict.WRONG
SPECIAL = "|\\`*_[]<>&~$#%{}^=+-@'\"!:;,.0 \n\r\t\x1b\x00\u2028\u202e"
HOSTILE = "a | b\n\n# Big\n<script>x</script> ![x](y) `c` *d* \\| {{ 7 * 7 }}"


def data(verdicts, strata=("sums", "words")):
    """What results.json holds of methods with these verdicts."""
    return Comparison.of(
        Outcome(method, f"q{i}", f"q{i}", strata[i % len(strata)], None, "", verdict, Usage(2, 90, 10, 0.5, 4.0))
        for method, row in verdicts.items()
        for i, verdict in enumerate(row)
    ).to_json()


TWO = data({"deliberation": [RIGHT] * 6 + [WRONG] * 2, "plurality": [WRONG] * 8})


def rendered(markdown):
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"mean": 0.8731, "low": 0.8419, "high": 0.9007}, "0.873 [0.842, 0.901]"),
        ({"mean": 0.5, "low": None, "high": None, "n": 1}, "0.500"),
        ({"mean": None, "low": None, "high": None, "n": 0}, "no score"),
        ({"what": "oracle", "right": 6, "tasks": 8}, "0.750 [0.349, 0.968]"),
    ],
)
def test_an_interval_in_words(value, text):
    assert ci(value) == text


def test_differences_have_a_sign():
    assert ci({"mean": 0.02, "low": -0.011, "high": 0.05}, "+") == "+0.020 [-0.011, +0.050]"


def test_shares_and_numbers():
    assert pct(0.8731) == "87.3%"
    assert pct({"mean": 0.8731, "low": 0.8, "high": 0.9}, 0) == "87%"
    assert pct({"mean": None, "low": None, "high": None}) == "no score"
    assert num(2.5, 1) == "2.5"
    assert num(3) == "3.000"


@pytest.mark.parametrize(("show", "value"), [(ci, 0.5), (ci, {"mean": 1}), (pct, "x"), (num, True), (num, None)])
def test_what_is_no_number_is_refused(show, value):
    with pytest.raises(ValueError, match=r"^expected a (mapping with|number)"):
        show(value)


def test_rows_become_a_table():
    rows = [{"family": "sums", "n": 8, "accuracy": {"mean": 0.5, "low": 0.25, "high": 0.75}, "more": 0.12345}]
    rows += [{"family": "words", "n": 10, "accuracy": {"mean": None, "low": None, "high": None}, "more": None}]
    assert table(rows, {"family": "task", "n": "n", "accuracy": "share", "more": "more"}).splitlines() == [
        "| task | n | share | more |",
        "| --- | ---: | ---: | ---: |",
        "| sums | 8 | 0.500 [0.250, 0.750] | 0.123 |",
        "| words | 10 | no score |  |",
    ]
    assert table([["a", 1]], ["x", "y"]).splitlines()[-1] == "| a | 1 |"


def test_a_row_without_a_column_is_named():
    with pytest.raises(ValueError, match="table: expected rows with a, b, got one without 'b'"):
        table([{"a": 1}], ["a", "b"])


@given(st.text(st.sampled_from(SPECIAL), max_size=12) | st.just(HOSTILE))
def test_no_text_breaks_out_of_its_cell(text):
    shown = rendered(table([{text: text, "n": 1}], [text, "n"]))
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert shown == [[line, "n"], [line, "1"]] or text == "n"


def test_methods_side_by_side():
    assert results_table(TWO).splitlines() == [
        "| method | n | accuracy | deliberation minus it | p (Holm) | tokens a task |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| deliberation | 8 | 0.750 [0.349, 0.968] |  |  | 100 |",
        "| plurality | 8 | 0.000 [0.000, 0.369] | +0.750 [+0.182, +0.929] | 0.031 | 100 |",
    ]
    assert [row[0] for row in rendered(results_table(TWO, ["plurality"]))] == ["method", "plurality"]
    with pytest.raises(ValueError, match="expected methods out of deliberation, plurality, got 'pluralty'"):
        results_table(TWO, ["pluralty"])
    assert "Clopper-Pearson" in results_notes(TWO)


def test_methods_by_stratum():
    assert strata_table(TWO).splitlines() == [
        "| method | sums (n = 4) | words (n = 4) |",
        "| --- | ---: | ---: |",
        "| deliberation | 0.750 [0.194, 0.994] | 0.750 [0.194, 0.994] |",
        "| plurality | 0.000 [0.000, 0.602] | 0.000 [0.000, 0.602] |",
    ]


def test_counts_that_differ_stand_with_their_numbers():
    uneven = data({"deliberation": [RIGHT] * 4, "plurality": [WRONG, Verdict.NOT_RUN, WRONG, WRONG]})
    head, *body = rendered(strata_table(uneven))
    assert head == ["method", "sums (n = 2)", "words"]
    assert [row[2][-5:] for row in body] == [" of 2", " of 1"]
    assert strata_table(data({"a": [RIGHT]}, strata=("",))) == "*the tasks name no strata*"


def test_hostile_names_stay_in_their_cells():
    assert rendered(results_table(data({HOSTILE: [RIGHT]})))[1][0].startswith("a | b # Big <script>x</script>")
    assert rendered(strata_table(data({"a": [RIGHT]}, strata=(HOSTILE,))))[0][1].startswith("a | b # Big")


def test_what_tune_wrote():
    scores = {"plurality": dict.fromkeys("abcd", 0.0), "consensus_tuned": dict(zip("abcd", [1, 1, 1, 0], strict=True))}
    data = Comparison.of(scored([scores]), reference="consensus_tuned", by_student=True).to_json()
    assert [row[:4] for row in rendered(metrics_table(data))] == [
        ["method", "n", "accuracy", "consensus_tuned minus it"],
        ["plurality", "4", "0.000 [0.000, 0.000]", "+0.750 [-0.046, +1.546]"],
        ["consensus_tuned", "4", "0.750 [-0.046, 1.546]", ""],
    ]


def test_what_training_judges_wrote():
    value = vars(student([0.0, 1.0]))
    found = metrics_table({"test": {"pairs, ada": {"before": value, "after": value, "difference": value}}})
    assert rendered(found)[0] == ["accuracy", "n", "before", "after", "difference"]
    assert rendered(found)[1][:2] == ["pairs, ada", "2"]


def test_what_collect_wrote():
    accuracies = {"oracle, any proposal": vars(share(6, 8))}
    assert rendered(accuracy_table({"counts": {"accuracies": accuracies}})) == [
        ["what", "n", "accuracy"],
        ["oracle, any proposal", "8", "0.750 [0.349, 0.968]"],
    ]


def test_accuracy_by_budget():
    def curve(*points):
        return [
            {"budget": budget, "cost": cost, "accuracy": {"mean": mean, "low": mean - 0.25, "high": mean + 0.25}}
            for budget, cost, mean in points
        ]

    curves = {
        "broker": curve((0.1, 0.0949, 0.5), (1.0, 0.75, 0.625)),
        "oracle": curve((0.1, 0.1, 0.75), (1.0, 1.0, 0.75)),
    }
    assert budgets_table({"curves": curves}).splitlines() == [
        "| budget | cost of the broker | broker | oracle |",
        "| ---: | ---: | ---: | ---: |",
        "| 0.100 | 0.095 | 0.500 [0.250, 0.750] | 0.750 [0.500, 1.000] |",
        "| 1.000 | 0.750 | 0.625 [0.375, 0.875] | 0.750 [0.500, 1.000] |",
    ]
