"""The mathematics of one round, without state: tensors in, tensors out.

Every function is batched over tasks, differentiable where it returns floats, and compiles as one graph.
Entries whose mask is False never reach arithmetic, so NaN may stand there. Docstrings end with the formula's
source: the paper (arXiv 2601.16863), its authors' open SDK, or our own reading or derivation.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Coefficient = float | Float[Tensor, "..."]
"""A number, or a tensor that broadcasts against the other arguments."""


def vote_mask(
    voters: Int[Tensor, "batch voter"],
    authors: Int[Tensor, "batch proposal"],
    answered: Bool[Tensor, "batch proposal"],
) -> Bool[Tensor, "batch voter proposal"]:
    """Who may rate what: every answered proposal but one's own. Published by the paper.

    Voters and authors are indices of agents; answered is False for a proposal that is no answer.
    """
    return (authors[:, None, :] != voters[:, :, None]) & answered[:, None, :]


def quadratic_vote(
    ratings: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
) -> Float[Tensor, "batch voter proposal"]:
    """Signed quadratic vote `q = sign(f) sqrt|f|`, `f = r / sum_j |r|`: the votes one unit of credit buys.

    At a rating of zero, where the root has no slope, the subgradient 0 is used; a ballot whose absolute sum
    is below machine epsilon passes no gradient. Neither changes the value.

    Args:
        ratings: r in [-1, 1]; only their ratios matter.
        mask: which ratings count.

    Returns:
        Ballots of unit L2 norm; zeros where masked and for a ballot without a non-zero rating. Published in
        the authors' SDK.
    """
    ratings = torch.where(mask, ratings, 0)
    sloped = ratings.abs().sum(-1, keepdim=True) > torch.finfo(ratings.dtype).eps
    ratings = torch.where(sloped, ratings, ratings.detach())
    total = ratings.abs().sum(-1, keepdim=True)
    share = ratings / torch.where(total > 0, total, 1)
    return share.sign() * _root(share.abs())


def token_vote(
    tokens: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
) -> Float[Tensor, "batch voter proposal"]:
    """Older, unsigned quadratic vote `q = sqrt(tokens) / 10`; a voter has 100 tokens to spend.

    Args:
        tokens: 0..100 each, negative ones count as 0; rescaled to a sum of 100 only where the sum exceeds it.
        mask: which entries count.

    Returns:
        Ballots in [0, 1]; zeros where masked. The slope at zero tokens is the subgradient 0. Published in the
        authors' SDK; that it is the paper's first form is our reading.
    """
    tokens = torch.where(mask, tokens, 0).clamp(min=0)
    total = tokens.sum(-1, keepdim=True)
    return _root(torch.where(total > 100, tokens * 100 / total.clamp(min=100), tokens)) / 10


def reliability(
    bias: Float[Tensor, "batch voter"],
    weight: Float[Tensor, "batch voter feature"],
    context: Float[Tensor, "batch feature"],
    voter_mask: Bool[Tensor, "batch voter"],
) -> Float[Tensor, "batch voter"]:
    """Weight of each voter, `tau_i = N softmax_i(a_i + w_i . context)`, N the voters that count. Ours.

    Args:
        bias: a.
        weight: w.
        context: `[x; h]`, task embedding and hidden state.
        voter_mask: which voters count.

    Returns:
        Non-negative weights with mean 1 over the voters that count; 0 for the others.
    """
    logits = bias + (weight * context[:, None, :]).sum(-1)
    return voter_mask.sum(-1, keepdim=True) * _masked_softmax(logits, voter_mask)


def cosine(a: Float[Tensor, "*#shape dim"], b: Float[Tensor, "*#shape dim"]) -> Float[Tensor, "*#shape"]:
    """Cosine of the angle between a and b; 0 with gradient 0 where either has no direction.

    A norm below the square root of the smallest normal number counts as zero: its square underflows.
    """
    return (_unit(a) * _unit(b)).sum(-1)


def support(
    ballots: Float[Tensor, "batch voter proposal"],
    mask: Bool[Tensor, "batch voter proposal"],
    tau: Float[Tensor, "batch voter"],
    *,
    kappa: Coefficient,
    embeddings: Float[Tensor, "batch proposal dim"],
    hidden: Float[Tensor, "batch dim"],
) -> Float[Tensor, "batch proposal"]:
    """Net support `sum_i tau_i q_ij + kappa cos(e_j, h)`.

    The sum of ballots (tau = 1, kappa = 0) is published in the authors' SDK; tau, the weight of each voter, and
    kappa, how strongly the hidden state speaks into the vote, are ours.
    """
    votes = torch.where(mask, tau[:, :, None] * ballots, 0).sum(1)
    return votes + kappa * cosine(embeddings, hidden[:, None, :])


def consensus(
    support: Float[Tensor, "batch proposal"], proposal_mask: Bool[Tensor, "batch proposal"], beta: Coefficient
) -> tuple[Float[Tensor, "batch proposal"], Int[Tensor, "batch"]]:
    """Distribution `softmax(beta support)` over the proposals that count, and the winner.

    Ranking by support is published in the authors' SDK; the softmax and the tie rule are ours.

    Args:
        support: net support of each proposal.
        proposal_mask: which proposals count.
        beta: inverse temperature, above 0.

    Returns:
        Probabilities, 0 where masked; and the index of the largest support, -1 where nothing counts. Supports
        within 1e-9 (float32: 1e-5) times max(1, |largest|) of the largest tie, and the lowest index wins.
    """
    probabilities = _masked_softmax(beta * support, proposal_mask)
    largest = torch.where(proposal_mask, support, -torch.inf).amax(-1, keepdim=True)
    tied = proposal_mask & (support >= largest - _tolerance(support) * largest.abs().clamp(min=1))
    proposals = support.shape[-1]
    first = torch.where(tied, torch.arange(proposals, device=support.device), proposals).amin(-1)
    return probabilities, torch.where(tied.any(-1), first, -1)


def conviction(support: Float[Tensor, "batch proposal"], winner: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    """`support of the winner / sum of absolute supports`, in [-1, 1]. Published in the authors' SDK.

    Zero without a winner, or where all supports together are within float noise of zero.
    """
    total = decisiveness(support)
    counts = (winner >= 0) & (total > _tolerance(support))
    return torch.where(counts, _of_winner(support, winner) / torch.where(counts, total, 1), 0)


def decisiveness(support: Float[Tensor, "batch proposal"]) -> Float[Tensor, "batch"]:
    """Sum of absolute supports. Published in the authors' SDK."""
    return support.abs().sum(-1)


