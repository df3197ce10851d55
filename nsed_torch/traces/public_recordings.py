"""Recorded answers that public repositories keep, made from a local clone into a folder that `load_recorded` reads."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nsed_torch.records.files import parse_json, to_json, write_files
from nsed_torch.records.lookalikes import one_line
from nsed_torch.traces.clones import Clone, RecordedLine, Source, fields, unpacked, whole
from nsed_torch.traces.debates import debates

MOST_CHARACTERS = 4_000
"""Of a text that are kept, its last; `characters` says how long it was."""

SOURCE = "source.json"

_Answers = dict[tuple[str, int], RecordedLine]
"""One agent's lines by question and round."""


def _agent(name: str) -> str:
    """A name that a file may have."""
    return re.sub(r"[^\w.+-]", "-", name).lstrip(".-") or "agent"


def _entries(data: bytes, where: str, name: str = "") -> list[Any]:
    """The entries of a JSON file: a list, or that of a name."""
    value = parse_json(data, where, "fetch it again", halves=True)
    entries = value.get(name) if name and isinstance(value, dict) else value
    if not isinstance(entries, list):
        wanted = f"an object with a list {name}" if name else "a list of answers"
        raise ValueError(f"{where}: expected {wanted}, got {one_line(value, 60)!r}: remove it or fetch it again")
    return entries


# MMLU-Pro: a packed list of answers for a model, or a folder of lists, one a category.


def _mmlu_pro_files(clone: Clone) -> dict[str, list[Path]]:
    packed = {
        path: re.fullmatch(r"model_outputs_(.+?)(_5shots)?\.zip", path.name)
        for path in clone.files("eval_results/*.zip")
    }
    found = {_agent(match[1]): [path] for path, match in packed.items() if match}
    for path in clone.files("eval_results/*/*_result.json"):
        found.setdefault(_agent(path.parent.name), []).append(path)
    return found


def _mmlu_pro_lines(clone: Clone, path: Path) -> Iterator[RecordedLine]:
    data = clone.content(path)
    text, texts = str | None, ("model_outputs", "response", "generated_text")
    kinds = {"question_id": int | str, "question": str, "options": list, "answer": str, "category": str, "pred": text}
    for number, entry in enumerate(_entries(unpacked(data, path) if path.suffix == ".zip" else data, str(path)), 1):
        where = f"{path}: answer {number}"
        known = fields(entry, where, kinds | dict.fromkeys(texts, text))
        if not all(isinstance(option, str) for option in known["options"]) or len(known["options"]) > 26:
            raise ValueError(f"{where}: expected at most 26 texts as options, got others: fetch the file again")
        options = (f"{chr(65 + i)}. {whole(option)}" for i, option in enumerate(known["options"]))
        output = next((known[name] for name in texts if known[name] is not None), "")
        question, target, answer = "\n".join([known["question"], *options]), known["answer"], known["pred"]
        name, right = str(known["question_id"]), answer == target
        yield RecordedLine(name, question, target, known["category"], output, answer or None, right)


# reasoning-gym-eval: a file for a model, a category and a family; the first of several completions counts.


def _reasoning_gym_files(part: str) -> Callable[[Clone], dict[str, list[Path]]]:
    def files(clone: Clone) -> dict[str, list[Path]]:
        found: dict[str, dict[str, Path]] = {}
        for path in clone.files(f"reasoninggym-paper-experiments/zero-shot/{part}/*/*/*.json"):
            run = re.fullmatch(r"(?:[^_]+_)?(.+?)(?:_(\d{8}_\d{6}))?", path.parts[-3])
            # Of several runs of a model the latest that has a family counts; its name has the date.
            found.setdefault(_agent(run[1] if run else path.parts[-3]), {})[path.stem] = path
        return {name: list(those.values()) for name, those in found.items()}

    return files


def _reasoning_gym_lines(clone: Clone, path: Path) -> Iterator[RecordedLine]:
    said = {"model_answer": str | int | float | None, "full_model_response": str | None, "score": int | float | None}
    for number, entry in enumerate(_entries(clone.content(path), str(path), "results"), 1):
        where = f"{path}: result {number}"
        known = fields(entry, where, {"question": str, "expected_answer": str | int | float})
        completions = entry.get("completions")
        if completions is not None and not isinstance(completions, list):
            raise ValueError(f"{where}: expected a list of completions, got another: fetch the file again")
        first = entry if completions is None else (completions[0] if completions else {})
        told = fields(first, where, said)
        answer = None if told["model_answer"] is None else str(told["model_answer"])
        name = f"{path.stem}/{hashlib.sha256(known['question'].encode()).hexdigest()[:12]}"
        target, output = str(known["expected_answer"]), told["full_model_response"] or ""
        yield RecordedLine(name, known["question"], target, path.stem, output, answer, (told["score"] or 0) >= 0.99)


_GYM = "open-thought/reasoning-gym-eval"

