"""`nsed <verb> [overrides]`: finds the verb, hands Hydra its arguments, turns faults into one line.

Nothing heavy is imported before a verb runs, so that help is immediate.
"""

import argparse
import contextlib
import ctypes
import difflib
import errno
import gc
import importlib
import importlib.metadata
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, NoReturn, TextIO, cast

from nsed_torch import __version__
from nsed_torch.records.extras import install
from nsed_torch.records.lookalikes import one_line

VERBS = {
    "demo": "see in three acts what a team does that its best member cannot",
    "deliberate": "ask a team of local models one question and see how they got to the answer",
    "conduct": "have a language model write a workflow for one question, run it, and see every step",
    "train-conductor": "train a Conductor by reinforcement on what its workflows come to",
    "evaluate": "compare deliberation with its baselines on a benchmark, at equal cost",
    "collect": "record what a team said to many questions, graded, to study it many times",
    "tune": "fit vote, gate and trust to what was recorded, and say whether it helped",
    "fit-broker": "learn from what was recorded whom it pays to ask; cost against accuracy",
    "train-judges": "train adapters of models that judge on recorded answers, and say whether it helped",
    "specialize": "train a LoRA specialist on a family of tasks",
    "serve": "let any program that speaks to language models ask a team, and watch it deliberate",
    "fetch": "get the weights of an ensemble ahead of time",
    "report": "turn a run folder into a page one can read",
}
"""What `nsed` can do; `nsed_torch.app.verbs` has a module and `conf/` a root config of each name, with _ for -."""

GROUP = "nsed_torch.verbs"
"""The entry points by which an installed package adds verbs: a name, and the module that has its `main`.

    [project.entry-points."nsed_torch.verbs"]
    my-verb = "my_package.my_verb"

`main` is a job decorated by `nsed_torch.app.verb.verb`; its root config, `my_verb.yaml`, comes by `nsed_torch.configs`.
"""

_USAGE = """\
usage: nsed <verb> [key=value ...] [-m] [--cfg job] [--help]

{verbs}

nsed <verb> --help lists the settings of a verb; -m runs every combination of values with commas.
A question is any text: nsed deliberate "How much is 17 + 25?", or question=@file, or - for standard input;
its commas never sweep. NSED_DEBUG=1 shows where an error came from.
In bash, or in zsh behind bashcompinit, eval "$(nsed --completion)" makes the shell complete verbs and settings."""

_COMPLETION = """\
_nsed() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words="{verbs}"
  if ((COMP_CWORD > 1)); then  # Hydra's own, which knows one program without verbs
    words=$(COMP_LINE="nsed${{COMP_LINE#*"$verb"}}" nsed "$verb" --shell-completion query=bash 2>/dev/null)
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
COMP_WORDBREAKS=${{COMP_WORDBREAKS//=}}
complete -o nospace -o default -F _nsed nsed"""

_ANEW = frozenset({"fit-broker", "train-judges", "report"})  # verbs that keep nothing of an interrupted run

_LONGEST = 2000  # characters of a line; what somebody wrote into a file may have any number

_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make space there, or choose another output_dir"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "give access to it, or name another place"),
}

