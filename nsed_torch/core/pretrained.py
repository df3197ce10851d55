"""Consensus cells on disk, or rebuilt for other agents: written whole, read strictly, nothing executed."""

import hashlib
import importlib.metadata
import json
import operator
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from nsed_torch.core.gate import GATES, LeakyGate, gate_named
from nsed_torch.core.memory import BoundedMemory
from nsed_torch.core.reading import Reading
from nsed_torch.core.trust import Calibration, Trust
from nsed_torch.core.vote import VOTES
from nsed_torch.records.files import read_json, to_json, write_files

SCHEMA = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
CONFORMAL = "conformal.safetensors"  # of `ConformalSets` that were calibrated on the cell's consensus
# The rest of config.json describes the cell; earlier ones say of trust that it reads no features, as none does now.
_ABOUT_FILE = ("schema_version", "nsed_torch", "sha256", "agent_names", "trust")
_HABITS = ("reading.mean", "reading.deviation")
_HUB_TIMEOUT = 5.0  # seconds

CELLS = Path(__file__).parents[1] / "cells"
"""Tuned cells and brokers that ship with the package, a folder for each team."""

BROKER = "broker.safetensors"


Cell = TypeVar("Cell", bound="Pretrained")
Part = TypeVar("Part", bound=nn.Module)


class Pretrained(nn.Module):
    """What a `ConsensusCell` does with folders."""

    vote: nn.Module
    gate: nn.Module
    agents: int
    agent_names: tuple[str, ...] | None

    def save_pretrained(self, folder: str | Path, *, agent_names: Sequence[str] | None = None, card: str = "") -> None:
        """Write `model.safetensors`, `README.md` and `config.json`, which names the weights by their hash.

        Other files in the folder stay. Nothing is replaced before all three are on disk, and a pair of weights and
        config that a crash left unequal is refused on loading. `agent_names` are those of the rows of the pool, the
        cell's own if None; `card` is Markdown to append to the model card, say what was measured.

        Raises:
            ValueError: if a part is none of `nsed_torch.core`, dtypes are mixed, or the names do not fit.
            OSError: if it cannot be written.
        """
        names = _checked_names(self.agent_names if agent_names is None else agent_names, self.agents)
        settings, tensors = _settings(self), _tensors(self)
        try:
            # What could not be read back is refused now rather than when it is needed.
            _restored(type(self), settings, tensors)
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
        text = _card(self, config) + (f"\n{card.strip()}\n" if card.strip() else "")
        root = Path(folder).expanduser()
        contents = {WEIGHTS: weights, CARD: text.encode(), CONFIG: f"{to_json(config)}\n".encode()}
        write_files({root / name: content for name, content in contents.items()})

    @classmethod
    def from_pretrained(
        cls: type[Cell], folder: str | Path, *, agents: Sequence[str] | None = None, revision: str | None = None
    ) -> Cell:
        """The cell that `save_pretrained` wrote: same dtype, on the CPU, outputs equal to the last bit.

        Args:
            folder: where it lies; a text that is no folder here may be "owner/name" on the Hugging Face Hub.
            agents: names of a team out of the saved agents, in the order of its voters; None is all, as saved.
            revision: of the Hub's repo.

        Raises:
            ValueError: in one line with the file, for what is missing, corrupt or written by something else, or
                agents that the cell does not know.
        """
        root = located(folder, revision)
        config, tensors = _read(root)
        settings = {key: value for key, value in config.items() if key not in _ABOUT_FILE}
        try:
            cell = _restored(cls, settings, tensors)
            cell.agent_names = _checked_names(config.get("agent_names"), cell.agents)
        except ValueError as error:
            raise ValueError(f"{root / CONFIG}: does not fit {WEIGHTS} ({error}): save the cell again") from error
        if agents is None:
            return cell
        rows = _rows(root / CONFIG, cell.agent_names, agents)
        team = _restored(cls, {**settings, "agents": len(rows)}, _picked(tensors, rows))
        team.agent_names = tuple(agents)
        return team

    def fingerprint(self) -> str:
        """Twelve hex digits for this very cell: of its parts as printed, and of every parameter and buffer."""
        return hashlib.sha256(f"{self}\n".encode() + save(_tensors(self))).hexdigest()[:12]


def with_strangers(cell: Cell, count: int) -> Cell:
    """The same cell for a larger pool: its own agents keep their indices, strangers stand behind them.

    What belongs to a stranger is what a fresh cell gives every agent, so a ballot weighs as an untrained one does:
    bias and weight of trust 0, ratings as given. Habits of a stranger are the mean of those known. Ours.

    Returns:
        A copy; while no stranger votes, it decides what the cell decides.

    Raises:
        ValueError: as `save_pretrained`.
    """
    settings, tensors = _settings(cell), _tensors(cell)
    start = _tensors(_fresh(type(cell), settings, tensors))
    for name in _of_agents(tensors):
        like = tensors[name].mean(0) if name in _HABITS else start[name][0]
        tensors[name] = torch.cat([tensors[name], like.expand(count, *like.shape)])
    return _restored(type(cell), {**settings, "agents": cell.agents + count}, tensors)


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
        files = [CONFIG, WEIGHTS, CARD, CONFORMAL]
        return Path(snapshot_download(folder, revision=revision, allow_patterns=files, etag_timeout=_HUB_TIMEOUT))
    except Exception as error:  # the client's own, its HTTP library's, the socket's: other ones in every release
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{folder}: no such folder, and none on the Hugging Face Hub ({reason}): check it") from error


