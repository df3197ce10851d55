"""How any text gets through Hydra's override grammar and OmegaConf's interpolation, the question above all."""

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
    "gate": "consensus.gate",
    "slots": "consensus.slots",
    "pooling": "consensus.pooling",
    "calibration": "consensus.calibration",
    "without": "protocol.without",
    "rounds": "waves",
    "seeds": "divisions",
    "unit": "lesson",
    **{name: f"lesson.{name}" for name in ("by_length", "near_share", "answers_share", "step_share")},
    "warm.by_hand": "warm.workflows",
    "logger.tracker": "logger",
}
"""What settings were called, and are called now; each counts in the verbs that have the second and not the first."""


def refuse_former(words: Iterable[str], config_name: str) -> None:
    """Refuse a setting by a name that it had in an earlier version, with the name that it has now.

    Args:
        words: overrides, or bare names.
        config_name: the root config of the verb that they are for.
    """
    root, groups = root_config(config_name)
    known = {str(key) for key in root} | groups
    for word in words:
        name = re.split(r"[=@]", word.lstrip("+~"), maxsplit=1)[0]
        now = name
        for old, new in FORMER.items():
            first, here = old.partition(".")[0], new.partition(".")[0] in known
            if re.match(rf"{re.escape(old)}(?![\w-])", now) and here and ("." in old or first not in known):
                now = new + now[len(old) :]
        if now != name:
            raise ValueError(f"{name}: is {now} now")


def quote(text: str) -> str:
    """Write a text as the value of a Hydra override that sets its key to exactly that text.

    Two grammars read an override's value: Hydra's (quotes, commas, equals signs, brackets) when the config is
    composed, and OmegaConf's (`${...}`, "???") when a value is read. Both are escaped here: no text is a sweep, a
    list or a number, whatever it looks like.

    Raises:
        ValueError: if the text has no UTF-8 form, as when a terminal passed other bytes.
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
    if text == "???":
        return "${oc.decode:???}"
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def exact(word: str) -> str:
    """An override, quoted where Hydra's grammar cannot read its value, as of a path with Chinese letters.

    Lists, mappings and what is quoted stay as they are: of a mistake in those Hydra says where it is.
    """
    key, given, value = word.partition("=")
    if not given or not re.fullmatch(r"[+]{0,2}[\w$./@-]+", key) or not value or value[0] in "[{'\"(":
        return word
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return f"{key}={quote(value)}"
    return word


def with_question(values: Sequence[str], config_name: str) -> list[str]:
    """Put the question among a command's arguments last, quoted for Hydra.

    The question is `question=...` or the one argument that sets nothing: a text, `@file`, or `-` for standard input.
    It is always one text; commas never make it a sweep. The root config tells settings from questions where both are
    possible.

    Raises:
        ValueError: if there are several questions, or an empty one, or bytes that are no UTF-8.
        OSError: if the file cannot be read.
    """
    questions, overrides = [], []
    for value in values:
        if given := _QUESTION.fullmatch(value):
            questions.append(given[1])
        elif _is_override(value, config_name):
            overrides.append(value)
        else:
            questions.append(value)
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


def _is_override(value: str, config_name: str) -> bool:
    """Whether an argument sets something, rather than being the question.

    `key=value` without blanks does, even if the key is misspelt: Hydra will say so. With blanks, as in "x=3
    solves it, right?", it does if the key is one of the config's, or if it starts with Hydra's + or ~.
    """
    match = _ASSIGNMENT.fullmatch(value)
    if match is None:
        return _DELETION.fullmatch(value) is not None
    return match[1] is not None or not re.search(r"\s", value) or match[2] in setting_names(config_name)


def _read(question: str) -> str:
    """The question's text: itself, a file's with `@file`, standard input's with `-`."""
    source = "standard input" if question == "-" else question[1:] if question.startswith("@") else None
    if source is not None:
        data = sys.stdin.buffer.read() if question == "-" else Path(source).expanduser().read_bytes()
        try:
            question = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{source}: expected UTF-8 text, got other bytes at byte {error.start}") from error
        question = re.sub(r"\r?\n\Z", "", question)
    if not question.strip():
        raise ValueError(f"expected a question, got an empty text{f' from {source}' if source else ''}")
    return question
