"""All methods on all tasks: who is asked when, what fails, and what became of every answer."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import NamedTuple

import torch

from nsed_torch.core.broker import InfeasibleBudgetError
from nsed_torch.core.engine import ContextWindowError
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import Observer
from nsed_torch.evaluation.methods.independent import Single
from nsed_torch.evaluation.methods.method import Answer, Method, Panel, Tied
from nsed_torch.evaluation.round_statistics import elected_steps
from nsed_torch.parts.ties import Ties
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.pace import time_left
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Task, Transcript, Usage
from nsed_torch.traces.splits import place

DELIBERATION, SINGLE, BEST_SINGLE = "deliberation", "single", "best_single"
"""Methods that the contest itself knows; the others are `Method`s."""

FAILURES = (ContextWindowError, InfeasibleBudgetError, RuntimeError, ConnectionError)
"""What one task can do to a run without ending it."""

Run = Callable[[Sequence[Task]], list[Answer]]


@dataclass(frozen=True)
class Shard:
    """Which part of the work this process does ahead of the others."""

    rank: int = 0
    size: int = 1  # number of processes
    barrier: Callable[[], None] = lambda: None  # returns when all processes have called it

    def mine(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Every size-th task."""
        return tasks[self.rank :: self.size]


class Contested(NamedTuple):
    """What a contest came to: an outcome per method and task, and the deliberations themselves, graded."""

    outcomes: list[Outcome]
    traces: list[Trace]


