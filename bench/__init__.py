"""How fast nsed_torch is on this machine, each line against another way of doing the same work: `python -m bench`."""
