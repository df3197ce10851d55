"""Recorded answers that public repositories keep, made from a local clone into a folder that `load_recorded` reads."""

import hashlib
import io
import json
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nsed_torch.records.files import parse_json, to_json, write_files
from nsed_torch.records.lookalikes import one_line

MOST_BYTES = 2**28
"""Of a file of a clone, and of what is packed in it."""

MOST_FILES = 20_000
MOST_CHARACTERS = 4_000
"""Of a text that are kept, its last; `characters` says how long it was."""

SOURCE = "source.json"


class _Line(NamedTuple):
    id: str
    question: str
    target: str
    category: str
    output: str
    answer: str | None
    correct: bool
    characters: int = 0  # of the whole output


class Clone:
    """A local clone, whose files anybody may have written; of what was read it knows the sums."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder).expanduser().resolve()
        if not self.root.is_dir():
            raise ValueError(f"clone: expected a folder, got {str(folder)!r:.80}: git clone it and pass clone=DIR")
        self.read: dict[str, dict[str, Any]] = {}

    def files(self, pattern: str) -> list[Path]:
        """Those of a pattern, by name; hidden ones are left out."""
        found = sorted(path for path in self.root.glob(pattern) if not path.name.startswith("."))
        if len(found) > MOST_FILES:
            raise ValueError(f"{self.root}: expected at most {MOST_FILES} files {pattern}, got more: check clone")
        return found

    def content(self, path: Path, most: int | None = None) -> bytes:
        """What a file holds; a ValueError for what is no file of the clone itself, or too large."""
        try:
            most = MOST_BYTES if most is None else most
            about = path.lstat()
            inside = path.resolve().is_relative_to(self.root)
            if not stat.S_ISREG(about.st_mode) or not inside:
                raise ValueError(f"{path}: expected a file of the clone itself, got a link or device: remove it")
            if about.st_size > most:
                raise ValueError(f"{path}: expected at most {most} bytes, got {about.st_size}: remove it")
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror}); check the clone") from error
        name = str(path.relative_to(self.root))
        self.read[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return data

    def commit(self) -> str | None:
        """What is checked out, by the clone's own files; None where they do not say."""
        git, before = self.root / ".git", dict(self.read)
        try:
            told = self.content(git / "HEAD", 1000).decode("ascii", "replace").strip()
            if named := re.fullmatch(r"ref: (refs/[\w./-]+)", told):
                packed = git / "packed-refs"
                loose = git / named[1]
                lines = self.content(loose if loose.exists() else packed, 2**24).decode("ascii", "replace")
                wanted = r"^([0-9a-f]{40,64})" + ("$" if loose.exists() else f" {re.escape(named[1])}$")
                found = re.search(wanted, lines, re.MULTILINE)
                told = found[1] if found else ""
        except ValueError:
            return None
        finally:
            self.read = before
        return told if re.fullmatch(r"[0-9a-f]{40,64}", told) else None

    def licence(self) -> bytes | None:
        """The text of its licence."""
        path = next(iter(self.files("LICENSE*")), None)
        return None if path is None else self.content(path, 2**20)


class Source(NamedTuple):
    """A repository of recorded answers, and how its files are read."""

    repository: str
    license: str
    files: Callable[[Clone], Mapping[str, list[Path]]]  # agent -> its files
    lines: Callable[[Clone, Path], Iterator[_Line]]


def _agent(name: str) -> str:
    """A name that a file may have."""
    return re.sub(r"[^\w.+-]", "-", name).lstrip(".-") or "agent"


