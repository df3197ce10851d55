"""`nsed fit-asking`: learn from recorded answers whom to ask next, and show cost against accuracy."""

from functools import partial
from pathlib import Path

import torch
from omegaconf import DictConfig

from nsed_lab.asking import fit_asking, fit_on_partial_teams, random_asked, replay, shortlist, without_questions
from nsed_torch.app.recordings import answers_of, folders_of, hold_traces
from nsed_torch.app.verb import VerbRun, verb
from nsed_torch.app.verbs.fit_broker import Division, check, learned, shares
from nsed_torch.evaluation.cost_curves import oracle_curve
from nsed_torch.parts.ties import Ties
from nsed_torch.traces.episodes import Episodes
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.traces.rounds import Rounds, all_teams
from nsed_torch.traces.splits import Split, divisions
from nsed_torch.tuning.broker_rivals import best_teams

ASKING = ("tuned broker", "static best-k", "static best subset", "random-k", "oracle")


@verb("fit_asking", ("broker", "cost.json", "cost.png"))
def main(cfg: DictConfig, run: VerbRun) -> Path:
    """Compose, load, learn and test on every division, then learn from all tasks; write numbers, plot and brokers."""
    check(cfg)
    if not 1 <= cfg.pool <= 10 or cfg.steps < 1:
        raise ValueError(f"expected a pool of 1 to 10 agents and steps above 0, got {cfg.pool} and {cfg.steps}")
    folders = folders_of(cfg)
    if len(folders) > 1 or hold_traces(folders):
        got = f"{len(folders)} folders" if len(folders) > 1 else "traces"
        raise ValueError(f"expected one folder of recorded answers, got {got}: nsed fit-broker learns from traces")
    episodes, answers, _ = answers_of(cfg, folders[0])
    learn = partial(asking, cfg, priced(episodes, answers))
    broker = run.folder / "broker"
    live = (
        f"with the agents of the saved cell: broker=learned broker.learned={broker}/SHARE.safetensors "
        f"cell={broker}/cell rounds={cfg.pool}"
    )
    splits, unit = divisions(episodes.ids, cfg.fractions, cfg.divisions), "parameters x answer length"
    return learned(cfg, run, episodes, splits, learn, names=ASKING, unit=unit, live=live, facts={})


def priced(episodes: Episodes, answers: RecordedAnswers | None) -> Rounds:
    """Recorded answers with what they cost, for a broker that does not read the question."""
    known = () if answers is None else answers.parameters.isfinite().tolist()
    if unknown := [name for name, finite in zip(episodes.agents, known, strict=True) if not finite]:
        named = ", ".join(unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
        remedy = "choose others by agents or max_parameters_b"
        raise ValueError(f"broker: expected parameters_b of every agent, got none of {named}: {remedy}")
    return without_questions(Rounds.of(episodes))


def asking(cfg: DictConfig, everybody: Rounds, part: Split, seed: int | None) -> Division:
    """A broker that asks one agent after the other."""
    seed, learned_on = seed or 0, torch.cat([part.train, part.validation])
    ties = Ties.named(cfg.ties or Ties.ACCURACY)
    if ties is Ties.FIRST:
        raise ValueError("ties=first: recorded answers stand in the order of accuracy here: set ties=accuracy or lot")
    everybody = everybody.settling(ties, learned_on)
    team = everybody.select(agents=everybody.correct[learned_on].double().mean(0).argsort(descending=True, stable=True))
    whole = float(team.answer_cost[learned_on].sum(1).mean())
    budgets = torch.tensor(sorted(cfg.budgets), dtype=torch.float64)
    means = budgets * whole
    pool = shortlist(team, learned_on, means, cfg.pool)
    fit_cell = partial(fit_on_partial_teams, train=part.train, validation=part.validation, steps=cfg.steps, seed=seed)
    team_cell = fit_cell(team)
    cell = team_cell if pool.agents == team.agents else fit_cell(pool)
    ridges = [30.0] if cfg.ridges is None else list(cfg.ridges)
    fit = fit_asking(cell, pool, part.train, part.validation, ridges=ridges)
    brokers = [fit.within(budget) for budget in means.tolist()]
    live = cell, pool.agents
    if not len(part.test):
        return Division(brokers, live, [fit.ridge])
    team_fit, team_test, test = team.select(learned_on), team.select(part.test), pool.select(part.test)
    ends = [replay(broker, cell, test) for broker in brokers]
    prefixes = torch.ones(len(team.agents), len(team.agents), dtype=torch.bool).tril()
    # Whoever answers rates the others.
    best_k, subsets = (teams[..., None].expand(-1, -1, 2) for teams in (prefixes, all_teams(len(pool.agents))[1:]))
    points = [
        (torch.stack([end.cost for end in ends]), torch.stack([end.right for end in ends])),
        best_teams(team_cell, team_fit, team_test, list(best_k), means, plurality=True),
        best_teams(cell, pool.select(learned_on), test, list(subsets), means, plurality=True),
        random_asked(team_test, means, seed=seed),
    ]
    oracle = oracle_curve(team_test.correct, team_test.answer_cost / whole, budgets.tolist())
    full = torch.stack([team_test.right(team_cell), team_test.answer_cost.sum(1)])
    return Division(brokers, live, [fit.ridge], None, shares(points, whole, oracle), full)
