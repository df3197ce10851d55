"""From a composed config to built parts."""

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from nsed_torch.app.config.instantiate import arguments_of, call, instantiate
from nsed_torch.app.config.settings import plain
from nsed_torch.core.agent import Agent, Ensemble, check_agents
from nsed_torch.core.broker import Broker
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import Encoder, HashedEncoder
from nsed_torch.core.engine import Decoding, Engine
from nsed_torch.core.named import part_named
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.trust import Calibration
from nsed_torch.engines.backbones import SPREADS, check_device, load_counter, weights_bytes
from nsed_torch.engines.sentence_encoder import logged
from nsed_torch.engines.weights import ResolvedWeights, resolve
from nsed_torch.parts.conformal import ConformalSets
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.parts.reading import Reading
from nsed_torch.parts.saved_cells import CONFORMAL, located
from nsed_torch.parts.similar_texts import SimilarTexts
from nsed_torch.parts.telemetry import Telemetry
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import GradersAnswers
from nsed_torch.questions.own import tasks
from nsed_torch.questions.sources import NO_DOWNLOADS, NotHereError
from nsed_torch.records.call_log import CallLog


def call_log(cfg: DictConfig, folder: Path) -> CallLog:
    """Where a run keeps its finished calls: in its folder, or in the file `calls` that it shares with other runs."""
    return CallLog(folder / "calls.sqlite" if cfg.calls is None else Path(cfg.calls).expanduser())


def build_rnn(
    cfg: DictConfig,
    call_log: CallLog,
    report: Callable[[str], None] = lambda text: None,
    also: Sequence[Agent] = (),
    *,
    counting: bool = False,
) -> MacroRNN:
    """The whole recurrent network of a run; `report` hears of downloads, conversions and loading.

    For `counting` ahead of a run no weights are fetched or loaded, and nobody is left out by a broker.
    """
    # What costs nothing comes first: a faulty setting is refused before any weights are fetched.
    prompts, rating, halting = instantiate(cfg.prompts), instantiate(cfg.rating), instantiate(cfg.halting)
    agents = build_agents(cfg.ensemble)
    names = [agent.name for agent in agents]
    broker = build_broker(cfg.broker, names) if cfg.broker else None
    saved = saved_cell(cfg.cell, names, **own_parts(cfg.consensus)) if cfg.cell else None
    encoder: Encoder = HashedEncoder(saved.dim if saved else 64)
    if counting:
        models = {name: node for name, node in _models(cfg, also).items() if not name.endswith(ENCODER)}
        ensemble = Ensemble({name: _counter(node, report) for name, node in models.items()}, agents)
    else:
        ensemble, encoder = load_models(cfg, call_log, report, also)
    if saved is not None and saved.dim != encoder.dim:
        name = encoder.identity()["name"]
        expected = f"cell {cfg.cell}: expected an encoder of width {saved.dim}, got {name!r} of width {encoder.dim}"
        raise ValueError(f"{expected}: choose the encoder that the cell was trained with")
    protocol = {str(name): value for name, value in cfg.protocol.items() if name != "pooled"}
    similarity, without = protocol.pop("similarity"), protocol.pop("without", None) or ()
    cell = MacroRNNCell(
        ensemble,
        encoder,
        instantiate(cfg.consensus, dim=encoder.dim, agents=len(ensemble)) if saved is None else saved,
        protocol=call(Protocol, [], {"memory_tokens": cfg.memory_tokens, **protocol}),
        prompts=prompts,
        rating=rating,
        seed=cfg.seed,
        answers=None if similarity is None else SimilarTexts(encoder, float(similarity)),
        sets=saved_sets(cfg.cell) if cfg.cell else None,
    )
    # A rule of the user's own may know no cap.
    rounds = None if hasattr(halting, "rounds") else cfg.rounds
    return MacroRNN(cell, halting=halting, rounds=rounds, broker=None if counting else broker, without=without)


