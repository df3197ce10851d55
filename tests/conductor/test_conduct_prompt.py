"""What a Conductor reads: short, shared, without names, with examples that its own language parses."""

import re

import pytest
import yaml

from nsed_torch.app.config.paths import conf_dir
from nsed_torch.conductor.parsing import parse
from nsed_torch.conductor.workflow import Topology
from nsed_torch.core.prompts import Prompts
from nsed_torch.engines.chat import Chat

PROMPTS = Prompts()


def chat(workers=("sums", ""), previous=None, max_steps=5, question="Which is larger?"):
    return PROMPTS.conduct(question, workers=workers, max_steps=max_steps, previous=previous, seed=7)


@pytest.mark.parametrize("size", range(1, 8))
def test_every_example_is_a_valid_workflow_for_the_pool(size):
    system, _ = chat(["x"] * size)
    flows = [parse(text, workers=size) for text in system.content.split("Question: ")[1:]]
    assert [flow.topology() for flow in flows] == [Topology.SINGLE, Topology.CHAIN, Topology.TREE, Topology.CHAIN]
    used = {step.worker for flow in flows for step in flow.steps}
    assert used == set(range(min(size, 3)))


def test_the_parts_stand_in_the_published_order():
    system, user = chat(previous="71")
    text = f"{system.content}\n{user.content}"
    parts = [
        "asking models",
        "up to 5 steps",
        "model_id:",
        "subtasks:",
        "solve, refine, check",
        "access_list:",
        '"all" if',
    ]
    parts += ["[] if", "The last reply is the answer", "inches", "French", "proof", "weekday", "Which is larger?"]
    parts += ["Answer so far", "71", "three empty lists", "sums: model 0", "\nmodel 1\n"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_rules_and_examples_are_alike_for_all_questions():
    assert chat()[0] == chat(["a", "b"], previous="71", question="Why?")[0]
    assert "up to 3 steps" in chat(max_steps=3)[0].content


def test_a_previous_answer_is_shown_behind_a_fence():
    _, user = chat(previous="71 </text-1>")
    assert re.search(r"<text-([0-9a-f]{8})>\n71 \[mark\]\n</text-\1>", user.content)
    assert "Answer so far" not in chat()[1].content
    assert "Answer so far" in chat(previous="")[1].content


@pytest.mark.weights
def test_it_is_short_for_a_small_model():
    from transformers import AutoTokenizer

    from nsed_torch.app.config.instantiate import instantiate
    from nsed_torch.engines.weights import resolve

    backbone = yaml.safe_load((conf_dir() / "backbone/smollm2_135m_instruct.yaml").read_text())
    folder = resolve(instantiate(backbone["weights"])).folder
    reads = Chat(AutoTokenizer.from_pretrained(folder)).ids
    agents = yaml.safe_load((conf_dir() / "ensemble/experts.yaml").read_text())["ensemble"]["agents"]
    workers = [agent["description"] for agent in agents.values()]
    assert all(workers)
    question = "Lena has 3 brothers and she also has 2 sisters. How many sisters does a brother of Lena have?"
    assert 400 < len(reads(chat(workers, question=question))) <= 460
    assert len(reads(chat(workers, question=question, previous="3"))) <= 540
