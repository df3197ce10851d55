"""A broker, a halting rule and a rating of the user's own, named in YAML, deliberate and are swept as ours are."""

import sys

import pytest
import torch
from hydra import compose, initialize_config_dir

from nsed_torch.app.build import build_rnn
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task

PARTS = """
from nsed_torch.core.ratings import JudgeReply
from nsed_torch.core.team import Team

class Broker:
    def __init__(self, most: int = 3):
        self.most = most
    def team(self, task, rounds):
        return Team((0, 1), (0, 1)) if len(rounds) < self.most else None

class Halting:
    def reasons(self, convictions):
        return [""] * len(convictions)

class Rating:
    def rate(self, ensemble, prompts, questions, progress=None):
        return [JudgeReply((0.5,) * len(question.candidates)) for question in questions]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_rounds", raising=False)
    monkeypatch.setenv("NSED_TARGETS", "own_rounds.Broker,own_rounds.Halting,own_rounds.Rating")
    (tmp_path / "own_rounds.py").write_text(PARTS)
    for group, more in (("broker", "most: 3\n"), ("halting", ""), ("rating", "")):
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text(f"_target_: own_rounds.{group.title()}\n{more}")
    return tmp_path


@pytest.mark.parametrize(("rounds", "most", "held"), [(2, 3, 2), (5, 3, 3), (5, 4, 4)])
def test_they_deliberate_and_are_swept(nsed, own, rounds, most, held):
    mine = [f"hydra.searchpath=[file://{own}]", *(f"{group}=mine" for group in ("broker", "halting", "rating"))]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("deliberate", overrides=[*nsed.tiny, *mine, f"rounds={rounds}", f"broker.most={most}"])
    with CallLog(None) as log, torch.no_grad():
        (transcript,) = build_rnn(cfg, log)([Task("Why?")]).transcripts
    assert (len(transcript.rounds), transcript.stop_reason) == (held, "rounds" if held == rounds else "broker")
    assert (
        transcript.settings.items() >= {"broker": "Broker", "halting": "Halting", "rating": {"mode": "Rating"}}.items()
    )
    assert all(len(record.proposers) == 2 for record in transcript.rounds)