# Hydra's options that take the next argument as their value.
_VALUED = frozenset({"-c", "--cfg", "-p", "--package", "-i", "--info", "--experimental-rerun"})
_VALUED |= {"-cp", "--config-path", "-cn", "--config-name", "-cd", "--config-dir"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb, as a shell passes it with its arguments; None takes them from the command line.

    Returns:
        The exit code: 0; 2 after one line on standard error about what the user can fix; 130 after Ctrl-C.
        Other errors are ours and come out as they are.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        verbs = "\n".join(f"  {verb:15}  {gloss}" for verb, gloss in _glosses().items())
        return _say(_USAGE.format(verbs=verbs))
    verb, *rest = arguments
    known = _glosses()
    told = {"--version": f"nsed_torch {__version__}", "--completion": _COMPLETION.format(verbs=" ".join(known))}
    if verb in told:
        return _say(told[verb])
    if verb not in known:
        return _complain(
            "nsed", f"unknown verb {verb!r}{_did_you_mean(verb, known)} verbs: {', '.join(known)}{_more()}"
        )
    # Before torch is there, which asks but once. Threads that spin while they wait take cores from whoever else runs,
    # each other included: on two busy cores eight rounds took over 120 s, so 20 s; on idle ones 17 s either way.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    give_memory_back()
    if argv is None:  # as a program of its own
        gc.disable()  # until the verb is imported
    try:
        return _run(verb, rest)
    except (KeyboardInterrupt, Exception) as error:
        if stop := stop_behind(error):
            sys.stderr.write(f"nsed {verb}: interrupted; {_going_on(verb, rest, stop)}\n")
            return 130
        message = None if os.environ.get("NSED_DEBUG") == "1" else _explain(error, verb)
        if message is None:
            raise
        return _complain(f"nsed {verb}", message)


def give_memory_back() -> None:
    """Have glibc return every block of some size at once; it would learn to keep larger ones, and hold ever more.

    Small blocks that stay lie between large ones that come and go: 24 questions to a Conductor took 2.7 GB, so 1.8.
    """
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(-3, 1 << 22)  # M_MMAP_THRESHOLD, 4 MiB


def stop_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C that an error came of: a library that is stopped midway may stumble while it cleans up."""
    while error is not None and not isinstance(error, KeyboardInterrupt | OSError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, KeyboardInterrupt) else None


def _going_on(verb: str, rest: Sequence[str], stop: KeyboardInterrupt) -> str:
    """The command that goes on with what was interrupted; a verb tells its folder, which may bear the time of day."""
    words = ["nsed", verb, *rest]
    if stop.args and not any(word.startswith("output_dir=") for word in rest):
        words.append(f"output_dir={stop.args[0]}")
    again = "this begins anew" if verb in _ANEW else "this goes on from here"
    return f"{again}: {' '.join(map(_quoted, words))}"


def _quoted(word: str) -> str:
    """A word as a shell reads it, in one line and printable whatever is in it."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = "".join(
        one if one.isprintable() and one not in "\\'" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(one))
        for one in word
    )
    return f"$'{escaped}'"


def _added() -> dict[str, importlib.metadata.EntryPoint]:
    """The verbs of installed packages; none takes the name of one of ours."""
    entries = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    return {name: entry for name, entry in sorted(entries.items()) if name not in VERBS}


def _glosses() -> dict[str, str]:
    """All verbs, ours and those of installed packages, and what they do or whose they are."""
    return VERBS | {name: f"of {entry.dist.name if entry.dist else entry.module}" for name, entry in _added().items()}


def _more() -> str:
    """Where there is more, to those who do not have it."""
    return "" if find_spec("nsed_lab") else f"; task families, studies and their verbs come with {install('lab')}"


