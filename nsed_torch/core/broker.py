"""Who takes part in a round."""


class InfeasibleBudgetError(ValueError):
    """No team fits the budgets; the message names the binding resource, what would do and the remedy."""
