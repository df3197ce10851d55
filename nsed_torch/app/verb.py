"""What all verbs share: settings that are checked, a folder, a console, and a result that is printed last."""

import contextlib
import difflib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.app.cli import stop_behind
from nsed_torch.app.config.hydra_node import hydra_root
from nsed_torch.app.config.settings import check_settings, plain_config
from nsed_torch.app.opening import identity_of, leaves, opened
from nsed_torch.records.files import read_json

WIDTH = 130
"""Characters of a line in a file or a pipe."""


def console() -> Console:
    """Standard output; what is no terminal has room for tables."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=WIDTH)


class VerbRun(NamedTuple):
    """Where a verb writes, and where it says what it does."""

    folder: Path
    console: Console

    def report(self, text: str) -> None:
        """A dim line of progress."""
        self.console.print(text, style="dim", markup=False, emoji=False, soft_wrap=True)

    @property
    def overrides(self) -> list[str]:
        """The words that set this run's settings."""
        return list(HydraConfig.get().overrides.task)


def verb(
    config_name: str,
    made: Sequence[str] = (),
    *,
    goes_on: Callable[[DictConfig], bool] = lambda cfg: False,
    free: Sequence[str] = (),
    measures: str = "",
) -> Callable[[Callable[[DictConfig, VerbRun], object]], Any]:
    """A verb's `main`: Hydra composes `conf/<config_name>.yaml`, and what the job returns, if anything, is printed.

    What the job makes, by names or patterns, must not stand beside what another run made: the folder is `opened`. A job
    that goes on from checkpoints refuses another run's; `free` settings may differ between its runs.

    The number of the file `measures` that the setting `objective` names is what a searching sweeper is told, and
    maximises or minimises; none unless it is set or the file says which method it is about (`reference`).
    """

    def wrap(job: Callable[[DictConfig, VerbRun], object]) -> Any:
        @functools.wraps(job)
        def checked(cfg: DictConfig) -> float | None:
            check_settings(cfg, config_name)
            folder = Path(HydraConfig.get().runtime.output_dir)
            with contextlib.ExitStack() as held:
                # Of several processes of one run the first one writes.
                if made and not cfg.get("dry_run") and os.environ.get("RANK", "0") == "0":
                    settings = {key: value for key, value in plain_config(cfg).items() if key not in free}
                    identity = identity_of(config_name, settings)
                    held.enter_context(opened(folder, identity, made, goes_on=goes_on(cfg)))
                try:
                    result = job(cfg, VerbRun(folder, console()))
                except (KeyboardInterrupt, Exception) as error:
                    if stop := stop_behind(error):
                        raise KeyboardInterrupt(str(cfg.get("output_dir", folder))) from stop
                    raise
            if result is not None:
                # Not through the console, which would expand tabs and turn :key: into a picture.
                print(result)  # noqa: T201 - the result
            if not measures or cfg.get("dry_run") or os.environ.get("RANK", "0") != "0":
                return None
            return objective(folder / measures, cfg.objective)

        return hydra_root(config_name, checked)

    return wrap


def objective(path: Path, name: str | None) -> float | None:
    """The number of that name in a file of results; unless one is named, the accuracy of the method it is about."""
    data = read_json(path) if path.is_file() else {}
    numbers = {key: float(value) for key, value in leaves(data) if type(value) in {int, float}}
    if name is None:
        return numbers.get(f"methods.{data.get('reference')}.accuracy.mean")
    if name not in numbers:
        near = difflib.get_close_matches(name, numbers, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"objective: expected the name of a number in {path}, got {name!r}{hint}")
    return numbers[name]
