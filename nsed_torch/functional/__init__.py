"""The mathematics of one round, without state: tensors in, tensors out.

Every function is batched over tasks, differentiable where it returns floats, and compiles as one graph.
Entries whose mask is False never reach arithmetic, so NaN may stand there. Docstrings end with the formula's
source: the paper (arXiv 2601.16863), its authors' open SDK, or our own reading or derivation.
"""

from nsed_torch.functional._floats import Coefficient
from nsed_torch.functional.law import evidence, lambert_w0, marginal_utility, optimal_round, utility
from nsed_torch.functional.memory import forget_gate, hidden_state, split_gate, update_memory, vector_gate
from nsed_torch.functional.tally import (
    POOLINGS,
    Consensus,
    all_negative,
    answer_support,
    author_weight,
    consensus,
    controversy,
    conviction,
    cosine,
    decisiveness,
    same_answer,
    support,
    trust,
)
from nsed_torch.functional.vote import (
    approval_vote,
    borda_vote,
    calibrate,
    entmax_vote,
    l2_vote,
    linear_vote,
    plurality_vote,
    quadratic_vote,
    token_vote,
    vote_mask,
)

__all__ = [
    "POOLINGS",
    "Coefficient",
    "Consensus",
    "all_negative",
    "answer_support",
    "approval_vote",
    "author_weight",
    "borda_vote",
    "calibrate",
    "consensus",
    "controversy",
    "conviction",
    "cosine",
    "decisiveness",
    "entmax_vote",
    "evidence",
    "forget_gate",
    "hidden_state",
    "l2_vote",
    "lambert_w0",
    "linear_vote",
    "marginal_utility",
    "optimal_round",
    "plurality_vote",
    "quadratic_vote",
    "same_answer",
    "split_gate",
    "support",
    "token_vote",
    "trust",
    "update_memory",
    "utility",
    "vector_gate",
    "vote_mask",
]
