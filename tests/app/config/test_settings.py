"""Equal settings have equal names, wherever they write."""

import pytest
from omegaconf import OmegaConf

from nsed_torch.app.config.settings import check_settings, config_hash, plain_config, root_config


def test_places_do_not_count_and_settings_do():
    base = {"seed": 0, "twice": "${seed}", "output_dir": "a", "hydra": {"job": 1}, "nested": {"b": 1, "a": 2}}
    config = OmegaConf.create(base)
    same = OmegaConf.create({**base, "output_dir": "b", "hydra": None, "nested": {"a": 2, "b": 1}})
    assert config_hash(config) == config_hash(same)
    assert len(config_hash(config)) == 10
    assert plain_config(config) == {"seed": 0, "twice": 0, "nested": {"b": 1, "a": 2}}


@pytest.mark.parametrize("change", [{"seed": 1}, {"nested": {"a": 3}}, {"new": None}])
def test_any_setting_changes_the_name(change):
    base = OmegaConf.create({"seed": 0, "nested": {"a": 2}})
    assert config_hash(base) != config_hash(OmegaConf.create({**base, **change}))


def test_a_key_that_a_setting_does_not_have_is_refused():
    """Hydra itself takes whatever is added with a plus."""
    root, _ = root_config("deliberate")
    cfg = OmegaConf.create({"protocol": {**root.protocol, "typo": 1}})
    with pytest.raises(ValueError, match=r"unknown setting 'protocol\.typo'; remove it"):
        check_settings(cfg, "deliberate")
