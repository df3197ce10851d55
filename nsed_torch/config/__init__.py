"""Where YAML meets Python: where `conf/` lies, what a config may hold and build, how text gets through Hydra."""

from nsed_torch.config.instantiate import instantiate
from nsed_torch.config.overrides import escape, quote, setting_names, with_question
from nsed_torch.config.paths import conf_dir
from nsed_torch.config.settings import check_settings, config_hash, plain_config, verb

__all__ = [
    "check_settings",
    "conf_dir",
    "config_hash",
    "escape",
    "instantiate",
    "plain_config",
    "quote",
    "setting_names",
    "verb",
    "with_question",
]
