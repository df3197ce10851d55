"""What tests of the benchmark share: a tiny model in a folder, and its engine."""

import pytest
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of two layers that knows bytes."""
    tokenizer = tiny_tokenizer("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=8192)


@pytest.fixture
def engine(folder):
    return load_backbone(Weights("tiny", path=str(folder)), dtype="float32")
