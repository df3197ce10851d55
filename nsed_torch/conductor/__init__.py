"""The Conductor: workflows that a language model writes, how they are read, and what runs them."""