def load_models(
    cfg: DictConfig, call_log: CallLog, report: Callable[[str], None], also: Sequence[Agent] = ()
) -> tuple[Ensemble, Any]:
    """The agents and engines of a run and its encoder, None where the settings have none; weights are fetched first."""
    fetch_weights(cfg, report=report, also=also)
    report("loading models")
    began = perf_counter()
    collects = gc.isenabled()
    gc.disable()  # what is loaded stays
    try:
        ensemble = build_ensemble(cfg.ensemble, call_log, also)
        encoder = logged(instantiate(cfg.encoder), lambda: ensemble.call_log) if "encoder" in cfg else None
    finally:
        if collects:
            gc.enable()
    report(f"models are loaded: {perf_counter() - began:.0f} s")
    return ensemble, encoder


STAND_INS, WORDS = 100, 80
"""Questions that stand in for a set that is not here when costs are counted ahead, and how long each is."""


def graded_tasks(cfg: DictConfig, report: Callable[[str], None] = lambda text: None) -> GradedTasks:
    """What is asked: the questions of the file `questions`, or the set that `tasks` names.

    For a dry run nothing is downloaded: questions of a middling length stand in for a set that is not here.
    """
    if cfg.questions and cfg.tasks.get("questions") != cfg.questions:
        expected = "expected questions=FILE or tasks=NAME"
        raise ValueError(f"{expected}, got both: remove one of {cfg.questions!r} and the set")
    if not cfg.get("dry_run"):
        return instantiate(cfg.tasks)  # type: ignore[no-any-return]
    token = NO_DOWNLOADS.set(True)
    try:
        return instantiate(cfg.tasks)  # type: ignore[no-any-return]
    except NotHereError as error:
        size = cfg.get("limit") or STAND_INS
        report(f"{error}. {size} questions of {WORDS} words stand in for it")
        return tasks([{"question": "word " * WORDS + str(i), "target": "0"} for i in range(size)])
    finally:
        NO_DOWNLOADS.reset(token)


def bound(graded: GradedTasks, rnn: MacroRNN) -> GradedTasks:
    """The tasks with a grader that knows whom it may ask, where it asks agents."""
    if (asking := getattr(graded.grader, "asking", None)) is None:
        return graded
    grader = asking(rnn.cell.ensemble, rnn.cell.prompts, rnn.cell.seed)
    return replace(graded, grader=grader, identity={**graded.identity, **grader.identity()})


def pool_answers(rnn: MacroRNN, graded: GradedTasks, cfg: DictConfig) -> None:
    """Let answers that the grader calls equal pool their support, if the config wants it."""
    if cfg.protocol.pooled and rnn.cell.protocol.unit == "answer":
        rnn.cell.answers = GradersAnswers(graded.grader)


def build_broker(cfg: DictConfig, names: Sequence[str]) -> Broker:
    """The broker of a config for agents of these names.

    `telemetry` names a file, made by the first round and taken over by later runs; `learned` one that `nsed fit-broker`
    wrote, for a team out of its agents.
    """
    if "_target_" not in cfg:
        got = sorted(map(str, cfg))
        raise ValueError(f"broker: expected one that has settings, got none with {got}: pass broker=NAME")
    record: dict[str, Any] = {}
    if cfg.get("telemetry") is not None:
        path = Path(str(cfg.telemetry)).expanduser()
        record = {"telemetry": Telemetry(names), "telemetry_file": path}
        if path.exists():
            record["telemetry"].load(path)
    if cfg.get("learned") is not None:
        if not cfg.learned:
            raise ValueError("broker: expected one that nsed fit-broker saved, got none: pass broker.learned=FILE")
        record["learned"] = LearnedBroker.from_pretrained(str(cfg.learned))
        record["learned"].check(names)
    return instantiate(cfg, **record)  # type: ignore[no-any-return]