def write_module(path: Path, module: nn.Module, about: Mapping[str, str]) -> None:
    """Write a module's tensors as one safetensors file with texts in its header, whole or not at all."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    write_files({path: save(tensors, metadata=dict(about))})


def read_module(
    path: Path, what: str, remedy: str, build: Callable[[Mapping[str, str], Mapping[str, Tensor]], Part]
) -> Part:
    """Read what `write_module` wrote, on the CPU.

    `build` makes a module of the tensors' sizes out of header and tensors, which are then loaded strictly. A file that
    is missing, corrupt or something else is a ValueError in one line, with `what` it should be and the `remedy`.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            module = build(file.metadata(), tensors)
        module.load_state_dict(tensors, strict=True)
    except OSError as error:
        raise ValueError(f"{path}: expected {what}, got none there: check the path") from error
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not {what} ({reason}): {remedy}") from error
    return module


def _card(cell: Pretrained, config: Mapping[str, Any]) -> str:
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
    votes, gates = ({kind: name for name, kind in parts.items()} for parts in (VOTES, GATES))
    for part, kinds in {
        "vote": tuple(votes),
        "gate": tuple(gates),
        "trust": (Trust,),
        "calibration": (Calibration, type(None)),
        "reading": (Reading, type(None)),
        "memory": (BoundedMemory,),
    }.items():
        if type(getattr(cell, part)) not in kinds:
            got = type(getattr(cell, part)).__qualname__
            raise ValueError(
                f"cell.{part}: expected a part that nsed_torch.core knows, got {got}: no other can be saved"
            )
    dtypes = sorted({str(value.dtype).removeprefix("torch.") for value in _tensors(cell).values()})
    if len(dtypes) > 1:
        raise ValueError(f"cell: expected one dtype, got {' and '.join(dtypes)}: call cell.double() or cell.float()")
    vote: dict[str, Any] = {"name": votes[type(cell.vote)]}
    if hasattr(cell.vote, "temperature"):
        vote["temperature"] = float(cell.vote.temperature)
    gate: dict[str, Any] = {"mode": gates[type(cell.gate)]}
    if isinstance(cell.gate, LeakyGate):
        gate["leak"] = cell.gate.leak.item()
    reading = cell.reading
    return {
        **{name: getattr(cell, name) for name in ("dim", "agents", "slots")},
        "dtype": dtypes[0],
        "vote": vote,
        "gate": gate,
        "calibration": cell.calibration is not None,
        "pooling": cell.pooling,
        "reading": reading and {"features": list(reading.features), "categories": list(reading.categories)},
    }


def _fresh(make: type[Cell], settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Cell:
    """A cell of these settings at its start. Sizes are those of the tensors: no file can ask for more memory."""
    agents, dim = len(tensors["trust.bias"]), tensors["trust.weight"].shape[-1] // 2
    vote = dict(settings["vote"])
    # Forked: loading a cell is nothing that a seeded experiment should notice.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        cell = make(
            dim,
            agents,
            operator.index(settings["slots"]),
            vote=VOTES[vote.pop("name")](**vote),
            gate=gate_named(settings["gate"]["mode"], dim),
            calibration=Calibration(agents) if settings["calibration"] else None,
            pooling=settings["pooling"],
            reading=Reading(agents, **settings["reading"]) if settings["reading"] else None,
        )
    return cell.to(tensors["log_beta"].dtype)


def _restored(make: type[Cell], settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Cell:
    """A cell of these settings and tensors, or a ValueError of one line that tells where they differ."""
    try:
        if (dtypes := {str(value.dtype) for value in tensors.values()}) != {f"torch.{settings['dtype']}"}:
            raise ValueError(f"dtype: expected tensors of {settings['dtype']}, got {' and '.join(sorted(dtypes))}")
        cell = _fresh(make, settings, tensors)
        cell.load_state_dict(tensors, strict=True)
    except KeyError as error:
        raise ValueError(f"there is no {error}") from error
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    actual = _settings(cell)
    for key in sorted(actual.keys() | settings.keys()):
        expected, got = actual.get(key), settings.get(key)
        # As text, where 1, 1.0 and true differ.
        if json.dumps(expected, sort_keys=True) != json.dumps(got, sort_keys=True):
            raise ValueError(f"{key}: expected {expected}, got {got}")
    return cell


def _read(root: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = read_json(root / CONFIG)
    if not isinstance(config, dict) or config.get("schema_version") != SCHEMA or "nsed_torch" not in config:
        got = config.get("schema_version") if isinstance(config, dict) else type(config).__name__
        raise ValueError(
            f"{root / CONFIG}: expected a saved consensus cell of schema {SCHEMA}, got {got}: check the path"
        )
    path = root / WEIGHTS
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != config.get("sha256"):
            raise ValueError(f"{path}: not the weights that {CONFIG} was written with: save or copy the folder again")
        return config, load(data)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}): save or copy the folder again") from error
    except SafetensorError as error:
        raise ValueError(f"{path}: not safetensors ({error}): save the cell again") from error


def _checked_names(names: Any, agents: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    texts = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not texts or len(names) != agents or len(set(names)) < agents:
        raise ValueError(f"agent_names: expected {agents} different names, got {names!r}")
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
    """Names of tensors with a row an agent."""
    reading = {"reading.trust", "reading.category", *_HABITS}
    return tensors.keys() & {"trust.bias", "trust.weight", *reading, "calibration.scale", "calibration.shift"}
