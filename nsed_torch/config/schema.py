"""The settings every verb knows, typed, so that a misspelled or ill-typed one is refused before anything runs."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from nsed_torch.config.hashing import config_hash


@dataclass
class ProtocolConfig:
    """What judges see and rate; all true as published."""

    diagonal_mask: bool = True
    anonymous: bool = True
    shuffled: bool = True
    pooled: bool = True
    similarity: float | None = None


@dataclass
class TeamConfig:
    """What shapes a deliberation, whichever verb holds it."""

    rounds: int = 3
    seed: int = 0
    memory_tokens: int = 256
    cell: str = ""
    calls: str | None = None
    output_dir: str = ""
    ensemble: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] = field(default_factory=dict)
    consensus: dict[str, Any] = field(default_factory=dict)
    rating: dict[str, Any] = field(default_factory=dict)
    halting: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, Any] | None = None
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    prompts: dict[str, Any] = field(default_factory=dict)


@dataclass
class DeliberateConfig(TeamConfig):
    """Settings of `nsed deliberate`; conf/deliberate.yaml explains them."""

    question: str = ""


@dataclass
class ConductConfig(TeamConfig):
    """Settings of `nsed conduct`; conf/conduct.yaml explains them."""

    question: str = ""
    recursion: int = 0
    max_steps: int = 5
    council: bool = False
    conductor: dict[str, Any] = field(default_factory=dict)
    pools: dict[str, Any] = field(default_factory=dict)


@dataclass
class ConductTrainConfig:
    """Settings of `nsed conduct_train`; conf/conduct_train.yaml explains them."""

    questions: str = ""
    limit: int | None = None
    max_steps: int = 5
    seed: int = 0
    dry_run: bool = False
    calls: str | None = None
    output_dir: str = ""
    ensemble: dict[str, Any] = field(default_factory=dict)
    conductor: dict[str, Any] = field(default_factory=dict)
    pools: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)
    adapter: dict[str, Any] = field(default_factory=dict)
    warm: dict[str, Any] = field(default_factory=dict)
    grpo: dict[str, Any] = field(default_factory=dict)
    expect: dict[str, Any] = field(default_factory=dict)


@dataclass
class CollectConfig(TeamConfig):
    """Settings of `nsed collect`; conf/collect.yaml explains them."""

    questions: str = ""
    limit: int | None = None
    batch_tasks: int = 8
    tasks: dict[str, Any] = field(default_factory=dict)


@dataclass
class EvaluateConfig(TeamConfig):
    """Settings of `nsed evaluate`; conf/evaluate.yaml explains them."""

    methods: list[str] = field(default_factory=list)
    budget: str = "equal_tokens"
    data_dir: str | None = None
    limit: int | None = None
    ids: list[Any] | None = None
    epochs: int = 1
    batch_tasks: int = 16
    max_failures: int = 0
    dry_run: bool = False
    show: int = 0
    benchmark: dict[str, Any] = field(default_factory=dict)
    conductor: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)


@dataclass
class FetchConfig:
    """Settings of `nsed fetch`."""

    offline: bool = False
    output_dir: str = "."
    ensemble: dict[str, Any] = field(default_factory=dict)
    encoder: dict[str, Any] = field(default_factory=dict)


@dataclass
class ReportConfig:
    """Settings of `nsed report`."""

    run: str = ""
    output_dir: str = "."


@dataclass
class BenchConfig:
    """Settings of `nsed bench`."""

    target: str = "engine"
    repeats: int = 5
    sample: int = 7
    lines: list[str] = field(default_factory=list)
    output_dir: str = ""
    backbone: dict[str, Any] = field(default_factory=dict)


@dataclass
class TuneConfig:
    """Settings of `nsed tune`; conf/tune.yaml explains them."""

    data_dir: Any = ""
    agents: list[str] | None = None
    max_parameters_b: float | None = None
    rounds: int = 1
    voting: Any = "quadratic"
    gate: str = "learned"
    pooling: str = "mean"
    calibration: bool = False
    reading: list[str] = field(default_factory=list)
    categories: bool = False
    rules: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    coverage: float | None = None
    by_category: bool = False
    slots: int = 4
    seeds: int = 5
    fractions: list[float] = field(default_factory=lambda: [0.6, 0.2, 0.2])
    refit: bool = True
    resume: bool = False
    output_dir: str = ""
    encoder: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] | None = None
    logger: dict[str, Any] = field(default_factory=dict)


@dataclass
class FitBrokerConfig:
    """Settings of `nsed fit-broker`; conf/fit_broker.yaml explains them."""

    data_dir: Any = ""
    agents: list[str] | None = None
    max_parameters_b: float | None = None
    seeds: int = 5
    fractions: list[float] = field(default_factory=lambda: [0.6, 0.2, 0.2])
    refit: bool = True
    budgets: list[float] = field(default_factory=list)
    ridges: list[float] | None = None
    pool: int = 8
    steps: int = 250
    prices: list[float] = field(default_factory=list)
    judging: float = 1.0
    cell: str = ""
    encoder: dict[str, Any] = field(default_factory=dict)
    output_dir: str = ""


@dataclass
class TrainJudgesConfig:
    """Settings of `nsed train-judges`; conf/train_judges.yaml explains them."""

    data_dir: str = ""
    ensemble: dict[str, Any] = field(default_factory=dict)
    rating: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    lora: dict[str, Any] = field(default_factory=dict)
    output_dir: str = ""


@dataclass
class SpecialistSeeds:
    """Seeds of generated tasks."""

    train: int = 0
    held_out: int = 1


@dataclass
class SpecializeConfig:
    """Settings of `nsed specialize`; conf/specialize.yaml explains them."""

    name: str = ""
    persona: str = ""
    questions: str = ""
    candidates: str = ""
    memory_share: float = 0.125
    max_new_tokens: int = 24
    backbone: dict[str, Any] = field(default_factory=dict)
    rating: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, Any] = field(default_factory=dict)
    families: Any = None
    held_out: int = 200
    seeds: SpecialistSeeds = field(default_factory=SpecialistSeeds)
    avoid: dict[int, int] = field(default_factory=dict)
    adapter: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    output_dir: str = ""


@dataclass
class MembersConfig:
    """Settings of `nsed members`; conf/members.yaml explains them."""

    data_dir: str = ""
    cell: str = ""
    round: int = 1
    votes: list[str] = field(default_factory=list)
    core: int = 2
    most_teams: int = 60
    draws: int = 5
    seed: int = 0
    output_dir: str = ""


@dataclass
class StudyConfig:
    """Settings of `nsed study`; conf/study.yaml explains them."""

    study: dict[str, Any] = field(default_factory=dict)
    steps: list[str] | None = None
    jobs: int = 1
    page_only: bool = False
    dry_run: bool = False
    output_dir: str = ""


def register() -> None:
    """Make the schemas known to Hydra as `<verb>_schema`, and `${config_hash:}` a name for a composed config."""
    OmegaConf.register_new_resolver("config_hash", _root_hash, replace=True)
    store = ConfigStore.instance()
    for verb, schema in (
        ("deliberate", DeliberateConfig),
        ("conduct", ConductConfig),
        ("conduct_train", ConductTrainConfig),
        ("collect", CollectConfig),
        ("evaluate", EvaluateConfig),
        ("fetch", FetchConfig),
        ("report", ReportConfig),
        ("bench", BenchConfig),
        ("tune", TuneConfig),
        ("fit_broker", FitBrokerConfig),
        ("train_judges", TrainJudgesConfig),
        ("specialize", SpecializeConfig),
        ("members", MembersConfig),
        ("study", StudyConfig),
    ):
        store.store(name=f"{verb}_schema", node=schema)


def _root_hash(_root_: DictConfig) -> str:  # OmegaConf hands the whole config to an argument of this name
    return config_hash(_root_)
