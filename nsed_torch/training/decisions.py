"""What a cell decides in recorded rounds."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nsed_torch.data import Episodes
from nsed_torch.nn import ConsensusCell, ConsensusOutput, Election
from nsed_torch.nn.election import Prepared


def unroll(cell: ConsensusCell, episodes: Episodes, ratings: Tensor | None = None) -> ConsensusOutput:
    """The cell's decisions in every recorded round.

    Args:
        cell: built for the episodes' width and agents.
        episodes: recorded rounds.
        ratings: in place of the recorded ones.
    """
    output, _ = cell.unroll(
        episodes.embeddings,
        episodes.ratings if ratings is None else ratings,
        episodes.vote_mask,
        episodes.task,
        voters=episodes.voters.clamp(min=0),
        authors=episodes.authors,
        classes=episodes.classes,
        features=episodes.features,
        category=_category(cell, episodes),
        proposal_mask=episodes.proposal_mask,
        voter_mask=episodes.voter_mask,
        round_mask=episodes.round_mask,
    )
    return output


def elect(
    cell: ConsensusCell, episodes: Episodes, ratings: Tensor | None = None, prepared: Prepared | None = None
) -> Election:
    """The cell's decisions in the first recorded round, which no memory precedes.

    Args:
        cell: built for the episodes' width and agents.
        episodes: recorded rounds.
        ratings: in place of the recorded ones.
        prepared: by `prepare`; None does it here.
    """
    return cell.elect(
        (episodes.ratings if ratings is None else ratings)[:, 0],
        episodes.vote_mask[:, 0],
        episodes.task,
        voters=episodes.voters[:, 0].clamp(min=0),
        authors=episodes.authors[:, 0],
        classes=episodes.classes[:, 0],
        features=None if episodes.features is None else episodes.features[:, 0],
        category=_category(cell, episodes),
        proposal_mask=episodes.proposal_mask[:, 0],
        voter_mask=episodes.voter_mask[:, 0],
        prepared=prepared,
    )


@torch.no_grad()
def prepare(cell: ConsensusCell, episodes: Episodes) -> Prepared:
    """What the vote of the first recorded round starts from."""
    proposals, voters = episodes.proposal_mask[:, 0], episodes.voter_mask[:, 0]
    return cell.prepare(
        episodes.ratings[:, 0],
        episodes.vote_mask[:, 0] & proposals[:, None, :] & voters[:, :, None],
        episodes.voters[:, 0].clamp(min=0),
        episodes.authors[:, 0],
        None if episodes.features is None else episodes.features[:, 0],
        proposal_mask=proposals,
        voter_mask=voters,
    )


def by_author(episodes: Episodes) -> Float[Tensor, "batch agent feature"]:
    """Features of what every agent proposed last; NaN where it proposed nothing.

    Raises:
        ValueError: for episodes without features.
    """
    if episodes.features is None:
        raise ValueError("expected episodes with features, got none: load them with features")
    rows = torch.arange(len(episodes), device=episodes.task.device)
    features, authors, there = (
        x[rows, episodes.last] for x in (episodes.features, episodes.authors, episodes.proposal_mask)
    )
    where = there & (authors >= 0)
    table = features.new_full((len(episodes), len(episodes.agents), features.shape[-1]), math.nan)
    table[rows[:, None].expand_as(authors)[where], authors[where]] = features[where]
    return table


def _category(cell: ConsensusCell, episodes: Episodes) -> Int[Tensor, "batch"] | None:
    if cell.reading is None or not episodes.categories:
        return None
    return cell.reading.categorized(episodes.categories).to(episodes.task.device)


@torch.no_grad()
def winners_correct(cell: ConsensusCell, episodes: Episodes) -> Bool[Tensor, "batch"]:
    """Whether the winner of each task's last round is right; False where nobody answered."""
    rows = torch.arange(len(episodes), device=episodes.task.device)
    winner = unroll(cell, episodes).winner[rows, episodes.last]
    return episodes.correct[rows, episodes.last, winner.clamp(min=0)] & (winner >= 0)
