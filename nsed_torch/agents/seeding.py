"""One seed a call, from what the call is for and nothing else."""

import hashlib


def call_seed(*parts: int | str) -> int:
    """A 63-bit seed from, in this order, run seed, task id, round, agent, phase and whatever else names the call."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
