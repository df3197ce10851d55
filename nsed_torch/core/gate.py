"""The semantic forget gate: what fades from memory, how fast, and what enters it.

A gate is any module `(state, news) -> (keep, admit)`. The paper names the gate but not its formula; all are ours.
"""

import math
from typing import Any, ClassVar, NamedTuple

import torch
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nsed_torch.core import functional
from nsed_torch.core.functional.floats import length, unit
from nsed_torch.core.memory import MemoryState


class News(NamedTuple):
    """What a round brings, as a gate reads it; a proposal that shows no answer has zeros."""

    embeddings: Float[Tensor, "batch proposal dim"]
    support: Float[Tensor, "batch proposal"]  # of the answer that each proposal shows
    probability: Float[Tensor, "batch proposal"]  # of that answer: what it enters the memory with, times `admit`
    mask: Bool[Tensor, "batch proposal"]  # which proposals show an answer
    consensus: Float[Tensor, "batch dim"]  # the embedding c of the consensus: embeddings by probability
    task: Float[Tensor, "batch dim"]  # the embedding x of the question


class GateOutput(NamedTuple):
    """What a gate decides."""

    keep: Float[Tensor, "batch slot"]  # factor in [0, 1] on the retention of each slot
    admit: Float[Tensor, "batch proposal"]  # factor in [0, 1] on the retention that each proposal enters with


class Gate(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="nsed_torch",
    tags=["multi-agent deliberation", "forget gate"],
    license="apache-2.0",
):
    """What each slot keeps, and what each proposal enters with: subclass it and write `forward`.

    A gate need not be of this class; any module that is called alike will do. This one brings `save_pretrained`,
    `from_pretrained` and `push_to_hub` from the hub library, for a gate without its cell.

    Examples:
        >>> class NearTheQuestion(Gate):
        ...     def forward(self, state, news):
        ...         near = torch.cosine_similarity(state.embeddings, news.task[:, None], dim=-1)
        ...         return (1 + near) / 2, torch.ones_like(news.support)  # keep, admit
        >>> from nsed_torch.core.cell import ConsensusCell
        >>> cell, task = ConsensusCell(dim=2, agents=2, gate=NearTheQuestion()), torch.tensor([[1.0, 0.0]])
        >>> proposals, ratings = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> state = None
        >>> for _ in range(2):
        ...     output, state = cell(proposals, ratings, ~torch.eye(2, dtype=torch.bool)[None], task, state)
        >>> output.gate.tolist()  # what the two slots of the first round kept in the second
        [[1.0, 0.5, 0.0, 0.0]]
    """

    def forward(self, state: MemoryState, news: News) -> Any:
        """Factors on the slots and on what enters, as `GateOutput` or a pair; entries of empty slots are not read.

        Args:
            state: the memory, with the ages that its slots had when the last round ended.
            news: what the round brings.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected forward(state, news) -> (keep, admit): write it")

    def begin_fit(self) -> None:
        """Called before a fit's first step: a gate that has no gradient where it starts moves off it here."""


class ForgetGate(Gate):
    """Learned: `sigmoid(b + w . [cos(m, c), cos(m, x), support, age])`; starts as a constant leak (w = 0).

    What enters does so in full.

    Args:
        leak: the factor at the start, in (0, 1).
        dtype: of the parameters; torch's default if None.

    Raises:
        ValueError: if the leak is out of range.
    """

    reads: ClassVar[int] = 4  # numbers of every slot

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(self.reads, dtype=dtype))
        self.bias = nn.Parameter(torch.tensor(logit(leak), dtype=dtype))

    def forward(self, state: MemoryState, news: News) -> GateOutput:
        """A factor for each slot."""
        keep = functional.forget_gate(self.features(state, news), self.weight, self.bias)
        return GateOutput(torch.where(state.mask, keep, 0), self.admit(news))

    def features(self, state: MemoryState, news: News) -> Float[Tensor, "batch slot feature"]:
        """What it reads of every slot."""
        others = unit(torch.stack([news.consensus, news.task], dim=-2))
        # Divided behind the product, which is far smaller than the slots.
        toward = state.embeddings @ others.transpose(1, 2) / length(state.embeddings)
        return torch.cat([toward, state.support[..., None], state.age[..., None]], dim=-1)

    def admit(self, news: News) -> Float[Tensor, "batch proposal"]:
        """The factor on what enters."""
        return torch.ones_like(news.support)


def gated(
    gate: Any, state: MemoryState, news: News
) -> tuple[Float[Tensor, "batch slot"], Float[Tensor, "batch proposal"]]:
    """What any gate decides, 0 where nothing is kept or shown.

    Numbers stand for all slots, or all proposals, alike.

    Raises:
        ValueError: if it gives something else than factors of these sizes.
    """
    given = gate(state, news)
    try:
        keep, admit = (
            torch.as_tensor(factor, dtype=state.retention.dtype, device=state.retention.device).broadcast_to(mask.shape)
            for factor, mask in zip(given, (state.mask, news.mask), strict=True)
        )
    except (TypeError, ValueError, RuntimeError) as error:
        sizes = f"keep {tuple(state.mask.shape)} and admit {tuple(news.mask.shape)}"
        got = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in _parts(given)]
        raise ValueError(f"gate {type(gate).__name__}: expected {sizes}, got {got}: correct its forward") from error
    return torch.where(state.mask, keep, 0), torch.where(news.mask, admit, 0)


def _parts(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def logit(leak: float) -> float:
    """Of a leak; a ValueError for one out of (0, 1)."""
    if not 0 < leak < 1:
        raise ValueError(f"gate leak: expected a value in (0, 1), got {leak}; OpenGate keeps everything")
    return math.log(leak / (1 - leak))