@dataclass
class Contest:
    """Puts methods to tasks.

    Deliberation goes first, for it measures the token budget of the others; then every agent alone, from whose outcomes
    on other tasks each task's lead agent is chosen; then the rest. Several processes that share a call log share the
    work: each makes the calls of its own tasks, and once all have, all replay the whole from the log. So the results
    do not depend on the number of processes.
    """

    rnn: MacroRNN  # the team that deliberates, with the call log of the run
    graded: GradedTasks
    methods: Mapping[str, Method]  # those that are not the contest's own, by name
    batch_tasks: int = 16  # that go through a method's phases together
    equal_tokens: bool = True  # whether methods get the tokens that deliberation took on the task, or their own size
    ties: Ties = Ties.FIRST  # which of several texts that stand level is handed in; LOT leaves the first
    accuracy: Mapping[str, float] = field(default_factory=dict)  # of agents by name, for Ties.ACCURACY
    max_failures: int = 0  # tasks that may fail, over all methods; to lose a silent member is no failure of the task
    shard: Shard = Shard()
    report: Callable[[str], None] = lambda text: None  # hears of every batch
    observer: Observer | None = None  # hears of progress within a deliberation
    _traces: dict[str, Trace] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)

    def run(self, names: Sequence[str]) -> Contested:
        """Put methods to all tasks, named out of `deliberation`, `single`, `best_single` and the names of the methods.

        Outcomes come method by method in the order of the names, each in the order of the tasks. Members that
        differ are asked alone even where no name says so, for who is best alone leads methods of one member (`led`).
        """
        cell, outcomes = self.rnn.cell, {}
        panel = panel_of(self.rnn, self.graded)
        if DELIBERATION in names:
            outcomes[DELIBERATION] = self._stage(DELIBERATION, self._deliberate)
        budgets = {o.task: o.usage.tokens for o in outcomes.get(DELIBERATION, [])} if self.equal_tokens else None
        singles, proposers = [], cell.ensemble.proposers
        # Greedy members that differ in their names alone say the same, so that none is to be chosen.
        alike = (
            len({replace(a, name="", description="") for a in proposers}) == 1 and not proposers[0].decoding.temperature
        )
        led = any(getattr(self.methods.get(name), "led", True) for name in set(names) - {DELIBERATION})
        if (led and not alike) or set(names) & {SINGLE, BEST_SINGLE}:
            for agent in proposers:
                by_itself = alone(self.rnn, agent.name)
                run = _on(Single(agent.name), panel, None) if by_itself is None else _stepping(by_itself)
                singles += self._stage(f"{SINGLE}:{agent.name}", run)
        outcomes[SINGLE] = singles
        members = [agent.name for agent in proposers]
        if BEST_SINGLE in names:
            outcomes[BEST_SINGLE] = best_single(singles, cross_fitted_leads(singles, members))
        # Who writes a step where others answer leads no method of answers.
        whole = [name for name in members if alone(self.rnn, name) is None]
        panel = replace(panel, leads=cross_fitted_leads(singles, whole or members))
        for name in names:
            if name not in outcomes:
                outcomes[name] = self._stage(name, _on(self.methods[name], panel, budgets))
        return Contested(
            [outcome for name in names for outcome in outcomes[name]],
            [self._traces[t.id] for t in self.graded.tasks if t.id in self._traces],
        )

    def _stage(self, name: str, run: Run) -> list[Outcome]:
        if self.shard.size > 1:
            self._batches(name, run, self.shard.mine(self.graded.tasks))
            self.shard.barrier()
        answers = self._batches(name, run, self.graded.tasks)
        self._failures += sum(isinstance(answer, str) for answer in answers)
        return self._outcomes(name, answers)

    def _outcomes(self, name: str, answers: Sequence[Answer | str]) -> list[Outcome]:
        graded, extract, outcomes = self.graded, self.graded.grader.extract, []
        settled = [answer if isinstance(answer, str) else self._settled(answer) for answer in answers]
        finals = [
            (task, answer, [None] if isinstance(answer, str) else [extract(task, text) for text in _texts(answer)])
            for task, answer in zip(graded.tasks, settled, strict=True)
        ]
        verdicts = iter(graded.verdicts([(task, final) for task, _, given in finals for final in given]))
        for task, answer, (final, *level) in finals:
            verdict, *others = itertools.islice(verdicts, 1 + len(level))
            if isinstance(answer, str):
                answer, verdict = Answer("", Usage(), answer), Verdict.FAILED  # noqa: PLW2901
            place = name, task.id, graded.group(task), graded.strata.get(task.id, "")
            pressure = graded.suggestions.get(task.id), graded.adopts(task, final)
            scores = [one.score for one in (verdict, *others) if one.score is not None]
            by_lot = fmean(scores) if level and len(scores) > len(level) else None
            outcomes.append(Outcome(*place, final, answer.text, verdict, answer.usage, answer.note, *pressure, by_lot))
        return outcomes

    def _settled(self, answer: Answer) -> Answer:
        """With the text that the rule for ties hands in, which then stands first among the tied."""
        if self.ties is Ties.LOT or not answer.tied:
            return answer
        best = torch.tensor([max(self.accuracy.get(name, 0.0) for name in one.agents) for one in answer.tied])
        chances = self.ties.chances(torch.ones(len(best), dtype=torch.bool), accuracy=best if self.accuracy else None)
        first = answer.tied[int(chances.argmax())]
        return answer._replace(text=first.text, tied=(first, *(one for one in answer.tied if one is not first)))

    def _batches(self, name: str, run: Run, tasks: Sequence[Task]) -> list[Answer | str]:
        """An answer per task, or why there is none; batch by batch, with the time that is left."""
        answers: list[Answer | str] = []
        began = time.monotonic()
        for start in range(0, len(tasks), self.batch_tasks):
            answers += _guarded(run, tasks[start : start + self.batch_tasks])
            self._check_failures(name, tasks, answers)
            rest = time_left(time.monotonic() - began, len(answers), len(tasks))
            self.report(f"{name}: {len(answers)} of {len(tasks)} tasks{rest}")
        return answers

    def _check_failures(self, name: str, tasks: Sequence[Task], answers: Sequence[Answer | str]) -> None:
        failed = [(task.id, answer) for task, answer in zip(tasks, answers, strict=False) if isinstance(answer, str)]
        if self._failures + len(failed) > self.max_failures:
            task, why = failed[0]
            raise ValueError(
                f"expected at most {self.max_failures} failures, got {self._failures + len(failed)}; the first of "
                f"{name}, task {task!r}: {why}; mend it, or allow more with max_failures=N"
            )

    def _deliberate(self, tasks: Sequence[Task]) -> list[Answer]:
        with torch.no_grad():
            transcripts = self.rnn(tasks, observer=self.observer).transcripts
        traces = self.graded.traces(transcripts)
        self._traces |= {trace.transcript.task.id: trace for trace in traces}
        return list(map(_handed_in, transcripts))


def panel_of(rnn: MacroRNN, graded: GradedTasks) -> Panel:
    """What methods are given of a deliberation and a benchmark."""
    cell, facts = rnn.cell, {task.id: graded.remembered(task) for task in graded.tasks}
    shared = cell.ensemble, cell.prompts, cell.rating, graded.grader, cell.seed
    return Panel(*shared, encoder=cell.encoder, facts=facts, rnn=rnn)


