"""How far some work is, and how long the rest of it will take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import perf_counter


def time_left(seconds: float, done: int, total: int) -> str:
    """`, 3 min left`, at the pace of what was done in so many seconds; "" where nothing is done, or all."""
    if not 0 < done < total:
        return ""
    rest = seconds / done * (total - done)
    minutes = round(rest / 60)
    shown = f"{rest:.0f} s" if rest < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f", {shown} left"


@contextmanager
def told(what: str, report: Callable[[str], None], folder: Path, *, every: float = 10.0) -> Iterator[None]:
    """While something fills a folder, say every so many seconds how much there is; say at the end what it took."""
    began, over = perf_counter(), Event()

    def size() -> str:
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        return f"{sum(path.stat().st_size for path in files) / 1e6:.0f} MB"

    def watch() -> None:
        while not over.wait(every):
            with suppress(OSError):  # files come and go
                report(f"{what}: {size()} so far, {perf_counter() - began:.0f} s")

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    report(f"{what}: {size()} in {perf_counter() - began:.0f} s")
