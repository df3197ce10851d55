"""`nsed evaluate`: deliberation and its baselines on a benchmark, at equal cost, with intervals."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.table import Table

from nsed_torch.app.build import bound, build_agents, build_rnn, call_log, graded_tasks, memory_ahead, pool_answers
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.settings import plain_config
from nsed_torch.app.processes import this_shard
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import question_table, steps_line, view
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.evaluating import keep_traces
from nsed_torch.evaluation.horizon import step_insight, step_lines
from nsed_torch.evaluation.methods.conducted import Conducted
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation, expected_usage
from nsed_torch.evaluation.methods.independent import Router, Single
from nsed_torch.evaluation.methods.method import Method
from nsed_torch.evaluation.pages import write_report
from nsed_torch.evaluation.plots import plot_cost, plot_rounds
from nsed_torch.evaluation.provenance import provenance
from nsed_torch.evaluation.round_statistics import insight
from nsed_torch.evaluation.run_folder import EXECUTIONS, OUTCOMES, RESULTS
from nsed_torch.evaluation.run_methods import BEST_SINGLE, DELIBERATION, SINGLE, Contest, Contested, alone, panel_of
from nsed_torch.evaluation.statistics import plain
from nsed_torch.evaluation.tables import csv, latex, markdown, show
from nsed_torch.parts.ties import Ties
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.programs import ProgramGrader
from nsed_torch.records.files import to_json, write_files, write_text
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Task, Usage
from nsed_torch.records.withholding import withheld_outcome
from nsed_torch.traces.episodes import joined
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.rounds import Rounds

BUDGETS = ("equal_tokens", "own")

SCHEMA_VERSION = 5
"""Of results.json; raised by one when a field changes its meaning or goes away."""

MADE = (
    *("traces.jsonl", "embeddings.safetensors", "executions", "outcomes.jsonl"),
    *("tables", "plots", "results.json", "report.html"),
)


@verb("evaluate", MADE, measures=RESULTS)
def main(cfg: DictConfig, run: VerbRun) -> Path | None:
    """Compose, build, put all methods to all tasks, write the folder, print the table."""
    folder, console = run.folder, run.console
    settings = plain_config(cfg)
    complete = (folder / RESULTS).is_file() and (folder / "report.html").is_file()  # by this very run
    if HydraConfig.get().mode == RunMode.MULTIRUN and complete:
        run.report(f"{folder}: complete already")
        return None
    methods = chosen_methods(cfg)
    ties = Ties.named(cfg.ties or (Ties.ACCURACY if cfg.labels else Ties.FIRST))
    settings["ties"] = str(ties)
    asked = graded_tasks(cfg, run.report).chosen(cfg.ids).limited(cfg.limit)
    accuracy = labelled_accuracy(cfg, ties, asked.tasks)
    graded = asked.repeated(cfg.epochs)
    if isinstance(graded.grader, ProgramGrader) and graded.grader.why:
        console.print(f"programs are not run: {graded.grader.why}", style="bold", markup=False, soft_wrap=True)
    shard = this_shard(cfg.ensemble)
    report: Callable[[str], None] = run.report if shard.rank == 0 else lambda text: None
    with call_log(cfg, folder) as log:
        conducted = [method for method in methods.values() if isinstance(method, Conducted)]
        also = [method.conductor for method in conducted]
        rnn = build_rnn(cfg, log, report, also, counting=cfg.dry_run)
        if cfg.dry_run:
            costs = expected_costs(rnn, graded, methods, list(cfg.methods), equal_tokens=cfg.budget == "equal_tokens")
            console.print(cost_table(costs, len(graded.tasks), cfg.expect.speeds))
            console.print(memory_ahead(cfg, also), markup=False, soft_wrap=True)
            return None
        graded = bound(graded, rnn)
        pool_answers(rnn, graded, cfg)
        steps = rnn.cell.protocol.unit == "step"
        with view(console, rounds=steps and cfg.show > 0, steps=steps, only=graded.tasks[: cfg.show]) as watch:
            contested = evaluate(
                rnn,
                graded,
                methods,
                folder,
                names=list(cfg.methods),
                equal_tokens=cfg.budget == "equal_tokens",
                ties=ties,
                accuracy=accuracy,
                batch_tasks=cfg.batch_tasks,
                max_failures=cfg.max_failures,
                shard=shard,
                report=report,
                observer=watch if shard.rank == 0 else None,
            )
    if shard.rank:
        return None
    if told := told_lines(contested, graded):
        run.report("\n".join(told))
    for trace in contested.traces[: 0 if graded.withheld or steps else cfg.show]:
        console.print(question_table(trace), soft_wrap=True)
    show(console, write_run(folder, contested, graded, settings, report=report))
    return folder


def evaluate(
    rnn: MacroRNN, graded: GradedTasks, methods: Mapping[str, Method], folder: Path, *, names: Sequence[str], **how: Any
) -> Contested:
    """Put methods to graded tasks, and keep what deliberations and workflows did in a folder.

    The first process writes `traces.jsonl` and `executions/<method>.jsonl`; of tasks whose texts are withheld no text
    is kept, and so no workflow. Names, methods and the rest are as for `Contest`.
    """
    graded = bound(graded, rnn)
    graded = replace(graded, call_log=rnn.cell.ensemble.call_log)
    contest = Contest(rnn, graded, methods, **how)
    contested = contest.run(names)
    if contest.shard.rank == 0:
        keep_traces(folder, contested.traces, rnn, graded)
    if contest.shard.rank == 0 and not graded.withheld:
        for name, method in methods.items():
            if isinstance(method, Conducted):
                done = method.executions
                lines = "".join(done[task.id].to_line() for task in graded.tasks if task.id in done)
                write_text(folder / EXECUTIONS / f"{name}.jsonl", lines)
    return contested


def write_run(
    folder: Path,
    contested: Contested,
    graded: GradedTasks,
    settings: Mapping[str, Any],
    *,
    report: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Write everything that a run came to beside its traces: comparison, outcomes, tables, plots and the page.

    `settings` is the composed config as plain data; `report` hears of what had to be left out.
    """
    comparison = Comparison.of(contested.outcomes, ties=Ties.named(settings.get("ties", Ties.FIRST)))
    outcomes = [withheld_outcome(o) if graded.withheld else o for o in contested.outcomes]
    not_run = any(outcome.verdict is Verdict.NOT_RUN for outcome in contested.outcomes)
    found = insight(contested.traces, question=graded.group) if contested.traces and not not_run else None
    if found is not None:
        told = contested.traces, contested.outcomes
        found |= step_insight(graded, *told) | graded.insight(*told)
    data = {
        "schema_version": SCHEMA_VERSION,
        "benchmark": {**graded.identity, "tasks": len(graded.tasks)},
        "withheld": graded.withheld,
        **comparison.to_json(),
        "insight": plain(found),
        "provenance": provenance(settings, {"seed": settings.get("seed")}),
    }
    write_files(
        {
            folder / OUTCOMES: "".join(outcome.to_line() for outcome in outcomes).encode(),
            folder / "tables" / "results.md": markdown(comparison).encode(),
            folder / "tables" / "results.csv": csv(comparison).encode(),
            folder / "tables" / "results.tex": latex(comparison).encode(),
            folder / RESULTS: (to_json(data) + "\n").encode(),
        }
    )
    try:
        draw_plots(comparison, found, folder / "plots")
    except ValueError as error:  # matplotlib is an extra
        report(f"no plots: {error}")
    write_report(folder)
    return comparison


