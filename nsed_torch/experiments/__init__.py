"""The verbs: compose, build, run, write."""
