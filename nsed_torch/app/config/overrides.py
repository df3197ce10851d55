"""From the words of a command to overrides that Hydra reads as they were meant, the question above all.

Two grammars stand in between: Hydra's of overrides, and OmegaConf's of interpolations.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf

from nsed_torch.app.config.hydra_node import composing
from nsed_torch.app.config.settings import root_config

_QUESTION = re.compile(r"\+{0,2}question=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(\+{1,2}|~)?([A-Za-z_$][\w$-]*)([./][\w$-]+)*(@[\w$.-]*)?=.*", re.DOTALL)
_DELETION = re.compile(r"~[A-Za-z_][\w./@-]*")

FORMER = {
    "benchmark": "tasks",
    "tasks.gold": "tasks.target",
    "voting": "consensus.vote",
    "without": "protocol.without",
    "rounds": "waves",
    "seeds": "divisions",
    "unit": "lesson",
    **{name: f"consensus.{name}" for name in ("gate", "slots", "pooling", "calibration")},
    **{name: f"lesson.{name}" for name in ("by_length", "near_share", "answers_share", "step_share")},
    "warm.by_hand": "warm.workflows",
    "logger.tracker": "logger",
}
"""What settings were called, and are called now; each counts in the verbs that have the second and not the first."""


def overrides_of(words: Iterable[str], config_name: str) -> list[str]:
    """The words of a command as overrides of a verb's root config; its question, if it asks one, comes last."""
    # A baseline is settings, whose equals signs Hydra would not take as they are.
    words = [f"baseline={quote(w[9:])}" if w.startswith("baseline=") and "=" in w[9:] else w for w in words]
    if config_name in {"deliberate", "conduct"}:
        words = with_question(words, config_name)
    refuse_former((word for word in words if not word.startswith("question=")), config_name)
    return [exact(word) for word in words]


def refuse_former(words: Iterable[str], config_name: str) -> None:
    """Refuse a setting by a name that it had in an earlier version, with the name that it has now.

    Args:
        words: overrides, or bare names.
        config_name: the root config of the verb that they are for.
    """
    known = _first_names(config_name)
    for word in words:
        now = name = re.split(r"[=@]", word.lstrip("+~"), maxsplit=1)[0]
        for old, new in FORMER.items():
            first, here = old.partition(".")[0], new.partition(".")[0] in known
            if re.match(rf"{re.escape(old)}(?![\w-])", now) and here and ("." in old or first not in known):
                now = new + now[len(old) :]
        if now != name:
            raise ValueError(f"{name}: is {now} now")


def quote(text: str) -> str:
    """Write a text as the value of a Hydra override that sets its key to exactly that text.

    Both grammars are escaped: Hydra's (quotes, commas, equals signs, brackets), which is read when the config is
    composed, and OmegaConf's (`${...}`, "???"), which is read with a value. No text is a sweep, a list or a number.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected UTF-8 text, got other bytes at character {error.start}") from error
    return QuotedString(escape(text), Quote.single).with_quotes()


def escape(text: str) -> str:
    r"""Write a text so that OmegaConf, reading it as a value, gives back exactly that text.

    `${` becomes `\${`, after doubling the backslashes before it. "???" would mean a missing value and cannot be
    escaped, so it is computed.
    """
    return "${oc.decode:???}" if text == "???" else re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def exact(word: str) -> str:
    """An override, quoted where Hydra's grammar cannot read its value, as of a path with Chinese letters.

    Lists, mappings and what is quoted stay as they are: of a mistake in those Hydra says where it is.
    """
    key, _, value = word.partition("=")
    if not re.fullmatch(r"[+]{0,2}[\w$./@-]+", key) or not value or value[0] in "[{'\"(":
        return word
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return f"{key}={quote(value)}"
    return word


def with_question(words: Sequence[str], config_name: str) -> list[str]:
    """Put the question among a command's words last, quoted for Hydra.

    The question is `question=...` or the one word that sets nothing: a text, `@file`, or `-` for standard input. It is
    always one text; commas never make it a sweep.
    """
    questions, overrides = list[str](), list[str]()
    for word in words:
        if given := _QUESTION.fullmatch(word):
            questions.append(given[1])
        else:
            (overrides if _is_override(word, config_name) else questions).append(word)
    if len(questions) > 1:
        raise ValueError(f"expected one question, got {len(questions)}: {questions}; put quotes around a text")
    return overrides + [f"question={quote(_read(question))}" for question in questions]


def setting_names(config_name: str) -> list[str]:
    """Every setting of a root config as a dotted name, and every config group that it chooses from."""

    def walk(node: Any, prefix: str) -> Iterator[str]:
        for key, value in node.items() if isinstance(node, dict) else ():
            yield f"{prefix}{key}"
            yield from walk(value, f"{prefix}{key}.")

    with composing():
        config = OmegaConf.to_container(compose(config_name))
    return [*walk(config, ""), *sorted(root_config(config_name)[1]), "hydra"]


def _first_names(config_name: str) -> set[str]:
    """What the name of a setting may begin with."""
    root, groups = root_config(config_name)
    return {*map(str, root), *groups}


def _is_override(word: str, config_name: str) -> bool:
    """Whether a word sets something, rather than being the question.

    `key=value` without blanks does, even if the key is misspelt: Hydra will say so. With blanks, as in "x=3
    solves it, right?", it does if the key is one of the config's, or if it starts with Hydra's + or ~.
    """
    if (match := _ASSIGNMENT.fullmatch(word)) is None:
        return _DELETION.fullmatch(word) is not None
    return match[1] is not None or not re.search(r"\s", word) or match[2] in _first_names(config_name)


def _read(question: str) -> str:
    """The question's text: itself, a file's with `@file`, standard input's with `-`."""
    source = "standard input" if question == "-" else question[1:] if question.startswith("@") else None
    if source is not None:
        data = sys.stdin.buffer.read() if question == "-" else Path(source).expanduser().read_bytes()
        try:
            question = re.sub(r"\r?\n\Z", "", data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{source}: expected UTF-8 text, got other bytes at byte {error.start}") from error
    if not question.strip():
        raise ValueError(f"expected a question, got an empty text{f' from {source}' if source else ''}")
    return question
