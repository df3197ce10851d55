"""`nsed study`: a list of commands, and the page that tells what they showed."""

from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from nsed_torch.config import verb
from nsed_torch.evaluation.page import StepResults, write_page
from nsed_torch.experiments.runner import Runner
from nsed_torch.experiments.steps import check, chosen_names, read_steps


@verb("study")
def main(cfg: DictConfig) -> None:
    """Run the steps that are not complete, then write the page and print its path."""
    plain: Any = OmegaConf.to_container(cfg.study, resolve=True, throw_on_missing=True)
    console = Console(highlight=False)
    report = partial(console.print, style="bold", markup=False, emoji=False, soft_wrap=True)
    steps = read_steps(plain)
    names = chosen_names(steps, cfg.steps)
    # As it was given, so that commands hold the same paths on any machine.
    runner = Runner(steps, Path(cfg.output_dir), report, jobs=cfg.jobs)
    page = _page(plain)
    if cfg.dry_run:
        for step in steps:
            print(f"{runner.state(step.name):8}  {step.command(runner.root)}")  # noqa: T201 - the result
        return
    if not cfg.page_only:
        for name in names:
            if not runner.complete(name):
                check(runner.steps[name], runner.root)
        runner.run(names)
    if page:
        print(draw(runner, **page))  # noqa: T201 - the result


def _page(study: dict[str, Any]) -> dict[str, Any]:
    """What the study says of its page.

    Raises:
        ValueError: for other keys, before any step runs.
    """
    page: dict[str, Any] = study.get("page") or {}
    if page and page.keys() != {"template", "output", "figures"}:
        raise ValueError(f"study page: expected template, output and figures, got {', '.join(page)}")
    return page


def draw(runner: Runner, template: str, output: str, figures: str) -> Path:
    """Write the page from what all steps left, whether they ran now or earlier or not yet.

    Args:
        runner: of the study; hears which steps the page shows as they were before the study changed.
        template: a file, or the name of one among the package's own.
        output: the page.
        figures: folder of its images.
    """
    results = []
    for name in runner.steps:
        if outdated := runner.state(name) == "outdated":
            runner.report(
                f"step {name}: the page shows an earlier command's results; rerun the study without page_only"
            )
        results.append(StepResults(name, runner.root, runner.record(name), outdated=outdated))
    return write_page(template, results, Path(output), figures=Path(figures))
