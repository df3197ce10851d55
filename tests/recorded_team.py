"""Recorded agents as an ensemble, which deliberates like a live one."""

from nsed_torch.agents import Agent, Decoding, Ensemble


def ensemble_of(recorded, equality=None, *, call_log=None):
    """Each agent's answer allowance is its longest output, so that budgets bound what it may cost."""
    longest = recorded.tokens.amax(0).ceil().long().clamp(min=1).tolist()
    agents = [
        Agent(name, "recorded", decoding=Decoding(max_new_tokens=tokens))
        for name, tokens in zip(recorded.agents, longest, strict=True)
    ]
    return Ensemble({"recorded": recorded.engine(equality)}, agents, call_log=call_log)
