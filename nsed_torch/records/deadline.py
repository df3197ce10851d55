"""Work that others can make endless, such as a server's reply, and its limit of time."""

import contextlib
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class _TooLate(BaseException):
    """Raised within work that has taken too long; no handler of ordinary errors catches it."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; a TimeoutError once it has taken that long.

    It runs in a thread of its own, which is then told to end. It does so at its next step in Python, for nothing stops
    a thread while it waits.
    """
    outcome: Future[T] = Future()
    ending = threading.Lock()

    def attempt() -> None:
        with contextlib.suppress(_TooLate):
            try:
                result = work()
            except Exception as error:
                with ending:
                    outcome.set_exception(error)
            else:
                with ending:
                    outcome.set_result(result)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    try:
        return outcome.result(seconds)
    finally:
        with ending:  # the number of a thread that has ended may be another's
            if not outcome.done():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_TooLate)
                )
