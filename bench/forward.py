"""A consensus cell's round against the same protocol written by hand in plain PyTorch: `python -m bench.forward`.

Both take the published protocol's way over several rounds, with trust, a learned gate and a bounded memory, and give
the same consensus. The cell also masks, pools equal answers and checks what comes in.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.timing import Measurement, compare
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.memory import MemoryState

BATCH, VOTERS, ROUNDS, DIM, SLOTS = 256, 8, 3, 384, 4

Memory = tuple[Tensor, Tensor, Tensor, Tensor]


class ByHand(nn.Module):
    """The protocol without anything else: every voter and proposal is there, every answer is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.weight = nn.Parameter(torch.zeros(VOTERS)), nn.Parameter(torch.zeros(VOTERS, 2 * DIM))
        self.leak, self.slopes = nn.Parameter(torch.tensor(4.0).log()), nn.Parameter(torch.zeros(4))
        self.log_beta = nn.Parameter(torch.tensor(0.0))

    def forward(
        self, embeddings: Tensor, ratings: Tensor, mask: Tensor, task: Tensor, memory: Memory | None
    ) -> tuple[dict[str, Tensor], Memory]:
        """One round: consensus and what tells how clear it was, and the next memory."""
        count = len(ratings)
        if memory is None:
            nothing = torch.zeros(count, SLOTS)
            memory = torch.zeros(count, SLOTS, DIM), nothing, nothing, nothing
        held, retention, old_support, age = memory
        hidden = (retention[..., None] * held).sum(1) / retention.sum(1, keepdim=True).clamp(min=1e-9)
        ratings = torch.where(mask, ratings, 0)
        share = ratings / ratings.abs().sum(-1, keepdim=True).clamp(min=1e-9)
        ballots = share.sign() * share.abs().clamp(min=1e-12).sqrt()
        trust = 1 + self.bias + torch.cat([task, hidden], -1) @ self.weight.T
        support = (trust[..., None] * ballots).sum(1)
        probability = (self.log_beta.exp() * support).softmax(-1)
        winner = support.argmax(-1)
        decisiveness = support.abs().sum(-1)
        told = {
            "consensus": probability,
            "winner": winner,
            "conviction": support.gather(1, winner[:, None])[:, 0] / decisiveness.clamp(min=1e-9),
            "decisiveness": decisiveness,
            "controversy": ratings.var(1, correction=0),
        }
        said = (probability[..., None] * embeddings).sum(1)
        near = [torch.cosine_similarity(held, other[:, None], dim=-1) for other in (said, task)]
        kept = retention * (self.leak + torch.stack([*near, old_support, age], -1) @ self.slopes).sigmoid()
        pool = torch.cat([kept, probability], 1)
        best, index = pool.topk(SLOTS, dim=1)
        held = torch.cat([held, embeddings], 1).gather(1, index[..., None].expand(-1, -1, DIM))
        supports = torch.cat([old_support, support], 1).gather(1, index)
        ages = torch.cat([age + 1, torch.zeros_like(support)], 1).gather(1, index)
        return told, (held, best, supports, ages)


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings, ratings, which count, and the questions, of several rounds."""
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(ROUNDS, BATCH, VOTERS, DIM, generator=g)
    ratings = torch.rand(ROUNDS, BATCH, VOTERS, VOTERS, generator=g) * 2 - 1
    mask = ~torch.eye(VOTERS, dtype=torch.bool).expand(BATCH, VOTERS, VOTERS)
    return embeddings, ratings, mask, torch.randn(BATCH, DIM, generator=g)


def lines(repeats: int = 30) -> list[Measurement]:
    """Forward alone, and forward and backward; the two must agree before they are timed."""
    cell, by_hand = ConsensusCell(DIM, VOTERS, SLOTS), ByHand()
    embeddings, ratings, mask, task = drawn()

    def ours() -> Tensor:
        state: MemoryState | None = None
        for e, r in zip(embeddings, ratings, strict=True):
            output, state = cell(e, r, mask, task, state)
        return output.consensus

    def plain() -> Tensor:
        memory: Memory | None = None
        for e, r in zip(embeddings, ratings, strict=True):
            told, memory = by_hand(e, r, mask, task, memory)
        return told["consensus"]

    torch.testing.assert_close(ours(), plain(), atol=1e-5, rtol=1e-4)

    def back(run: Callable[[], Tensor], module: nn.Module) -> Callable[[], None]:
        def step() -> None:
            module.zero_grad()
            run()[:, 0].log().sum().backward()

        return step

    size = f"{BATCH} tasks x {VOTERS} voters x {ROUNDS} rounds, dim {DIM}"
    found = []
    with torch.no_grad():
        found += compare(f"forward, {size}", ours=("the cell", ours), others=[("by hand", plain)], repeats=repeats)
    found += compare(
        f"forward and backward, {size}",
        ours=("the cell", back(ours, cell)),
        others=[("by hand", back(plain, by_hand))],
        repeats=repeats,
    )
    return found


if __name__ == "__main__":
    for line in lines():
        low, *_, high = sorted(line.ratios)
        print(f"{line.name}: {1 / line.ratio:.2f} times as long as {line.other} [{1 / high:.2f}, {1 / low:.2f}]")
