"""Where the YAML files lie: ours, and those of installed packages.

A package adds its own by an entry point that names the folder as a module would be named, `my_package.conf`:

    [project.entry-points."nsed_torch.configs"]
    mine = "my_package.conf"

Its files stand beside ours in every group, and are root configs of its own verbs; of equal names ours is taken. They
are read and never run: nothing is imported to find them.
"""

import functools
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsed_torch.records.files import read_bytes

_PACKAGE = Path(__file__).resolve().parents[2]
CONFIGS = "nsed_torch.configs"
MOST_BYTES, MOST_PARTS = 200_000, 100_000  # of a config file that is not ours


def conf_dir() -> Path:
    """The folder of the YAML files: inside an installed wheel, else at the checkout's root."""
    installed, checkout = _PACKAGE / "conf", _PACKAGE.parent / "conf"
    if installed.is_dir():
        return installed
    # A `conf` beside an installed package would be someone else's; a checkout has its pyproject.toml.
    if checkout.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return checkout
    raise FileNotFoundError(f"expected config files in {installed} or {checkout}; reinstall nsed_torch")


@functools.cache
def added_dirs() -> tuple[Path, ...]:
    """The folders that installed packages add, by the names of their entry points."""
    found = sorted(importlib.metadata.entry_points(group=CONFIGS), key=lambda entry: entry.name)
    return tuple(folder for entry in found if (folder := package_folder(entry.value)) is not None)


def package_folder(name: str) -> Path | None:
    """The folder that an installed package has in the place of a module of that name; None where there is none."""
    root, *parts = name.split(".")
    spec = importlib.util.find_spec(root)  # of a root, which imports nothing
    folders = [Path(place, *parts) for place in (spec and spec.submodule_search_locations) or ()]
    return next((folder for folder in folders if folder.is_dir()), None)


def conf_file(name: str) -> Path:
    """A config file of that name, such as `tasks/mine`: ours, or an installed package's."""
    places = [folder / f"{name}.yaml" for folder in (conf_dir(), *added_dirs())]
    return next((place for place in places if place.is_file()), places[0])


def options_of(group: str) -> Iterator[Path]:
    """The files of a config group, ours and those of installed packages."""
    for folder in (conf_dir(), *added_dirs()):
        yield from sorted((folder / group).glob("*.yaml"))


def check_yaml(path: Path) -> None:
    """Refuse a stranger's YAML file that is too long or deep, holds itself, or of which aliases make a giant."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - not wanted at import

    try:
        if path.resolve().is_relative_to(conf_dir().resolve()):
            return
        if len(text := read_bytes(path)) > MOST_BYTES:
            raise ValueError(f"expected at most {MOST_BYTES} bytes, got {len(text)}")
        _parts(yaml.compose(text.decode(), yaml.SafeLoader), {})
    except (OSError, RuntimeError, ValueError, yaml.YAMLError) as error:  # too deep and looped are RuntimeErrors
        raise ValueError(f"{path}: not a config ({' '.join(str(error).split())}); correct the file") from error


def _parts(node: Any, known: dict[int, int]) -> int:
    """How many parts a YAML node has where every alias is written out; 0 is one that is being counted."""
    if known.setdefault(id(node), 0):
        return known[id(node)]
    parts: Any = getattr(node, "value", ())
    count = 1
    for part in parts if isinstance(parts, list) else ():
        for child in part if isinstance(part, tuple) else (part,):
            if known.get(id(child)) == 0:
                raise ValueError("a part that holds itself")
            count += _parts(child, known)
            if count > MOST_PARTS:
                raise ValueError(f"expected at most {MOST_PARTS} parts, aliases written out, got more")
    known[id(node)] = count
    return count
