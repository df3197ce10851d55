"""The Conductor: workflows that a language model writes, one subtask a step, how they are read, and what runs them."""

from nsed_torch.conductor.executor import Executor, Job, WorkflowObserver
from nsed_torch.conductor.parsing import Repaired, parse, repair
from nsed_torch.conductor.policy import FALLBACK, Conductor, Plan
from nsed_torch.conductor.pools import Pools
from nsed_torch.conductor.team import ConductorBroker, workflow_team
from nsed_torch.conductor.workflow import Reason, Step, Topology, Workflow, WorkflowError, check

__all__ = [
    "FALLBACK",
    "Conductor",
    "ConductorBroker",
    "Executor",
    "Job",
    "Plan",
    "Pools",
    "Reason",
    "Repaired",
    "Step",
    "Topology",
    "Workflow",
    "WorkflowError",
    "WorkflowObserver",
    "check",
    "parse",
    "repair",
    "workflow_team",
]
