"""What fixed runs begin with: a scripted team behind an endpoint, questions, recorded answers, a tiny model."""

import contextlib
import json
import math
import random
import re
import threading

from endpoint_server import Server, completion
from local_server import serving
from tiny_models import save_tiny, tiny_tokenizer

from nsed_torch.app.cli import main

TEAM = {"solver": 0.8, "skeptic": 0.55, "explainer": 0.35}
"""The scripted agents, and how often each is right."""

ANSWERERS = {"ant": (0.45, 1), "bee": (0.5, 2), "cat": (0.8, 9), "dog": (0.55, 3), "eel": (0.4, 1)}
"""Recorded agents: how often each is right, and its billions of parameters."""

PUBLISHED = "rating=verdict", "prompts.style=short"  # unlike the verb's own, which are those of the shipped experts

NUMBER = re.compile(r"How much is (\d+) times")


# What every run needs: the command line, files, numbers.


def nsed(folder, *words):
    """Run a verb in this process and this folder."""
    with contextlib.chdir(folder):
        assert main([str(word) for word in words]) == 0, words


def read(path):
    """A JSON file."""
    return json.loads(path.read_text())


def read_lines(path):
    """A file of a JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path, rows):
    """The same, written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rounded(value, digits=8):
    """All floats of a tree to so many significant digits."""
    if isinstance(value, dict):
        return {key: rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def interval(entry):
    """A mean with its interval and count."""
    return [entry[key] for key in ("mean", "low", "high", "n")]


def spent(usage):
    """What calls cost, save for their time."""
    return [usage[key] for key in ("calls", "prompt_tokens", "completion_tokens", "price")]


# Scripts in place of models, behind a local endpoint that speaks the public protocol.


@contextlib.contextmanager
def team(price=True):
    """The words that put the scripted agents in the place of the demo's."""
    with serving(Server) as server:
        server.script, server.bodies, server.heads, server.lock = speak, [], [], threading.Lock()
        server.flying = server.most = 0
        engine = "ensemble.engines.smollm2"
        yield [
            *("ensemble=demo", "backbone@ensemble.engines.smollm2=endpoint", f"{engine}.model=m"),
            *(f"{engine}.max_batch=4", f"{engine}.url=http://127.0.0.1:{server.server_port}/v1"),
            *(f"+ensemble.agents.{name}.adapter={name}" for name in TEAM),
            *(f"+ensemble.agents.{name}.prompt_price={i}" for i, name in enumerate(TEAM, start=1) if price),
        ]


def speak(body):
    """What the scripts say to a request: who is asked is the model's name, words are tokens."""
    who, last = body["model"], body["messages"][-1]["content"]
    asked = "\n".join(message["content"] for message in body["messages"])
    number = int(NUMBER.search(asked)[1])
    if body.get("logprobs"):
        yes = believes(who, number, int(re.findall(r"Answer: (\d+)", last)[-1]))
        return completion("Yes", usage=(len(asked.split()), 1), top={"Yes": yes, "No": 1 - yes})
    text = workflow(number, last) if who == "conductor" else answer(who, number, body)
    return completion(text, usage=(len(asked.split()), len(text.split())))


def believes(who, number, said):
    """A judge's probability that an answer is right: the solver can tell, the others cannot."""
    draw = random.Random(f"{who} {number} {said}")
    likes = said == 7 * number if who == "solver" else draw.random() < 0.5
    return draw.uniform(0.55, 0.95) if likes else draw.uniform(0.05, 0.45)


def answer(who, number, body):
    """An answer of any length with more or less luck; where 40 tokens are allowed, a critique with a score."""
    draw = random.Random(f"{who} {number} {body['seed']}")
    if body["max_tokens"] == 40:
        return f"Hm.\nScore: {draw.randint(-100, 100)}"
    said = 7 * number + (0 if draw.random() < TEAM[who] else draw.randint(1, 2))
    return " ".join(["so"] * draw.randint(1, 30)) + f"\nAnswer: {said}"


def workflow(number, last):
    """A workflow by the question's number: sound, to be mended, or none; odd numbers accept an earlier answer."""
    if "Answer so far" in last and number % 2:
        return "model_id = []\nsubtasks = []\naccess_list = []"
    texts = (
        'model_id = [1, 0]\nsubtasks = ["Begin.", "Check."]\naccess_list = [[], "all"]',
        'model_id = [2, 0, 7]\nsubtasks = ["Begin.", "Go on.", "Stop."]\naccess_list = [[], "all", []]',
        "I would rather not.",
    )
    return texts[number % 3]


# What runs begin with: questions, recorded answers, recorded rounds, a tiny model.


def question(number):
    """A question that scripts can answer."""
    return f"How much is {number} times 7?"


def questions(path, count):
    """A file of such questions."""
    write_lines(path, [{"id": f"q{i}", "question": question(i), "gold": str(7 * i)} for i in range(count)])
    return path


def recorded(folder, tasks=120):
    """Recorded choices: who knows states its letter, mostly; who does not mumbles; bee knows law."""
    draw = random.Random(0)
    rows, lines = [], {name: [] for name in ANSWERERS}
    for i in range(tasks):
        gold, category = draw.choice("ABC"), draw.choice(("law", "physics"))
        text = f"Which of {i}?\nA. one\nB. two\nC. three"
        rows.append({"id": f"q{i}", "question": text, "gold": gold, "category": category})
        for name, (skill, _) in ANSWERERS.items():
            right = draw.random() < (0.95 if (name, category) == ("bee", "law") else skill)
            letter = gold if right else draw.choice("ABC".replace(gold, ""))
            stated = (
                f"Clearly. The answer is ({letter})." if right == (draw.random() < 0.85) else f"Perhaps {letter}, hm"
            )
            output = "so " * draw.randint(1, 40) + stated
            lines[name].append({"id": f"q{i}", "output": output, "answer": letter, "correct": right})
    write_lines(folder / "questions.jsonl", rows)
    for name, said in lines.items():
        write_lines(folder / "answers" / f"{name}.jsonl", said)
    sizes = {name: {"parameters_b": size} for name, (_, size) in ANSWERERS.items()}
    (folder / "agents.json").write_text(json.dumps(sizes))
    return folder


def rounds(folder, count=30):
    """Recorded rounds of the scripted agents, beside the run's folder, so that runs with one parent share them."""
    home = folder.parent / "rounds"
    if not home.exists():
        with team() as words:
            asked = f"questions={questions(home / 'questions.jsonl', count)}"
            quiet = "encoder=hashed", "tasks.math_verify=false", "rounds=1", "batch_tasks=40", "output_dir=traces"
            nsed(home, "collect", *words, asked, *quiet)
    return home / "traces"


def tiny(folder):
    """A random model of two layers that knows ASCII, the same each time; Yes and No are one token each."""
    words = [*map(chr, range(33, 127)), "Ġ", "Ċ", "Ye", "Yes", "No"]
    merges = [("Y", "e"), ("Ye", "s"), ("N", "o")]
    tokenizer = tiny_tokenizer(words=words, merges=merges, bos_token="<|im_start|>")
    return save_tiny(folder, tokenizer, max_position_embeddings=8192, bos_token_id=tokenizer.bos_token_id)
