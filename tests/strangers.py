"""Parts as a stranger writes them, who knows the library's interfaces and nothing else of it."""

import torch
from torch import nn


class Gate(nn.Module):
    """Keeps most of a slot, more of one that is near to the question."""

    def __init__(self, patience: float = 1.0) -> None:
        super().__init__()
        self.patience = nn.Parameter(torch.tensor(patience))

    def forward(self, state, news):
        near = torch.cosine_similarity(state.embeddings, news.task[:, None], dim=-1)
        return torch.sigmoid(self.patience + near), torch.ones_like(news.support)


class Vote(nn.Module):
    """A judge's ratings as they are, scaled."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, ratings, mask):
        return torch.where(mask, self.scale * ratings, 0)
