"""Tensors, rounds and cells drawn from a seed, in float64, for tests of the mathematics."""

import torch

from nsed_torch.core.cell import ConsensusCell

REAL = torch.float64
SHAPES = [(2, 3, 4), (1, 1, 3), (1, 3, 1)]


def randn(*shape, seed=0):
    return torch.randn(shape, dtype=REAL, generator=torch.Generator().manual_seed(seed), requires_grad=True)


def full(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def tensor(*values, grad=False):
    return torch.tensor(*values, dtype=REAL, requires_grad=grad)


def masks(*shape):
    """Everything, and half of it with one row empty."""
    partial = torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.5
    partial[:, 0] = False
    return [full(*shape), partial]


def a_round(batch, voters, proposals, dim, seed):
    """Embeddings, ratings, which of them count, and the task's embedding."""
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(batch, proposals, dim, generator=g, dtype=REAL)
    ratings = torch.rand(batch, voters, proposals, generator=g, dtype=REAL) * 2 - 1
    ratings = ratings * (torch.rand(ratings.shape, generator=g) < 0.8)
    mask = torch.rand(batch, voters, proposals, generator=g) < 0.8
    return embeddings, ratings, mask, torch.randn(batch, dim, generator=g, dtype=REAL)


def trained(dim, agents, seed=0, **parts):
    """A cell whose every parameter has left its starting point."""
    cell = ConsensusCell(dim, agents, **parts).double()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in cell.parameters():
            p.add_(torch.randn(p.shape, generator=g, dtype=REAL) * 0.5)
    return cell