def draw_plots(comparison: Comparison, found: Mapping[str, Any] | None, folder: Path) -> None:
    """Cost against accuracy of the methods, and accuracy by round of the deliberations; never of one point."""
    methods = {name: method for name, method in comparison.methods.items() if method.accuracy.mean is not None}
    if len(methods) > 1:
        plot_cost(methods, folder / "cost.png")
    if found is not None and len(found["course"]["rounds"]) > 1 and found["tasks"] > 1:
        plot_rounds(found["course"], found["tasks"], folder / "rounds.png")


def told_lines(contested: Contested, graded: GradedTasks) -> list[str]:
    """A line for every deliberation whose rounds were steps, then what else the tasks tell of them."""
    scores = {outcome.task: outcome.score for outcome in contested.outcomes if outcome.method == DELIBERATION}
    lines = []
    stepped = [trace.transcript for trace in contested.traces if trace.transcript.unit == "step"]
    for task, transcript in ((transcript.task, transcript) for transcript in stepped):
        score = scores.get(task.id)
        lines.append(f"{task.id}: {steps_line(transcript, None if score is None else score == 1, graded.chain(task))}")
    told = contested.traces, contested.outcomes
    return lines + step_lines(step_insight(graded, *told)) + graded.lines(graded.insight(*told))


