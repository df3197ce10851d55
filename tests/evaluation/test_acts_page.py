"""The acts of the demo: what they say of a deliberation, and the page that shows them."""

import html
import json
import re
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise

import pytest
from report_pages import Page

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import Decoding
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.acts import Act, disks, frames, legal, let_go, outvoted
from nsed_torch.evaluation.pages import render_acts
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.transcript import Task

WORKS = (
    "a1 b1",
    "a1 to a2: a2 b1 way 123 large",
    "b1 to b3: a2 b3 way 123 small",
    "a2 to a3: a3 b3 way 123 large",
)
TOWER = Task("Move it.", "tower", "a3 b3", start=WORKS[0], goal="a3 b3")
BOXES = Task("Which box?", "profile", "green", inputs=({"m0": "No red. A hat.", "m1": "No blue."},))
HEADS = Task("How many?", "vote", "10")


def played(task, write, rate=lambda request, candidate: 0.5, agents=3, **protocol):
    """An act by scripted agents m0, m1, ..."""
    engine = ScriptedEngine(write, rate)
    ensemble = Ensemble({"tiny": engine}, [Agent(f"m{i}", "tiny", decoding=Decoding(64, 0)) for i in range(agents)])
    parts = {"rating": AgreementRating()} if protocol or task.inputs else {}
    cell = MacroRNNCell(
        ensemble, HashedEncoder(8), ConsensusCell(dim=8, agents=agents), protocol=Protocol(**protocol), **parts
    )
    transcript = MacroRNN(cell, rounds=9 if protocol else 1)([task]).transcripts[0]
    grader = AnswerGrader(kind="number" if task.target.isdigit() else "text")
    graded = GradedTasks((task,), grader, grader.identity())
    return Act(task.id, graded.traces([transcript])[0], {"m0": "red", "m1": "green"} if task.inputs else {})


def mover(slip=()):
    """Writes the next work of a tower of two; who slips says where another disk lies."""

    def write(request):
        shown = re.findall(r"<text-\w+>\n(.*)\n</text", request.messages[-1].content)[-1]
        step = WORKS[WORKS.index(shown) + 1]
        return step.replace("b1", "b2") if (request.agent, shown) in slip else step

    return write


@pytest.fixture(scope="module")
def acts():
    heads = {"m0": "9", "m1": "10", "m2": "9"}

    def liked(request, text):
        label = re.search("Candidate_.", text)[0]
        return 0.9 if re.search(rf"{label}:\n<text-\w+>\n10\n", str(request.messages[-1].content) + text) else -0.9

    return [
        played(HEADS, lambda request: heads[request.agent], liked),
        played(BOXES, lambda request: "No red." if "A hat" in str(request.messages) else "green", agents=2),
        played(TOWER, mover({("m1", WORKS[0])}), unit="step"),
    ]


def test_an_act_says_in_a_sentence_what_the_team_did_that_its_members_could_not(acts):
    assert [act.right for act in acts] == [True, True, True]
    assert acts[0].lesson == "2 of 3 said '9', which is wrong; the vote elected '10', which is right."
    assert acts[1].lesson.startswith("Alone each can but guess, 1 of 2 wrong; together they found 'green'")
    assert acts[2].lesson.startswith("The team made the last 3 moves without an error")
    assert acts[2].slips == {"m0": None, "m1": 1, "m2": None}


def test_a_lost_act_says_so_in_one_sentence():
    act = played(HEADS, lambda request: "9")
    assert not act.right
    assert act.lesson == "This time the team lost: it came to '9', and '10' is right."
    cheated = played(TOWER, lambda request: "a3 b3 way 123 large", unit="step")
    assert (cheated.transcript.answer, cheated.right) == ("a3 b3", False)


def test_a_move_is_legal_where_one_disk_goes_from_the_top_onto_no_smaller_one():
    assert [legal(*pair) for pair in pairwise(WORKS)] == [True] * 3
    for other in ("a1 b2", "a2 b2", "a1 b1", "a2 b1 c1", "nothing"):
        assert not legal(WORKS[0], other)
    assert not legal("a3 b1", "a3 b3")


def test_disks_stand_on_their_pegs_the_largest_below():
    small, large = sorted(disks("a2 to a3: a3 b3 way 123 large"))
    assert small.x == large.x
    assert small.y < large.y
    assert small.width < large.width
    assert disks("gibberish") == []


def test_what_was_let_go_and_outvoted(acts):
    assert let_go(acts[1].transcript) == ["A hat.", "No blue."]
    ((number, before, work, others),) = outvoted(acts[2].transcript)
    assert (number, before, work, list(others)) == (1, *WORKS[:2], ["m1"])
    assert [number for number, _ in frames(acts[2].transcript, 2)] == [0, 2, 3]


def test_the_page_shows_each_act_before_its_figures(acts):
    text = render_acts(acts)
    Page(text)  # well formed
    assert "1. The commonest answer is wrong" in text
    assert all(html.escape(act.lesson, quote=False).replace("'", "&#39;") in text for act in acts)
    assert text.index('class="lesson') < text.index("<details")
    assert text.count('class="tower"') == len(list(frames(acts[2].transcript))) + 3
    assert "<script" not in text
    assert "wrong at move 1" in text
    assert "m0" in text


def test_the_questions_of_the_demo_ship_and_can_be_won():
    rows = [json.loads(line) for line in files("nsed_torch.questions").joinpath("demo.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["vote", "profile", "tower"]
    assert all(Task(**row).target for row in rows)
    assert replace(Task(**rows[2])).goal == rows[2]["target"]
