"""Tasks that can be graded: what is asked, and what tells whether an answer is right."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nsed_torch.questions.answers.kinds import Kind
from nsed_torch.questions.graders import AnswerGrader, CheckedGrader, Checker, Grader, GradersAnswers, question_id
from nsed_torch.questions.known import Chain, Fact, Hop, Known, consistent, known, readers
from nsed_torch.records.call_log import CallLog, call_key
from nsed_torch.records.outcome import Outcome, Verdict
from nsed_torch.records.trace import Trace
from nsed_torch.records.transcript import Task, Transcript
from nsed_torch.traces.equality import Equality
from nsed_torch.traces.recorded import questions_in, read_records
from nsed_torch.traces.splits import place


@dataclass(frozen=True)
class GradedTasks:
    """Tasks with their grader, and what is known of them besides their answers."""

    tasks: tuple[Task, ...]  # with different ids
    grader: Grader
    identity: Mapping[str, Any]  # which questions these are (name, revision or fingerprint); JSON values only
    strata: Mapping[str, str] = field(default_factory=dict)  # task id -> subject, difficulty or pattern
    groups: Mapping[str, str] = field(default_factory=dict)  # id of a task asked again -> id of its question
    suggestions: Mapping[str, str] = field(default_factory=dict)  # task id -> the answer that its user suggests
    withheld: bool = False  # whether the questions' authors ask that texts are shown nowhere
    call_log: CallLog | None = None  # where verdicts are kept: a repeated run grades alike, and nothing twice
    chains: Mapping[str, Chain] = field(default_factory=dict)  # task id -> the work after each step, the answer last
    facts: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)  # task id -> what matters of its inputs
    hops: Mapping[str, tuple[Hop, ...]] = field(default_factory=dict)  # task id -> its parts, one after the other

    def limited(self, limit: int | None) -> "GradedTasks":
        """The first `limit` tasks; all if None."""
        return replace(self, tasks=self.tasks[:limit])

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def answers(self) -> GradersAnswers:
        """What tells which texts give the same answer, without telling which are right."""
        return GradersAnswers(self.grader)

    def split(self, share: float, *, seed: int = 0) -> tuple["GradedTasks", "GradedTasks"]:
        """Divide the questions at random, by seed: about that share of them, and the rest; epochs stay together.

        Raises:
            ValueError: unless both parts get a question.
        """
        order = sorted({self.group(task) for task in self.tasks}, key=lambda name: place(name, seed))
        count = round(share * len(order)) if 0 < share < 1 else 0
        if not 0 < count < len(order):
            raise ValueError(f"split: expected a share that leaves both parts a question, got {share} of {len(order)}")
        first = set(order[:count])
        parts = [[task for task in self.tasks if (self.group(task) in first) is kept] for kept in (True, False)]
        return replace(self, tasks=tuple(parts[0])), replace(self, tasks=tuple(parts[1]))

    def chosen(self, ids: Collection[str] | None) -> "GradedTasks":
        """The tasks with these ids, in the benchmark's order; all if None."""
        if ids is None:
            return self
        wanted = list(map(str, ids))
        known = {task.id for task in self.tasks}
        if not wanted or not set(wanted) <= known:
            unknown = next((name for name in wanted if name not in known), "none")
            raise ValueError(
                f"expected ids of {len(known)} tasks, such as {self.tasks[0].id!r:.60}, got {unknown!r:.60}"
            )
        return replace(self, tasks=tuple(task for task in self.tasks if task.id in wanted))

    def repeated(self, epochs: int) -> "GradedTasks":
        """Every task `epochs` times, each time under an id, and so with seeds, of its own."""
        copies = [
            (replace(task, id=task.id if epoch == 1 else f"{task.id}~{epoch}"), task.id)
            for epoch in range(1, epochs + 1)
            for task in self.tasks
        ]
        return replace(
            self,
            tasks=tuple(copy for copy, _ in copies),
            strata={copy.id: self.strata[name] for copy, name in copies if name in self.strata},
            groups={copy.id: self.groups.get(name, name) for copy, name in copies},
            suggestions={copy.id: self.suggestions[name] for copy, name in copies if name in self.suggestions},
        )

    def group(self, task: Task) -> str:
        """Id of the question a task asks."""
        return self.groups.get(task.id, task.id)

    def remembered(self, task: Task) -> tuple[str, ...]:
        """What a memory should hold of a task's inputs in the end; nothing where nobody knows."""
        facts = self.facts.get(question_id(task), ())
        return tuple(fact.text for fact in facts if fact.matters(len(task.inputs)))

    def inputs_of(self, task: Task) -> list[dict[str | None, str]]:
        """Of every piece, who reads what: an agent's name or place, or None for all."""
        return [readers(piece) for piece in task.inputs]

    def told(self, task: Task, index: int, reader: str | None) -> list[str]:
        """The facts that a reader finds in piece `index`, from 1."""
        return [fact.text for fact in self.facts.get(task.id, ()) if (fact.piece, fact.reader) == (index, reader)]

    def chain(self, task: Task) -> Chain:
        """What each step should say where rounds are steps; nothing where nobody knows."""
        return self.chains.get(self.group(task), ())

    def needed(self, transcript: Transcript) -> list[list[int]]:
        """Of each proposal of each round, the last round that reads after which a memory should hold it; 0 for none."""
        last = len(transcript.task.inputs)
        facts = self.facts[question_id(transcript.task)]
        ends = {fact.text: last if fact.until is None else fact.until - 1 for fact in facts}
        return [
            [max((end for text, end in ends.items() if text in p.text), default=0) for p in record.proposals]
            for record in transcript.rounds
        ]

    def insight(self, traces: Sequence[Trace], outcomes: Sequence[Outcome]) -> dict[str, Any]:
        """What else is to be measured of such tasks, by name, for `results.json`; nothing by default."""
        return {}

    def lines(self, found: Mapping[str, Any]) -> list[str]:
        """What a terminal shows of an `insight`, a line each."""
        return []

    def adopts(self, task: Task, answer: str | None) -> bool | None:
        """Whether a final answer equals the one that the task's user suggests; None where they suggest none."""
        if (suggestion := self.suggestions.get(task.id)) is None:
            return None
        one, other = self.grader.classes(task, [suggestion, answer])
        return one == other

    def verdicts(self, pairs: Sequence[tuple[Task, str | None]]) -> list[Verdict]:
        """Verdicts on final answers, each pair graded once; no answer is `NO_ANSWER`."""
        unique = list(dict.fromkeys((task, answer) for task, answer in pairs if answer is not None))
        graded = dict(zip(unique, self._grade(unique), strict=True)) if unique else {}
        return [Verdict.NO_ANSWER if answer is None else graded[task, answer] for task, answer in pairs]

    def _grade(self, pairs: Sequence[tuple[Task, str]]) -> list[Verdict]:
        if (log := self.call_log) is None:
            return self.grader.grade(pairs)
        identity = dict(self.grader.identity())
        # Without what no verdict depends on, so that logs from before there was any still count.
        unseen = {"category", "inputs", "start", "goal"}
        bare = [({k: v for k, v in asdict(task).items() if k not in unseen}, answer) for task, answer in pairs]
        keys = [call_key(kind="grade", grader=identity, task=task, answer=answer) for task, answer in bare]
        known = log.get(keys, _given)
        missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        if missing:
            new = dict(zip(missing, self.grader.grade(list(missing.values())), strict=True))
            # That nobody could grade an answer is not kept.
            log.put({key: verdict.value for key, verdict in new.items() if verdict is not Verdict.NOT_RUN})
            known |= new
        return [known[key] for key in keys]

    def traces(self, transcripts: Sequence[Transcript]) -> list[Trace]:
        """Grade every proposal of all transcripts, by its final answer or, where it is known, by what the step says.

        Where it is known what matters of the inputs, a trace has how long each note is needed.
        """
        answers = [
            [
                # A note is no answer.
                [None if t.task.reads(record.index) else self.grader.extract(t.task, p.text) for p in record.proposals]
                for record in t.rounds
            ]
            for t in transcripts
        ]
        pairs = [(t.task, a) for t, rows in zip(transcripts, answers, strict=True) for row in rows for a in row]
        verdicts = iter(self.verdicts(pairs))
        grades = [[[next(verdicts) is Verdict.RIGHT for _ in row] for row in rows] for rows in answers]
        traces = [Trace(*parts) for parts in zip(transcripts, grades, answers, strict=True)]
        return [self._known(trace) for trace in traces]

    def _known(self, trace: Trace) -> Trace:
        transcript = trace.transcript
        if transcript.unit == "step" and (chain := [step.split() for step in self.chain(transcript.task)]):
            grades = [
                [record.index <= len(chain) and p.text.split() == chain[record.index - 1] for p in record.proposals]
                for record in transcript.rounds
            ]
            return replace(trace, grades=grades)
        facts = question_id(transcript.task) in self.facts
        return replace(trace, needed=self.needed(transcript)) if facts else trace


