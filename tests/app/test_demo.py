"""`nsed demo`: what it asks ships with the library, and what it comes to is said in plain words."""

import pytest
from omegaconf import OmegaConf

from nsed_torch.app.config import hydra_node
from nsed_torch.app.config.paths import conf_file
from nsed_torch.app.door import composed
from nsed_torch.evaluation.acts import demo_tasks
from nsed_torch.records.transcript import Transcript

ACTS = OmegaConf.to_container(OmegaConf.load(conf_file("demo")).acts)


@pytest.mark.parametrize("name", ACTS)
def test_an_act_needs_no_laboratory(name, monkeypatch):
    monkeypatch.setattr(hydra_node, "added_dirs", lambda: ())
    config = composed(dict(setting.split("=", 1) for setting in ACTS[name]))
    assert "nsed_lab" not in OmegaConf.to_yaml(config)
    (task,) = demo_tasks()[name].tasks
    read = {who for piece in task.inputs for who in piece}
    assert read <= set(config.ensemble.agents)
    assert bool(task.goal) == (config.protocol.unit == "step")


def test_a_lost_act_is_told_in_a_sentence_and_the_page_is_written(nsed, tiny_model):
    tiny = [
        "ensemble=demo",
        "encoder=hashed",
        "rounds=1",
        "ensemble.engines.smollm2.quantization=none",
        f"ensemble.engines.smollm2.weights.path={tiny_model}",
    ]
    vote = "acts.vote=[{}]".format(",".join(f'"{setting}"' for setting in tiny))
    out = nsed.ok("demo", "~acts.profile", "~acts.tower", vote, "output_dir=played")
    assert "This time the team lost: it came to " in out
    assert "lost: act 1" in out
    transcript = Transcript.load(nsed.folder / "played/vote.transcript.json")
    assert transcript.task == demo_tasks()["vote"].tasks[0]
    page = nsed.folder / "played/report.html"
    text = page.read_text("utf-8")
    assert "This time the team lost" in text
    page.unlink()
    nsed.ok("report", "run=played")
    assert page.read_text("utf-8") == text
    (nsed.folder / "played/alone.json").write_text('{"none": {}}')
    assert "expected acts out of vote, profile, tower" in nsed.fault("report", "run=played")
