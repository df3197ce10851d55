"""Tiny models, as folders and as a GGUF."""

import gguf
import pytest
from tiny_gguf import tiny_llama, write_gguf
from tiny_models import save_tiny, tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory):
    """A random Llama of two layers as llama.cpp reads it."""
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(file, tiny_llama(initializer_range=0.3), gguf.GGMLQuantizationType.F32)
    return file


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A folder with a random Llama of two layers that knows bytes."""
    tokenizer = tiny_tokenizer("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    return save_tiny(tmp_path_factory.mktemp("tiny"), tokenizer, max_position_embeddings=8192)
