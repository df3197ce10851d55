"""Numbers of steps are worked out anew from what is stored, and are those that a run says of itself."""

import functools
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from nsed_lab.studies import step_odds
from nsed_lab.studies.recompute import LAB, Run, hold
from nsed_lab.studies.step_odds import OddsFigures, load_odds
from nsed_lab.studies.step_outcomes import ENDING, VOTE, StepFigures, keep_steps, load_steps
from nsed_torch.evaluation.horizon import step_errors
from nsed_torch.evaluation.statistics import share, shown
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.transcript import Usage

PAGES = ("forms", "steps", "towers")
STORED = {page: sorted((LAB / "data" / page).glob("*.gz")) for page in PAGES}
RUNS = {
    page: {path.name.removesuffix(ENDING): load_steps(path) for path in stored if path.name.endswith(ENDING)}
    for page, stored in STORED.items()
}
ODDS_READ = {  # worked out once, for no test tells them another way
    page: {name: functools.cache(figure) for name, figure in OddsFigures(read).functions().items()}
    for page, stored in STORED.items()
    for read in [{p.name.removesuffix(step_odds.ENDING): load_odds(p) for p in stored if p.match("*.odds.*")}]
}
WHOLE = {
    page: {
        path.name.removesuffix(".jsonl.gz"): Run.load(path)
        for path in stored
        if not path.name.endswith((ENDING, step_odds.ENDING))
    }
    for page, stored in STORED.items()
}


def say(page, runs, names):
    """Claims about these runs that the page does not have; `test_recompute` holds it against all the others, too."""
    text, claims = (LAB / f"pages/{page}.md").read_text(), (LAB / f"data/{page}.claims").read_text()
    told = [line for line in claims.splitlines() if any(name in line for name in names)]
    found = hold(page, text, "\n".join(told), WHOLE[page], StepFigures(runs).functions() | ODDS_READ[page])
    return [line for line in found.wrong if "expected once" in line]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_tells_its_steps_as_they_are_stored(page):
    assert say(page, RUNS[page], RUNS[page]) == []


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in PAGES for name in sorted(RUNS[page])])
def test_a_step_that_is_told_another_way_shows_on_the_page(page, name):
    first, *others = json.loads(json.dumps(RUNS[page][name]))
    winner = first["rounds"][0][0]
    first["rounds"][0][1][winner][1] = 0
    first["right"] = not first["right"]
    assert say(page, {**RUNS[page], name: [first, *others]}, [name])


@pytest.fixture
def rounds():
    """Of two tasks, all that three can do in a round, one after the other; right work ends where the vote errs."""
    ways = list(itertools.product((True, False), repeat=3))
    return [ways[:5], ways[:2] * 3]


def test_it_counts_as_the_package_does(rounds, tmp_path):
    names, lines, outcomes, traces = ("ant", "bee", "cat"), [], [], []
    for number, grades in enumerate(rounds):
        texts = [
            ["right" if ok else f"wrong {'alike' if i else 'first'}" for i, ok in enumerate(row)] for row in grades
        ]
        winners = [row.index(sum(row) > 1) for row in grades]
        record = [
            {"winner": w, "proposals": [{"agent": n, "text": t} for n, t in zip(names, said, strict=True)]}
            for w, said in zip(winners, texts, strict=True)
        ]
        line = {"task": {"id": f"q{number}"}, "rounds": record, "grades": grades, "stop_reason": "finished"}
        lines.append(json.dumps(line) + "\n")
        verdict = Verdict.RIGHT if number else Verdict.WRONG
        outcomes.append(Outcome("deliberation", f"q{number}", f"q{number}", "kind", None, "", verdict, Usage(1, 8, 2)))
        traces.append(json.loads(lines[-1], object_hook=lambda found: SimpleNamespace(**found)))
    (tmp_path / "traces.jsonl").write_text("".join(lines))
    (tmp_path / "outcomes.jsonl").write_text("".join(outcome.to_line() for outcome in outcomes))
    keep_steps(tmp_path, tmp_path / f"run{ENDING}")
    figures = StepFigures({"run": load_steps(tmp_path / f"run{ENDING}")})
    found = step_errors(
        [SimpleNamespace(transcript=SimpleNamespace(**vars(trace)), grades=trace.grades) for trace in traces]
    )
    for who in (*names, VOTE):
        assert figures.errors("run", who) == shown(found["wrong"][who])
        assert figures.foretold_steps("run", who) == pytest.approx(found["foretold"][who])
    assert figures.errors("run", "ant bee cat") == figures.errors("run")  # plurality elected
    each = [ok for number, task in enumerate(rounds) for row in task[: [4, 6][number]] for ok in row]
    assert figures.errors("run", "ant|bee|cat") == shown(share(each.count(False), len(each)))
    assert figures.errors("run", "bee cat") == figures.errors("run", "bee")  # ties go to the first
    for one, other in itertools.combinations(names, 2):
        pair = f"{one}, {other}"
        assert figures.together("run", one, other) == f"{found['both_wrong'][pair].mean:.3f}"
        assert figures.together("run", one, other, alike=True) == f"{found['alike'][pair].mean:.3f}"
    for who in names:
        alone = found["alone"][who]
        assert figures.unbroken("run", who) == f"{round(alone.mean * alone.n)} of {alone.n}"
    assert figures.whole("run") == "1 of 2"
    assert (figures.lost_at("run"), figures.step_tokens("run"), figures.step_count("run")) == ("4", "10", "10")


def drawn(slips, count, steps):
    """A run whose vote is right, and whose samples x and y err where they are told to."""
    names = [f"{letter}{i}" for letter in "xy" for i in range(count)]
    rounds = [
        [0, [["the vote's", 1, 0], *([n, int(step not in slips[n[0]]), 1] for n in names)]] for step in range(steps)
    ]
    return {"kind": "sums", "right": True, "finished": True, "tokens": 1, "rounds": rounds}


def test_works_alone_last_as_long_as_two_of_them_do():
    figures = StepFigures({"run": [drawn({"x": {3}, "y": {4}}, 5, 100)]})
    got = figures.works_alone("run", "x0|x1|x2|x3|x4", "y0|y1|y2|y3|y4")
    draw = np.random.default_rng(0).geometric(0.01, (100_000, 10)) - 1  # steps before the first error
    assert got == pytest.approx(np.median(np.sort(draw)[:, -2]), rel=0.02)
    one = StepFigures({"run": [drawn({"x": {3}, "y": {}}, 1, 100)]})
    assert one.works_alone("run", "x0", "y0") == pytest.approx(one.foretold_steps("run", "x0"))
    sure = StepFigures({"run": [drawn({"x": {}, "y": {4}}, 5, 100)]})
    assert sure.works_alone("run", "x0|x1|x2|x3|x4", "y0") == math.inf


def test_a_task_in_which_every_sample_errs_once_is_no_works_of_one_alone():
    tasks = [drawn({"x": {1}, "y": {2}}, 2, 5), drawn({"x": {1}, "y": {}}, 2, 5)]
    for task in tasks:
        for _, said in task["rounds"]:
            said[0][0] = "x0" if task is tasks[0] else "z"  # the vote's own sample errs as well
    tasks[0]["rounds"][3][1][0][1] = 0
    tasks[0]["rounds"][3][0] = 1
    assert StepFigures({"run": tasks}).ever_unbroken("run") == "1 of 2"
