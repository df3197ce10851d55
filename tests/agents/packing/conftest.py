"""Tiny random models that never touch a disk."""

import pytest
import torch


@pytest.fixture(scope="session")
def grow():
    """Builds a random model of a family, large enough in its weights to tell one token's logits from another's."""

    def build(family="llama", attention="eager", **options):
        from transformers import AutoConfig, AutoModelForCausalLM

        shape = {
            "vocab_size": 60,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.3,
            "pad_token_id": None,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }
        config = AutoConfig.for_model(family, **{**shape, **options})
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()

    return build
