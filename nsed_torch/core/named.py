"""Parts by the names that configs, saved cells and `MacroRNN.from_models` use; each is imported when it is named."""

import importlib
from typing import Any

PARTS = ("vote", "gate", "trust", "calibration", "reading")
"""Parts of a cell that may be of somebody's own class."""

NAMED = {
    "vote": {
        "quadratic": "core.vote.QuadraticVote",
        "token": "parts.votes.TokenVote",
        "linear": "parts.votes.LinearVote",
        "plurality": "parts.votes.PluralityVote",
        "borda": "parts.votes.BordaVote",
        "approval": "parts.votes.ApprovalVote",
        "l2": "parts.votes.L2Vote",
        "entmax": "parts.votes.EntmaxVote",
    },
    "gate": {
        "learned": "core.gate.ForgetGate",
        "notes": "parts.gates.NoteGate",
        "leaky": "parts.gates.LeakyGate",
        "none": "parts.gates.OpenGate",
    },
    "rating": {
        "verdict": "core.ratings.VerdictRating",
        "likelihood": "parts.rating_modes.LikelihoodRating",
        "critique": "parts.rating_modes.CritiqueRating",
        "agreement": "parts.rating_modes.AgreementRating",
    },
}
"""What a part is -> its name -> the class."""


def part_named(part: str, name: Any, **settings: Any) -> Any:
    """A fresh part by its name; a ValueError for an unknown one.

    Examples:
        >>> part_named("vote", "plurality", temperature=0.5)
        PluralityVote(temperature=0.5)
    """
    known = NAMED[part]
    if not isinstance(name, str) or name not in known:
        wanted = f"expected one of {', '.join(known)} or one of your own"
        raise ValueError(f"{part}: {wanted}, got {name!r}: correct it")
    home, _, kind = known[name].rpartition(".")
    return getattr(importlib.import_module(f"nsed_torch.{home}"), kind)(**settings)


def name_of(part: str, given: Any) -> str | None:
    """The name of a built part; None where it is somebody's own."""
    kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("nsed_torch.")
    return next((name for name, known in NAMED[part].items() if known == kind), None)
