"""What a consensus cell does with folders and with the Hugging Face Hub; how is in `parts.saved_cells`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import ModelHubMixin
from torch import nn

Cell = TypeVar("Cell", bound="Pretrained")


class Pretrained(
    nn.Module, ModelHubMixin, library_name="nsed_torch", tags=["multi-agent deliberation"], license="apache-2.0"
):
    """What a `ConsensusCell` does with folders, and with repos on the Hugging Face Hub (`push_to_hub`)."""

    vote: Any
    gate: nn.Module
    trust: nn.Module
    agents: int
    agent_names: tuple[str, ...] | None

    def save_pretrained(  # type: ignore[override]
        self, folder: str | Path, *, agent_names: Sequence[str] | None = None, card: str = "", **_of_the_hub: Any
    ) -> None:
        """Write `model.safetensors`, `README.md` and `config.json`, which names the weights by their hash.

        Other files in the folder stay. Nothing is replaced before all three are on disk, and a pair of weights and
        config that a crash left unequal is refused on loading. `agent_names` are those of the rows of the pool, the
        cell's own if None; `card` is Markdown to append to the model card, say what was measured. Of a part of your
        own the tensors are written and the name of its class.

        Raises:
            ValueError: if dtypes are mixed, or the names do not fit.
            OSError: if it cannot be written.
        """
        from nsed_torch.parts.saved_cells import save_cell  # noqa: PLC0415 - loaded where one is saved

        save_cell(self, folder, agent_names, card)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls: type[Cell],
        folder: str | Path,
        *,
        agents: Sequence[str] | None = None,
        revision: str | None = None,
        **parts: Any,
    ) -> Cell:
        """The cell that `save_pretrained` wrote: same dtype, on the CPU, outputs equal to the last bit.

        Args:
            folder: where it lies; a text that is no folder here may be "owner/name" on the Hugging Face Hub.
            agents: names of a team out of the saved agents, in the order of its voters; None is all, as saved.
            revision: of the Hub's repo.
            **parts: vote, gate, trust, calibration or reading to load the saved tensors into. A part of a class of
                your own has to be given: no file makes a class be imported.

        Raises:
            ValueError: in one line with the file, for what is missing, corrupt or written by something else, for a
                part of somebody's own that is not given, or agents that the cell does not know.
        """
        from nsed_torch.parts.saved_cells import load_cell  # noqa: PLC0415 - loaded where one is loaded

        cell: Cell = load_cell(cls, folder, agents, revision, parts)
        return cell

    def fingerprint(self) -> str:
        """Twelve hex digits for this very cell: of its parts as printed, and of every parameter and buffer."""
        from nsed_torch.parts.saved_cells import fingerprint  # noqa: PLC0415 - loaded where one is saved

        return fingerprint(self)
