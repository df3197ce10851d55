"""What a training would take, counted by hand."""

from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.conductor.reinforcement import TrainingQuestion, training_cost
from nsed_torch.core.agent import Agent
from nsed_torch.core.engine import Decoding, Message
from nsed_torch.records.transcript import Task

DEFAULTS = OmegaConf.load(conf_dir() / "grpo" / "small.yaml")
SETTINGS = instantiate(DEFAULTS, steps=2, questions=2, rollouts=4, chunk=4)
ASKED = [TrainingQuestion(Task("q" * 40), ("a",), (Message("system", "s" * 300), Message("user", "u" * 100)))] * 4
WORKERS = [Agent("a", "one", decoding=Decoding(20), prompt_price=1e6), Agent("b", "one", decoding=Decoding(20))]
SPEEDS = {"read": 10, "written": 1, "learned": 2}


def cost(settings=SETTINGS):
    return training_cost(ASKED, WORKERS, settings, text_tokens=50, steps=3, speeds=SPEEDS)


def test_by_hand():
    found = cost()
    assert found["policy writes"].tokens == 4 * 100 + 16 * 50
    assert found["policy writes"].hours == pytest.approx((400 / 10 + 800) / 3600)
    assert found["policy learns"].tokens == 4 * 2 * 100 + 16 * 50  # four chunks, two prompts in each
    heard = 48 * (10 + 20 * (3 - 1) / 4)
    assert found["workers"].tokens == heard + 48 * 20
    assert found["workers"].price == pytest.approx(heard / 2)
    assert found["all"].tokens == sum(found[name].tokens for name in found if name != "all")


def test_texts_that_are_not_packed_read_their_prompt_each():
    plain = cost(replace(SETTINGS, packed=False))
    assert plain["policy writes"].tokens == plain["policy learns"].tokens == 16 * 150
    assert plain["workers"] == cost()["workers"]