def _entry(entry: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an entry that are wanted, each of its kinds; None stands for one that is not there."""
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected an object, got {one_line(entry, 60)!r}: remove it or fetch the file again")
    for name, kind in kinds.items():
        value = entry.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            got = f"{name}={one_line(value, 60)!r}"
            raise ValueError(f"{where}: expected {', '.join(kinds)}, got {got}: remove it or fetch the file again")
    return {name: _whole(entry.get(name)) for name in kinds}


def _whole(value: Any) -> Any:
    """A text without halves of characters."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


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


def _mmlu_pro_lines(clone: Clone, path: Path) -> Iterator[_Line]:
    data = clone.content(path)
    text, texts = str | None, ("model_outputs", "response", "generated_text")
    kinds = {"question_id": int | str, "question": str, "options": list, "answer": str, "category": str, "pred": text}
    for number, entry in enumerate(_entries(_unpacked(data, path) if path.suffix == ".zip" else data, str(path)), 1):
        where = f"{path}: answer {number}"
        known = _entry(entry, where, kinds | dict.fromkeys(texts, text))
        if not all(isinstance(option, str) for option in known["options"]) or len(known["options"]) > 26:
            raise ValueError(f"{where}: expected at most 26 texts as options, got others: fetch the file again")
        options = (f"{chr(65 + i)}. {_whole(option)}" for i, option in enumerate(known["options"]))
        output = next((known[name] for name in texts if known[name] is not None), "")
        question, target, answer = "\n".join([known["question"], *options]), known["answer"], known["pred"]
        right = answer == target
        yield _Line(str(known["question_id"]), question, target, known["category"], output, answer or None, right)


def _unpacked(data: bytes, path: Path) -> bytes:
    """The one JSON file of an archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if name.endswith(".json") and "__MACOSX" not in name]
            if len(names) != 1:
                raise ValueError(f"{path}: expected one JSON file inside, got {len(names)}: fetch it again")
            with archive.open(names[0]) as file:
                inside = file.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError) as error:
        raise ValueError(f"{path}: cannot be unpacked ({one_line(error, 80)}); fetch it again") from error
    if len(inside) > MOST_BYTES:
        raise ValueError(f"{path}: expected at most {MOST_BYTES} bytes inside, got more: remove it")
    return inside


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


def _reasoning_gym_lines(clone: Clone, path: Path) -> Iterator[_Line]:
    said = {"model_answer": str | int | float | None, "full_model_response": str | None, "score": int | float | None}
    for number, entry in enumerate(_entries(clone.content(path), str(path), "results"), 1):
        where = f"{path}: result {number}"
        known = _entry(entry, where, {"question": str, "expected_answer": str | int | float})
        completions = entry.get("completions")
        if completions is not None and not isinstance(completions, list):
            raise ValueError(f"{where}: expected a list of completions, got another: fetch the file again")
        first = entry if completions is None else (completions[0] if completions else {})
        told = _entry(first, where, said)
        answer = None if told["model_answer"] is None else str(told["model_answer"])
        name = f"{path.stem}/{hashlib.sha256(known['question'].encode()).hexdigest()[:12]}"
        target, output = str(known["expected_answer"]), told["full_model_response"] or ""
        yield _Line(name, known["question"], target, path.stem, output, answer, (told["score"] or 0) >= 0.99)


_GYM = "open-thought/reasoning-gym-eval"

SOURCES = {
    "mmlu_pro": Source("TIGER-AI-Lab/MMLU-Pro", "Apache-2.0", _mmlu_pro_files, _mmlu_pro_lines),
    "reasoning_gym_easy": Source(_GYM, "Apache-2.0", _reasoning_gym_files("easy"), _reasoning_gym_lines),
    "reasoning_gym_hard": Source(_GYM, "Apache-2.0", _reasoning_gym_files("hard"), _reasoning_gym_lines),
}
"""By the name that `nsed fetch recorded=` knows."""


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
    said: dict[str, dict[str, _Line]] = {}
    for agent in sorted(found) if agents is None else agents:
        said[agent] = {}
        for line in chain.from_iterable(source.lines(lying, path) for path in found[agent]):
            kept = line._replace(output=line.output[-MOST_CHARACTERS:], characters=len(line.output))
            said[agent].setdefault(line.id, kept)
        report(f"{agent}: {len(said[agent])} answers")
    asked = Counter(line[:3] for lines in said.values() for line in lines.values())
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


def _folder_of(said: Mapping[str, Mapping[str, _Line]], common: Sequence[str]) -> dict[str, bytes]:
    """What a folder of recorded answers holds, by place."""
    any_one = next(iter(said.values()))
    asked = [any_one[name] for name in common]
    questions = [{"id": q.id, "question": q.question, "target": q.target, "category": q.category} for q in asked]
    files: dict[str, list[dict[str, Any]]] = {"questions.jsonl": questions}
    fields = ("id", "output", "answer", "correct", "characters")
    for agent, lines in said.items():
        files[f"answers/{agent}.jsonl"] = [{name: getattr(lines[q], name) for name in fields} for q in common]
    sizes = {agent: {"parameters_b": _billions(agent)} for agent in said}
    packed = {name: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) for name, rows in files.items()}
    return {name: text.encode() for name, text in (packed | {"agents.json": to_json(sizes)}).items()}


def _billions(name: str) -> float | None:
    """The parameters that a name tells; None where it tells none, or of experts one by one."""
    told = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z0-9])", name, re.IGNORECASE)
    return float(told[1]) if told else None
