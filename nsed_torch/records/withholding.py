"""Runs whose questions' authors ask that texts are shown nowhere: what is kept of them quotes nobody.

Questions, targets and whatever a model wrote go: proposals, critiques, memory, notes (an error may quote a prompt), and
final answers unless they are the letter of an option. Names, grades, ratings, votes and costs stay. The call log, from
which a killed run goes on, is no part of this: it keeps what models wrote.
"""

from dataclasses import replace

from nsed_torch.records.outcome import Outcome
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Round, Task

WITHHELD = "(withheld at the authors' request)"
"""Stands where a text was; an empty text stays empty."""


def withheld_trace(trace: Trace) -> Trace:
    """A trace without texts; of one that has none already, the same."""
    transcript = trace.transcript
    return replace(
        trace,
        transcript=replace(
            transcript,
            task=Task(WITHHELD, transcript.task.id),
            rounds=[_round(record) for record in transcript.rounds],
            answer=_hidden(transcript.answer),
        ),
        answers=[[_final(answer) for answer in row] for row in trace.answers],
    )


def withheld_outcome(outcome: Outcome) -> Outcome:
    """An outcome without texts; of one that has none already, the same."""
    suggested = _final(outcome.suggested)
    return replace(outcome, text=_hidden(outcome.text), answer=_final(outcome.answer), note="", suggested=suggested)


def _round(record: Round) -> Round:
    return replace(
        record,
        proposals=[replace(proposal, text=_hidden(proposal.text)) for proposal in record.proposals],
        memory=[replace(slot, text=_hidden(slot.text)) for slot in record.memory],
        critiques=[replace(critique, text=_hidden(critique.text)) for critique in record.critiques],
        notes=[],
    )


def _hidden(text: str) -> str:
    return WITHHELD if text else ""


def _final(answer: str | None) -> str | None:
    if answer is None or (len(answer) == 1 and answer.isalpha()):
        return answer
    return _hidden(answer)
