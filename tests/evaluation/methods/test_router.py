"""One call of the agent that the question names."""

import pytest
import torch

from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.evaluation.methods.independent import Router, Single
from nsed_torch.parts.learned_broker import LearnedBroker
from nsed_torch.records.transcript import Task

ENCODER = HashedEncoder(8)


@pytest.fixture
def router(team, tmp_path):
    """Asks Oberon about towers, Quillfeather about sums; Zebulon and a stranger would be better than none."""
    names = ("stranger", *team.names)
    broker = LearnedBroker(names, rounds=1, roles=1, dim=8, encoder=ENCODER.identity())
    towers, sums = ENCODER.embed(["towers", "sums"]).double()
    with torch.no_grad():
        broker.bias[0, :, 0] = torch.tensor([9.0, 0.1, 0.0, 0.0])
        broker.weight[0, 3, 0, :8], broker.weight[0, 2, 0, :8] = towers, sums
    broker.save_pretrained(tmp_path / "router.safetensors")
    return str(tmp_path / "router.safetensors")


def test_it_asks_whom_the_question_names_once(team, router):
    panel, engine = team.build(encoder=ENCODER)
    tasks = [Task("towers", "a"), Task("sums", "b")]
    found = Router(router)(panel, tasks, [0, 10**6])
    assert [answer.note for answer in found] == ["by Oberon", "by Quillfeather"]
    assert [answer.usage.calls for answer in found] == [1, 1]
    assert len(engine.requests) == 2
    for answer, task, name in zip(found, tasks, ("Oberon", "Quillfeather"), strict=True):
        (single,) = Single(name)(panel, [task])
        assert (answer.text, answer.usage) == (single.text, single.usage)


def test_another_encoder_or_no_file_is_refused(team, router):
    panel, _ = team.build(encoder=HashedEncoder(16))
    with pytest.raises(ValueError, match="broker: expected the encoder"):
        Router(router)(panel, team.tasks)
    with pytest.raises(ValueError, match="router: expected the file that nsed fit-broker wrote, got none"):
        Router("")