def all_negative(support: Float[Tensor, "batch proposal"], winner: Int[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
    """Whether even the winner's support is below zero by more than float noise. Ours."""
    return (winner >= 0) & (_of_winner(support, winner) < -_tolerance(support))


def controversy(
    ratings: Float[Tensor, "batch voter proposal"], mask: Bool[Tensor, "batch voter proposal"]
) -> Float[Tensor, "batch proposal"]:
    """Variance of each proposal's counted ratings, 0 without any.

    Published in the authors' SDK; dividing by their number rather than by one less is our reading.
    """
    ratings = torch.where(mask, ratings, 0)
    count = mask.sum(1).clamp(min=1)
    mean = ratings.sum(1) / count
    return torch.where(mask, (ratings - mean[:, None, :]).square(), 0).sum(1) / count


def forget_gate(
    features: Float[Tensor, "batch slot feature"], weight: Float[Tensor, "feature"], bias: Float[Tensor, ""]
) -> Float[Tensor, "batch slot"]:
    """Factor on each slot's retention, `sigmoid(b + w . [cos(m, c), cos(m, x), support, age])`.

    The paper names the gate; this formula is ours. Features are the bracket's, for every slot.
    """
    return torch.sigmoid(bias + features @ weight)


def update_memory(
    retention: Float[Tensor, "batch slot"],
    mask: Bool[Tensor, "batch slot"],
    gate: Float[Tensor, "batch slot"],
    entering: Float[Tensor, "batch proposal"],
    proposal_mask: Bool[Tensor, "batch proposal"],
) -> tuple[Float[Tensor, "batch slot"], Int[Tensor, "batch slot"]]:
    """Forget, let the proposals in, keep the strongest: the memory never grows. Ours.

    Args:
        retention: weight of each old slot.
        mask: which old slots hold something.
        gate: factor on the old retentions.
        entering: retention of each proposal.
        proposal_mask: which proposals count.

    Returns:
        Retentions of the new slots, strongest first, and each new slot's index among old slots followed by
        proposals, -1 (retention 0) where empty. Retentions equal to 9 decimals (float32: 5) keep that order.
    """
    counted = torch.cat([mask, proposal_mask], 1)
    pool = torch.where(counted, torch.cat([gate * retention, entering], 1), 0)
    scale = 1 / _tolerance(pool)
    strength = torch.where(counted, (pool.detach() * scale).round(), -1)
    order = strength.sort(dim=1, descending=True, stable=True).indices[:, : retention.shape[1]]
    return pool.gather(1, order), torch.where(counted.gather(1, order), order, -1)


def hidden_state(
    embeddings: Float[Tensor, "batch slot dim"],
    retention: Float[Tensor, "batch slot"],
    mask: Bool[Tensor, "batch slot"],
) -> Float[Tensor, "batch dim"]:
    """Mean of the slots, `h = sum_k retention_k m_k / sum_k retention_k`; 0 without slots. Ours."""
    weights = torch.where(mask, retention, 0)
    total = weights.sum(-1, keepdim=True)
    alive = total > torch.finfo(total.dtype).tiny
    weights = torch.where(alive, weights / torch.where(alive, total, 1), 0)
    return (weights[:, :, None] * torch.where(mask[:, :, None], embeddings, 0)).sum(1)


def utility(t: Float[Tensor, "..."], p_g: Coefficient, k: Coefficient, beta: Coefficient) -> Float[Tensor, "..."]:
    """Efficiency-fatigue law `U(t) = 1 - (1 - p_g) exp(-k t) - beta t^2`. Published by the paper.

    After t rounds, with p_g the accuracy before deliberation, k the gain per round (the paper's
    Lambda (p_v - p_g)) and beta the fatigue per round squared.
    """
    return 1 - (1 - p_g) * torch.exp(-k * t) - beta * t.square()


def marginal_utility(
    t: Float[Tensor, "..."], p_g: Coefficient, k: Coefficient, beta: Coefficient
) -> Float[Tensor, "..."]:
    """Slope of `utility`, `U'(t) = (1 - p_g) k exp(-k t) - 2 beta t`. Our derivation; arguments as there."""
    return (1 - p_g) * k * torch.exp(-k * t) - 2 * beta * t


def optimal_round(k: Float[Tensor, "..."], p_g: Coefficient, beta: Coefficient) -> Float[Tensor, "..."]:
    """Where `utility` peaks, `T = W0((1 - p_g) k^2 / (2 beta)) / k`; 0 where k <= 0. Our derivation."""
    gains = k > 0
    k = torch.where(gains, k, 1)
    return torch.where(gains, lambert_w0((1 - p_g) * k.square() / (2 * beta)) / k, 0)


def lambert_w0(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Principal branch of Lambert's W for z >= 0: the w with `w exp(w) = z`.

    The iteration `w <- w / (1 + w) (1 + log(z / w))` (Iacono and Boyd, 2017) doubles the digits at each step;
    the last step alone carries the gradient, and its slope is W'. Second derivatives are not provided.
    """
    positive = z > 0
    z = torch.where(positive, z, 1)
    w = z.detach().log1p()
    for _ in range(6):
        w = w / (1 + w) * (1 + torch.log(z.detach() / w))
    return torch.where(positive, w / (1 + w) * (1 + torch.log(z / w)), 0)


def evidence(
    convictions: Float[Tensor, "batch round"], p_g: Coefficient, k: Coefficient, beta: Coefficient
) -> Float[Tensor, "batch round"]:
    """Evidence after each round, `E(r) = sum_{s <= r} max(conviction_s, 0) U'(s)`.

    Published in the authors' SDK. Convictions are of rounds 1, 2, ...; the rest is as in `utility`.
    """
    rounds = torch.arange(1, convictions.shape[1] + 1, dtype=convictions.dtype, device=convictions.device)
    return (convictions.clamp(min=0) * marginal_utility(rounds, p_g, k, beta)).cumsum(-1)


def _masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the entries that count; zeros elsewhere, also where none counts."""
    lowest = torch.finfo(logits.dtype).min  # finite, so that a row without entries has finite gradients
    return torch.where(mask, torch.where(mask, logits, lowest).softmax(-1), 0)


def _root(x: Tensor) -> Tensor:
    """Square root with slope 0 where x is too small for a finite one."""
    sloped = x > torch.finfo(x.dtype).tiny
    return torch.where(sloped, torch.where(sloped, x, 1).sqrt(), x.detach().sqrt())


def _unit(x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    directed = norm > torch.finfo(x.dtype).tiny ** 0.5
    return torch.where(directed, x / torch.where(directed, norm, 1), 0)


def _of_winner(support: Tensor, winner: Tensor) -> Tensor:
    return support.gather(1, winner.clamp(min=0)[:, None])[:, 0]


def _tolerance(x: Tensor) -> float:
    """Below which differences of supports or retentions are float noise."""
    return 1e-9 if x.dtype == torch.float64 else 1e-5
