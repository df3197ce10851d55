"""A random Llama of a few kilobytes, as transformers and as a GGUF."""

import gguf
from tiny_models import tiny_model

WIDTH, HEADS, LAYERS, WORDS = 64, 2, 2, ["<s>", "</s>", "a", "b", "ab", "Ġ", "1", "7"]


def tiny_llama(**options):
    """A random Llama of two layers."""
    shape = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS}
    shape |= {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "max_position_embeddings": 128}
    return tiny_model(len(WORDS), bos_token_id=0, eos_token_id=1, **shape, **options).eval()


def gguf_names(layers):
    """GGUF's name of each parameter of a Llama."""
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for i in range(layers):
        names |= {f"model.layers.{i}.{ours}.weight": f"blk.{i}.{theirs}.weight" for ours, theirs in parts.items()}
    return names


def to_rotary_pairs(weight):
    """GGUF interleaves the two halves of each head's rotary dimensions."""
    return weight.reshape(HEADS, 2, WIDTH // HEADS // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(file, model, kind=gguf.GGMLQuantizationType.Q8_0):
    """Write a Llama's matrices in blocks of a kind; return what these stand for, by the name transformers uses."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, *[1] * (len(WORDS) - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    meant = {}
    for ours, theirs in gguf_names(LAYERS).items():
        weight = model.state_dict()[ours].numpy()
        if weight.ndim == 1:
            writer.add_tensor(theirs, weight)
            meant[ours] = weight
            continue
        rotary = "q_proj" in ours or "k_proj" in ours
        writer.add_tensor(theirs, gguf.quantize(to_rotary_pairs(weight) if rotary else weight, kind), raw_dtype=kind)
        meant[ours] = gguf.dequantize(gguf.quantize(weight, kind), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant
