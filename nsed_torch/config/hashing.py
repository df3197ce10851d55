"""A short name for everything that shapes a run."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

PLACES = ("hydra", "output_dir", "dry_run", "calls", "show")
"""What says where or whether a run writes, not what it computes."""


def plain_config(cfg: DictConfig) -> dict[str, Any]:
    """A composed config as plain data, interpolations resolved, without what only says where it writes."""
    kept = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key not in PLACES])
    plain: Any = OmegaConf.to_container(kept, resolve=True, throw_on_missing=False)
    return dict(plain)


def config_hash(cfg: DictConfig) -> str:
    """Ten hex digits that name a composed config: equal settings, equal name."""
    from nsed_torch.evaluation.provenance import config_sha256  # noqa: PLC0415 - imports torch, and few verbs want it

    return config_sha256(plain_config(cfg))[:10]