SOURCES = {
    "mmlu_pro": Source("TIGER-AI-Lab/MMLU-Pro", "Apache-2.0", _mmlu_pro_files, _mmlu_pro_lines),
    "reasoning_gym_easy": Source(_GYM, "Apache-2.0", _reasoning_gym_files("easy"), _reasoning_gym_lines),
    "reasoning_gym_hard": Source(_GYM, "Apache-2.0", _reasoning_gym_files("hard"), _reasoning_gym_lines),
    **{f"debates_{agents}": debates(agents) for agents in (3, 5, 7)},
}
"""By the name that `nsed fetch recorded=` knows.

DyLAN's debates are not among them, since its records name neither questions nor their right answers. KOR-Bench is not
either: no copy of its files was at hand.
"""


def make_recorded(
    name: str,
    clone: str | Path,
    folder: str | Path,
    agents: Sequence[str] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Make a folder of recorded answers from a local clone of the repository of that name in `SOURCES`.

    Questions that not every agent was asked, in the same words, are left out; of an agent's equal ones the first
    counts. `source.json` has the repository, its commit and licence, and the sums of all files that were read.

    Args:
        name: of the source.
        clone: where it lies here.
        folder: to be written; it must not hold recorded answers yet.
        agents: by name; None takes all.
        report: hears of every agent.

    Returns:
        What `source.json` holds.
    """
    source, out = known_source(name), Path(folder)
    if (out / "answers").exists() or any(out.glob("questions.jsonl*")):
        raise ValueError(f"{out}: expected a folder without recorded answers, got some: choose another output_dir")
    lying = Clone(clone)
    found = source.files(lying)
    if not found:
        hint = f"pass a clone of https://github.com/{source.repository}"
        raise ValueError(f"{lying.root}: expected the answers of {source.repository}, got none: {hint}")
    if unknown := [agent for agent in agents or () if agent not in found]:
        raise ValueError(f"agents: expected some of {', '.join(sorted(found))}, got {', '.join(unknown)}")
    said: dict[str, _Answers] = {agent: {} for agent in (sorted(found) if agents is None else agents)}
    unread = {path for paths in found.values() for path in paths}
    for agent, own in said.items():
        for path in filter(unread.__contains__, found[agent]):
            unread.remove(path)  # it may hold what others answered
            for line in source.lines(lying, path):
                kept = line._replace(output=line.output[-MOST_CHARACTERS:], characters=len(line.output))
                (said.get(line.agent, {}) if line.agent else own).setdefault((line.id, line.round), kept)
        report(f"{agent}: {len(own)} answers")
    asked = Counter(line[:3] for lines in said.values() for line in lines.values() if not line.round)
    common = [key[0] for key, count in asked.items() if count == len(said)]
    if not common:
        got = f"got none among {len(asked)}: choose fewer by agents="
        raise ValueError(f"{lying.root}: expected questions that all {len(said)} agents were asked, {got}")
    licence = lying.licence()
    about = {
        "source": f"https://github.com/{source.repository}",
        "commit": lying.commit(),
        "license": source.license,
        "questions": len(common),
        "left_out": len({key[0] for key in asked}) - len(common),
        "read": lying.read,
    }
    files = _folder_of(said, common) | {SOURCE: to_json(about).encode()}
    files |= {} if licence is None else {"LICENSE": licence}
    write_files({out / where: data for where, data in files.items()})
    return about


def known_source(name: str) -> Source:
    """A source by its name; a ValueError names all."""
    if name not in SOURCES:
        raise ValueError(f"recorded: expected one of {', '.join(SOURCES)}, got {name!r:.60}")
    return SOURCES[name]


def _folder_of(said: Mapping[str, _Answers], common: Sequence[str]) -> dict[str, bytes]:
    """What a folder of recorded answers holds, by place."""
    any_one = next(iter(said.values()))
    asked = [any_one[name, 0] for name in common]
    questions = [{"id": q.id, "question": q.question, "target": q.target, "category": q.category} for q in asked]
    files: dict[str, list[dict[str, Any]]] = {"questions.jsonl": questions}
    told = ("id", "round", "output", "answer", "correct", "characters")
    rounds = range(1 + max(number for _, number in any_one))
    for agent, lines in said.items():
        kept = [line for q in common for number in rounds if (line := lines.get((q, number)))]
        files[f"answers/{agent}.jsonl"] = [{name: getattr(line, name) for name in told} for line in kept]
    sizes = {agent: {"parameters_b": _billions(agent)} for agent in said}
    packed = {name: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) for name, rows in files.items()}
    return {name: text.encode() for name, text in (packed | {"agents.json": to_json(sizes)}).items()}


def _billions(name: str) -> float | None:
    """The parameters that a name tells; None where it tells none, or of experts one by one."""
    told = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z0-9])", name, re.IGNORECASE)
    return float(told[1]) if told else None
