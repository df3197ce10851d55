"""Over seeds of training a mean, its interval and its test treat a seed as a draw, and a question as a draw."""

from dataclasses import replace

import numpy as np
import pytest

from nsed_lab.studies.recompute import Run, hold
from nsed_lab.studies.training_seeds import SeedFigures, drawn, family
from nsed_torch.evaluation.statistics import sign_flip
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage


def outcomes(method, right, by_lot=None):
    verdicts = {True: Verdict.RIGHT, False: Verdict.WRONG}
    return [
        Outcome(
            method,
            f"q{i:04}",
            f"q{i:04}",
            "sums" if i % 2 else "words",
            None,
            "",
            verdicts[bool(one)],
            Usage(),
            by_lot=by_lot,
        )
        for i, one in enumerate(right)
    ]


def runs(seeds):
    return {
        f"team{f'_{i}' if i else ''}": outcomes("deliberation", rows[0]) + outcomes("router", rows[1])
        for i, rows in enumerate(seeds)
    }


RNG = np.random.default_rng(0)
SEEDS = [(RNG.random(200) < 0.8, RNG.random(200) < 0.6) for _ in range(3)]
PAIR = ("team", "deliberation", "team", "router")


def test_means_are_over_seeds_and_each_is_told():
    figures = SeedFigures(runs(SEEDS), [PAIR])
    means = [rows[0].mean() for rows in SEEDS]
    assert figures.over_seeds("team").startswith(f"{np.mean(means):.3f} [")
    assert figures.each_seed("team") == ", ".join(f"{mean:.3f}" for mean in means)
    gap = np.mean([a.mean() - b.mean() for a, b in SEEDS])
    assert figures.minus_over_seeds(*PAIR).startswith(f"{gap:+.3f} [")
    assert figures.minus_over_seeds(*PAIR, each=True) == ", ".join(f"{a.mean() - b.mean():+.3f}" for a, b in SEEDS)
    words = [rows[0][::2].mean() for rows in SEEDS]
    assert figures.each_seed("team", kind="words") == ", ".join(f"{mean:.3f}" for mean in words)


def test_an_interval_knows_that_seeds_differ():
    questions = RNG.random((1, 400))
    alike = drawn(np.repeat((questions < 0.5).astype(float), 3, axis=0))
    apart = drawn(np.concatenate([questions < rate for rate in (0.3, 0.5, 0.7)]).astype(float))
    assert alike.low == pytest.approx(
        alike.mean - 1.96 * 0.025, abs=0.005
    )  # three copies of a seed say no more than one
    assert apart.high - apart.low > 3 * (alike.high - alike.low)
    narrow = drawn(np.concatenate([questions < rate for rate in (0.3, 0.5, 0.7)]).astype(float), level=0.9)
    assert apart.low < narrow.low < narrow.high < apart.high


def test_p_is_of_questions_averaged_over_seeds_and_adjusted_over_the_family():
    both = [*runs(SEEDS).items()]
    plurality = {name: [*those, *outcomes("plurality", SEEDS[0][0])] for name, those in both}
    other = ("team", "deliberation", "team", "plurality")
    alone = SeedFigures(plurality, [other]).p_over_seeds(*other)
    differences = np.mean([rows[0].astype(float) - SEEDS[0][0] for rows in SEEDS], axis=0)
    p = sign_flip(differences.tolist())[1]
    assert alone == f"{p:.3f}"
    assert (
        SeedFigures(plurality, [other, PAIR, ("team", "router", "team", "router")]).p_over_seeds(*other)
        == f"{min(1, 2 * p):.3f}"
    )


def test_ties_count_by_lot():
    figures = SeedFigures({"team": outcomes("deliberation", [1, 0, 1], by_lot=0.25)}, [])
    assert figures.each_seed("team") == "0.250"
    assert figures.each_seed("team", "deliberation:decided") == "0.667"


def test_tokens_are_of_all_seeds():
    cheap, dear = (
        [replace(o, usage=Usage(1, n, 0, computed_tokens=n // 2)) for o in outcomes("deliberation", [1, 0])]
        for n in (10, 20)
    )
    assert SeedFigures({"team": cheap, "team_1": dear}, []).tokens_over_seeds("team") == "8 (15)"


def test_seeds_on_other_questions_are_refused():
    given = runs(SEEDS) | {"team_2": outcomes("deliberation", [1, 0])}
    with pytest.raises(
        ValueError, match="expected outcomes of deliberation in every seed of team on the same questions"
    ):
        SeedFigures(given, []).over_seeds("team")


def test_claims_name_the_family():
    assert family("# words\n= a deliberation, b router\n| x |\n") == [("a", "deliberation", "b", "router")]
    with pytest.raises(ValueError, match="expected `= RUN METHOD, RUN METHOD`"):
        family("= a deliberation over b")


def test_a_page_over_seeds_is_held_and_an_altered_outcome_is_seen():
    given = runs(SEEDS)
    expression = "minus_over_seeds('team', 'deliberation', 'team', 'router')"
    claims = f"= team deliberation, team router\nless the router {{{{ {expression} }}}}"

    def wrong(those):
        functions = SeedFigures(those, family(claims)).functions()
        text = f"less the router {SeedFigures(given, []).minus_over_seeds(*PAIR)}"
        return hold("page", text, claims, {name: Run(one) for name, one in those.items()}, functions).wrong

    assert not wrong(given)
    altered = [(SEEDS[0][0], SEEDS[0][1]), (~SEEDS[1][0], SEEDS[1][1]), SEEDS[2]]
    assert wrong(runs(altered))
