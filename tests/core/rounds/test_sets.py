"""Live: what may be right, and trust that reads what was written."""

from dataclasses import replace

import pytest
import torch

from nsed_torch.app.view import undecided
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.parts.features import feature_names
from nsed_torch.parts.reading import Reading
from nsed_torch.questions.choice_tasks import ChoiceGrader
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.traces.equality import Equality

TASK = Task("How much is 2 + 2?", "sum", "4", "sums")
TEXTS = ("It is even. Answer: 4", "Answer: 4.0", "Answer: 5")


def sets(threshold, own=None):
    found = ConformalSets(0.9, ["sums"] if own is not None else []).double()
    with torch.no_grad():
        found.threshold.fill_(threshold)
        if own is not None:
            found.thresholds.fill_(own)
    return found


def voted(scripted, tmp_path, texts=TEXTS, task=TASK, **options):
    """Everybody likes the first two answers."""

    def write(request):
        return texts[scripted.NAMES.index(request.agent)]

    def judge(request, candidate):
        return -0.5 if scripted.judged(request, candidate) == texts[2] else 0.5

    rnn, _ = scripted.build(3, write=write, judge=judge, rounds=1, **options)
    with torch.no_grad():
        (transcript,) = rnn((task,)).transcripts
    transcript.save(tmp_path / "transcript.json")
    assert Transcript.load(tmp_path / "transcript.json") == transcript
    return transcript


@pytest.mark.parametrize(
    ("threshold", "own", "answers", "none", "decided"),
    [
        (0.5, None, [0], False, True),
        (0.97, None, [0, 2], False, False),
        (1.0, None, [0, 2], True, False),
        (0.5, 1.0, [0, 2], True, False),  # the category's own
    ],
)
def test_a_round_tells_what_may_be_right(scripted, tmp_path, threshold, own, answers, none, decided):
    grader = GradersAnswers(AnswerGrader(Equality(math_verify=False)))
    transcript = voted(scripted, tmp_path, answers=grader, sets=sets(threshold, own))
    found = transcript.rounds[-1].answer_set
    assert (found.answers, found.none_of_these, found.decided, found.coverage) == (answers, none, decided, 0.9)
    said = undecided(transcript)
    assert bool(said) != decided
    if said:
        assert said.startswith("undecided: the right answer is among these at 90% coverage: It is even. Answer: 4 | ")
        assert said.endswith("none of these") == none


def test_nobody_calibrated_anything(scripted, tmp_path):
    transcript = voted(scripted, tmp_path)
    assert transcript.rounds[-1].answer_set is None
    assert undecided(transcript) == ""
    transcript.rounds[-1] = replace(transcript.rounds[-1], all_negative=True)
    assert undecided(transcript).startswith("nobody was convinced")


def test_a_live_cell_reads_what_was_written(scripted, tmp_path):
    task = Task("How many legs has a spider?\nA. 6\nB. 8", "legs", "B", "animals")
    texts = ("The answer is (A).", "A", "8 legs. The answer is (B).")
    grader = GradersAnswers(ChoiceGrader({"legs": ("6", "8")}))
    reading = Reading(3, feature_names(["letter"]), ["animals"]).double()
    with torch.no_grad():
        reading.score[feature_names(["letter"]).index("letter_B")] = 3.0
        reading.category[1, 0] = -0.5
    rnn, _ = scripted.build(
        3,
        write=lambda request: texts[scripted.NAMES.index(request.agent)],
        judge=lambda request, candidate: -0.5 if "(B)" in scripted.judged(request, candidate) else 0.5,
        rounds=1,
        answers=grader,
    )
    rnn.cell.consensus.reading = reading
    with torch.no_grad():
        (transcript,) = rnn((task,)).transcripts
    (record,) = transcript.rounds
    assert record.trust == [1.0, 0.5, 1.0]
    assert record.classes == [0, 0, 1]
    assert record.winner == 2
