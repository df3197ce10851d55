"""The Conductor: workflows that a language model writes, one subtask a step, how they are read, and what runs them."""

from nsed_torch.conductor.executor import Executor, WorkflowJob, WorkflowObserver
from nsed_torch.conductor.parsing import parse, repair
from nsed_torch.conductor.policy import Conductor, ConductorBroker, workflow_team
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.workflow import Reason, Topology, Workflow, WorkflowError, WorkflowStep, check

__all__ = [
    "Conductor",
    "ConductorBroker",
    "Executor",
    "Pools",
    "Reason",
    "Topology",
    "Workflow",
    "WorkflowError",
    "WorkflowJob",
    "WorkflowObserver",
    "WorkflowStep",
    "check",
    "parse",
    "repair",
    "workflow_team",
]
