"""Modules as safetensors files with texts in the header, and what is refused of numbers and texts that were saved."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from nsed_torch.records.files import parse_json, regular, write_files
from nsed_torch.records.lookalikes import one_line

Part = TypeVar("Part", bound=nn.Module)
_LARGEST, _LARGEST_LOG = 1e6, 50.0  # magnitudes of a number, and of a logarithm whose exponential is taken


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
        regular(path)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            header = file.metadata()
            check_saved([_parsed(text) for text in header.values()], tensors)
            module = build(header, tensors)
        module.load_state_dict(tensors, strict=True)
    except OSError as error:
        raise ValueError(f"{path}: expected {what}, got none there: check the path") from error
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: not {what} ({one_line(error)}): {remedy}") from error
    return module


def check_saved(texts: Any, tensors: Mapping[str, Tensor]) -> None:
    """Refuse, by a ValueError, numbers that nobody fits, and texts in a JSON tree that a terminal might obey."""
    for name, value in tensors.items():
        most = _LARGEST_LOG if name == "log_beta" else _LARGEST
        if not value.is_floating_point() or not (value.abs() <= most).all():
            raise ValueError(f"{name[:80]!r}: expected numbers in [-{most:g}, {most:g}], got others")
    for text in _texts(texts):
        if not text.isprintable():
            raise ValueError(f"expected printable names, got {text[:80]!r}")


def _texts(tree: Any) -> Iterator[str]:
    """All texts of a JSON tree, names of fields among them."""
    if isinstance(tree, str):
        yield tree
    for part in [*tree, *tree.values()] if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from _texts(part)


def _parsed(text: str) -> Any:
    """A header's text, or the JSON that it is."""
    return parse_json(text, "header", "save it again") if text[:1] in {"{", "["} else text
