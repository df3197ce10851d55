"""What `data_dir` of a verb holds as episodes: recorded answers, or traces of one or several folders."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig

from nsed_torch.app.build import build_rnn
from nsed_torch.app.config.hydra_node import checked
from nsed_torch.app.config.instantiate import instantiate
from nsed_torch.core.encoder import Encoder
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.trace import read_traces
from nsed_torch.traces.episodes import Episodes, joined, recorded_episodes
from nsed_torch.traces.featured import CachedEncoder, featured, featured_traces
from nsed_torch.traces.load import load_traces
from nsed_torch.traces.recorded import RecordedAnswers, load_recorded
from nsed_torch.tuning.memory_fit import informative

if TYPE_CHECKING:
    from nsed_torch.tuning.answer_fit import Closings
    from nsed_torch.tuning.trainer import Schedule


class RecordedTasks(NamedTuple):
    """Tasks to learn from, and what they were made of, where something more is asked of that."""

    episodes: Episodes
    answers: RecordedAnswers | None = None  # None for traces
    closings: "Closings | None" = None  # of traces whose loss is an answer's


def folders_of(cfg: DictConfig) -> list[str]:
    """The folders of `data_dir`."""
    if not cfg.data_dir:
        raise ValueError("expected recorded answers or traces, got no folder: pass data_dir=DIR")
    return [cfg.data_dir] if isinstance(cfg.data_dir, str) else list(cfg.data_dir)


def hold_traces(folders: Sequence[str], **choices: Any) -> bool:
    """Whether folders hold traces of `nsed collect` rather than recorded answers."""
    traces = [(Path(path).expanduser() / "traces.jsonl").is_file() for path in folders]
    if any(traces) and not all(traces):
        path = folders[traces.index(False)]
        raise ValueError(f"{path}: expected traces in each of several folders, got no traces.jsonl: pass one kind")
    if traces[0] and (made := [name for name, value in choices.items() if value is not None]):
        raise ValueError(f"{folders[0]}: expected no {made[0]} for traces, whose rounds are as they were held")
    return traces[0]


def readings_of(folders: Sequence[str]) -> RecordedTasks:
    """The rounds that read in the traces of all folders, where somebody noted what matters in the end."""
    episodes = joined([load_traces(path, reading=True) for path in folders])
    return RecordedTasks(episodes.select(informative(episodes).nonzero()[:, 0]))


def closings_of(
    words: str, folders: Sequence[str], report: Callable[[str], None], schedule: "Schedule", log: CallLog
) -> "Closings":
    """The closing rounds of the traces of some folders, which the models of a team answer anew.

    Its words are those of any verb that has a team, such as `ensemble=experts`. Its memory is shown unless they say
    otherwise or no memories are to be drawn, so that gradients pass; what was read of those is in the log.
    """
    from nsed_torch.tuning.answer_fit import Closings  # noqa: PLC0415 - loaded where answers are asked for

    if not words:
        wanted = "expected the words of a team for training.loss=answer, got none"
        raise ValueError(f"{wanted}: pass team='ensemble=NAME', as for nsed collect")
    heard = ["protocol.memory=weighted"] if schedule.draws == 0 else []
    cfg = checked("deliberate", [*heard, *shlex.split(words)])

    tenth = 0

    def progress(done: int, total: int) -> None:
        nonlocal tenth
        before, tenth = tenth, 10 * done // max(total, 1)
        if tenth > before:  # calls end by the batch
            report(f"{done} of {total} memories were read")

    return Closings.of(build_rnn(cfg, log, report).cell, folders, schedule.draws, progress, options=schedule.options)


def traces_of(cfg: DictConfig, folders: Sequence[str], reading: Sequence[str] = ()) -> RecordedTasks:
    """The traces of all folders as one, with groups of features of what was proposed."""
    parts = [load_traces(path) for path in folders]
    if reading:
        encoder: Encoder = instantiate(cfg.encoder)
        parts = [
            featured_traces(part, list(read_traces(path)), list(reading), encoder)
            for part, path in zip(parts, folders, strict=True)
        ]
    return RecordedTasks(joined(parts))


def answers_of(cfg: DictConfig, folder: str, *, rounds: int = 1, reading: Sequence[str] = ()) -> RecordedTasks:
    """A folder's recorded answers in waves, by the config's `agents`, `max_parameters_b` and `encoder`."""
    answers = load_recorded(folder, agents=cfg.agents, max_parameters_b=cfg.max_parameters_b)
    encoder: Encoder = instantiate(cfg.encoder)
    if "weights" in cfg.encoder:  # hashing is faster than reading what was hashed
        encoder = CachedEncoder(encoder)
    episodes = recorded_episodes(answers, encoder, rounds=rounds)
    return RecordedTasks(featured(episodes, answers, list(reading), encoder) if reading else episodes, answers)
