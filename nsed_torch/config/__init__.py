"""Where YAML meets Python: where `conf/` lies, what a config may hold and build, how text gets through Hydra."""

from nsed_torch.config.instantiate import instantiate
from nsed_torch.config.overrides import setting_names, with_question
from nsed_torch.config.paths import conf_dir
from nsed_torch.config.settings import config_hash, plain_config, verb

__all__ = [
    "conf_dir",
    "config_hash",
    "instantiate",
    "plain_config",
    "setting_names",
    "verb",
    "with_question",
]
