"""Gates beside the learned one: for rounds that read, and those that learn nothing. All are ours."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nsed_torch.core.functional.floats import unit
from nsed_torch.core.functional.tally import cosine
from nsed_torch.core.gate import ForgetGate, Gate, GateOutput, News, logit
from nsed_torch.core.memory import MemoryState


def entry_gate(
    features: Float[Tensor, "*batch proposal feature"], weight: Float[Tensor, "feature"]
) -> Float[Tensor, "*batch proposal"]:
    """Factor on the retention that a proposal enters with, `min(1, 2 sigmoid(u . features))`; 1 for u = 0. Ours."""
    return (2 * torch.sigmoid(features @ weight)).clamp(max=1)


class NoteGate(ForgetGate):
    """A `ForgetGate` that reads what enters, and an entry: for rounds that read. It starts as `ForgetGate` does.

    A fifth number says how far a note that enters may supersede the slot: the largest `cos(m, e) cos(e, x)` of them,
    factors below 0 as 0. What enters does so with its consensus times `entry_gate` of
    `[cos(e, x), support, 1]`, which is 1 at the start: once that has learned, a note that is alone in its round, and
    says nothing of use, displaces nobody.
    """

    reads = 5

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__(leak, dtype=dtype)
        self.entry = nn.Parameter(torch.zeros(3, dtype=dtype))

    @torch.no_grad()
    def begin_fit(self) -> None:
        """Begin a fit where what enters is less than 1, unless the entry has learned already.

        At 1, where it starts, a step that lets everything in more readily changes nothing, and a fit may end there.
        """
        if not self.entry.any():
            self.entry[-1] = -2

    def features(self, state: MemoryState, news: News) -> Float[Tensor, "batch slot feature"]:
        """What it reads of every slot."""
        near = unit(state.embeddings) @ unit(news.embeddings).transpose(1, 2)
        use = cosine(news.embeddings, news.task[:, None, :]).clamp(min=0)
        superseded = (near.clamp(min=0) * use[:, None, :]).amax(-1, keepdim=True)
        return torch.cat([super().features(state, news), superseded], -1)

    def admit(self, news: News) -> Float[Tensor, "batch proposal"]:
        """The factor on what enters."""
        near = cosine(news.embeddings, news.task[:, None, :])
        return entry_gate(torch.stack([near, news.support, torch.ones_like(near)], -1), self.entry)


class LeakyGate(Gate):
    """The constant leak, a buffer: nothing is trained. Leak, dtype and errors as of `ForgetGate`."""

    leak: Tensor

    def __init__(self, leak: float = 0.8, *, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        logit(leak)
        self.register_buffer("leak", torch.tensor(leak, dtype=dtype))

    def forward(self, state: MemoryState, news: News) -> GateOutput:
        """The leak for each slot."""
        return GateOutput(torch.where(state.mask, self.leak, 0), torch.ones_like(news.support))


class OpenGate(Gate):
    """1: nothing fades, the weakest slots are still displaced."""

    def forward(self, state: MemoryState, news: News) -> GateOutput:
        """1 for each slot."""
        return GateOutput(state.mask.to(state.retention.dtype), torch.ones_like(news.support))
