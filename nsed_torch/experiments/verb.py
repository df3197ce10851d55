"""What all verbs share: settings that are checked, a folder, a console, and a result that is printed last."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from nsed_torch.config.hydra_node import checked_compositions
from nsed_torch.config.paths import conf_dir
from nsed_torch.config.settings import check_settings, plain_config
from nsed_torch.experiments.opening import identity_of, opened

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
) -> Callable[[Callable[[DictConfig, VerbRun], object]], Any]:
    """A verb's `main`: Hydra composes `conf/<config_name>.yaml`, and what the job returns, if anything, is printed.

    What the job makes, by names or patterns, must not stand beside what another run made: the folder is `opened`. A job
    that goes on from checkpoints refuses another run's; `free` settings may differ between its runs.
    """

    def wrap(job: Callable[[DictConfig, VerbRun], object]) -> Any:
        @functools.wraps(job)
        def checked(cfg: DictConfig) -> None:
            check_settings(cfg, config_name)
            folder = Path(HydraConfig.get().runtime.output_dir)
            with contextlib.ExitStack() as held:
                # Of several processes of one run the first one writes.
                if made and not cfg.get("dry_run") and os.environ.get("RANK", "0") == "0":
                    settings = {key: value for key, value in plain_config(cfg).items() if key not in free}
                    identity = identity_of(config_name, settings)
                    held.enter_context(opened(folder, identity, made, goes_on=goes_on(cfg)))
                result = job(cfg, VerbRun(folder, console()))
            if result is not None:
                # Not through the console, which would expand tabs and turn :key: into a picture.
                print(result)  # noqa: T201 - the result

        main = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(checked)
        return checked_compositions()(main)

    return wrap
