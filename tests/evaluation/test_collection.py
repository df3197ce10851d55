"""What traces come to, counted by hand."""

from nsed_torch.evaluation.collection import summarize
from nsed_torch.evaluation.statistics import share
from nsed_torch.records import Proposal, Round, Task, Trace, Transcript, Usage


def trace(name, *rounds):
    """Rounds of (winner, grades); agents are a, b, c."""
    records = [
        Round(
            index=index,
            proposers=list("abc"[: len(grades)]),
            voters=[],
            proposals=[Proposal(agent, "text", "stop") for agent in "abc"[: len(grades)]],
            ratings=[],
            vote_mask=[],
            ballots=[],
            trust=[],
            support=[],
            consensus=[],
            winner=winner,
            all_negative=False,
            conviction=0.0,
            decisiveness=0.0,
            controversy=[],
            memory=[],
        )
        for index, (winner, grades) in enumerate(rounds, start=1)
    ]
    grades = [list(grades) for _, grades in rounds]
    usage = Usage(1, 10, 5, 0.5, 2.0)
    transcript = Transcript(Task("?", name), [], records, "", "rounds", usage, 0)
    return Trace(transcript, grades, [["x" if right else None for right in row] for row in grades])


def test_accuracies_are_counted():
    summary = summarize(
        [
            trace("one", (0, [True, False, False]), (1, [True, False, False]), (None, [True, True, True])),
            trace("two", (1, [False, True])),  # stops early, and c was not asked
            trace("three", (None, [False, False, False]), (2, [False, False, True])),
        ]
    )
    assert summary.accuracies == {
        "answer after round 1": share(2, 3),
        "answer after round 2": share(2, 3),
        "answer after round 3": share(2, 3),
        "a, round 1": share(1, 3),
        "b, round 1": share(1, 3),
        "c, round 1": share(0, 2),
        "oracle, any proposal": share(3, 3),
    }
    assert (summary.tasks, summary.usage) == (3, Usage(3, 30, 15, 1.5))
    assert summary.usage.seconds == 6.0
