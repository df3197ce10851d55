"""What happened, on disk: tasks, transcripts, executions, traces, outcomes, the call log, atomic writes."""
