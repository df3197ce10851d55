"""Where programs run that nobody trusts: bubblewrap, as nobody, with a limit on everything they could use up."""

import functools
import importlib.metadata
import importlib.util
import math
import os
import platform
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nsed_torch.records.outcome import Verdict

PYTHON = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
"""The interpreter outside any virtual environment; the sandbox has it under the same path."""

BOX = "/box"
"""The folder inside that holds a run's files, read-only; programs work in `/tmp`, empty at the start."""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",  # noqa: S108 - the sandbox's own
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": "/packages",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All that programs find set, beside PWD; bubblewrap is started with it."""

_NOBODY = "65534"


@dataclass(frozen=True)
class Finished:
    """What became of a program in the sandbox."""

    exit_code: int | None  # 128 plus the signal's number if one ended it; None if it was stopped or never began
    stdout: str  # as far as it was read
    stderr: str  # likewise; the reason if it never began
    reason: Verdict | None = None  # TIME_LIMIT, OUTPUT_LIMIT, NOT_RUN if it never began; None if it ended by itself


class Command(NamedTuple):
    """What to run."""

    files: Mapping[str, str]  # name -> text, read-only below `BOX`
    argv: Sequence[str]  # an absolute path and its arguments


@dataclass(frozen=True)
class Sandbox:
    """Runs programs in bubblewrap (0.8 or newer) and nowhere else: without it every run is NOT_RUN.

    Inside there are a read-only system (`/usr`, the running interpreter with its standard library, the packages named),
    a `/tmp` of its own, no network, no other process, no file of the host's, a cleared environment. The program is
    nobody, without capabilities, and cannot make namespaces. The kernel is the host's: faults in it are not guarded
    against, and a program that forks may take `memory_mb` in each process; the kernel ends it first if memory is short.
    """

    # Of processor time for each process, rounded up; on the clock thrice as long and half a second more, so that a busy
    # machine makes no program slow.
    seconds: float = 10.0
    memory_mb: int = 1024  # address space of each process, in MiB
    processes: int = 16  # at a time, threads and the sandbox's own init counted
    file_mb: int = 16  # of one file and of all together, in MiB
    output_kb: int = 8192  # of standard output, and of standard error, in KiB
    packages: tuple[str, ...] = ("numpy",)  # what can be imported beside the standard library, where it is installed
    bwrap: str | None = field(default_factory=lambda: shutil.which("bwrap"))  # None where there is none

    def __post_init__(self) -> None:
        object.__setattr__(self, "packages", tuple(self.packages))
        if min(limits := self._limits().values()) <= 0:
            raise ValueError(f"expected limits above 0, got {', '.join(map(str, limits))}: leave out what is not known")

    @property
    def why(self) -> str:
        """Why programs are not run, in one line; "" where they are. Tried once."""
        return _fault(self)

    def identity(self) -> dict[str, Any]:
        """Limits, versions, and whether it works; JSON values only."""
        versions = {name: importlib.metadata.version(name) for name in self.packages if importlib.util.find_spec(name)}
        about = {"python": platform.python_version(), "bwrap": _version(self.bwrap), "available": not self.why}
        return {**self._limits(), **about, "packages": versions}

    def run(self, files: Mapping[str, str], argv: Sequence[str], stdin: str = "") -> Finished:
        """Run a program, given as in `Command`."""
        if self.why:
            return _not_run(self.why)
        with ExitStack() as owned:
            return self._run(owned, [Command(files, argv)], [(_sealed(owned, stdin), subprocess.PIPE)])[0]

    def converse(self, one: Command, other: Command) -> tuple[Finished, Finished]:
        """Run two programs, each in a sandbox of its own, each one's output the other's input, which is not kept."""
        if self.why:
            return _not_run(self.why), _not_run(self.why)
        with ExitStack() as owned:
            (read, reply), (listen, write) = _pipe(owned), _pipe(owned)
            first, second = self._run(owned, [one, other], [(read, write), (listen, reply)])
        return first, second

    def _limits(self) -> dict[str, float]:
        names = ("seconds", "memory_mb", "processes", "file_mb", "output_kb")
        return {name: getattr(self, name) for name in names}

    def _run(self, owned: ExitStack, commands: Sequence[Command], ends: Sequence[tuple[int, int]]) -> list[Finished]:
        running: list[_Running] = []
        try:
            for command, (stdin, stdout) in zip(commands, ends, strict=True):
                running.append(self._start(owned, command, stdin, stdout))
            owned.close()  # as long as we held an end of a pipe, nobody would see its end
            stopped = _watch(running, 3 * self.seconds + 0.5, self.output_kb << 10)
            return [each.finished(stopped.get(number)) for number, each in enumerate(running)]
        except OSError as error:
            return [_not_run(str(error)) for _ in commands]
        finally:
            for each in running:
                each.stop()

    def _start(self, owned: ExitStack, command: Command, stdin: int, stdout: int) -> "_Running":
        files = {name: _sealed(owned, text) for name, text in command.files.items()}
        owned.callback(os.close, number := os.memfd_create("status"))
        process = subprocess.Popen(  # noqa: S603 - a list, no shell
            _confined(self, command.argv, files, number),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            pass_fds=(number, *files.values()),
            start_new_session=True,
        )
        # Opened anew, for what bubblewrap writes moves its own place in the file.
        return _Running(process, Path(f"/proc/self/fd/{number}").open("rb"), bytearray(), bytearray())


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    status: BinaryIO
    stdout: bytearray
    stderr: bytearray

    def finished(self, stopped: Verdict | None) -> Finished:
        stdout, stderr = (text.decode("utf-8", "replace") for text in (self.stdout, self.stderr))
        if stopped:
            return Finished(None, stdout, stderr, stopped)
        # Bubblewrap reports an exit code only if it got as far as to start the command.
        if b"exit-code" not in self.status.read():
            return _not_run(stderr.strip() or f"it ended with {self.process.returncode}")
        over = self.process.returncode == 128 + signal.SIGXCPU
        return Finished(self.process.returncode, stdout, stderr, Verdict.TIME_LIMIT if over else None)

    def stop(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr, self.status):
            if stream:
                stream.close()


