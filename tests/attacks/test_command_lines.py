"""Odd command lines end in exit code 0, or 2 and one line; never in a traceback."""

import itertools
import json
import logging
import random
from pathlib import Path

import pytest

from nsed_lab.studies.needle import write_candidates
from nsed_torch.app.cli import VERBS, main
from nsed_torch.app.config.overrides import setting_names
from nsed_torch.records.transcript import Task

VALUES = [
    *("two", "-1", "0", "null", "", "[]", "[a,b]", "{a: 1}", "1e400", "nan", "-inf", "true", "2.5", "9" * 25),
    *("où🦉", "${nowhere}", "${oc.env:SECRET}", "???", "${", "[1", "a,b", "'", "x" * 5000, r"\x00", "/proc/nope/x"),
]
OPTIONS = [
    "-m",
    "--cfg",
    "--cfg=job",
    "--resolve",
    "-cn=x",
    "-cd=x",
    "-cp=pkg://this",
    "--info=nope",
    "-z",
    "-sc",
    "--",
]
FORMS = ["{}={}", "+{}={}", "++{}={}", "~{}", "{}.typo={}", "+{}.typo={}", "@{}={}", "{}@x={}"]
LINES = [
    ("deliberate", "q?", "+ensemble.agents.sums.prompt_price=dear"),
    ("deliberate", "q?", "ensemble.agents.sums.decoding.max_new_tokens=2.5"),
    ("deliberate", "q?", "ensemble=demo", "ensemble.agents.solver.persona=[a,b]"),
    ("deliberate", "q?", "+ensemble.agents.sums.completion_price=-1"),
    ("deliberate", "q?", "broker=knapsack", "broker.min_judges=null"),
    ("deliberate", "-m", "hydra.sweeper=null", "q?"),
    ("deliberate", "hydra.verbose=5", "q?"),
    ("deliberate", "question=\udcff"),
    ("deliberate", "memory_tokens=-5", "q?"),
    ("deliberate", "output_dir=", "q?"),
    ("deliberate", "+protocol.typo=1", "q?"),
    ("evaluate", "dry_run=true", "tasks.size=two"),
    ("train-conductor", "dry_run=true", "expect.speeds.read=0"),
    ("tune", "data_dir=5"),
    ("specialize", "examples=2.5"),
    ("fetch", "offline=true", "+typo=1"),
]
ENGINE = "ensemble.engines.smollm2.device={}"
LOADING = [
    ("deliberate", "q?", ENGINE),
    ("deliberate", "q?", "encoder.device={}"),
    ("conduct", "q?", ENGINE),
    ("evaluate", ENGINE),
    ("collect", "questions=questions.jsonl", ENGINE),
    ("train-conductor", "dry_run=false", ENGINE),
    ("specialize", "specialist=none", "name=mine", "questions=questions.jsonl", "backbone.device={}"),
    ("train-judges", "ensemble=demo", "data_dir=data", "lora.validation_tasks=2", "lora.test_tasks=3", ENGINE),
]


def lines(count, seed):
    """Every verb's settings with odd values, in odd forms, with odd options."""
    draw = random.Random(seed)
    names = {verb: [*setting_names(verb.replace("-", "_")), "hydra.callbacks"] for verb in VERBS}
    for verb in itertools.islice(itertools.cycle(VERBS), count):
        form = draw.choice(FORMS[:3] * 3 + FORMS)
        yield (
            verb,
            form.format(draw.choice(names[verb]), draw.choice(VALUES)),
            *(draw.sample(OPTIONS, 1) if draw.random() < 0.15 else []),
        )


@pytest.fixture
def one_line(tmp_path, monkeypatch, capfd):
    """Run a command line where no model is at hand; it must end in code 0, or in 2 with one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def absent(*_arguments, **_named):
        raise ValueError("no weights here")

    monkeypatch.setattr("nsed_torch.app.build.resolve", absent)
    monkeypatch.setattr("nsed_torch.engines.backbones.resolve", absent)

    def run(line):
        # What needs no model would start to work.
        dry = {"evaluate": ["tasks=reasoning_gym", "limit=1"], "train-conductor": ["tasks=experts_tuning"]}
        small = [*dry[line[0]], "dry_run=true"] if line[0] in dry else []
        arguments = [line[0], *small, *line[1:]]
        try:
            code = main(arguments)
        except Exception as error:
            raise AssertionError(f"{arguments} ended in a traceback") from error
        err = capfd.readouterr().err
        assert code in {0, 2}, arguments
        assert err.count("\n") == (code == 2), (arguments, err)
        return err

    return run


@pytest.mark.parametrize("line", LINES, ids=str)
def test_what_users_mistook_is_one_line(one_line, line):
    assert one_line(line).startswith(f"nsed {line[0]}: ")


@pytest.mark.parametrize(
    ("line", "device"), [(LOADING[0], "banana"), *((line, "cuda:99") for line in LOADING)], ids=str
)
def test_a_device_that_is_not_there_is_one_line_before_any_weights(one_line, line, device):
    tasks = [Task(f"{i} + {i} = ?", f"t{i}", str(2 * i)) for i in range(16)]
    write_candidates(Path("data"), tasks, count=2)
    asked = [{"id": task.id, "question": task.question, "target": task.target} for task in tasks]
    Path("questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    err = one_line([word.format(device) for word in line])
    assert "expected a device out of cpu" in err
    assert err.endswith(f"got '{device}': take another, or null\n")


def test_odd_lines_are_one_line(one_line):
    for line in lines(len(VERBS), seed=0):
        one_line(line)


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(21))
def test_many_odd_lines_are_one_line(one_line, seed):
    for line in lines(26, seed):
        one_line(line)


def test_a_hint_is_another_word_that_the_verb_has(one_line):
    assert one_line(("deliberate", "q?", "ensmble=demo")).partition("; did you mean ")[2].startswith("'ensemble'?")
    assert "did you mean" not in one_line(("tune", "ensemble=demo"))
