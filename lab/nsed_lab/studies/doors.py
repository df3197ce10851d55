"""`python -m nsed_lab.studies.doors FOLDER QUESTIONS [setting=value ...]`: the same questions through five doors.

`nsed evaluate`, lm-eval's model `nsed`, lm-eval's chat completions against `nsed serve`, inspect_ai's model `nsed`, and
inspect_ai's openai-api against the server. QUESTIONS is JSON Lines {question}, and what is right is not asked; settings
are those of `nsed deliberate`, of agents at temperature 0. Needs nsed_torch[serve,endpoint,lm-eval,inspect] and
lm_eval[api]. FOLDER gets `answers.json`, the answers by door; the last line says how many questions are answered alike
by all.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai.dataset import json_dataset
from inspect_ai.model import get_model
from lm_eval import simple_evaluate
from lm_eval.models.openai_completions import LocalChatCompletion
from lm_eval.tasks import TaskManager

from nsed_torch.app.cli import main
from nsed_torch.app.integrations.lm_eval import HarnessModel
from nsed_torch.records.trace import read_traces

TASK = """\
task: doors
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{gold}}}}"
generation_kwargs: {{until: [], do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""

Answers = dict[str, str]
"""By the question's id."""


def native(folder: Path, file: Path, settings: Mapping[str, str]) -> Answers:
    """By `nsed evaluate`; equal texts alone are one answer, as for who knows no grader."""
    words = [f"{name}={value}" for name, value in settings.items()]
    words += ["tasks=file", f"tasks.questions={file}", "methods=[deliberation]", "protocol.pooled=false"]
    if code := main(["evaluate", *words, f"output_dir={folder / 'native'}"]):
        raise SystemExit(code)
    return {trace.transcript.task.id: trace.transcript.answer for trace in read_traces(folder / "native")}


def harness(folder: Path, file: Path, model: Any, **how: Any) -> Answers:
    """By lm-eval."""
    (folder / "doors.yaml").write_text(TASK.format(file=file))
    tasks = TaskManager(include_path=str(folder), include_defaults=False)
    found = simple_evaluate(
        model, tasks=["doors"], task_manager=tasks, log_samples=True, bootstrap_iters=0, cache_requests=False, **how
    )
    return {sample["doc"]["id"]: sample["resps"][0][0] for sample in found["samples"]["doors"]}


def inspected(folder: Path, file: Path, model: Any) -> Answers:
    """By inspect_ai."""

    def sample(record: Mapping[str, str]) -> Any:
        return inspect_ai.dataset.Sample(id=record["id"], input=record["question"], target=record["gold"])

    task = inspect_ai.Task(json_dataset(str(file), sample))
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(folder / "logs"), display="none", max_connections=64)
    if log.status != "success":
        raise SystemExit(f"inspect_ai: {log.error}")
    return {str(one.id): one.output.completion for one in log.samples}


@contextlib.contextmanager
def served(settings: Mapping[str, str]) -> Iterator[str]:
    """`nsed serve` in a process of its own, with the team as nsed/doors; gives its address."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    team = json.dumps(dict(settings)).replace('"', "")
    words = [sys.executable, "-m", "nsed_torch", "serve", "~models.experts", "~models.demo", f"port={port}"]
    with subprocess.Popen([*words, f"+models.doors={team}"]) as server:  # noqa: S603 - this very program
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                    break
                if server.poll() is not None:
                    raise SystemExit("the server did not start")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def through_all(
    folder: Path, questions: Sequence[Mapping[str, str]], settings: Mapping[str, str]
) -> dict[str, Answers]:
    """Every door's answers."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "questions.jsonl"
    # Named by their texts, as a question is that comes without an id: names are in the seeds.
    texts = [one["question"] for one in questions]
    records = [{"id": sha256(text.encode()).hexdigest()[:16], "question": text, "gold": "-"} for text in texts]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.environ.setdefault("OPENAI_API_KEY", "none")
    doors: dict[str, Callable[[], Answers]] = {
        "nsed evaluate": lambda: native(folder, file, settings),
        "lm-eval, model nsed": lambda: harness(folder, file, HarnessModel(**settings)),
        "inspect_ai, model nsed": lambda: inspected(
            folder,
            file,
            get_model(f"nsed/{settings['ensemble']}", **{k: v for k, v in settings.items() if k != "ensemble"}),
        ),
    }
    found = {name: door() for name, door in doors.items()}
    with served(settings) as url:
        there = LocalChatCompletion(base_url=f"{url}/chat/completions", model="nsed/doors", num_concurrent=16)
        found["lm-eval, chat completions"] = harness(folder, file, there, apply_chat_template=True)
        model = get_model("openai-api/doors/nsed/doors", base_url=url, api_key="none")
        found["inspect_ai, openai-api"] = inspected(folder, file, model)
    return found


if __name__ == "__main__":
    where, given_file, *given_words = sys.argv[1:]
    lines = [json.loads(line) for line in Path(given_file).read_text("utf-8").splitlines() if line.strip()]
    said = through_all(Path(where), lines, dict(word.split("=", 1) for word in given_words))
    (Path(where) / "answers.json").write_text(json.dumps(said, indent=1) + "\n")
    first, *others = said.values()
    for door, answers in said.items():
        same = sum(answers.get(name) == text for name, text in first.items())
        print(f"{door}: {len(answers)} answers, {same} as the first door's")
    alike = sum(all(other.get(name) == text for other in others) for name, text in first.items())
    print(f"{alike} of {len(first)} questions answered alike through {len(said)} doors")
