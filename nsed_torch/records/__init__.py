"""What happened, on disk: tasks, transcripts, executions, traces, outcomes, the call log, atomic writes."""

from nsed_torch.records.call_log import CallLog, CallLogError, call_key
from nsed_torch.records.execution import Execution, Failure, Level, PlanRecord, StepRecord
from nsed_torch.records.files import read_json, to_json, write_files, write_json, write_text
from nsed_torch.records.outcome import Outcome, Verdict, read_outcomes
from nsed_torch.records.task import Task
from nsed_torch.records.trace import Trace, TraceWriter, read_embeddings, read_traces
from nsed_torch.records.transcript import (
    ROLES,
    AgentRecord,
    AnswerSet,
    Critique,
    MemorySlot,
    Proposal,
    Round,
    Transcript,
    Usage,
)

__all__ = [
    "ROLES",
    "AgentRecord",
    "AnswerSet",
    "CallLog",
    "CallLogError",
    "Critique",
    "Execution",
    "Failure",
    "Level",
    "MemorySlot",
    "Outcome",
    "PlanRecord",
    "Proposal",
    "Round",
    "StepRecord",
    "Task",
    "Trace",
    "TraceWriter",
    "Transcript",
    "Usage",
    "Verdict",
    "call_key",
    "read_embeddings",
    "read_json",
    "read_outcomes",
    "read_traces",
    "to_json",
    "write_files",
    "write_json",
    "write_text",
]
