"""What happened, on disk: tasks, transcripts, executions, traces, outcomes, the call log, atomic writes."""

from nsed_torch.records.call_log import CallLog
from nsed_torch.records.execution import Execution
from nsed_torch.records.files import read_json, write_files, write_json
from nsed_torch.records.outcome import Outcome, Verdict, read_outcomes
from nsed_torch.records.trace import Trace, TraceWriter, read_traces
from nsed_torch.records.transcript import ROLES, Proposal, Round, Task, Transcript, Usage

__all__ = [
    "ROLES",
    "CallLog",
    "Execution",
    "Outcome",
    "Proposal",
    "Round",
    "Task",
    "Trace",
    "TraceWriter",
    "Transcript",
    "Usage",
    "Verdict",
    "read_json",
    "read_outcomes",
    "read_traces",
    "write_files",
    "write_json",
]
