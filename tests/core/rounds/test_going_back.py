"""A vote over rounds that was fitted to a team's deliberations stops and goes back in its next ones as fitted."""

from collections import Counter

import torch

from nsed_torch.core.halting import FixedHalting
from nsed_torch.parts.round_vote import RoundVoteHalting
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader, GradersAnswers
from nsed_torch.records.trace import TraceWriter
from nsed_torch.records.transcript import Task
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.load import load_traces
from nsed_torch.tuning.round_fit import by_rounds, fit_round_vote

GRADER = AnswerGrader(Equality(math_verify=False))
SAID = {  # kind of a question -> what three agents say, round by round; A is right
    "talked away": (["A", "A", "B"], ["A", "B", "B"]),
    "found": (["B", "B", "A"], ["B", "A", "A"]),
    "agreed": (["A", "A", "A"], ["A", "B", "B"]),
}


def team(scripted, **options):
    """Its agents say of a question what its words are, whatever they are shown."""
    turns = Counter()

    def write(request):
        kind = next(kind for kind in SAID if kind in request.messages[-1].content)
        turn = turns[request.agent]
        turns[request.agent] += 1
        return f"Answer: {SAID[kind][min(turn, 1)][scripted.NAMES.index(request.agent)]}"

    def judge(request, candidate):
        liked = "A" if "found" in request.messages[-1].content else "B"
        return 1.0 if scripted.judged(request, candidate).endswith(liked) else -1.0

    options |= {"write": write, "judge": judge, "answers": GradersAnswers(GRADER)}
    return scripted.build(3, **options)[0]


def held(scripted, kind, number=0, **options):
    (transcript,) = team(scripted, **options)([Task(f"Was it {kind}? {number}", f"{kind} {number}", "A")]).transcripts
    return transcript


def test_it_stops_and_goes_back_as_it_was_fitted(scripted, tmp_path):
    kinds = ["talked away"] * 16 + ["found"] * 4 + ["agreed"] * 4
    transcripts = [held(scripted, kind, n, halting=FixedHalting(2)) for n, kind in enumerate(kinds)]
    writer = TraceWriter(tmp_path)
    for one in transcripts:
        writer.add(GradedTasks((one.task,), GRADER, {}).traces([one]))
    writer.finish(lambda texts: torch.zeros(len(texts), 16))
    episodes = load_traces(tmp_path)
    vote = fit_round_vote(episodes, stops=True).vote
    data = by_rounds(episodes)
    fitted = vote.decide(data.said, data.held)
    reached = dict(zip(kinds, fitted.reached.tolist(), strict=True))
    right = dict(zip(kinds, data.correct(fitted.answer).tolist(), strict=True))
    assert right == {"talked away": True, "found": False, "agreed": True}
    assert min(reached.values()) == 1
    vote.save_pretrained(tmp_path)
    for kind in SAID:
        plain = held(scripted, kind, 99, halting=FixedHalting(2))
        back = held(scripted, kind, 99, halting=RoundVoteHalting(tmp_path, rounds=2))
        assert plain.answer == ("Answer: A" if kind == "found" else "Answer: B")
        assert (back.answer == "Answer: A") == right[kind]
        assert len(back.rounds) == reached[kind]
        assert back.stop_reason == ("settled" if reached[kind] == 1 else "rounds")
    vote.enough.fill_(2.0)  # nothing is enough: it holds all rounds, and goes back all the same
    back = held(scripted, "talked away", 99, halting=RoundVoteHalting(vote, rounds=2))
    assert (len(back.rounds), back.answer) == (2, "Answer: A")
