"""Where YAML meets Python: what a config may hold and build, and how text gets through Hydra."""

from nsed_torch.config.instantiate import instantiate
from nsed_torch.config.paths import conf_dir
from nsed_torch.config.settings import config_hash, plain_config

__all__ = ["conf_dir", "config_hash", "instantiate", "plain_config"]
