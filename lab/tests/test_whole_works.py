"""One model that writes all steps of some work in one text, against a team that elects each, at the team's tokens."""

import itertools
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nsed_lab.stepwise import stepwise_tasks
from nsed_torch.app.build import consensus_cell
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation
from nsed_torch.evaluation.methods.independent import BestOf, SelfConsistency
from nsed_torch.evaluation.run_methods import Contest
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task

STEPPERS = ("ant", "bee", "cat")
ALONE = "monologist"


@pytest.fixture(scope="module")
def works():
    """Sums of four or five numbers, and what follows each of their works."""
    pytest.importorskip("reasoning_gym")
    tasks = stepwise_tasks({"chain_sum": {"min_terms": 3, "max_terms": 4, "max_digits": 2}}, 8, seed=3)
    following = {a: b for chain in tasks.chains.values() for a, b in itertools.pairwise(chain)}

    def chain(request):
        text = request.messages[-1].content
        return next((tasks.chains[task.id] for task in tasks.tasks if task.question in text), ("none",))

    return SimpleNamespace(tasks=tasks, following=following, chain=chain)


def contest(works, fenced, **options):
    """Three that write single steps, and one that writes all and errs in two texts of five."""

    def write(request):
        if request.agent != ALONE:
            shown = fenced(request)
            return works.following.get(shown[-1], "none") if shown else works.chain(request)[0]
        draw, chain = random.Random(request.seed), works.chain(request)
        return "\n".join([*chain[:-1], f"Answer: {draw.randint(1000, 9999)}"] if draw.random() < 0.4 else chain)

    agents = [Agent(name, "s", decoding=Decoding(64 if name == ALONE else 16, 0.7)) for name in (*STEPPERS, ALONE)]
    cell = MacroRNNCell(
        Ensemble({"s": ScriptedEngine(write, lambda *_: 0.0)}, agents),
        HashedEncoder(8),
        consensus_cell(dim=8, agents=4, slots=1),
        rating=AgreementRating(),
        protocol=Protocol(unit="step"),
    )
    rnn = MacroRNN(cell, halting=FixedHalting(20), **options)
    return Contest(rnn, works.tasks, {"self_consistency": SelfConsistency()})


def test_who_writes_all_steps_is_graded_by_the_last_line_and_votes_with_itself_at_the_teams_tokens(works, team):
    result = contest(works, team.fenced, without=[ALONE]).run(["deliberation", "single", "self_consistency"])
    found = {(outcome.method, outcome.task): outcome for outcome in result.outcomes}
    for task in works.tasks.tasks:
        elected, alone, voted = (
            found[method, task.id] for method in ("deliberation", f"single:{ALONE}", "self_consistency")
        )
        assert elected.verdict is Verdict.RIGHT
        lines = alone.text.splitlines()
        assert tuple(lines[:-1]) == works.tasks.chains[task.id][:-1]
        assert alone.answer == lines[-1].removeprefix("Answer: ")
        assert (alone.verdict is Verdict.RIGHT) == (alone.answer == task.target)
        assert voted.text.splitlines()[-1] == f"Answer: {task.target}"
        assert voted.usage.tokens <= elected.usage.tokens
        assert voted.usage.calls > 5  # its own size, without a budget
    assert {found[f"single:{ALONE}", task.id].verdict for task in works.tasks.tasks} == {Verdict.RIGHT, Verdict.WRONG}


def test_who_is_left_out_of_the_team_takes_no_part_in_it(works, team):
    left_out, everybody = (contest(works, team.fenced, **options).rnn for options in ({"without": [ALONE]}, {}))
    (transcript,) = left_out([works.tasks.tasks[0]]).transcripts
    assert all(record.proposers == list(STEPPERS) == record.voters for record in transcript.rounds)
    assert transcript.settings["without"] == [ALONE]
    (whole,) = everybody([works.tasks.tasks[0]]).transcripts
    assert ALONE in whole.rounds[0].proposers
    assert "without" not in whole.settings
    costs = [expected_deliberation(rnn, works.tasks.tasks) for rnn in (left_out, everybody)]
    assert costs[0].calls * 4 == costs[1].calls * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"without": ["dog"]}, "expected agents to leave out of ant, bee, cat, monologist, and no broker, got .*dog"),
        ({"without": [*STEPPERS, ALONE]}, "expected a team with at least one proposer"),
    ],
)
def test_nobody_is_left_out_who_is_not_there_nor_everybody(works, team, options, message):
    with pytest.raises(ValueError, match=message):
        contest(works, team.fenced, **options)


def test_a_judge_chooses_among_whole_texts_and_work_without_an_end_is_wrong(works, team):
    graded = works.tasks

    def write(request):
        """All steps, all but the last two, or a wrong answer alone."""
        chain = works.chain(request)
        return "\n".join((chain, chain[:-2], ("Answer: 1234",))[request.seed % 3])

    def judge(request, candidate):
        text = team.judged(request, candidate)
        return 1.0 if "\nAnswer: " in text else 0.0 if "\n" in text else -1.0

    panel, _ = team.build(write, judge)
    answers = BestOf(samples=12, judge="Oberon")(replace(panel, grader=graded.grader), graded.tasks, None)
    finals = [(t, graded.grader.extract(t, a.text)) for t, a in zip(graded.tasks, answers, strict=True)]
    assert [a.text for a in answers] == ["\n".join(graded.chains[task.id]) for task in graded.tasks]
    assert set(graded.verdicts(finals)) == {Verdict.RIGHT}
    task = Task("1 + 2 + 3 =", "sum", "6")
    said = [
        (task, graded.grader.extract(task, text)) for text in ("1 + 2 + 3\n3 + 3", "1 + 2 + 3\n3 + 3\n6\nAnswer: 6")
    ]
    assert graded.verdicts(said) == [Verdict.WRONG, Verdict.RIGHT]
