"""The Conductor: workflows that a language model writes, or a head picks, how they are read, and what runs them."""

from nsed_torch.conductor.conductor_broker import ConductorBroker
from nsed_torch.conductor.executor import Executor, WorkflowJob
from nsed_torch.conductor.head_conductor import HeadAgent, HeadConductor, conductor_of
from nsed_torch.conductor.parsing import parse, repair
from nsed_torch.conductor.policy import Conductor, WritingAgent
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workflow import Workflow, WorkflowStep

__all__ = [
    "Conductor",
    "ConductorBroker",
    "Executor",
    "HeadAgent",
    "HeadConductor",
    "Pools",
    "Workflow",
    "WorkflowJob",
    "WorkflowStep",
    "WritingAgent",
    "conductor_of",
    "parse",
    "repair",
]
