"""The process that renders strangers' templates: it answers a JSON request a line, and is ended at its limits."""

import contextlib
import functools
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nsed_torch.core.prompts import Prompts


def prompt(folder: str, style: str, asked: Mapping[str, Any]) -> str:
    """A block of one of our prompts' templates, by a stranger's folder."""
    return _prompts(folder, style).block(**asked)


def chat(template: str, messages: list[dict[str, str]], options: Mapping[str, Any]) -> str:
    """A chat by a model's template, as its tokenizer renders it."""
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415 - where it is asked for

    options = {"add_generation_prompt": True, **options}
    texts, _ = render_jinja_template([messages], chat_template=template, **options)
    return str(texts[0])


RENDERERS: dict[str, Callable[..., str]] = {"prompt": prompt, "chat": chat}

_prompts = functools.cache(Prompts)


def reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """The text, or what was at fault and the name of its class."""
    try:
        text = RENDERERS[request["kind"]](**request["values"])
        if len(text) > request["longest"]:
            return {"fault": [f"expected at most {request['longest']} characters, got more", "SecurityError"]}
        return {"text": text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}
    except Exception as error:  # a template is a program: what it stumbles over may be anything
        return {"fault": [str(error)[:4000], type(error).__name__]}


def limit(memory: int) -> None:
    """Let this process have so much memory beside what it has now, where the system can say and limit it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - not every system has it

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer until the input ends."""
    alarm = getattr(signal, "setitimer", None)
    begun: set[str] = set()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if request["kind"] not in begun:  # what it imports is no template's doing
            begun.add(request["kind"])
            if request["kind"] == "chat":
                import transformers.utils.chat_template_utils  # noqa: F401, PLC0415 - as above
            limit(request["memory"])
        if alarm:
            # Whatever it is in the midst of then: nobody handles the signal, so it ends the process.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            alarm(signal.ITIMER_REAL, request["seconds"])
        sys.stdout.buffer.write(json.dumps(reply(request)).encode() + b"\n")
        if alarm:
            alarm(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