def expected_costs(
    rnn: MacroRNN, graded: GradedTasks, methods: Mapping[str, Method], names: Sequence[str], *, equal_tokens: bool
) -> dict[str, Usage]:
    """What each named method costs at most, before any model is called.

    With `equal_tokens` methods get what deliberation takes; otherwise their own size counts.
    """
    tasks, panel = graded.tasks, panel_of(rnn, graded)
    deliberation = expected_deliberation(rnn, tasks) if DELIBERATION in names else Usage()

    def cost(name: str) -> Usage:
        if name == SINGLE:
            agents = [agent.name for agent in panel.ensemble.proposers]
            steppers = {agent: alone(rnn, agent) for agent in agents}
            return Usage.sum(
                expected_usage(Single(agent), panel, tasks)
                if stepper is None
                else expected_deliberation(stepper, tasks)
                for agent, stepper in steppers.items()
            )
        if name == BEST_SINGLE:
            return Usage()  # chosen among what single agents answered
        if isinstance(methods.get(name), Router):  # whom it asks is not known without the encoder
            return max((expected_usage(Single(a.name), panel, tasks) for a in panel.ensemble.proposers), key=_tokens)
        if name == DELIBERATION or (equal_tokens and not getattr(methods[name], "one_size", False)):
            return deliberation
        return expected_usage(methods[name], panel, tasks)

    return {name: cost(name) for name in names}


def _tokens(usage: Usage) -> int:
    return usage.tokens


def cost_table(costs: Mapping[str, Usage], tasks: int, speeds: Mapping[str, float]) -> Table:
    """Expected costs, a line per method and their sum; speeds are tokens a second that are "read" and "written"."""
    table = Table(title=f"{tasks} tasks: at most", title_justify="left", caption_justify="left")
    table.caption = (
        "everybody in every round, every allowance filled; "
        f"{speeds['read']:,} tokens a second read, {speeds['written']:,} written (expect.speeds)"
    )
    for column in ("method", "calls", "tokens (billed)", "tokens a task", "hours", "US$"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for name, usage in {**costs, "all": Usage.sum(costs.values())}.items():
        tokens = f"{usage.tokens:,} ({usage.billed:,})", f"{usage.tokens / tasks:,.0f}"
        read = usage.tokens - usage.completion_tokens
        hours = (read / speeds["read"] + usage.completion_tokens / speeds["written"]) / 3600
        cells = f"{usage.calls:,}", *tokens, f"{hours:,.2f}", f"{usage.price:,.2f}"
        table.add_row(name, *cells, end_section=name == list(costs)[-1])
    return table


def labelled_accuracy(cfg: DictConfig, ties: Ties, tasks: Sequence[Task]) -> dict[str, float]:
    """Each agent's accuracy in round 1 of the traces `labels`, by which `ties=accuracy` decides; empty otherwise."""
    if ties is not Ties.ACCURACY:
        if cfg.labels:
            raise ValueError(f"expected ties=accuracy with labels, got ties={ties}: set it, or remove labels")
        return {}
    if not cfg.labels:
        raise ValueError("ties=accuracy: expected traces to learn accuracies from, got none: set labels=DIR")
    folders = [cfg.labels] if isinstance(cfg.labels, str) else list(cfg.labels)
    taught = {trace.transcript.task.question for path in folders for trace in read_traces(path)}
    if seen := [task.id for task in tasks if task.question in taught]:
        raise ValueError(
            f"labels: expected traces of other questions than are asked, got {len(seen)}, such as {seen[0]!r}"
        )
    rounds = Rounds.of(joined([load_traces(path) for path in folders]))
    known = dict(zip(rounds.agents, rounds.correct.double().mean(0).tolist(), strict=True))
    if strangers := [agent.name for agent in build_agents(cfg.ensemble) if agent.name not in known]:
        raise ValueError(f"labels: expected agents out of {', '.join(known)}, got {strangers[0]}: collect with it")
    return known


def chosen_methods(cfg: DictConfig) -> dict[str, Method]:
    """The methods that the config names, built."""
    names, own = list(cfg.methods), (DELIBERATION, SINGLE, BEST_SINGLE)
    known = [*own, *map(str, cfg.method)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"methods: expected names out of {', '.join(known)}, got {name!r}{hint}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"methods: expected one or more different names, got {names}")
    if cfg.budget not in BUDGETS:
        raise ValueError(f"expected budget={' or budget='.join(BUDGETS)}, got budget={cfg.budget}")
    chosen = [name for name in names if name not in own]
    if chosen and cfg.budget == "equal_tokens" and DELIBERATION not in names:
        raise ValueError("budget=equal_tokens needs deliberation among the methods, which measures it; or budget=own")
    return {name: instantiate(cfg.method[name]) for name in chosen}
