"""Parts to plug into the recurrence beside the published ones of `core`: brokers, and what is known of agents."""
