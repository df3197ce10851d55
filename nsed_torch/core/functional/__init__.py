"""The mathematics of one round, without state: tensors in, tensors out.

Every function is batched over tasks, differentiable where it returns floats, and compiles as one graph.
Entries whose mask is False never reach arithmetic, so NaN may stand there. Docstrings end with the formula's
source: the paper (arXiv 2601.16863), its authors' open SDK, or our own reading or derivation. Steps of these
formulas stand in the modules: `memory`, `tally`, `vote`.
"""

from nsed_torch.core.functional.memory import forget_gate, held, hidden_state, update_memory
from nsed_torch.core.functional.tally import (
    all_negative,
    consensus,
    controversy,
    conviction,
    decisiveness,
    support,
    trust,
)
from nsed_torch.core.functional.vote import calibrate, linear_vote, quadratic_vote, vote_mask

__all__ = [
    "all_negative",
    "calibrate",
    "consensus",
    "controversy",
    "conviction",
    "decisiveness",
    "forget_gate",
    "held",
    "hidden_state",
    "linear_vote",
    "quadratic_vote",
    "support",
    "trust",
    "update_memory",
    "vote_mask",
]
