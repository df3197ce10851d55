"""`nsed demo`: three acts that show what a team does that its best member cannot, and one page of them."""

from dataclasses import replace
from time import perf_counter

import torch
from omegaconf import DictConfig

from nsed_torch.app.build import build_rnn, pool_answers
from nsed_torch.app.door import composed
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.view import Screen, preview, view
from nsed_torch.core.inputs import pieces
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import Observer
from nsed_torch.evaluation.acts import ALONE, PEGS, TITLES, Act, demo_tasks, elected, pegs
from nsed_torch.evaluation.pages import render_acts
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.files import write_json, write_text
from nsed_torch.records.transcript import Round, Task

EVERY = 16
"""Moves of a tower behind which a terminal shows it."""


class Told(Observer):
    """Tells in lines what members read and note, and where the disks lie."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def on_round(self, task: Task, record: Round) -> None:
        """Tell the round; of a tower every so many moves."""
        if task.reads(record.index):
            read = pieces(task, record.index, record.proposers)
            lines = [f"{p.agent} reads: {read[p.agent]}  notes: {p.text or 'nothing'}" for p in record.proposals]
        elif not task.start:
            lines = [f"{p.agent} answers from the notes of all: {preview(p.text)}" for p in record.proposals]
        elif record.index % EVERY and elected(record).count(task.goal) == 0:
            return
        else:
            where = pegs(elected(record))
            towers = {peg: "".join(disk for disk in sorted(where, reverse=True) if where[disk] == peg) for peg in PEGS}
            lines = [f"move {record.index:>3}   " + "  ".join(f"{peg}|{tower:<8}" for peg, tower in towers.items())]
        self.screen.tell(lines)


@verb("demo", ("*.transcript.json", ALONE, "report.html"))
def main(cfg: DictConfig, run: VerbRun) -> str:
    """Play the acts, write their transcripts and their page, print what each came to."""
    questions, acts, began = demo_tasks(), [], perf_counter()
    with CallLog(run.folder / "calls.sqlite") as log:
        for name, settings in cfg.acts.items():
            run.console.print(f"\n[bold]{TITLES.get(str(name), str(name))}[/]")
            act = play(str(name), questions[str(name)], [*settings, f"seed={cfg.seed}"], log, run)
            act.transcript.save(run.folder / f"{name}.transcript.json")
            run.console.print(act.lesson, markup=False, style="bold")
            acts.append(act)
    write_json(run.folder / ALONE, {act.name: act.alone for act in acts})
    page = run.folder / "report.html"
    write_text(page, render_acts(acts))
    lost = [str(number) for number, act in enumerate(acts, start=1) if not act.right]
    told = f"lost: act {' and '.join(lost)}" if lost else f"the team was right in all {len(acts)} acts"
    return f"\n{told}, {perf_counter() - began:.0f} s; the page is {page}"


def play(name: str, graded: GradedTasks, settings: list[str], log: CallLog, run: VerbRun) -> Act:
    """One act: the team deliberates; where members read, each then answers alone from what it read itself."""
    config = composed(dict(setting.split("=", 1) for setting in settings))
    rnn, task = build_rnn(config, log, run.report), graded.tasks[0]
    pool_answers(rnn, graded, config)
    with view(run.console) as shown, torch.no_grad():
        watch = shown if name == "vote" else Told(Screen(run.console, None))
        transcript = rnn([task], observer=watch).transcripts[0]
        alone = members_alone(rnn, task) if task.inputs else {}
    return Act(name, graded.traces([transcript])[0], alone)


def members_alone(rnn: MacroRNN, task: Task) -> dict[str, str]:
    """What each member answers who has read its own pieces and heard nobody."""
    names = [agent.name for agent in rnn.cell.ensemble.agents]
    found = {}
    for name in names:
        own = tuple({name: piece[name]} for piece in task.inputs if isinstance(piece, dict) and name in piece)
        others = [other for other in names if other != name]
        found[name] = rnn.with_(without=others)([replace(task, id=f"{task.id}-{name}", inputs=own)]).answer
    return found
