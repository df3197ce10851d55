"""Real weights deliberate: SmolLM2 in NF4, MiniLM as encoder, the same transcript for the same seed."""

import math

import pytest
import torch
from hydra import compose, initialize_config_dir

from nsed_torch.app.build import build_rnn
from nsed_torch.app.config.paths import conf_dir
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task, Transcript

TASK = Task("Which is larger, 17 or 71?")


@pytest.mark.weights
def test_real_models_deliberate(tmp_path):
    published = ["ensemble=demo", "rating=verdict", "rounds=2", "prompts.style=short", "seed=1"]
    short = [f"ensemble.agents.{name}.decoding.max_new_tokens=6" for name in ("solver", "skeptic")]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("deliberate", overrides=[*published, "~ensemble.agents.explainer", *short])
    log = CallLog(None)
    rnn = build_rnn(config, log)
    with torch.no_grad():
        (transcript,) = rnn([TASK]).transcripts
        texts = {TASK.question, *(proposal.text for record in transcript.rounds for proposal in record.proposals)}
        assert len(log) == 8 + len(texts)  # an embedding each
        # Again without what the log remembers: the models themselves repeat.
        rnn.cell.ensemble.call_log = CallLog(None)
        rnn.halting.rounds = 1
        assert rnn([TASK]).transcripts[0].rounds == transcript.rounds[:1]

    assert [agent.identity["quantization"] for agent in transcript.agents] == ["nf4"] * 2
    assert transcript.settings["encoder"]["name"] == "all-minilm-l6-v2"
    assert (transcript.stop_reason, len(transcript.rounds)) == ("rounds", 2)
    assert transcript.answer
    for record in transcript.rounds:
        assert all(0 < proposal.usage.completion_tokens <= 6 for proposal in record.proposals)
        for i, row in enumerate(record.ratings):
            assert row[i] is None
            assert all(-1 <= rating <= 1 for rating in row if rating is not None)
        for ballot in record.ballots:
            assert math.isclose(math.hypot(*ballot), 1, abs_tol=1e-6)
        assert math.isclose(sum(record.consensus), 1, abs_tol=1e-6)
        assert record.memory
        assert record.usage.seconds > 0
    # The second round reads the memory of the first as well.
    assert transcript.rounds[1].usage.prompt_tokens > transcript.rounds[0].usage.prompt_tokens
    transcript.save(tmp_path / "transcript.json")
    assert Transcript.load(tmp_path / "transcript.json") == transcript
