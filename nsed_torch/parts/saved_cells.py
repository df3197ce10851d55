"""Consensus cells on disk, or rebuilt for other agents: written whole, read strictly, nothing executed."""

import copy
import hashlib
import importlib.metadata
import json
import operator
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from nsed_torch.core.named import PARTS, name_of, part_named
from nsed_torch.core.trust import Calibration, Trust
from nsed_torch.parts.reading import Reading
from nsed_torch.records.files import read_bytes, read_json, to_json, write_files
from nsed_torch.records.lookalikes import one_line
from nsed_torch.records.saved import check_saved

SCHEMA = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
CONFORMAL = "conformal.safetensors"  # of `ConformalSets` that were calibrated on the cell's consensus
ROUND_VOTE = "rounds.safetensors"  # of a `RoundVote` over all rounds
# The rest of config.json describes the cell.
_ABOUT_FILE = ("schema_version", "nsed_torch", "sha256", "agent_names")
OWN = "own"  # the class of such a part stands behind it
_OF_AGENTS = ("trust", "calibration", "reading")  # parts with a row for each agent
MOST = {"slots": 4096, "agents": 65_536, "dim": 65_536}
_HABITS = ("reading.mean", "reading.deviation")
_HUB_TIMEOUT = 5.0  # seconds

CELLS = Path(__file__).parents[1] / "cells"
"""Tuned cells and brokers that ship with the package, a folder for each team."""

BROKER = "broker.safetensors"


def save_cell(cell: Any, folder: str | Path, agent_names: Sequence[str] | None = None, card: str = "") -> None:
    """See `ConsensusCell.save_pretrained`."""
    names = _checked_names(cell.agent_names if agent_names is None else agent_names, cell.agents)
    settings, tensors = _settings(cell), _tensors(cell)
    try:
        # What could not be read back is refused now rather than when it is needed.
        _restored(type(cell), settings, tensors, _own_parts(cell, settings))
    except ValueError as error:
        raise ValueError(f"this cell could not be loaded again: {error}") from error
    weights = save(tensors, metadata={"format": "pt"})
    config = {
        "schema_version": SCHEMA,
        "nsed_torch": importlib.metadata.version("nsed_torch"),
        **settings,
        "agent_names": names and list(names),
        "sha256": hashlib.sha256(weights).hexdigest(),
    }
    text = _card(cell, config) + (f"\n{card.strip()}\n" if card.strip() else "")
    root = Path(folder).expanduser()
    contents = {WEIGHTS: weights, CARD: text.encode(), CONFIG: f"{to_json(config)}\n".encode()}
    write_files({root / name: content for name, content in contents.items()})


def load_cell(
    make: Any, folder: str | Path, agents: Sequence[str] | None, revision: str | None, parts: Mapping[str, Any]
) -> Any:
    """See `ConsensusCell.from_pretrained`."""
    root = located(folder, revision)
    config, tensors = _read(root)
    settings = {key: value for key, value in config.items() if key not in _ABOUT_FILE}
    try:
        cell = _restored(make, settings, tensors, parts)
        cell.agent_names = _checked_names(config.get("agent_names"), cell.agents)
    except ValueError as error:
        raise ValueError(f"{root / CONFIG}: does not fit {WEIGHTS} ({error}): save the cell again") from error
    if agents is None:
        return cell
    rows = _rows(root / CONFIG, cell.agent_names, agents)
    if own := [name for name in _OF_AGENTS if _own(settings.get(name)) or name in parts]:
        if rows != list(range(cell.agents)):
            wanted = f"expected all agents in their order with a {own[0]} of your own"
            raise ValueError(f"{root / CONFIG}: {wanted}, got {', '.join(agents)}: load it without agents=")
        return cell
    team = _restored(make, {**settings, "agents": len(rows)}, _picked(tensors, rows), parts)
    team.agent_names = tuple(agents)
    return team


def fingerprint(cell: nn.Module) -> str:
    """See `ConsensusCell.fingerprint`."""
    return hashlib.sha256(f"{cell}\n".encode() + save(_tensors(cell))).hexdigest()[:12]


def with_strangers(cell: Any, count: int) -> Any:
    """The same cell for a larger pool: its own agents keep their indices, strangers stand behind them.

    What belongs to a stranger is what a fresh cell gives every agent, so a ballot weighs as an untrained one does:
    bias and weight of trust 0, ratings as given. Habits of a stranger are the mean of those known. Ours.

    Returns:
        A copy; while no stranger votes, it decides what the cell decides.

    Raises:
        ValueError: as `save_pretrained`.
    """
    settings, tensors = _settings(cell), _tensors(cell)
    own = _own_parts(cell, settings)
    if trusts := [name for name in _OF_AGENTS if name in own]:
        raise ValueError(
            f"cell: expected a {trusts[0]} that strangers can be added to, got one of your own: leave it out"
        )
    start = _tensors(_fresh(type(cell), settings, tensors, own))
    for name in _of_agents(tensors):
        like = tensors[name].mean(0) if name in _HABITS else start[name][0]
        tensors[name] = torch.cat([tensors[name], like.expand(count, *like.shape)])
    return _restored(type(cell), {**settings, "agents": cell.agents + count}, tensors, own)


