"""A Conductor learns: from workflows that are known, then by reinforcement on what its own come to."""
