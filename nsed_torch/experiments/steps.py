"""The steps of a study as its config has them: commands in an order, checked before any of them runs."""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from nsed_torch.config import conf_dir, with_question

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")  # no dictionary of Hydra's, which has a colon


@dataclass(frozen=True)
class Step:
    """A verb with its overrides.

    Args:
        name: of the step and of its folder below the study's.
        verb: of `nsed`.
        overrides: for it; `{other}` stands for the folder of another step.
        needs: steps whose results it reads, in the study's order.
    """

    name: str
    verb: str
    overrides: tuple[str, ...]
    needs: tuple[str, ...]

    def words(self, root: Path) -> list[str]:
        """The command without `nsed`, writing below the study's folder."""
        filled = [_REFERENCE.sub(lambda match: str(root / match[1]), override) for override in self.overrides]
        return [self.verb, *filled, f"output_dir={root / self.name}"]

    def command(self, root: Path) -> str:
        """The command as one would type it."""
        return shlex.join(["nsed", *self.words(root)])


def read_steps(study: Mapping[str, Any]) -> list[Step]:
    """The steps of a study's config, in their order.

    Args:
        study: `steps`: name -> {verb, overrides, needs}. Lists within `overrides` count as their entries.

    Raises:
        ValueError: in one line with the step, for a name, verb, key or override that cannot be, or a step that needs
            one that does not come before it.
    """
    steps: list[Step] = []
    for name, entry in study.get("steps", {}).items():
        steps.append(_read_step(str(name), entry, [step.name for step in steps]))
    if not steps:
        raise ValueError("expected a study with steps, got none: see conf/study/demo.yaml")
    return steps


def _read_step(name: str, entry: Any, earlier: Sequence[str]) -> Step:
    if not _NAME.fullmatch(name):
        raise ValueError(f"step {name!r}: expected a name of small letters, digits and _, got another; rename it")
    if not isinstance(entry, Mapping) or not {"verb"} <= entry.keys() <= {"verb", "overrides", "needs"}:
        raise ValueError(f"step {name}: expected verb, overrides and needs, got {entry}")
    verbs = sorted({path.stem for path in conf_dir().glob("*.yaml")} - {"base"})
    if str(verb := entry["verb"]).replace("-", "_") not in verbs:
        raise ValueError(f"step {name}: expected a verb out of {', '.join(verbs)}, got {verb!r}")
    overrides = tuple(_flat(entry.get("overrides") or [], name))
    if any(override.startswith("output_dir=") for override in overrides):
        raise ValueError(f"step {name}: expected no output_dir, which the study sets; remove it")
    needed = {*(entry.get("needs") or []), *(found for o in overrides for found in _REFERENCE.findall(o))}
    if unknown := sorted(needed - set(earlier)):
        raise ValueError(
            f"step {name}: expected steps before it, out of {', '.join(earlier) or 'none'}, got {unknown[0]!r}; "
            "correct the name or move the step"
        )
    return Step(name, verb, overrides, tuple(other for other in earlier if other in needed))


def _flat(values: Sequence[Any], name: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value, name)
        elif isinstance(value, str):
            yield value
        else:
            raise ValueError(f"step {name}: expected overrides as texts such as 'rounds=2', got {value!r}")


def check(step: Step, root: Path) -> None:
    """Compose a step's config, so that a misspelled setting is found before hours of other steps.

    Raises:
        ValueError: in one line with the step, if its overrides do not compose.
    """
    words = [word for word in step.words(root)[1:] if word not in {"-m", "--multirun"}]
    try:
        words = with_question(words, step.verb) if step.verb == "deliberate" else words
        parsed = OverridesParser.create().parse_overrides(words)
        first = [
            f"{o.get_key_element()}={next(o.sweep_string_iterator())}" if o.is_sweep_override() else str(o.input_line)
            for o in parsed
        ]
        # Within a verb Hydra stands ready, and does so once only.
        ready = GlobalHydra.instance().is_initialized()
        with nullcontext() if ready else initialize_config_dir(str(conf_dir()), version_base="1.3"):
            compose(step.verb.replace("-", "_"), overrides=first)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause = f": {error.__cause__}" if str(error).startswith("Error merging override") else ""
        line = f"{error}{cause}".splitlines()[0]
        raise ValueError(f"step {step.name}: {line}; correct the study's overrides of nsed {step.verb}") from error


def chosen_names(steps: Sequence[Step], wanted: Sequence[str] | None) -> list[str]:
    """The steps to run.

    Raises:
        ValueError: for a step that the study does not have.
    """
    names = [step.name for step in steps]
    for name in wanted or ():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"steps: expected names out of {', '.join(names)}, got {name!r}{hint}")
    return names if wanted is None else list(wanted)
