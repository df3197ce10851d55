"""From models that are in memory to a deliberation, in three lines."""

import pytest
import torch
from tiny_models import tiny_model, tiny_tokenizer

from nsed_torch import MacroRNN, Task
from nsed_torch.core.engine import Decoding
from nsed_torch.core.halting import FixedHalting
from nsed_torch.parts.rating_modes import LikelihoodRating

TASK = Task("Which is larger, 17 or 71?")
SHORT = {"decoding": Decoding(4, 0.7), "halting": FixedHalting(2), "rating": LikelihoodRating()}


@pytest.fixture(scope="module")
def llama():
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    return tiny_model(len(tokenizer), eos_token_id=tokenizer.eos_token_id), tokenizer


@pytest.fixture(scope="module")
def qwen():
    """Another family, a base model: its tokenizer has no chat template."""
    tokenizer = tiny_tokenizer(None, special=("<|im_end|>",))
    return tiny_model(len(tokenizer), "qwen3", head_dim=8, eos_token_id=tokenizer.eos_token_id), tokenizer


def test_three_lines_lead_from_models_to_a_deliberation(llama, qwen):
    team = MacroRNN.from_models({"ant": llama, "bee": qwen, "cow": llama}, **SHORT)
    (transcript,) = team([TASK]).transcripts
    assert [len(record.proposals) for record in transcript.rounds] == [3, 3]
    assert {len(row) for record in transcript.rounds for row in record.ratings} == {3}
    assert all(agent.identity["revision"].startswith("in memory, ") for agent in transcript.agents)
    assert transcript == MacroRNN.from_models({"ant": llama, "bee": qwen, "cow": llama}, **SHORT)([TASK]).transcripts[0]
    assert transcript._repr_html_().startswith("<iframe sandbox ")


def test_a_model_that_several_share_is_held_once_and_left_as_it_was(llama):
    model = llama[0]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    team = MacroRNN.from_models({"ant": llama, "bee": llama}, **SHORT)
    assert len(team.cell.ensemble.engines) == 1
    team([TASK])
    assert all(weight.requires_grad for weight in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft asks for it
def test_adapters_that_would_be_passed_over_are_refused(llama):
    from peft import LoraConfig, get_peft_model

    tokenizer = llama[1]
    adapted = get_peft_model(tiny_model(len(tokenizer)), LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ValueError, match=r"expected a model without adapters, got PeftModel with some: call merge_and"):
        MacroRNN.from_models({"ant": (adapted, tokenizer), "bee": llama}, **SHORT)
