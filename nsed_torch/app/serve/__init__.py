"""A team behind an HTTP server that speaks as language models' servers do."""
