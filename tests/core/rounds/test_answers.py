"""Proposals that say the same pool their support: what tells them, and what a live round makes of it."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.parts.similar_texts import SimilarTexts
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.trace import TraceWriter
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.rounds import unroll

TASK = Task("How much is 2 + 2?", "sum", "4")
GRADER = AnswerGrader(Equality(math_verify=False))
GRADED = GradedTasks((TASK,), GRADER, {})
TEXTS = ("It is even. Answer: 4", "Answer: 4.0", "Answer: 5")
R = math.sqrt(0.5)


class Angles:
    """Texts are angles in degrees; their vectors point there. No text points nowhere."""

    dim = 2

    def identity(self):
        return {"encoder": "angles"}

    def embed(self, texts):
        return torch.stack([self.vector(text) for text in texts])

    @staticmethod
    def vector(text):
        angle = torch.tensor(math.radians(float(text or 0)))
        return torch.stack([angle.cos(), angle.sin()]) * bool(text)


@pytest.mark.parametrize(
    ("threshold", "texts", "classes"),
    [
        (0.9, ["0", "20", "90"], [0, 0, 1]),  # cos 20 = 0.94
        (0.95, ["0", "20", "90"], [0, 1, 2]),
        # The second is near both; each joins the first class whose first text is near, not the nearest.
        (0.9, ["0", "24", "30"], [0, 0, 1]),
        (0.9, ["24", "0", "30"], [0, 0, 0]),
        (0.9, ["0", "40", "22"], [0, 1, 0]),
        (0.9, ["0", "", "10", ""], [0, -1, 0, -1]),
        (0.9, ["", "0", "180", "5"], [-1, 0, 1, 0]),
        (-0.5, ["0", "100", "180"], [0, 0, 1]),
        (-0.999, ["0", "100", "170", ""], [0, 0, 0, -1]),
        (0.9, ["", ""], [-1, -1]),
        (0.9, ["7"], [0]),
    ],
)
def test_texts_join_the_first_class_they_are_near_enough_to(threshold, texts, classes):
    assert SimilarTexts(Angles(), threshold).classes(TASK, texts) == classes


@pytest.mark.parametrize("threshold", [-1, 1.1, -2.0, math.nan, math.inf])
def test_a_threshold_that_is_no_cosine_is_refused(threshold):
    with pytest.raises(ValueError, match=rf"^similarity: expected a cosine in \(-1, 1\], .* got {threshold}$"):
        SimilarTexts(Angles(), threshold)


def test_the_rule_is_threshold_and_encoder():
    rule = SimilarTexts(Angles(), 0.75).identity()
    assert rule == {"rule": "similar texts", "threshold": 0.75, "encoder": {"encoder": "angles"}}
    assert json.loads(json.dumps(rule)) == rule


def test_one_text_said_twice_is_one_answer_at_any_threshold():
    """Also at 1, where the rounding of a unit vector's square would tell a text from itself."""
    texts = [f"the answer to question {i} is {7 * i}, for {13 * i} is not" for i in range(20)]
    for dim in (8, 64, 384):
        classes = SimilarTexts(HashedEncoder(dim), 1.0).classes(TASK, [text for text in texts for _ in range(2)])
        assert classes[::2] == classes[1::2]


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["", "red blue", "red green", "one", "two one", "red"]), max_size=6), st.floats(0.1, 1))
def test_of_any_texts_the_same_are_one_and_each_class_has_its_number(texts, threshold):
    classes = SimilarTexts(HashedEncoder(16), threshold).classes(TASK, texts)
    assert [number < 0 for number in classes] == [not text for text in texts]
    first = dict.fromkeys(number for number in classes if number >= 0)
    assert list(first) == list(range(len(first)))
    for one, mine in zip(texts, classes, strict=True):
        for other, its in zip(texts, classes, strict=True):
            assert one != other or mine == its


def team(scripted, ratings, **options):
    """The three of them say TEXTS and rate as told, by judge and author; one of `ratings` a judge, None for itself."""

    def write(request):
        return TEXTS[scripted.NAMES.index(request.agent)]

    def judge(request, candidate):
        return ratings[scripted.NAMES.index(request.agent)][TEXTS.index(scripted.judged(request, candidate))]

    return scripted.build(3, write=write, judge=judge, rounds=1, **options)[0]


def voted(rnn):
    with torch.no_grad():
        (transcript,) = rnn((TASK,)).transcripts
    return transcript


SPLIT = [[None, -0.5, 0.5], [0.8, None, 0.2], [1.0, -1.0, None]]
"""The first wording is liked, the second of the same answer is not."""
AGREED = [[None, 0.5, -0.5], [0.5, None, -0.5], [0.5, 0.5, None]]
"""Everybody likes both."""


