"""Where the YAML files lie."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


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
