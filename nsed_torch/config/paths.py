"""Where the YAML files lie, and the adapters that the package ships."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def conf_dir() -> Path:
    """The folder of the YAML files: inside an installed wheel, else at the checkout's root.

    Raises:
        FileNotFoundError: if there is neither, as when single folders of the package were copied.
    """
    installed, checkout = _PACKAGE / "conf", _PACKAGE.parent / "conf"
    if installed.is_dir():
        return installed
    # A `conf` beside an installed package would be someone else's; a checkout has its pyproject.toml.
    if checkout.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return checkout
    raise FileNotFoundError(f"expected config files in {installed} or {checkout}; reinstall nsed_torch")


def expert_folder(name: str) -> str:
    """The folder of an adapter that ships with the package, as `${experts:name}` in a config gives it.

    Whether it is there is found out when it is loaded.
    """
    return str(_PACKAGE / "experts" / name)