def _given(key: str, value: Any) -> Verdict:
    """A verdict that was kept."""
    if (verdict := Verdict(value)) is Verdict.NOT_RUN:
        raise ValueError("expected a verdict of a grader")
    return verdict


def targeted(lines: Sequence[Known], grader: AnswerGrader) -> GradedTasks:
    """Tasks that are graded by their targets; the identity says how many ask for an answer of each kind."""
    tasks = tuple(line.task for line in consistent(lines))
    kinds = Counter(str(grader.kind_of(task)) for task in tasks)
    more = [[*line[1:], line.task.start] for line in lines if any(line[1:])]
    about = {"known": hashlib.sha256(json.dumps(more).encode()).hexdigest()} if more else {}
    return GradedTasks(
        tasks,
        grader,
        {**grader.identity(), "kinds": dict(sorted(kinds.items())), **about},
        chains={line.task.id: line.chain for line in lines if line.chain},
        facts={line.task.id: line.facts for line in lines if line.facts},
        hops={line.task.id: line.hops for line in lines if line.hops},
    )


def answer_grader(
    lines: Sequence[Known],
    math_verify: bool | None,
    kind: Kind | None,
    checker: Checker | None,
    reading: str = "general",
) -> AnswerGrader:
    """By a checker if there is one, else by equality: of works that are known step by step, word by word."""
    if all(line.chain for line in lines):
        # Where a work stops at `3 + 4` it is not done, whatever that comes to.
        math_verify, kind = False if math_verify is None else math_verify, kind or "text"
    equality = Equality(math_verify)
    if checker is None:
        return AnswerGrader(equality, kind, reading)
    return CheckedGrader(equality, kind, reading, checker=checker)


