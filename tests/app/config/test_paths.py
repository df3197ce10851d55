"""The YAML files are found in a checkout and in an installed wheel."""

import pytest

from nsed_torch.app.config import paths
from nsed_torch.app.config.paths import conf_dir


def test_checkout():
    folder = conf_dir()
    assert folder.name == "conf"
    assert (folder.parent / "pyproject.toml").is_file()


def test_installed_wheel_comes_first(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "nsed_torch"
    (package / "conf").mkdir(parents=True)
    (tmp_path / "site-packages" / "conf").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", package)
    assert conf_dir() == package / "conf"


def test_a_conf_folder_of_someone_else_does_not_count(tmp_path, monkeypatch):
    (tmp_path / "conf").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "nsed_torch")
    with pytest.raises(FileNotFoundError, match="reinstall nsed_torch"):
        conf_dir()
