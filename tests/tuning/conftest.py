"""A tiny random language model, and a family of tasks whose right answers can be told by one letter."""

import random
from types import SimpleNamespace

import pytest
import torch
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.engine import RatingScale
from nsed_torch.core.prompts import Prompts
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.engines.adapters import add_adapter
from nsed_torch.engines.backbones import load_backbone
from nsed_torch.engines.weights import Weights
from nsed_torch.records.transcript import Task
from nsed_torch.traces.recorded import RecordedAnswers
from nsed_torch.tuning.judge_training import JudgeTrainer, give_adapters

PROMPT = (
    "{% block system %}s{% endblock %}{% block user %}{{ question }} {{ persona }}{% endblock %}"
    "{% block candidate %}{{ text }}{% endblock %}"
)
TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A random Llama of two layers with a token a byte."""
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    shape = {"hidden_size": 64, "max_position_embeddings": 512, "initializer_range": 0.2}
    return save_tiny(tmp_path_factory.mktemp("model"), tokenizer, **shape)


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
            parameters=torch.ones(count),
            digest="toy",
        )

    return SimpleNamespace(engine=engine, trainer=trainer, table=table)