def saved_cell(folder: str, names: Sequence[str], **parts: Any) -> ConsensusCell:
    """A saved cell, of a folder or a Hub repo, for a team that it knows by name; in float64 as `consensus_cell`."""
    return ConsensusCell.from_pretrained(folder, agents=names, **parts).double()


def own_parts(consensus: DictConfig) -> dict[str, Any]:
    """The parts of a cell whose `_target_` the settings name, for the saved tensors of such a part."""
    return {str(name): instantiate(node) for name, node in consensus.items() if isinstance(node, Mapping)}


def saved_sets(folder: str) -> ConformalSets | None:
    """The conformal sets beside a saved cell; None where `nsed tune coverage=...` calibrated none."""
    held = (located(folder) / CONFORMAL).is_file()
    return ConformalSets.from_pretrained(folder).double() if held else None


def fetch_weights(
    cfg: DictConfig,
    *,
    offline: bool = False,
    report: Callable[[str], None] = lambda text: None,
    also: Sequence[Agent] = (),
    here: bool = True,
) -> dict[str, ResolvedWeights]:
    """Have the weights of every backbone, and of the encoder if there is one, on this machine, where they have any."""
    nodes = {name: node["weights"] for name, node in _models(cfg, also, here=here).items() if "weights" in node}
    return {name: resolve(instantiate(node), offline=offline, report=report) for name, node in nodes.items()}


SHAPE = ("quantization", "dtype")
"""Settings of a backbone that its weights take more or less memory by."""


def memory_ahead(cfg: DictConfig, also: Sequence[Agent] = ()) -> str:
    """What the models of a run take of this machine's memory, in a line; nothing is fetched or loaded."""
    known, unknown = dict[str, int](), list[str]()
    for name, node in _models(cfg, also, here=False).items():
        given = _given(node) if {"_target_", "weights"} <= set(node) else {}
        # Encoders are loaded in float32, whatever else is.
        shape = {"dtype": "float32"} if name.endswith(ENCODER) else {k: given[k] for k in SHAPE if k in given}
        size = weights_bytes(given["weights"], **shape) if given else 0
        if size is None:
            unknown.append(name)
        elif size:
            known[name] = size
    told = [f"{name} {size / 1e9:.2f} GB" for name, size in known.items()]
    total = f"memory: {sum(known.values()) / 1e9:.2f} GB of weights here" + (f" ({', '.join(told)})" if told else "")
    return f"{total}, keys and values aside" + (f"; of {', '.join(unknown)} nobody knows" if unknown else "")


ENCODER = "encoder"
"""What an encoder's model is called, a Conductor's own with his name before it."""


def _models(cfg: DictConfig, also: Sequence[Agent], *, here: bool = True) -> dict[str, Mapping[str, Any]]:
    """The nodes of all models of a run, those inside of replicas, whose devices are there if they run `here`."""
    nodes = _engines(cfg.ensemble, [*build_agents(cfg.ensemble), *also])
    nodes |= {ENCODER: cfg.encoder} if "encoder" in cfg else {}
    if own := OmegaConf.select(cfg, f"conductor.{ENCODER}"):
        nodes[f"conductor's {ENCODER}"] = own
    for name, node in nodes.items():
        if not isinstance(node, Mapping):
            raise ValueError(f"{name}: expected the settings of a model, got {node!r}")
        if isinstance(node.get("engine"), Mapping):  # whose machines have devices of their own
            nodes[name] = node["engine"]
        elif here and isinstance(device := node.get("device"), str):
            check_device(device, () if name.endswith(ENCODER) else SPREADS)
    return nodes


