"""The sandbox: what a program inside can do, all it must not do, and that without bubblewrap nothing runs."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sandboxed import SANDBOX, skipped, usable

from nsed_torch.questions.sandbox import BOX, PYTHON, Command, Sandbox, _Running, _watch
from nsed_torch.records.outcome import Verdict

HASTY = dataclasses.replace(SANDBOX, seconds=0.1)  # for what has to be stopped


def run(code, stdin="", sandbox=SANDBOX):
    return sandbox.run({"main.py": code}, (PYTHON, "-S", f"{BOX}/main.py"), stdin)


def answers(code):
    """What a program prints, as JSON; it has to end well."""
    done = run(f"import json, os, sys\n{code}")
    assert (done.exit_code, done.reason, done.stderr) == (0, None, "")
    return json.loads(done.stdout)


@usable
def test_a_program_reads_prints_and_ends_as_it_likes():
    done = run("import sys\nprint(input()[::-1])\nprint('héé', file=sys.stderr)\nsys.exit(7)", "drawer\n")
    assert (done.exit_code, done.stdout, done.stderr, done.reason) == (7, "reward\n", "héé\n", None)
    done = run("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert (done.exit_code, done.reason) == (128 + 15, None)


@usable
def test_it_finds_the_standard_library_and_the_packages_named():
    code = "import sqlite3, ssl, decimal, numpy\nprint(numpy.arange(4).sum(), numpy.linalg.det(numpy.eye(2)))"
    assert run(code).stdout == "6 1.0\n"
    assert "No module named 'numpy'" in run(code, sandbox=Sandbox(packages=[])).stderr
    assert "No module named 'torch'" in run("import torch").stderr
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in run("import sys\nprint(sys.version)").stdout


@usable
def test_its_surroundings_are_the_same_everywhere(monkeypatch):
    monkeypatch.setenv("SECRET", "a token")
    code = (
        "import platform\nprint(json.dumps([dict(os.environ), os.getcwd(), platform.node(), os.getuid(), hash('a')]))"
    )
    environ, cwd, node, uid, number = answers(code)
    expected = {"PATH", "LANG", "HOME", "PWD", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"}
    assert set(environ) == expected | {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert (cwd, node, uid) == ("/tmp", "sandbox", 65534)
    assert number == answers("print(hash('a'))")


@usable
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass",
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)",
    ],
    ids=["busy", "asleep", "deaf", "silent"],
)
def test_time_ends(code):
    began = time.monotonic()
    assert run(code, sandbox=HASTY).reason is Verdict.TIME_LIMIT
    assert 0.6 < time.monotonic() - began < 6


@usable
def test_processor_time_ends_on_its_own():
    assert answers("import resource\nprint(json.dumps(resource.getrlimit(resource.RLIMIT_CPU)))") == [3, 4]
    done = run("import os, signal\nprint('so far', flush=True)\nos.kill(os.getpid(), signal.SIGXCPU)")
    assert (done.stdout, done.reason) == ("so far\n", Verdict.TIME_LIMIT)


@usable
def test_memory_ends():
    assert "MemoryError" in run("x = bytearray(1 << 30)").stderr
    assert run("x = bytearray(1 << 26)").exit_code == 0
    # Recursion has room: 64 MiB of stack.
    deep = "import sys, functools\nsys.setrecursionlimit(10**5)\n"
    deep += "@functools.cache\ndef f(n): return n and 1 + f(n - 1)\nprint(f(20000))"
    assert run(deep).stdout == "20000\n"


@usable
def test_processes_end():
    count = "import os, time\nn = 0\ntry:\n  while True:\n    if not os.fork(): time.sleep(60)\n    n += 1\n"
    done = run(f"{count}except OSError: print(n)")
    assert 1 <= int(done.stdout) < 8
    threads = (
        "import threading, time\nwhile True:\n  threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    )
    assert "can't start new thread" in run(threads).stderr
    bomb = run("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", sandbox=HASTY)
    assert bomb.reason is Verdict.TIME_LIMIT
    assert run("print('well')").stdout == "well\n"


def named(name):
    """How many processes of the host call themselves so."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += path.read_bytes().startswith(name.encode())
    return found