def shipped(name: str | Path) -> Path | None:
    """The folder of the cell and the broker of that name that ship with the package; None where there are none."""
    named = re.fullmatch(r"[a-z][a-z_]*", str(name))
    return folder if named and (folder := CELLS / str(name)).is_dir() else None


def located(folder: str | Path, revision: str | None = None) -> Path:
    """The folder, that of a cell that ships, or the snapshot of a Hub repo, of our files alone; else a ValueError."""
    root = shipped(folder) or Path(folder).expanduser()
    if root.is_dir():
        return root
    if isinstance(folder, Path) or root.exists() or not re.fullmatch(r"\w[\w.-]*/[\w.-]+", folder):
        raise ValueError(f"{folder}: expected the folder of a saved cell, got none there: check the path")
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow, and needed for the Hub alone

    try:
        files = [CONFIG, WEIGHTS, CARD, CONFORMAL, ROUND_VOTE]
        return Path(snapshot_download(folder, revision=revision, allow_patterns=files, etag_timeout=_HUB_TIMEOUT))
    except Exception as error:  # the client's own, its HTTP library's, the socket's: other ones in every release
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{folder}: no such folder, and none on the Hugging Face Hub ({reason}): check it") from error


def _card(cell: Any, config: Mapping[str, Any]) -> str:
    """The model card: what the cell is, by its config, and how to load it."""
    # JSON in an indented block: no name can break out of it.
    shown = textwrap.indent(to_json(config), "    ")
    template = (Path(__file__).parent / "model_card.md").read_text(encoding="utf-8")
    return template.format(config=shown, fingerprint=cell.fingerprint())


def _tensors(cell: nn.Module) -> dict[str, Tensor]:
    """All that tells a cell from another of its settings."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in cell.state_dict().items()}


def _settings(cell: Any) -> dict[str, Any]:
    """What a cell is made of, as JSON: enough to build it before its tensors are loaded."""
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in _tensors(cell).values()})
    if len(dtypes) > 1:
        raise ValueError(f"cell: expected one dtype, got {' and '.join(dtypes)}: call cell.double() or cell.float()")
    described = {
        "vote": _named("vote", cell.vote, "name", "temperature"),
        "gate": _named("gate", cell.gate, "mode", "leak"),
        "calibration": _described(cell.calibration, Calibration, lambda part: True) or False,
        "pooling": cell.pooling,
        "reading": _described(
            cell.reading, Reading, lambda part: {"features": list(part.features), "categories": list(part.categories)}
        ),
    }
    if type(cell.trust) is not Trust:
        described["trust"] = {OWN: _class_of(cell.trust)}
    return {**{name: getattr(cell, name) for name in ("dim", "agents", "slots")}, "dtype": dtypes[0], **described}


def _named(kind: str, part: Any, word: str, number: str) -> dict[str, Any]:
    """A part that has a name, with the one number that it is built with; of any other its class."""
    name = name_of(kind, part)
    if name is None:
        return {OWN: _class_of(part)}
    value = getattr(part, number, None)
    return {word: name} if value is None else {word: name, number: float(value)}


def _described(part: Any, kind: type, describe: Callable[[Any], Any]) -> Any:
    if part is None:
        return None
    return describe(part) if type(part) is kind else {OWN: _class_of(part)}


def _class_of(part: Any) -> str:
    kind = part if hasattr(part, "__qualname__") else type(part)  # a plain function has a name itself
    return f"{kind.__module__}.{kind.__qualname__}"


def _own(described: Any) -> str | None:
    """The class of a part of somebody's own; None where the part is one of ours."""
    return str(described[OWN]) if isinstance(described, Mapping) and OWN in described else None


