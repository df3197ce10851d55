"""What a config may tell Hydra itself, checked when Hydra has composed and before it acts on anything.

Hydra builds its callbacks, launcher, sweeper and loggers from the node `hydra`, ahead of a verb and of `instantiate`.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra._internal.hydra
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from nsed_torch.app.config.paths import added_dirs, check_yaml, conf_dir
from nsed_torch.app.config.settings import check_settings, fault, plain

TARGETS = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
    "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
    "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper",
    *(f"optuna.samplers.{name}Sampler" for name in ("CmaEs", "Grid", "MOTPE", "NSGAII", "Random", "TPE")),
    "nsed_torch.app.sweep.SweepTable",
}
HANDLERS = {"logging.StreamHandler", "logging.FileHandler", "logging.NullHandler"}
BUILT = {"_target_": TARGETS, "class": HANDLERS, "()": set[str]()}  # `class` and `()` are logging's words
# Each runs a program or names code: shell lines of a cluster's job, environment variables, a function of Optuna's.
COMMANDS = {"setup", "python", "srun_args", "additional_parameters", "env_set", "env_copy", "custom_search_space"}
PACKAGES = ("hydra.conf", "hydra_plugins", "nsed_torch.conf")  # `pkg://` imports what it names
VARIABLES = {"HOME", "USER", "TMPDIR", "SCRATCH", "SLURM_JOB_ID"}  # that `${oc.env:...}` may read: no secrets
# What may run over several lines: Hydra's own help, and what the user said, as the question of a file. A launcher's
# comment or a job's name would bring lines of its own into the script of a batch system.
_LINES = ("hydra.help.", "hydra.hydra_help.", "hydra.overrides.", "hydra.job.override_dirname")
# An interpolation that stands alone could become a node: these are texts and numbers.
_SCALARS = re.compile(r"\$\{(hydra[.:][\w.]+|now:[^${}]*|config_hash:|output_dir)\}")


def _variable(name: str, *default: Any) -> Any:
    if name not in VARIABLES:
        raise ValueError(f"expected one of {', '.join(sorted(VARIABLES))}, got {name!r}; let the shell fill it in")
    return oc.env(name, *default)


class CheckedLoader(ConfigLoaderImpl):
    """Composes as Hydra does; also for every job of a sweep, in whatever process."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        for folder in added_dirs():
            config_search_path.prepend("nsed_torch", f"file://{folder}", "schema")  # which stays the last
        check_search_path(config_search_path)
        super().__init__(config_search_path)
        self.repository.load_config = self._load_checked  # type: ignore[method-assign]

    def _load_checked(self, config_path: str) -> ConfigResult | None:
        source = self.repository._find_object_source(config_path, ObjectType.CONFIG)
        if source is not None and source.scheme() == "file":
            check_yaml(Path(source.path) / source._normalize_file_name(config_path))
        # By the class: a launcher pickles this, and what a bound method is by then would be this one again.
        return type(self.repository).load_config(self.repository, config_path)

    def load_configuration(self, config_name: str | None, *args: Any, **kwargs: Any) -> DictConfig:
        """A composed config whose node `hydra` may be acted upon."""
        OmegaConf.register_new_resolver("oc.env", _variable, replace=True)
        config = super().load_configuration(config_name, *args, **kwargs)
        check_hydra(config.hydra)
        for part in ("launcher", "sweeper"):
            if not OmegaConf.is_config(config.hydra[part]):
                raise ValueError(f"hydra.{part}: expected one of Hydra's, got none; leave hydra.{part} as it is")
        if wrong := fault("verbose", plain(config.hydra.verbose), bool | str | list[str]):
            raise ValueError(f"hydra.verbose: {wrong}; correct it")
        return config

    def _process_config_searchpath(self, config_name: Any, parsed_overrides: Any, repo: Any) -> None:
        initialize = repo.initialize_sources

        def checked(path: ConfigSearchPath) -> None:
            check_search_path(path)
            initialize(path)

        repo.initialize_sources = checked
        super()._process_config_searchpath(config_name, parsed_overrides, repo)


