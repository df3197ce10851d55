"""A graded question at a glance."""

from rich.console import Console
from team_traces import trace, turn

from nsed_torch.experiments.question_view import question_table


def drawn(one):
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(question_table(one))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_it_tells_who_was_right_and_whom_the_judges_believed():
    ratings = [[None, 0.5, -0.25], [0.75, None, -1.0], [0.1, 0.2, None]]
    lines = drawn(trace("t", turn(["no", "no", "yes"], winner=1, ratings=ratings)))
    assert lines[1:4] == ["?", "judge (trust) a ★ b c", "answers no no yes"]
    assert lines[4] == "✗ ✗ ✓"
    assert "a (1.00) · +0.50 -0.25" in lines
    assert "c (1.00) +0.10 +0.20 ·" in lines
    assert lines[-1] == "the vote: no ✗ · the commonest answer: no ✗"


def test_it_shows_the_last_round_and_answers_that_are_none():
    lines = drawn(trace("t", turn(["no", "no"]), turn([None, "yes"], winner=1)))
    assert lines[-1] == "the vote: yes ✓ · the commonest answer: yes ✓"
    lines = drawn(trace("t", turn([None, None], winner=None)))
    assert lines[-1] == "the vote: none · the commonest answer: none"