def _run(verb: str, arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        from nsed_torch.app.help import verb_help  # noqa: PLC0415 - reads YAML, which a bare wheel cannot

        return _say(verb_help(verb.replace("-", "_")))
    from nsed_torch.app.config.overrides import overrides_of  # noqa: PLC0415 - Hydra is slow to import

    name = verb.replace("-", "_")
    options, words = _split(arguments)
    asked = _check_options(options)
    if asked.hydra_help or asked.cfg or asked.info or asked.shell_completion:  # nothing will run
        from nsed_torch.app.config.hydra_node import hydra_root  # noqa: PLC0415 - Hydra is slow to import

        main = hydra_root(name, lambda cfg: None)
    else:
        module = f"nsed_torch.app.verbs.{name}" if verb in VERBS else _added()[verb].module
        main = importlib.import_module(module).main
        if not gc.isenabled():  # imports stay, and looking for garbage among them takes half a second each time
            gc.freeze()
            gc.enable()
    overrides = overrides_of(words, name)
    with _command_line([f"nsed {verb}", *overrides, *options]):
        try:
            main()
        except SystemExit as stop:  # how Hydra ends --help
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra's options with their values, and everything else. Hydra itself would stop at an option in between."""
    options: list[str] = []
    words: list[str] = []
    for previous, argument in zip(["", *arguments], arguments, strict=False):
        is_option = argument.startswith("-") and argument != "-"
        (options if is_option or previous in _VALUED else words).append(argument)
    return options, words


def _check_options(options: list[str]) -> argparse.Namespace:
    """What Hydra's parser reads in the options, ahead of Hydra, which would complain in several lines."""
    from hydra._internal.utils import get_args_parser  # noqa: PLC0415 - Hydra is slow to import

    def refuse(message: str) -> NoReturn:
        raise ValueError(f"{message}; a text that starts with a dash goes in as key='-...'")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    asked = parser.parse_args(options)
    if asked.experimental_rerun is not None:
        raise ValueError("--experimental-rerun loads a pickle, which may run code: pass the overrides instead")
    return asked


@contextlib.contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Let Hydra read these arguments and raise its errors instead of printing them; then put all back."""
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = arguments, "1"
    try:
        with contextlib.redirect_stderr(cast(TextIO, _WithoutEcho(sys.stderr))):
            yield
    finally:
        sys.argv = argv
        os.environ.pop("HYDRA_FULL_ERROR")
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


class _WithoutEcho:
    """Standard error without the line in which Hydra repeats a failed job's overrides."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        echo = text.startswith("Error executing job with overrides:")
        return len(text) if echo else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _explain(error: BaseException, verb: str) -> str | None:
    """What the user can fix; None for an error that is ours."""
    from hydra.errors import HydraException  # noqa: PLC0415 - Hydra is slow to import
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException  # noqa: PLC0415
    from yaml import YAMLError  # type: ignore[import-untyped]  # noqa: PLC0415 - OmegaConf reads files with it

    if isinstance(error, MissingMandatoryValue):
        return f"setting {error.full_key!r} has no value; pass {error.full_key}=..."
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError | ValueError):
        return _explain_setting(error, verb) or _trim(error)
    if isinstance(error, OSError):  # comes second: some of Hydra's errors are OSErrors as well
        said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "")
        return said + f"; {remedy}" * bool(remedy)
    return None


def _explain_setting(error: BaseException, verb: str) -> str | None:
    """Hydra's complaint about an unknown setting or option, with what is known; None for other complaints."""
    text = str(error)
    if unknown := re.match(r"(?:Could not override|unknown setting) '([^']*)'", text):
        from nsed_torch.app.config.overrides import setting_names  # noqa: PLC0415 - Hydra is slow to import

        if "No match in the defaults list" in text:  # a group, but of other verbs
            return f"nsed {verb} has no group {unknown[1]!r}; nsed {verb} --help lists all"
        if places := re.search(r"Did you mean to override (?:one of )?(.*)\?", text):
            choices = " or ".join(map(repr, places[1].split(", ")))
            return f"unknown setting {unknown[1]!r}; did you mean {choices}? nsed {verb} --cfg job lists all"
        # The cause knows keys within a value.
        key = max(unknown[1], getattr(error.__cause__, "full_key", None) or "", key=len)
        hint = _did_you_mean(key, setting_names(verb.replace("-", "_")))
        return f"unknown setting {key!r}{hint} nsed {verb} --cfg job lists all"
    options = r"Could not find '([^']*)'\s+Available options in '[^']*':(.*?)(?:Config search path|$)"
    if missing := re.search(options, text, re.DOTALL):
        group, own = missing[1].partition("/")[0], ""
        if (file := PurePath(missing[1])).suffix in {".yaml", ".yml"}:
            own = f"; a file of your own lies in FOLDER/{group}: --config-dir FOLDER {group}={file.stem}"
        return f"could not find {missing[1]!r}; available: {', '.join(missing[2].split())}{own or _more()}"
    return None


def _trim(error: BaseException) -> str:
    """The error's text without search paths, links to Hydra's manual and OmegaConf's object types."""
    text = str(error)
    cause = error.__cause__
    if text.startswith("Error merging override") and cause is not None:
        text = f"{text}: {cause}"
    text = re.split(r"Config search path:|\s+See https?://|\n\s*object_type=", text)[0]
    return re.sub(r"\s*\n\s*full_key: ", "; setting ", text)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(word, [name for name in known if name != word], n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ";"


def _say(text: str) -> int:
    sys.stdout.write(text + "\n")
    return 0


def _complain(who: str, message: str) -> int:
    sys.stderr.write(f"{who}: {one_line(message, _LONGEST)}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
