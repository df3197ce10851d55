"""Three agents on two backbones that remember what they were asked."""

from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import LikelihoodRequest, Message
from nsed_torch.engines.scripted import ScriptedEngine


class Recording(ScriptedEngine):
    """Remembers its batches; fails on the one that asks `fatal`."""

    def __init__(self, name="scripted", max_batch=32, fatal=None):
        super().__init__(lambda r: f"{name}/{r.agent}/{r.messages[-1].content}", rate_by_length, name=name)
        self.max_batch, self.fatal, self.revision, self.batches = max_batch, fatal, 1, []

    def identity(self, adapter):
        if adapter not in {None, "poet"}:
            raise ValueError(f"expected a loaded adapter, got {adapter!r}")
        return {"name": self.name, "adapter": adapter, "revision": self.revision}

    def generate(self, requests):
        self._record(requests)
        return super().generate(requests)

    def rate(self, requests):
        self._record(requests)
        return super().rate(requests)

    def measure(self, requests):
        self._record(requests)
        return super().measure(requests)

    def _record(self, requests):
        asked = [request.messages[-1].content for request in requests]
        if self.fatal in asked:
            raise RuntimeError("out of memory")
        self.batches.append(asked)


def rate_by_length(request, candidate):
    """Longer is better; a question mark has no rating."""
    return None if candidate == "?" else len(candidate) / 10


AGENTS = [Agent("a", "one"), Agent("b", "one", adapter="poet"), Agent("c", "two")]


def weigh(*texts, agent="a", **rest):
    """A request for likelihoods, of the chat that `judge` rates."""
    chat = Message("system", "Be fair."), Message("user", "Rate.")
    return LikelihoodRequest(agent, chat, texts, **rest)
