"""What graded traces tell of a team: who is right, what rounds change, what judges follow besides the truth."""

from nsed_torch.evaluation.insight.team_insight import insight

__all__ = ["insight"]
