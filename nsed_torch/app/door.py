"""What every tool comes in by: settings by name build a team, and what the tool asks becomes its questions."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from nsed_torch.app.build import build_rnn, call_log
from nsed_torch.app.config.hydra_node import checked
from nsed_torch.app.config.overrides import refuse_former
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.transcript import Task, Transcript, Usage

ROOT = "deliberate"
"""The verb whose settings a door takes."""

TOOLS = {"question": "the tool asks the questions", "output_dir": "the tool writes; calls=FILE keeps finished calls"}
"""Settings of that verb that are the tool's."""

INSTRUCT = {"system", "developer"}
"""Roles whose texts are instructions and no turns."""


class Door:
    """A team for somebody else's tool, built from the settings of `nsed deliberate`, each by its dotted name.

    Finished calls are kept in memory, or in the file `calls`, so that a run that was cut off goes on.

    Args:
        settings: such as {"ensemble": "experts", "rounds": 1, "prompts.style": "direct"}. A text is read as behind
            the equals sign on the command line.

    Raises:
        ValueError: in one line, for a setting that is not there, out of range or the tool's own.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.config = composed(settings)
        log = CallLog(None) if self.config.calls is None else call_log(self.config, Path())
        self.rnn = build_rnn(self.config, log, logging.getLogger(__name__).info)
        self.usage = Usage()  # of all that was asked so far

    def deliberate(self, asked: Sequence[tuple[str, str]]) -> list[Transcript]:
        """One deliberation for each (id, question), all in one batch.

        An id names a question in the seeds of its calls, as in `nsed evaluate`: with the same id and settings, the same
        answer. "" makes one of the question. One that comes again counts as another epoch, and so is asked anew.
        """
        seen: Counter[str] = Counter()
        tasks = []
        for given, question in asked:
            name = given or hashlib.sha256(question.encode()).hexdigest()[:16]
            seen[name] += 1
            tasks.append(Task(question, name if seen[name] == 1 else f"{name}~{seen[name]}"))
        if not tasks:
            return []
        with torch.no_grad():
            transcripts = list(self.rnn(tasks).transcripts)
        self.usage += Usage.sum(transcript.usage for transcript in transcripts)
        return transcripts


def composed(settings: Mapping[str, Any]) -> DictConfig:
    """The settings of `nsed deliberate` with these in place of the defaults, checked as on the command line."""
    for key in settings:
        if key in TOOLS or key.split(".")[0].split("/")[0].lstrip("+~") == "hydra":
            raise ValueError(
                f"setting {key!r}: expected one of a team's, got one of a run's: {TOOLS.get(key, 'remove it')}"
            )
    words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
    refuse_former(words, ROOT)
    try:
        return checked(ROOT, words)
    except (HydraException, OmegaConfBaseException) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{reason}; nsed {ROOT} --cfg job lists all") from error


def question_of(turns: Iterable[tuple[str, str]]) -> str:
    """A chat, (role, text) by turn, as one question: whoever asks alone is not announced."""
    told = [(role, text) for role, text in turns if text.strip()]
    several = sum(role not in INSTRUCT for role, _ in told) > 1
    lines = [f"{role.capitalize()}: {text}" if several and role not in INSTRUCT else text for role, text in told]
    return "\n\n".join(lines)


def cut(text: str, stops: Iterable[str]) -> str:
    """A text up to where the first stop string begins."""
    return text[: min((place for stop in stops if stop and (place := text.find(stop)) >= 0), default=len(text))]