def test_pooling_elects_another_answer_where_wordings_of_one_divide_the_judges(scripted):
    (alone,) = voted(team(scripted, SPLIT)).rounds
    (pooled,) = voted(team(scripted, SPLIT, answers=GradersAnswers(GRADER))).rounds
    support = [R + math.sqrt(0.8), -2 * R, R + math.sqrt(0.2)]
    assert alone.support == pytest.approx(support, abs=1e-9)
    assert pooled.support == alone.support
    assert (alone.classes, pooled.classes) == ([-1, -1, -1], [0, 0, 1])
    assert (alone.winner, pooled.winner) == (0, 2)
    answer = (support[0] + support[1]) / 2
    odds = math.exp(answer), math.exp(support[2])
    assert pooled.consensus == pytest.approx([odds[0] / sum(odds), 0, odds[1] / sum(odds)], abs=1e-9)
    assert pooled.decisiveness == pytest.approx(answer + support[2], abs=1e-9)
    assert pooled.conviction == pytest.approx(support[2] / (answer + support[2]), abs=1e-9)
    # The liked wording stands for its answer in the memory; the other is not kept.
    assert [slot.text for slot in pooled.memory] == [TEXTS[2], TEXTS[0]]
    assert [slot.text for slot in alone.memory] == [TEXTS[0], TEXTS[2], TEXTS[1]]
    assert [slot.retention for slot in pooled.memory] == pytest.approx([pooled.consensus[2], pooled.consensus[0]])


def test_pooling_changes_no_winner_where_judges_agree(scripted):
    (alone,) = voted(team(scripted, AGREED)).rounds
    (pooled,) = voted(team(scripted, AGREED, answers=GradersAnswers(GRADER))).rounds
    assert alone.support == pooled.support == pytest.approx([2 * R, 2 * R, -2 * R], abs=1e-9)
    assert alone.winner == pooled.winner == 0
    assert pooled.consensus[1] == 0 < alone.consensus[1]
    assert alone.conviction == pytest.approx(1 / 3)
    assert pooled.conviction == pytest.approx(1 / 2)
    for name in ("ratings", "ballots", "trust", "controversy", "proposals"):
        assert getattr(alone, name) == getattr(pooled, name)


@pytest.mark.parametrize("ratings", [SPLIT, AGREED])
@pytest.mark.parametrize("answers", [GradersAnswers(GRADER), SimilarTexts(HashedEncoder(16), 0.2)])
def test_the_trace_voted_on_again_decides_the_same(scripted, tmp_path, ratings, answers):
    rnn = team(scripted, ratings, answers=answers)
    rnn = MacroRNN(rnn.cell, halting=type(rnn.halting)(3))
    transcript = voted(rnn)
    writer = TraceWriter(tmp_path)
    writer.add(GRADED.traces([transcript]))
    writer.finish(rnn.cell.encoder.embed)
    episodes = load_traces(tmp_path)
    assert episodes.classes[0].tolist() == [record.classes for record in transcript.rounds]
    output = unroll(rnn.cell.consensus, episodes)
    assert len(transcript.rounds) == 3
    for r, record in enumerate(transcript.rounds):
        assert record.classes == answers.classes(TASK, [proposal.text for proposal in record.proposals])
        assert output.winner[0, r] == record.winner
        for name in ("support", "consensus"):
            assert getattr(output, name)[0, r].tolist() == pytest.approx(getattr(record, name), abs=1e-9)
        for name in ("conviction", "decisiveness"):
            assert getattr(output, name)[0, r].item() == pytest.approx(getattr(record, name), abs=1e-9)


def test_an_answer_of_its_own_and_none_at_all(scripted):
    """No final answer: its own class, but a proposal; no text: not even that."""
    texts = {"Zebulon": "no idea", "Quillfeather": "no idea", "Oberon": "Answer: 4", "Mirabel": "", "Hieronymus": "4"}
    rnn, _ = scripted.build(
        5, write=lambda request: texts[request.agent], judge=lambda r, c: 0.5, rounds=1, answers=GradersAnswers(GRADER)
    )
    (record,) = voted(rnn).rounds
    assert record.classes == [-1, -1, 0, -1, 0]
    assert record.consensus[3] == 0
    assert [share > 0 for share in record.consensus] == [True, True, True, False, False]
    assert sorted(slot.text for slot in record.memory) == ["Answer: 4", "no idea", "no idea"]


def test_tasks_of_a_batch_have_classes_of_their_own(scripted):
    """Every task's transcript is the same alone and beside others."""
    tasks = [TASK, Task("And 3 + 3?", "other", "6"), Task("And now?", "third", "1")]

    def write(request):
        return f"Answer: {request.seed % 2}" if request.seed % 7 else ""

    def rnn():
        return scripted.build(4, write=write, answers=GradersAnswers(GRADER))[0]

    with torch.no_grad():
        together = rnn()(tasks).transcripts
        for task, transcript in zip(tasks, together, strict=True):
            assert rnn()([task]).transcripts[0].rounds == transcript.rounds
            for record in transcript.rounds:
                assert record.classes == GradersAnswers(GRADER).classes(task, [p.text for p in record.proposals])


def test_the_settings_tell_how_answers_are_told(scripted):
    rule = GradersAnswers(GRADER)
    plain, pooled = (scripted.build(2, answers=answers)[0].settings() for answers in (None, rule))
    assert plain["answers"] is None
    assert pooled["answers"] == rule.identity()
    assert {**pooled, "answers": None} == plain
    json.dumps(pooled)
