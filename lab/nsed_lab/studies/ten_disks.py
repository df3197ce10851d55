"""`python -m nsed_lab.studies.ten_disks SEED... [at=STEP,STEP...] [SETTING=VALUE...]`: steps of a tower of ten disks.

A deliberation in steps is lost at its first wrong one. So whether it would move a tower of 1,023 moves is known once
every step was voted on behind right work, each by itself: these are taken together, where a run takes them in turn.
All steps are tried, unless some are named: where one of those is wrong, the run is lost whatever the others are.
Members are asked as `+experiment=ten_disks` asks them, one after the other until the commonest step is two ahead.
Settings are those of `nsed evaluate`, `ensemble=...` for others than those that ship.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hydra import compose

from nsed_torch.app.build import build_ensemble
from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import GenerateRequest, call_seed
from nsed_torch.core.prompts import Prompts
from nsed_torch.evaluation.statistics import share, shown
from nsed_torch.parts.forms import FORMS, next_step
from nsed_torch.records.transcript import Task

AHEAD = 2


def undecided(said: Sequence[str], members: int) -> bool:
    """Whether another member is asked: some are left, and no step is far enough ahead."""
    first, second = ([count for _, count in Counter(said).most_common(2)] + [0, 0])[:2]
    return len(said) < members and first - second < AHEAD


def elected(said: Sequence[str]) -> str:
    """What most say, the first of such as are said equally often."""
    return max(said, key=Counter(said).__getitem__)


def votes(
    ensemble: Any, prompts: Prompts, task: Task, works: Sequence[str], seed: int, at: Sequence[int]
) -> list[list[str]]:
    """What is said at these steps, from 0, each behind its work, by those who are asked, in the ensemble's order."""
    said: dict[int, list[str]] = {i: [] for i in at}
    members: Sequence[Agent] = ensemble.agents
    while open_steps := [i for i, texts in said.items() if undecided(texts, len(members))]:
        requests = []
        for i in open_steps:
            agent, mark = members[len(said[i])], call_seed(seed, task.id, "propose")
            chat = next_step(prompts, task.question, [works[i]], seed=mark, form=agent.form)
            drawn = call_seed(seed, task.id, i + 1, agent.name, "propose")
            requests.append(GenerateRequest(agent.name, chat, agent.decoding, drawn, agent.adapter))
        for i, answer in zip(open_steps, ensemble.generate(requests), strict=True):
            form = FORMS[members[len(said[i])].form]
            said[i].append(form.plain(" ".join(answer.text.split())) or "")
        print(f"{len(requests)} steps asked about", file=sys.stderr, flush=True)
    return [said[i] for i in at]


def main(seeds: Sequence[int], steps: Sequence[int] = (), settings: Sequence[str] = ()) -> None:
    """Per seed: steps that the vote and the first of each adapter get wrong, and how many are asked."""
    with composing():
        cfg = compose("evaluate", overrides=["+experiment=ten_disks", *settings])
    ensemble, prompts, graded = build_ensemble(cfg.ensemble), instantiate(cfg.prompts), instantiate(cfg.tasks)
    (task,) = graded.tasks
    chain = graded.chains[task.id]
    works = [task.start, *chain[:-1]]
    at = [step - 1 for step in steps] or list(range(len(chain)))
    for seed in seeds:
        said = votes(ensemble, prompts, task, works, seed, at)
        wrong = {"the vote": [i for i, texts in zip(at, said, strict=True) if elected(texts) != chain[i]]}
        for place in range(AHEAD):
            name = ensemble.agents[place].name
            wrong[name] = [i for i, texts in zip(at, said, strict=True) if texts[place] != chain[i]]
        print(f"seed {seed}: {sum(map(len, said)) / len(said):.2f} members asked a step")
        for name, wrong_at in wrong.items():
            listed = ", ".join(str(i + 1) for i in wrong_at)
            print(f"  {name}: {shown(share(len(wrong_at), len(at)))} of {len(at)} steps wrong: {listed}")


if __name__ == "__main__":
    named = [word.removeprefix("at=") for word in sys.argv[1:] if word.startswith("at=")]
    main(
        [int(word) for word in sys.argv[1:] if "=" not in word],
        [int(step) for steps in named for step in steps.split(",")],
        [word for word in sys.argv[1:] if "=" in word and not word.startswith("at=")],
    )