def _own_parts(cell: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the parts that no name describes."""
    return {name: copy.deepcopy(getattr(cell, name)) for name in PARTS if _own(settings.get(name))}


def _fresh(make: Any, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Mapping[str, Any]) -> Any:
    """A cell of these settings at its start. Sizes are those of the tensors: no file can ask for more memory."""
    if missing := [name for name in PARTS if _own(settings.get(name)) and name not in given]:
        kind = str(_own(settings[missing[0]]))
        example = f"from_pretrained(folder, {missing[0]}={kind.rsplit('.', maxsplit=1)[-1]}())"
        raise ValueError(f"{missing[0]}: {kind[:100]!r} is a class of somebody's own, never imported: pass {example}")
    slots = operator.index(settings["slots"])
    if "trust.weight" in tensors and "trust" not in given:
        agents, dim = len(tensors["trust.bias"]), tensors["trust.weight"].shape[-1] // 2
    else:
        agents, dim = (operator.index(settings[name]) for name in ("agents", "dim"))
    for name, size in (("slots", slots), ("agents", agents), ("dim", dim)):
        if not 1 <= size <= MOST[name]:
            raise ValueError(f"{name}: expected 1 to {MOST[name]}, got {str(size)[:40]}")
    parts = dict(given)
    vote, gate, reading = dict(settings["vote"]), settings["gate"], settings["reading"]
    # Forked: loading a cell is nothing that a seeded experiment should notice.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        if "vote" not in parts:
            parts["vote"] = part_named("vote", vote.pop("name"), **vote)
        if "gate" not in parts:
            parts["gate"] = part_named("gate", gate["mode"])
        if "calibration" not in parts and settings["calibration"]:
            parts["calibration"] = Calibration(agents)
        if "reading" not in parts and reading:
            parts["reading"] = Reading(agents, **reading)
        cell = make(dim, agents, slots, pooling=settings["pooling"], **parts)
    return cell.to(tensors["log_beta"].dtype)


def _restored(make: Any, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Mapping[str, Any]) -> Any:
    """A cell of these settings and tensors, with the parts given, or a ValueError of one line for where they differ."""
    if unknown := given.keys() - set(PARTS):
        raise ValueError(f"expected parts out of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    try:
        check_saved(settings, tensors)
        if (dtypes := {str(value.dtype) for value in tensors.values()}) != {f"torch.{settings['dtype']}"}:
            raise ValueError(f"dtype: expected tensors of {settings['dtype']}, got {' and '.join(sorted(dtypes))}")
        cell = _fresh(make, settings, tensors, given)
        cell.load_state_dict(tensors, strict=True)
    except KeyError as error:
        raise ValueError(f"there is no {error}") from error
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(one_line(error)) from error
    actual = {key: value for key, value in _settings(cell).items() if key not in given}
    for key in sorted(actual.keys() | (settings.keys() - given.keys())):
        expected, got = actual.get(key), settings.get(key)
        # As text, where 1, 1.0 and true differ.
        if json.dumps(expected, sort_keys=True) != json.dumps(got, sort_keys=True):
            raise ValueError(f"{key}: expected {expected}, got {one_line(got, 80)}")
    return cell


def _read(root: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = read_json(root / CONFIG)
    if not isinstance(config, dict) or config.get("schema_version") != SCHEMA or "nsed_torch" not in config:
        got = one_line(config.get("schema_version") if isinstance(config, dict) else type(config).__name__, 40)
        raise ValueError(
            f"{root / CONFIG}: expected a saved consensus cell of schema {SCHEMA}, got {got}: check the path"
        )
    path = root / WEIGHTS
    try:
        data = read_bytes(path)
        if hashlib.sha256(data).hexdigest() != config.get("sha256"):
            raise ValueError(f"{path}: not the weights that {CONFIG} was written with: save or copy the folder again")
        return config, _without_kappa(path, load(data))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}): save or copy the folder again") from error
    except SafetensorError as error:
        raise ValueError(f"{path}: not safetensors ({one_line(error)}): save the cell again") from error


def _without_kappa(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Earlier cells had a pull of the hidden state on support, 0 unless it was tuned, which has left."""
    kappa = tensors.pop("kappa", None)
    if kappa is not None and bool(kappa.any()):
        raise ValueError(
            f"{path}: expected no pull of the state on support (kappa), which has left: tune the cell anew"
        )
    return tensors


def _checked_names(names: Any, agents: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    texts = isinstance(names, list | tuple) and all(isinstance(n, str) and n and n.isprintable() for n in names)
    if not texts or len(names) != agents or len(set(names)) < agents:
        raise ValueError(f"agent_names: expected {agents} different names, got {repr(names)[:200]}")
    return tuple(names)


def _rows(path: Path, names: Sequence[str] | None, agents: Sequence[str]) -> list[int]:
    if names is None:
        raise ValueError(f"{path}: expected agent_names to pick agents from, got none: save the cell with agent_names")
    if not agents or len(set(agents)) < len(agents) or not set(agents) <= set(names):
        raise ValueError(
            f"{path}: expected different agents out of {', '.join(names)}, got {', '.join(agents) or 'none'}"
        )
    return [list(names).index(agent) for agent in agents]


def _picked(tensors: Mapping[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
    """The tensors of a smaller team."""
    own = _of_agents(tensors)
    return {name: value[rows] if name in own else value for name, value in tensors.items()}


def _of_agents(tensors: Mapping[str, Tensor]) -> set[str]:
    """Names of tensors with one row per agent."""
    reading = {"reading.trust", "reading.category", *_HABITS}
    return tensors.keys() & {"trust.bias", "trust.weight", *reading, "calibration.scale", "calibration.shift"}
