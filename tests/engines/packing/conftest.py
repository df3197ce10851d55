"""Tiny random models that never touch a disk."""

import pytest
from tiny_models import tiny_model


@pytest.fixture(scope="session")
def grow():
    """Builds a random model of a family, large enough in its weights to tell one token's logits from another's."""

    def build(family="llama", attention="eager", **options):
        shape = {"intermediate_size": 48, "max_position_embeddings": 128, "initializer_range": 0.3}
        shape |= {"bos_token_id": 1, "eos_token_id": 2, **options}
        return tiny_model(shape.pop("vocab_size", 60), family, attention=attention, **shape).float().eval()

    return build
