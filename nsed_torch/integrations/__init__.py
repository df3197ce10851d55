"""A team inside the tools that researchers have: lm-eval, inspect_ai, TRL. Import the module of the tool."""