def _watch(running: Sequence[_Running], seconds: float, limit: int) -> dict[int, Verdict]:
    """Read what they print until all have ended; tells which went beyond a limit, if any did."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for number, each in enumerate(running):
            for stream, text in ((each.process.stdout, each.stdout), (each.process.stderr, each.stderr)):
                if stream:
                    selector.register(stream, selectors.EVENT_READ, (number, text))
        late = 2  # passes behind the deadline, for what was printed before it: we may have slept over it
        while selector.get_map() and late:
            left = deadline - time.monotonic()
            late -= left <= 0
            for key, _ in selector.select(max(left, 0.0)):
                number, text = key.data
                text += (chunk := os.read(key.fd, 1 << 16))
                if not chunk:
                    selector.unregister(key.fileobj)
                elif len(text) > limit:
                    alive = {n for n, each in enumerate(running) if each.process.poll() is None}
                    return dict.fromkeys({number, *alive}, Verdict.OUTPUT_LIMIT)
    for each in running:
        with suppress(subprocess.TimeoutExpired):
            each.process.wait(max(0.0, deadline - time.monotonic()))
    return {n: Verdict.TIME_LIMIT for n, each in enumerate(running) if each.process.poll() is None}


def _not_run(why: str) -> Finished:
    return Finished(None, "", " ".join(why.split()), Verdict.NOT_RUN)


@functools.cache
def _fault(sandbox: Sandbox) -> str:
    advice = "programs are not run; install bubblewrap 0.8 or newer and util-linux, and allow user namespaces"
    if sandbox.bwrap is None:
        return f"no bubblewrap on the PATH: {advice}"
    with ExitStack() as owned:
        ends = [(_sealed(owned, ""), subprocess.PIPE)]
        tried = sandbox._run(owned, [Command({}, (PYTHON, "-S", "-c", "print('it works')"))], ends)[0]
    if tried.stdout == "it works\n":
        return ""
    return f"no sandbox ({tried.stderr.strip() or tried.reason or tried.exit_code}): {advice}"


@functools.cache
def _version(bwrap: str | None) -> str | None:
    """As bubblewrap tells it; None where there is none."""
    if bwrap is None:
        return None
    with suppress(OSError):
        done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
        return done.stdout.strip().rpartition(" ")[2] or None
    return None


def _pipe(owned: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        owned.callback(os.close, end)
    return ends


def _sealed(owned: ExitStack, text: str) -> int:
    """A file without a name that nobody can write to any more, read from its start."""
    from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_WRITE, fcntl  # noqa: PLC0415 - Linux alone has them

    number = os.memfd_create("text", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    owned.callback(os.close, number)
    with os.fdopen(os.dup(number), "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    os.lseek(number, 0, os.SEEK_SET)
    fcntl(number, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK)
    return number


def _confined(sandbox: Sandbox, argv: Sequence[str], files: Mapping[str, int], status: int) -> list[str]:
    """Put bubblewrap and limits before a command, which has the same path inside.

    A limit on processes does not bind root. Root therefore starts bubblewrap as uid 65534, out of a first bubblewrap
    whose one task is to show it the interpreter and bubblewrap, which may lie where only root can look. `files` are
    names below `BOX` and descriptors of their content; bubblewrap reports to the descriptor `status`.
    """
    bwrap = str(Path(str(sandbox.bwrap)).absolute())
    mounts, root, cpu = dict(_mounts(sandbox.packages)), os.geteuid() == 0, math.ceil(sandbox.seconds)
    seen = {inside: f"/tmp/{n}" if root else outside for n, (inside, outside) in enumerate(mounts.items())}  # noqa: S108
    first = [
        # The second bubblewrap forgets its parent as it changes its rights; it ends with the processes of the first.
        *(bwrap, "--dev-bind", "/", "/", "--tmpfs", "/tmp", "--unshare-pid", "--proc", "/proc", "--die-with-parent"),  # noqa: S108
        # The kernel allows a new /proc only where an old one is in full sight.
        *("--dev-bind", "/proc", "/tmp/proc", "--ro-bind", bwrap, "/tmp/bwrap"),  # noqa: S108
        *(word for inside, outside in mounts.items() for word in ("--ro-bind", outside, seen[inside])),
        *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", "setpriv", "--reuid", _NOBODY),
        *("--regid", _NOBODY, "--clear-groups", "--"),
    ]
    return [
        *("choom", "-n", "1000", "--"),  # if memory is short, the kernel ends this first
        *(first if root else ()),
        *("/tmp/bwrap" if root else bwrap, "--unshare-all", "--unshare-user"),  # noqa: S108
        *("--disable-userns", "--die-with-parent", "--new-session"),
        *("--hostname", "sandbox", "--uid", _NOBODY, "--gid", _NOBODY, "--cap-drop", "ALL"),
        *("--size", str(sandbox.file_mb << 20), "--tmpfs", "/tmp", *_system()),  # noqa: S108
        *(word for inside, outside in seen.items() for word in ("--ro-bind", outside, inside)),
        *(word for name, number in files.items() for word in ("--ro-bind-data", str(number), f"{BOX}/{name}")),
        # The root and /dev are tmpfs of no size: read-only, or they could be filled.
        *("--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108
        *("--json-status-fd", str(status), "--"),
        *("prlimit", f"--as={sandbox.memory_mb << 20}", f"--fsize={sandbox.file_mb << 20}"),
        f"--nproc={sandbox.processes}",
        # A program may catch the signal of the soft limit; the hard one ends it a second later.
        *(f"--cpu={cpu}:{cpu + 1}", "--nofile=64", "--core=0", f"--stack={64 << 20}"),
        *argv,
    ]


def _system() -> Iterator[str]:
    """What a program needs of the host to be loaded."""
    yield from ("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    for path in (Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64")):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))


def _mounts(packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Inside -> outside: the interpreter, packages, and the libraries that their wheels bring."""
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        yield sys.base_prefix, sys.base_prefix
    for name in packages:
        if (spec := importlib.util.find_spec(name)) and spec.origin:
            package = Path(spec.origin).parent
            for folder in (package, package.with_name(f"{name}.libs")):
                if folder.is_dir():
                    yield f"/packages/{folder.name}", str(folder)
