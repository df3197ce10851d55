"""Random language models and encoders of a few kilobytes, to be saved and loaded like real ones."""

import torch

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer(template=CHAT, *, special=(), words=None, merges=(), **roles):
    """One token a byte, or the words given, and control tokens; <|im_end|> ends a text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = words or sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=list(merges)))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", **roles)
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(vocab_size, family="llama", *, attention=None, **options):
    """A random model of two layers, the same each time; options are those of its family's config."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": None,
    }
    config = AutoConfig.for_model(family, vocab_size=vocab_size, **{**shape, **options})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def save_tiny(folder, tokenizer, **options):
    """Save a tiny model that ends where its tokenizer does, and the tokenizer."""
    tiny_model(len(tokenizer), eos_token_id=tokenizer.eos_token_id, **options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_encoder(parent):
    """Save a sentence-transformers folder below one: two layers of BERT, mean pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    words += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    (parent / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(vocab=str(parent / "vocab.txt"), model_max_length=64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertModel(
            BertConfig(
                vocab_size=len(words),
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=64,
                initializer_range=0.5,
            )
        )
    model.save_pretrained(parent / "bert")
    tokenizer.save_pretrained(parent / "bert")
    transformer = Transformer(str(parent / "bert"), max_seq_length=64)
    SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu").save(str(parent / "model"))
    return parent / "model"
