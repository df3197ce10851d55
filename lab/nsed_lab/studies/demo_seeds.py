"""How often the acts of `nsed demo` are right: python -m nsed_lab.studies.demo_seeds [ACT ...] [seeds=50] [calls=FILE].

Every seed is a copy of the question under an id, and so with draws, of its own; all go through the models together.
"""

import sys

import torch
from omegaconf import OmegaConf

from nsed_torch.app.build import build_rnn, pool_answers
from nsed_torch.app.config.paths import conf_file
from nsed_torch.app.door import composed
from nsed_torch.evaluation.acts import Act, demo_tasks
from nsed_torch.records.call_log import CallLog


def main(words: list[str]) -> None:
    """Play the acts that are named, or all, and print how many of the seeds are right."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    acts = OmegaConf.to_container(OmegaConf.load(conf_file("demo")).acts)
    for name in [word for word in words if "=" not in word] or acts:
        graded = demo_tasks()[name].repeated(int(options.get("seeds", 50)))
        config = composed(dict(setting.split("=", 1) for setting in acts[name]))
        with CallLog(options.get("calls")) as log, torch.no_grad():
            rnn = build_rnn(config, log)
            pool_answers(rnn, graded, config)
            played = [Act(name, trace, {}) for trace in graded.traces(rnn(graded.tasks).transcripts)]
        print(name, f"right in {sum(act.right for act in played)} of {len(played)}", flush=True)
        for act in played:
            if not act.right:
                print(" ", act.transcript.task.id, act.lesson)


if __name__ == "__main__":
    main(sys.argv[1:])
