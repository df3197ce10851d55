"""Gradients of a later answer through two rounds and the models between them, against finite differences."""

import warnings

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import tiny_model, tiny_tokenizer

from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.protocol import Protocol
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.trust import Calibration
from nsed_torch.engines.transformers_engine import TransformersEngine
from nsed_torch.records.transcript import Task
from nsed_torch.tuning.through_models import answer_log_likelihood

SAID = {"ada": "It is red.", "bo": "It is blue.", "cy": "Who knows?"}
TASK = Task("Which colour?", target="red")


@pytest.fixture(scope="module")
def team():
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer(special=("<|im_start|>", "<|im_end|>"))
    shape = {"max_position_embeddings": 4096, "initializer_range": 0.3, "eos_token_id": tokenizer.eos_token_id}
    # Its norms compute in float64, those of others in float32.
    model = tiny_model(len(tokenizer), "starcoder2", sliding_window=None, **shape).double()
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():  # peft asks transformers for a property that has a new name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        model = get_peft_model(model, config, adapter_name="judge").double()
    engine = TransformersEngine(model, tokenizer, identity={"name": "tiny"}, adapters={"judge": "0"})
    agents = [Agent(name, "tiny", judge_adapter="judge") for name in SAID]
    consensus = ConsensusCell(16, 3, calibration=Calibration(3)).double()
    return MacroRNNCell(Ensemble({"tiny": engine}, agents), HashedEncoder(16), consensus)


@pytest.mark.parametrize("memory", ["weighted", "beside"])
def test_gradients_of_an_answer_reach_vote_trust_verdicts_and_a_judges_adapter(team, memory):
    cell = team.with_(protocol=Protocol(memory=memory))
    model = cell.ensemble.engines["tiny"].model
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    answer_log_likelihood(cell, TASK, SAID).backward()
    adapter = [p for p in model.parameters() if p.requires_grad]
    reached = [cell.consensus.log_beta, cell.consensus.trust.bias, *cell.consensus.calibration.parameters(), *adapter]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in reached)
    for group in ([cell.consensus.log_beta], [cell.consensus.trust.bias], adapter):
        assert max(p.grad.abs().max() for p in group) > 0
    draw = torch.Generator().manual_seed(1)
    for parameter in (*reached[:3], adapter[0], adapter[-1]):
        direction = torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
        wanted = float((parameter.grad * direction).sum())
        values, step = [], 1e-5
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * step * direction)
            values.append(answer_log_likelihood(cell, TASK, SAID).item())
            with torch.no_grad():
                parameter.sub_(sign * step * direction)
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(wanted, rel=1e-3, abs=1e-8)
    for parameter in reached:
        parameter.grad = None


def test_what_cannot_be_asked_is_one_line(team):
    for task, said in ((Task("?"), SAID), (TASK, {"ada": "red"}), (TASK, {"ada": "red", "eve": "blue"})):
        with pytest.raises(
            ValueError, match="expected a task with a target and proposals of two or more of ada, bo, cy"
        ):
            answer_log_likelihood(team, task, said)
