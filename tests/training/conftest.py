"""A tiny random language model, and a family of tasks whose right answers can be told by one letter."""

import random
from types import SimpleNamespace

import pytest
import torch

from nsed_torch.agents import Agent, Ensemble, Prompts, RatingScale, Weights, add_adapter, load_backbone
from nsed_torch.benchmarks import RecordedAnswers
from nsed_torch.deliberation import VerdictRating
from nsed_torch.records import Task
from nsed_torch.training.judges import JudgeTrainer, give_adapters

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROMPT = (
    "{% block system %}s{% endblock %}{% block user %}{{ question }} {{ persona }}{% endblock %}"
    "{% block candidate %}{{ text }}{% endblock %}"
)
TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A random Llama of two layers with a token a byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def toy(model_folder, tmp_path):
    """`toy.trainer()` has the judges ann and bob on one engine; `toy.table()` the tasks they judge."""
    (tmp_path / "rate.jinja").write_text(PROMPT)

    def engine(quantization="none", **options):
        weights = Weights(name="tiny", path=str(model_folder))
        return load_backbone(weights, quantization=quantization, dtype="float32", device="cpu", **options)

    def trainer(quantization="none", bystander=False, **options):
        model = engine(quantization)
        if bystander:
            add_adapter(model, "bystander", targets=TARGETS)
        agents = [Agent(name, "tiny", persona=name) for name in ("ann", "bob")]
        ensemble = give_adapters(Ensemble({"tiny": model}, agents), targets=TARGETS, rank=4)
        rating = VerdictRating(listed=False, scale=RatingScale(("Y", "N"), (1.0, -1.0)))
        return JudgeTrainer(ensemble, rating=rating, prompts=Prompts(tmp_path), **options)

    def table(tasks=24, seed=0, count=3):
        """Answers are right that end in a question mark; the untrained model prefers the others."""
        draw = random.Random(seed)
        words = [["".join(draw.choices("abcdefgh", k=3)) for _ in range(count)] for _ in range(tasks)]
        right = torch.tensor([[j == draw.randrange(count) for j in range(count)] for _ in range(tasks)])
        right[:, 0] |= ~right.any(1)
        right[:, 1] &= ~right.all(1)
        texts = tuple(
            tuple(word + "!?"[r] for word, r in zip(row, rights, strict=True))
            for row, rights in zip(words, right.tolist(), strict=True)
        )
        return RecordedAnswers(
            tasks=tuple(Task(f"{i}?", f"{seed}-{i}", "?") for i in range(tasks)),
            agents=tuple(f"author_{j}" for j in range(count)),
            answers=texts,
            outputs=texts,
            correct=right,
            answered=torch.ones_like(right),
            characters=torch.full_like(right, 4, dtype=torch.long),
            parameters=torch.ones(count),
            price=torch.ones(count),
            digest="toy",
        )

    return SimpleNamespace(engine=engine, trainer=trainer, table=table)
