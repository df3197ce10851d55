"""`nsed members`: what size, weak members and simulated faulty ones do to a vote that was recorded."""

from pathlib import Path
from time import perf_counter

from omegaconf import DictConfig

from nsed_lab.faulty_members import most_faulty
from nsed_lab.member_study import MemberStudy, plot_faulty, polled, rules, sheets
from nsed_torch.app.config.settings import plain_config
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.evaluation.provenance import provenance
from nsed_torch.evaluation.statistics import plain
from nsed_torch.parts.saved_cells import with_strangers
from nsed_torch.parts.ties import Ties
from nsed_torch.records.files import to_json, write_files
from nsed_torch.traces.load import load_traces

SCHEMA_VERSION = 2
"""Of members.json; raised by one when a field changes its meaning or goes away."""


@verb("members", ("members.json", "tables", "plots"))
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Load, vote again, write `members.json`, tables and plots, print the tables."""
    if not cfg.data_dir:
        raise ValueError("expected traces, got no folder: pass data_dir=<folder of nsed collect or nsed evaluate>")
    data, began = Path(cfg.data_dir).expanduser(), perf_counter()
    rounds = polled(load_traces(data), cfg.round, Ties.named(cfg.ties or Ties.FIRST))
    extra = most_faulty(len(rounds.agents))
    cell = ConsensusCell.from_pretrained(cfg.cell, agents=rounds.agents) if cfg.cell else None
    if cell is not None and cell.dim != (width := rounds.task.shape[1]):
        raise ValueError(f"expected embeddings of width {cell.dim}, got {width}: build the cell for it")
    tuned = None if cell is None else with_strangers(cell, extra)
    run.report(f"{len(rounds)} tasks, {len(rounds.agents)} agents, round {cfg.round}")
    study = MemberStudy.of(
        rounds,
        rules(rounds.task.shape[1], len(rounds.agents) + extra, list(cfg.votes), tuned),
        core=cfg.core,
        most_teams=cfg.most_teams,
        draws=cfg.draws,
        seed=cfg.seed,
    )
    made = provenance(plain_config(cfg), {"seed": cfg.seed})
    facts = {
        "schema_version": SCHEMA_VERSION,
        "round": cfg.round,
        "cell": None if cell is None else cell.fingerprint(),
        "seconds": round(perf_counter() - began, 1),
    }
    tables = sheets(study)
    write_files(
        {
            **{run.folder / "tables" / f"{sheet.name}.md": sheet.markdown().encode() for sheet in tables},
            run.folder / "members.json": (to_json({**facts, **plain(study), "provenance": made}) + "\n").encode(),
        }
    )
    try:
        plot_faulty(study, run.folder / "plots" / "faulty.png")
    except ValueError as error:  # matplotlib is an extra
        run.report(f"no plots: {error}")
    run.console.print(*(sheet.terminal() for sheet in tables))
    return run.folder / "members.json"
