"""What runs language models, behind `core.engine.Engine`: in this process, on Ray, or behind an endpoint."""
