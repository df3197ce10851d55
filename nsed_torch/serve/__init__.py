"""Teams behind an OpenAI-compatible endpoint: each is a model, its rounds the reasoning, its consensus the text."""
