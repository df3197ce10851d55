"""A run folder opened for one verb: nobody else writes there meanwhile, and no other run's results pass for its own."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nsed_torch import __version__
from nsed_torch.engines.weights import file_sha256
from nsed_torch.records.files import read_json, write_json, write_text
from nsed_torch.records.portable import without_home

ABOUT_RUN = "run.json"
"""The verb, the package's version, all settings and the hash of every file they name."""

_LOCK, _HOLDER = ".lock", ".holder"
_LEFT = re.compile(r"\.[0-9a-f]{16}\.tmp")  # what `write_files` had not yet given its name when it was killed
_PATH = re.compile(r"[/\\~]|\.\w+$")  # other words are names, even where a file is called so


@contextlib.contextmanager
def opened(folder: Path, identity: Mapping[str, Any], made: Sequence[str], *, goes_on: bool) -> Iterator[None]:
    """Hold a folder for one process, ready for the run of this identity.

    What a run of the same identity left stays, so that this one goes on from there. What another run of the same verb
    made goes, by the names or patterns in `made`, finished calls excepted, for every call has a key of its own. Refused
    is a run that would go on from another's (`goes_on`), and one in whose way something lies that is not its verb's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(f"{folder}: in use by {_holder(folder)}: wait for it, or choose another output_dir") from error
    try:
        now = datetime.now().astimezone()
        write_text(folder / _HOLDER, f"process {os.getpid()} on {socket.gethostname()} since {now:%F %T}")
        for path in folder.rglob(".*.tmp"):
            if _LEFT.fullmatch(path.name):
                path.unlink(missing_ok=True)
        _make_way(folder, identity, made, goes_on=goes_on)
        yield
    finally:
        with contextlib.suppress(OSError):  # else this would be told in place of what went wrong
            (folder / _HOLDER).unlink(missing_ok=True)
        lock.release()


def identity_of(verb: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run the same: its verb, the version, its settings, and what the files hold that these name."""
    texts = {where: text for where, text in leaves(settings, items=True) if isinstance(text, str)}
    paths = {where: Path(text) for where, text in texts.items() if _PATH.search(text) or where.endswith("dir")}
    files = {where: _digest(path) for where, path in paths.items() if not where.endswith("telemetry_file")}
    named = {where: digest for where, digest in files.items() if digest}
    identity = {"verb": verb, "version": __version__, "settings": without_home(dict(settings)), "files": named}
    read: dict[str, Any] = json.loads(json.dumps(identity))  # as it comes back from the file
    return read


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Where two identities differ, a phrase each."""
    phrases = [f"{key} {old.get(key)} is now {new[key]}" for key in ("verb", "version") if old.get(key) != new[key]]
    before, after = (dict(leaves(one.get("settings", {}))) for one in (old, new))
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    phrases += [f"{key} {before.get(key)!r} is now {after.get(key)!r}" for key in changed]
    was, files = dict(leaves(old.get("files", {}))), new["files"]
    return phrases + [f"what {key} names has changed" for key in files if key in was and was[key] != files[key]]


def _make_way(folder: Path, identity: Mapping[str, Any], made: Sequence[str], *, goes_on: bool) -> None:
    about = folder / ABOUT_RUN
    there = [path for pattern in made for path in folder.glob(pattern)]
    read = read_json(about) if about.is_file() else {}
    old = read if isinstance(read, dict) else {}
    if there and old != identity:
        if goes_on or old.get("verb") != identity["verb"]:
            changed = "; ".join(differences(old, identity)) if old else f"nothing says who made {there[0].name}"
            raise ValueError(
                f"{folder}: expected to go on with this run, got another's ({changed}): "
                "choose another output_dir, or remove the folder"
            )
        for path in there:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:  # where its folder went before, it is gone
                path.unlink(missing_ok=True)
    write_json(about, identity)


def _holder(folder: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if (text := (folder / _HOLDER).read_text("utf-8")).isprintable():
            return text[:200]
    return "another process"


def leaves(node: Any, where: str = "", *, items: bool = False) -> Iterator[tuple[str, Any]]:
    """Every value with its dotted key; lists are values, or their `items` are."""
    if isinstance(node, Mapping) and node:
        inner = [(f"{where}.{key}".lstrip("."), value) for key, value in node.items()]
    elif items and isinstance(node, list):
        inner = [(f"{where}[{number}]", value) for number, value in enumerate(node)]
    else:
        yield where, node
        return
    for place, value in inner:
        yield from leaves(value, place, items=items)


def _digest(path: Path) -> str | None:
    """Of a file's bytes, or of all files below a folder; None where there is neither."""
    try:
        path = path.expanduser()
        if not path.exists():
            return None
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    except (OSError, ValueError):  # a text that cannot be a path
        return None
    found = hashlib.sha256()
    for file in files:
        name = file.relative_to(path)
        # Hidden files are the system's; logs of calls grow.
        if ".sqlite" not in file.name and not any(part.startswith(".") for part in name.parts):
            found.update(f"{name}\0{file_sha256(file)}\0".encode("utf-8", "surrogateescape"))
    return found.hexdigest()
