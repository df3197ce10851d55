"""Where YAML meets Python: where `conf/` lies, what a config may hold and build, how text gets through Hydra."""

from nsed_torch.config.hashing import config_hash, plain_config
from nsed_torch.config.instantiate import instantiate
from nsed_torch.config.overrides import escape, quote, setting_names, with_question
from nsed_torch.config.paths import conf_dir
from nsed_torch.config.schema import register

__all__ = [
    "conf_dir",
    "config_hash",
    "escape",
    "instantiate",
    "plain_config",
    "quote",
    "register",
    "setting_names",
    "with_question",
]