def until(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@usable
def test_nothing_outlives_a_run():
    name = f"straggler{os.getpid()}"
    code = f"""
import os, time
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0: os.execv({PYTHON!r}, [{name!r}, '-S', '-c', 'import time; time.sleep(600)'])
  os._exit(0)
time.sleep(0.1)
"""
    for end in ("", "time.sleep(600)"):
        run(code + end, sandbox=HASTY)
        assert until(lambda: not named(name))
    # Nor does a run outlive whoever began it.
    begin = f"from nsed_torch.questions.sandbox import *\nSandbox(seconds=99).run({{'main.py': {(code + end)!r}}}, "
    begin += f"({PYTHON!r}, '-S', '{BOX}/main.py'))"
    with subprocess.Popen([sys.executable, "-c", begin]) as process:
        assert until(lambda: named(name))
        process.kill()
    assert until(lambda: not named(name))


@usable
def test_files_end():
    big = run("open('/tmp/big', 'wb').write(bytes(5 << 20))")
    assert "File too large" in big.stderr or big.exit_code == 128 + 25  # SIGXFSZ
    many = "for n in range(100):\n  with open(f'/tmp/{n}', 'wb') as f: f.write(bytes(1 << 20))"
    assert "No space left on device" in run(many).stderr
    assert "Too many open files" in run("kept = [open('/dev/null') for _ in range(99)]").stderr
    room = "import os\nfor place in ('/', '/dev', '/dev/shm', '/box', '/usr', '/proc', '/etc', '/packages'):\n"
    room += "  try: open(place + '/x', 'w')\n  except OSError: print('no')"
    assert run(room).stdout == "no\n" * 8
    assert "Errno" in run("import os\nos.truncate('/proc/self/fd/0', 1 << 40)").stderr
    assert run("open('/box/main.py', 'a')").exit_code == 1


@usable
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_printing_ends(stream):
    done = run(f"import sys\nwhile True: print('x' * 999, file=sys.{stream})")
    assert done.reason is Verdict.OUTPUT_LIMIT
    assert 64 << 10 < len(getattr(done, stream)) < 256 << 10
    once = run(f"import sys\nprint('x' * 70000, file=sys.{stream})")
    assert once.reason is Verdict.OUTPUT_LIMIT
    assert run(f"import sys\nprint('x' * 60000, file=sys.{stream})").reason is None


@usable
def test_the_hosts_files_are_not_there(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "open").mkdir(mode=0o777)
    places = [
        "/etc/passwd",
        "/etc/hostname",
        str(secret),
        str(Path(__file__)),
        sys.prefix,
        str(Path.home() / ".bashrc"),
    ]
    assert answers(f"print(json.dumps([p for p in {places!r} if os.path.exists(p)]))") == []
    own = {"bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "tmp", "proc", "dev", "box", "packages"}
    assert set(answers("print(json.dumps(os.listdir('/')))")) <= own | {Path(sys.base_prefix).parts[1]}
    assert answers("print(json.dumps([os.listdir('/etc'), os.listdir('/tmp'), os.listdir('/dev/shm')]))") == [
        ["ld.so.cache"],
        [Path(sys.base_prefix).parts[2]] if sys.base_prefix.startswith("/tmp/") else [],
        [],
    ]


@usable
def test_other_processes_are_not_there():
    code = f"""
seen = [int(name) for name in os.listdir('/proc') if name.isdigit()]
try:
    os.kill({os.getpid()}, 0)
    found = True
except ProcessLookupError:
    found = {os.getpid()} in seen
try: environ = open('/proc/1/environ').read()
except OSError: environ = ''
print(json.dumps([len(seen), found, [int(fd) for fd in os.listdir('/proc/self/fd')], 'SECRET' in environ]))
"""
    count, found, descriptors, leaked = answers(code)
    assert count <= 3
    assert found == (os.getpid() <= 3)
    assert set(descriptors) <= {0, 1, 2, 3}  # 3 is the listing's own
    assert not leaked
    assert (
        run("import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\nprint('here')").exit_code
        is not None
    )
    assert run("import os\nos.kill(os.getppid(), 9)\nos.killpg(0, 9)").exit_code == 128 + 9


@usable
def test_the_network_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0nsed{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        code = f"""
import socket
def reached(family, address):
    with socket.socket(family) as s:
        s.settimeout(0.5)
        return s.connect_ex(address) == 0
print(json.dumps([reached(socket.AF_INET, ('127.0.0.1', {server.getsockname()[1]})),
    reached(socket.AF_INET, ('8.8.8.8', 53)), reached(socket.AF_UNIX, {name!r}),
    [name for _, name in socket.if_nameindex()]]))
"""
        assert answers(code) == [False, False, False, ["lo"]]


@usable
def test_a_program_gets_no_rights():
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
status = open('/proc/self/status').read().split()
print(json.dumps([libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'x', b'/tmp', b'tmpfs', 0, b''),
    status[status.index('CapEff:') + 1], status[status.index('NoNewPrivs:') + 1]]))
"""
    assert answers(code) == [-1, -1, -1, "0" * 16, "1"]
    assert "OSError" in run("import os\nos.setuid(0)").stderr


@usable
def test_two_programs_talk_and_share_nothing_else():
    ask = "import os\nopen('/tmp/mark', 'w')\nprint('ping', flush=True)\nassert input() == 'pong []'"
    reply = "import os\nassert input() == 'ping'\nprint('pong', os.listdir('/tmp'))\nraise SystemExit(3)"
    commands = [Command({"main.py": code}, (PYTHON, "-S", f"{BOX}/main.py")) for code in (ask, reply)]
    if sys.base_prefix.startswith("/tmp/"):
        pytest.skip("the interpreter lies in /tmp")
    one, other = SANDBOX.converse(*commands)
    assert (one.exit_code, one.stderr) == (0, "")
    assert (other.exit_code, other.stderr) == (3, "")
    # One that waits in vain is stopped; the other's end is not changed by that.
    deaf = Command({"main.py": "import time\ntime.sleep(60)"}, (PYTHON, "-S", f"{BOX}/main.py"))
    quick = Command({"main.py": "raise SystemExit(4)"}, (PYTHON, "-S", f"{BOX}/main.py"))
    one, other = dataclasses.replace(HASTY, seconds=0.5).converse(deaf, quick)
    assert (one.reason, other.exit_code, other.reason) == (Verdict.TIME_LIMIT, 4, None)


def fake(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("script", [None, "", "exit 0", "echo it works", "kill -9 $$", 'echo "{\\"exit-code\\": 0}"'])
def test_without_bubblewrap_nothing_runs(tmp_path, script):
    mark = tmp_path / "mark"
    path = None if script is None else str(tmp_path / "absent") if not script else fake(tmp_path / "bwrap", script)
    sandbox = Sandbox(bwrap=path)
    assert "programs are not run; install bubblewrap 0.8 or newer" in sandbox.why
    assert "\n" not in sandbox.why
    done = run(f"open({str(mark)!r}, 'w')\nprint('right')", sandbox=sandbox)
    assert (done.exit_code, done.stdout, done.reason, done.stderr) == (None, "", Verdict.NOT_RUN, sandbox.why)
    command = Command({"main.py": "print(1)"}, (PYTHON, f"{BOX}/main.py"))
    assert [each.reason for each in sandbox.converse(command, command)] == [Verdict.NOT_RUN] * 2
    assert not mark.exists()


@usable
def test_bubblewrap_may_lie_where_the_sandbox_hides_what_lies_there():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        sandbox = dataclasses.replace(SANDBOX, bwrap=shutil.copy2(SANDBOX.bwrap, f"{folder}/bwrap"))
        assert sandbox.why == ""
        assert run("print('found')", sandbox=sandbox).stdout == "found\n"


def test_a_missing_sandbox_is_red_where_everything_has_to_be_proved():
    assert [skipped("none", {}), skipped("", {}), skipped("none", {"CI": "true"})] == [True, False, False]


def test_what_it_is_can_be_told():
    identity = SANDBOX.identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["available"] is (not SANDBOX.why)
    assert (identity["seconds"], identity["memory_mb"]) == (3, 512)
    assert identity["packages"] == {"numpy": pytest.importorskip("numpy").__version__}
    if SANDBOX.bwrap:
        assert re.fullmatch(r"[0-9.]+", identity["bwrap"])
        told = subprocess.run([SANDBOX.bwrap, "--version"], capture_output=True, text=True, check=True).stdout
        assert identity["bwrap"] in told


@pytest.mark.parametrize("name", ["seconds", "memory_mb", "processes", "file_mb", "output_kb"])
def test_a_limit_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=r"expected limits above 0, got .*\b0\b"):
        Sandbox(**{name: 0})


def test_what_was_printed_in_time_is_read_by_who_slept_over_the_deadline(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "print('it works')"], stdout=subprocess.PIPE)
    process.wait()
    status = (tmp_path / "status").open("wb+")
    with status, process.stdout:
        one = _Running(process, status, bytearray(), bytearray())
        assert _watch([one], -1.0, 100) == {}
    assert one.stdout.split() == [b"it", b"works"]
