"""Where strangers' templates are rendered: in a process of their own, with limits of time, memory and length."""

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PATIENCE = 10.0
"""Seconds that a template may take for one text; any sound one takes milliseconds."""

LONGEST = 10_000_000
"""Characters of a prompt; no model reads as many."""

MEMORY = 512 << 20
"""Bytes that rendering may take beside what the process needs to begin with."""


class BadTemplateError(ValueError):
    """Why a template was not rendered; `kind` is the class of what it raised, "" where it was ended."""

    def __init__(self, says: str, kind: str = "") -> None:
        super().__init__(says)
        self.kind = kind


class _Renderer:
    """The process that renders, begun with the first template and again after it had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: bytes) -> bytes:
        """The reply to a request, one line each; a process that ends instead is a BadTemplateError."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():  # in a fork it is another's
                self._process, self._owner = _begin(), os.getpid()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(request)  # type: ignore[union-attr]
                self._process.stdin.flush()  # type: ignore[union-attr]
            reply: bytes = self._process.stdout.readline()  # type: ignore[union-attr]
            if reply.endswith(b"\n"):
                return reply
            code = self._end()
        if code == -signal.SIGALRM:
            raise BadTemplateError(f"did not end within {PATIENCE:g} s")
        raise BadTemplateError(f"ended the process that rendered it ({code})")

    def close(self) -> None:
        """End the process; a lock that is held belongs to a thread that will never come back."""
        if self._process is not None and self._owner == os.getpid():
            self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            return process.wait(1)  # it ends with its input
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _begin() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-m", "nsed_torch.engines.template_child"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    pipe, no = subprocess.PIPE, subprocess.DEVNULL
    # A session of its own: Ctrl-C ends the run, which then ends it.
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=no, env=env, start_new_session=True)  # noqa: S603


_RENDERER = _Renderer()
atexit.register(_RENDERER.close)


def rendered(kind: str, **values: Any) -> str:
    """The text that a stranger's template makes of JSON values; `kind` is a renderer of `template_child`.

    Halves of characters in it are replaced.
    """
    limits = {"seconds": PATIENCE, "longest": LONGEST, "memory": MEMORY}
    reply = json.loads(_RENDERER.ask(json.dumps({"kind": kind, **limits, "values": values}).encode() + b"\n"))
    if "text" not in reply:
        raise BadTemplateError(*reply["fault"])
    return str(reply["text"])


def render_ahead(kind: str, **values: Any) -> None:
    """Render in the background, so that the process and what a kind imports are there when a text is asked for."""

    def ask() -> None:
        with contextlib.suppress(BadTemplateError, OSError):  # whoever asks next is told
            rendered(kind, **values)

    threading.Thread(target=ask, daemon=True).start()
