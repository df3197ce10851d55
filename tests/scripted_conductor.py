"""A Conductor without a model, whose texts are looked up by the question and the number of the call."""

import re

from scripted_workers import TASKS, build, drawn

from nsed_torch.conductor.policy import Conductor
from nsed_torch.conductor.workflow import Workflow
from nsed_torch.conductor.workflow import WorkflowStep as Step
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Decoding

WRITER = Agent("conductor", "one", decoding=Decoding(200, 0.0), prompt_price=1.0, completion_price=2.0)
ACCEPT = Workflow().render()
GARBAGE = "I would rather not."


def text(*steps):
    """The lists of (worker, subtask, access), with a word in front."""
    return "Let me think.\n" + Workflow(tuple(Step(*step) for step in steps)).render()


TWO = text((0, "Begin now.", ()), (1, "Go on.", "all"))


def writes(*texts, workers=drawn):
    """Engines' `write`: the Conductor writes its n-th text in its n-th call about a question, the last one after it."""

    def write(request):
        if request.agent != WRITER.name:
            return workers(request)
        place = 1 if re.search(r"\nAnswer so far", request.messages[-1].content) else 0
        return texts[min(place, len(texts) - 1)]

    return write


def conductor(*texts, workers=drawn, pools=None, writer=WRITER, **options):
    """A Conductor of the three scripted agents, and the engine that speaks for them and for it."""
    executor, engine = build(writes(*texts, workers=workers), **options)
    chosen = {} if pools is None else {"pools": pools}
    return Conductor(executor, writer, **chosen), engine


def asked(engine):
    """The requests for workflows."""
    return [request for request in engine.asked if request.agent == WRITER.name]


__all__ = ["ACCEPT", "GARBAGE", "TASKS", "TWO", "WRITER", "asked", "conductor", "text", "writes"]