@contextlib.contextmanager
def checked_compositions() -> Iterator[None]:
    """Within it, Hydra composes through `CheckedLoader`."""
    module: Any = hydra._internal.hydra  # whose imports are not for export
    kept, module.ConfigLoaderImpl = module.ConfigLoaderImpl, CheckedLoader
    try:
        yield
    finally:
        module.ConfigLoaderImpl = kept
        if kept is not CheckedLoader:  # within a verb, variables stay guarded
            OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


@contextlib.contextmanager
def composing() -> Iterator[None]:
    """Within it, Hydra's `compose` reads our files and those of installed packages."""
    with checked_compositions(), initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield


def checked(config_name: str, overrides: list[str]) -> DictConfig:
    """The composed settings of a verb, checked, in a program that is no verb's or inside of one."""
    inside = GlobalHydra().is_initialized()  # which found the configs
    with checked_compositions() if inside else composing():
        config = compose(config_name, overrides)
        check_settings(config, config_name)
    return config


def hydra_root(config_name: str, job: Callable[[DictConfig], object]) -> Callable[[], None]:
    """A job as a program of Hydra's, which composes `conf/<config_name>.yaml` and checks what that tells Hydra."""
    main: Callable[[], None] = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(job)
    return checked_compositions()(main)


def check_search_path(search_path: ConfigSearchPath) -> None:
    """Refuse places that Hydra would import code from; files may lie anywhere."""
    for entry in search_path.get_path():
        scheme, separator, place = str(entry.path).partition("://")
        allowed = not separator or scheme == "file" or (scheme == "structured" and not place)
        if not (allowed or (scheme == "pkg" and (place + ".").startswith(tuple(f"{name}." for name in PACKAGES)))):
            raise ValueError(f"hydra.searchpath: expected a folder as file://FOLDER, got {entry.path!r}")


def check_hydra(node: DictConfig | ListConfig, where: str = "hydra") -> None:
    """Refuse the first thing at any depth that would run code which is not Hydra's or ours."""
    written: Any = OmegaConf.to_container(node, resolve=False)
    for key in list(node) if isinstance(node, DictConfig) else range(len(node)):
        place, raw = f"{where}.{key}", written[key]
        if OmegaConf.is_missing(node, key):
            continue
        try:
            value = node[key]
        except OmegaConfBaseException:  # as the number of a job, known only when it runs
            value = raw
        if key in BUILT and (raw != value or value not in BUILT[key]):
            expected = f"one of {', '.join(sorted(BUILT[key]))}" if BUILT[key] else "nothing"
            raise ValueError(f"{place}: expected {expected}, got {raw!r}; remove it")
        if key in COMMANDS and value:
            raise ValueError(f"{place}: expected nothing, got {raw!r}; say it in the shell that starts nsed")
        if OmegaConf.is_config(value) and not OmegaConf.is_interpolation(node, key):
            check_hydra(value, place)
        elif not _is_plain(raw, value, place):
            raise ValueError(f"{place}: expected plain text, got {raw!r}; write it out")


def _is_plain(raw: Any, value: Any, place: str) -> bool:
    """Whether a value stays a text, number or truth value, and no text that logging or a batch system acts upon."""
    text, refers = str(value), isinstance(raw, str) and raw.startswith("${")
    folder, logs = place in {"hydra.run.dir", "hydra.sweep.dir"}, "logging" in place
    return not (
        OmegaConf.is_config(value)
        or (refers and raw.endswith("}") and not _SCALARS.fullmatch(raw))
        or (raw == "${output_dir}" and not folder)
        or (folder and not text.strip())
        or ("\n" in text and not place.startswith(_LINES))
        or (logs and "://" in text and text not in {"ext://sys.stdout", "ext://sys.stderr"})
        or (logs and refers and not raw.startswith("${hydra.runtime.output_dir}/"))
    )
