"""Where YAML meets Python: what a config may hold and build, and how text gets through Hydra."""