def _engines(ensemble: DictConfig, agents: Sequence[Agent]) -> dict[str, Any]:
    """The nodes of the engines that agents use; what is said of a backbone goes to the engine inside."""
    check_agents(agents, [str(name) for name in ensemble.engines])
    nodes = {name: ensemble.engines[name] for name in sorted({agent.backbone for agent in agents})}
    for name, node in nodes.items():
        if isinstance(node, Mapping) and isinstance(node.get("engine"), Mapping) and "_target_" in node:
            settings = plain(node, resolve=True)
            own = {"_target_", *arguments_of(settings["_target_"], f"ensemble.engines.{name}._target_")}
            inside = {key: settings.pop(key) for key in settings.keys() - own}
            nodes[name] = {**settings, "engine": {**settings["engine"], **inside}}
    return nodes


def _given(node: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a model that would load weights, with names and types checked; nothing is loaded."""
    arguments: dict[str, Any] = instantiate({**plain(node, resolve=True), "_partial_": True}).keywords
    return arguments


def _counter(node: Mapping[str, Any], report: Callable[[str], None]) -> Engine:
    """What counts tokens in an engine's place: the engine itself, unless it would load weights."""
    if "weights" not in node:
        return instantiate({**plain(node, resolve=True), "_partial_": False})  # type: ignore[no-any-return]
    given = _given(node)
    return load_counter(given["weights"], given.get("adapters") or {}, given.get("context_window"), report=report)


def build_ensemble(cfg: DictConfig, call_log: CallLog | None = None, also: Sequence[Agent] = ()) -> Ensemble:
    """The agents of an ensemble and the engines they use; `also` will speak as well, a Conductor for one."""
    agents = build_agents(cfg)
    engines = {name: instantiate(node) for name, node in _engines(cfg, [*agents, *also]).items()}
    return Ensemble(engines, agents, call_log=call_log)


def build_agents(cfg: DictConfig) -> list[Agent]:
    """The agents of an ensemble, checked before any weights are touched."""
    settings, engines = cfg.get("agents") or {}, cfg.get("engines") or {}
    for name, node in (("agents", settings), ("engines", engines)):
        if not isinstance(node, Mapping):
            raise ValueError(f"ensemble.{name}: expected names with their settings, got {node!r}")
    agents = []
    for name, node in settings.items():
        given = plain(node, resolve=True)
        if not isinstance(given, dict) or not isinstance(given.get("decoding", {}), dict):
            raise ValueError(f"agent {str(name)!r}: expected its settings by name, got {given!r}")
        try:
            decoding = call(Decoding, [], given.pop("decoding", {}))
            agents.append(call(Agent, [], {**given, "name": str(name), "decoding": decoding}))
        except ValueError as error:
            raise ValueError(f"agent {str(name)!r}: {error}") from error
    check_agents(agents, [str(name) for name in engines])
    return agents


def consensus_cell(
    *,
    dim: int,
    agents: int,
    slots: int = 4,
    leak: float = 0.8,
    vote: Any = "quadratic",
    gate: Any = "learned",
    calibration: bool = False,
    pooling: str = "mean",
    reading: Reading | None = None,
    trust: Sequence[float] | None = None,
) -> ConsensusCell:
    """A fresh consensus cell with the published protocol's values, in float64.

    Beside a language model that costs nothing, and it keeps results from depending on the batch. Retention is
    multiplied by `leak`, in (0, 1), each round before training changes it. A vote or gate is a name out of `NAMED`,
    or a module; with `calibration` every judge learns to read the rating scale. `trust` is in each agent, in the
    ensemble's order, 1 each if None. What cannot be is a ValueError.
    """
    if isinstance(gate, str) and gate != "none":
        gate = part_named("gate", gate, leak=leak, dtype=torch.float64)
    parts = {"vote": vote, "gate": gate, "calibration": Calibration(agents) if calibration else None}
    cell = ConsensusCell(dim, agents, slots=slots, reading=reading, pooling=pooling, **parts).double()
    if trust is not None:
        if len(trust) != agents or not all(map(math.isfinite, trust)):
            raise ValueError(f"consensus trust: expected a number for each of {agents} agents, got {list(trust)}")
        cell.trust.bias.data = torch.tensor(trust, dtype=torch.float64) - 1
    return cell