def alone(rnn: MacroRNN, agent: str) -> MacroRNN | None:
    """One of a team that takes steps, stepping by itself; None where it answers whole questions when it is asked."""
    if rnn.cell.protocol.unit != "step" or agent in rnn.without:
        return None
    others = [other.name for other in rnn.cell.ensemble.agents if other.name != agent]
    return rnn.with_(broker=None, without=others)


def _stepping(rnn: MacroRNN) -> Run:
    def run(tasks: Sequence[Task]) -> list[Answer]:
        with torch.no_grad():
            return list(map(_handed_in, rnn(tasks).transcripts))

    return run


def _handed_in(transcript: Transcript) -> Answer:
    """The answer, with those that tied in the last vote; where rounds are steps, all that were elected, a line each."""
    note = f"stopped by {transcript.stop_reason} after {len(transcript.rounds)}"
    if transcript.unit == "step":
        return Answer("\n".join(elected_steps(transcript)), transcript.usage, note)
    voted = [turn for turn in transcript.rounds if turn.winner is not None and not transcript.task.reads(turn.index)]
    tied = [
        Tied(turn.proposals[j].text, tuple(turn.proposers[i] for i in turn.saying(j)))
        for turn in voted[-1:]
        for j in turn.tied
    ]
    return Answer(transcript.answer, transcript.usage, note, tuple(tied) if len(tied) > 1 else ())


def _texts(answer: Answer) -> Sequence[str]:
    """What is graded: what was handed in, then what stood level with it."""
    return [one.text for one in answer.tied] or [answer.text]


def cross_fitted_leads(
    outcomes: Sequence[Outcome], agents: Sequence[str], folds: int = 5, seed: int = 0
) -> dict[str, str]:
    """For each task the agent with the best mean score on the tasks of other folds.

    Questions are dealt to folds by a hash of their group's id, so that all epochs of a question are in one fold and a
    task's lead depends on no answer to its own question. Ties go to the first agent, who also leads where no other fold
    has a score. Outcomes without a score (programs that were not run) do not count. Our reading of "best single agent":
    the best of several, chosen and tested on the same tasks, would be flattered.

    Returns:
        Task id -> name of its lead, for every task that an agent answered by itself.
    """
    names = {f"{SINGLE}:{name}": name for name in agents}
    single = [(outcome, names[outcome.method]) for outcome in outcomes if outcome.method in names]
    fold = {outcome.task: int(place(outcome.group, seed) * folds) for outcome, _ in single}

    def lead(held_out: int) -> str:
        scores: dict[str, list[float]] = {name: [] for name in agents}
        for outcome, name in single:
            if outcome.score is not None and fold[outcome.task] != held_out:
                scores[name].append(outcome.score)
        # Agents without a score come last, and max takes the first of equals.
        return max(agents, key=lambda name: fmean(scores[name]) if scores[name] else -1.0)

    leads = {held_out: lead(held_out) for held_out in set(fold.values())}
    return {task: leads[held_out] for task, held_out in fold.items()}


def best_single(outcomes: Sequence[Outcome], leads: Mapping[str, str]) -> list[Outcome]:
    """The outcomes of each task's lead by itself, under the name `best_single`; no call is made for them.

    Their usage is the lead's, for choosing it cost these tasks nothing.
    """
    by_task = {(outcome.task, outcome.method): outcome for outcome in outcomes}
    chosen = []
    for task, lead in leads.items():
        outcome = by_task[task, f"{SINGLE}:{lead}"]
        note = "; ".join(filter(None, (f"by {lead}", outcome.note)))
        chosen.append(replace(outcome, method=BEST_SINGLE, note=note))
    return chosen


def _on(method: Method, panel: Panel, budgets: Mapping[str, int] | None) -> Run:
    """A method with everything but the tasks; a task without a measured budget gets the method's smallest form."""

    def run(tasks: Sequence[Task]) -> list[Answer]:
        with panel.ensemble.one_run():
            return method(panel, tasks, None if budgets is None else [budgets.get(task.id, 0) for task in tasks])

    return run


def _guarded(run: Run, tasks: Sequence[Task]) -> list[Answer | str]:
    """Run a batch; if it fails, its tasks one by one, so that one of them spoils no other."""
    try:
        return list(run(tasks))
    except FAILURES as error:
        if len(tasks) == 1:
            return [" ".join(f"{type(error).__name__}: {error}".split())]
        return [answer for task in tasks for answer in _guarded(run, [task])]