def file_tasks(
    questions: str,
    *,
    prompt: str = "",
    math_verify: bool | None = None,
    kind: Kind | None = None,
    reading: str = "general",
    checker: Checker | None = None,
) -> GradedTasks:
    r"""Tasks from a file of questions, right if equal to its targets.

    The file is JSON Lines {question, answer}, compressed if the name ends in `.gz`, with what `known` reads besides.
    The prompt says behind every question how to answer, such as `Put your final answer in \boxed{}.`; `math_verify` is
    as in `Equality`; `kind` is that of all answers, which is guessed from each target if None. A `checker` takes a task
    and a final answer and tells whether that is right, in place of equality; `reading` is as in `AnswerGrader`.
    """
    if not questions:
        raise ValueError("expected a file of questions, got none: pass questions=FILE, or tasks=NAME for a set")
    path = Path(questions).expanduser()
    lines = [known(row, where, prompt) for where, row in read_records(path, hashlib.sha256(), ())]
    if not lines:
        raise ValueError(f"{path}: expected questions, got an empty file")
    return targeted(lines, answer_grader(lines, math_verify, kind, checker, reading))


def recorded_tasks(
    data_dir: str | None = None,
    subset: str = "",
    *,
    prompt: str = "",
    math_verify: bool | None = None,
    kind: Kind | None = None,
    reading: str = "general",
) -> GradedTasks:
    r"""The questions of a folder of recorded answers, as tasks for others to answer.

    `data_dir` holds `questions.jsonl[.gz]` {id, question, target}, or has it in `zeroeval/subset` or `subset`. The
    prompt says behind every question how to answer, such as `Put your final answer in \boxed{}.`; "" keeps the
    questions as they were recorded. `math_verify` is as in `Equality`, `kind` and `reading` as in `file_tasks`.
    """
    if not data_dir:
        raise ValueError("expected a folder of recorded answers, got none: pass data_dir=DIR")
    root = Path(data_dir).expanduser()
    path = questions_in(*([root / "zeroeval" / subset, root / subset] if subset else [root]))
    graded = file_tasks(str(path), prompt=prompt, math_verify=math_verify, kind=kind, reading=reading)
    about = {
        "name": "recorded",
        "file": path.relative_to(root).as_posix(),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "prompt": prompt,
    }
    return replace(graded, identity={**about, **graded.identity})
