"""The YAML files are found in a checkout and in an installed wheel."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

import nsed_torch
from nsed_torch.config import paths, register
from nsed_torch.config.paths import conf_dir, expert_folder


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


def test_experts_lie_in_the_package_and_configs_can_name_them():
    """Whether one is there is not asked before it is loaded."""
    register()
    folder = Path(nsed_torch.__file__).parent / "experts" / "nobody"
    assert expert_folder("nobody") == str(folder)
    assert OmegaConf.create({"adapter": "${experts:nobody}"}).adapter == str(folder)
