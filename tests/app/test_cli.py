"""The command line: what reaches a verb, and that faults are one line and exit code 2."""

import ctypes
import errno
import gc
import io
import os
import subprocess
import sys
import types
from pathlib import Path

import hydra
import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from nsed_torch.app.cli import VERBS, main
from nsed_torch.app.config import paths

ROOT = Path(__file__).parents[2]

DELIBERATE = """
defaults: [{ensemble: demo}, {override hydra/job_logging: none}, {override hydra/hydra_logging: none}, _self_]
question: ""
rounds: 3
budget: {tokens: 100, spare: 1}
missing: ???
hydra: {run: {dir: "%s/run"}, sweep: {dir: "%s/sweep"}}
"""


@pytest.fixture
def verb(tmp_path, monkeypatch):
    """A `deliberate` of our own; returns the configs its job got, and `verb.fails` makes it raise."""
    conf = tmp_path / "nsed_torch" / "conf"
    (conf / "ensemble").mkdir(parents=True)
    (conf / "deliberate.yaml").write_text(DELIBERATE.replace("%s", str(tmp_path)))
    for name in ("demo", "duo"):
        (conf / "ensemble" / f"{name}.yaml").write_text(f"name: {name}\n")
    monkeypatch.setattr(paths, "_PACKAGE", conf.parent)
    verb = types.SimpleNamespace(seen=[], fails=None, arguments=None)

    @hydra.main(version_base="1.3", config_path=str(conf), config_name="deliberate")
    def job(config):
        verb.arguments = list(sys.argv)
        verb.seen.append(OmegaConf.to_container(config, resolve=True))
        if verb.fails:
            raise verb.fails
        return config.missing if config.rounds == 99 else None

    verb.main = job
    monkeypatch.setitem(sys.modules, "nsed_torch.app.verbs.deliberate", verb)
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    return verb


@pytest.fixture
def fault(capfd):
    """Run a command that must end with one line on standard error; returns the line."""

    def run(*arguments, code=2):
        assert main(arguments) == code
        out, err = capfd.readouterr()
        assert out == ""
        assert err.endswith("\n")
        assert err.count("\n") == 1
        return err.strip()

    return run


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_verbs(arguments, capsys):
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, gloss in VERBS.items():
        assert f"  {name}" in out
        assert gloss in out


def test_threads_that_wait_leave_their_core_to_others_unless_told(monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert main(["evaluate", "--help"]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert main(["evaluate", "--help"]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


LARGE_BLOCKS = """
import ctypes, sys
from nsed_torch.app.cli import give_memory_back

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype, libc.malloc.restype, libc.malloc.argtypes = Info, ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "give":
    give_memory_back()
libc.free(libc.malloc(30 << 20))  # glibc keeps blocks up to that size from now on
before = libc.mallinfo2().hblkhd
libc.malloc(20 << 20)
print(libc.mallinfo2().hblkhd - before >= 20 << 20)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library")
@pytest.mark.parametrize(("how", "given_back"), [("keep", "False"), ("give", "True")])
def test_large_blocks_are_given_back(how, given_back):
    words = [sys.executable, "-c", LARGE_BLOCKS, how]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == given_back


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nsed_torch 0.")


def test_the_shell_completes_verbs_groups_options_and_settings():
    script = (
        'nsed() { "$PYTHON" -m nsed_torch "$@"; }; eval "$(nsed --completion)"\n'
        'for COMP_LINE in "nsed ev" "nsed evaluate tasks=gs" "nsed tune divisions=2 wav"; do\n'
        '  COMP_WORDS=($COMP_LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _nsed; echo "${COMPREPLY[@]}"\ndone'
    )
    child = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.splitlines() == ["evaluate", "tasks=gsm8k", "waves="]


def test_unknown_verb_names_the_nearest(fault):
    assert fault("demoo").startswith("nsed: unknown verb 'demoo'; did you mean 'demo'?")
    verbs = "verbs: demo, deliberate, conduct, train-conductor, evaluate, collect, tune, fit-broker, train-judges, "
    verbs += "specialize, serve, fetch, report"
    assert fault("delibrate").startswith(f"nsed: unknown verb 'delibrate'; did you mean 'deliberate'? {verbs}")
    assert fault("xyz").startswith(f"nsed: unknown verb 'xyz'; {verbs}")


HEAVY = "torch", "transformers", "rich", "numpy"


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        *((arguments, (*HEAVY, "hydra", "omegaconf")) for arguments in (["evaluate", "--help"], ["nonsense"])),
        (["deliberate", "Why?", "--cfg", "job"], HEAVY),
    ],
)
def test_nothing_heavy_is_imported_before_a_verb_runs(arguments, heavy):
    script = (
        "import sys; from nsed_torch.app.cli import main; main(sys.argv[2:]);"
        "print('HEAVY', sorted({*sys.argv[1].split()} & set(sys.modules)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, " ".join(heavy), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.endswith("HEAVY []\n")


QUESTIONS = [
    "Which is larger, 17 or 71?",
    "Is x=3 a root of x^2=9?",
    "x=3 solves it, right?",
    "x = 3",
    "2+2=?",
    'it\'s "quoted" \\ and ${oc.env:HOME} and \\${x}\\',
    "{a: [1, 2]}",
    "two\nlines\tand a tab",
    "où? 🦉",
    "null",
    "???",
    "17",
    " padded ",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_bare_question_is_any_text(verb, question):
    assert main(["deliberate", question, "rounds=2"]) == 0
    (config,) = verb.seen
    assert config["question"] == question
    assert config["rounds"] == 2


@pytest.mark.parametrize("argument", ["question={}", "++question={}", "question=@q.txt", "@q.txt", "-", "question=-"])
def test_a_question_is_any_text_in_any_form(verb, monkeypatch, argument):
    question = "\n".join(QUESTIONS)
    Path("q.txt").write_bytes(question.encode() + b"\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(question.encode() + b"\r\n")))
    assert main(["deliberate", argument.replace("{}", question)]) == 0
    assert verb.seen[0]["question"] == question


def test_a_question_of_many_lines_passes_the_checks_of_what_hydra_is_told(tmp_path, capsys):
    Path(tmp_path, "q.txt").write_text("Steps:\n1. lift 'A'\n2. put it on B\nWhat is next?\n")
    assert main(["deliberate", f"question=@{tmp_path}/q.txt", "--cfg", "job"]) == 0
    assert OmegaConf.create(capsys.readouterr().out).question == "Steps:\n1. lift 'A'\n2. put it on B\nWhat is next?"


def test_overrides_are_told_from_questions(verb):
    assert main(["deliberate", "ensemble=duo", "+note=two words", "budget.tokens=7", "~budget.spare", "Why?"]) == 0
    (config,) = verb.seen
    assert config == {
        "question": "Why?",
        "rounds": 3,
        "ensemble": {"name": "duo"},
        "budget": {"tokens": 7},
        "missing": "???",
        "note": "two words",
    }
    # The key is known, so this is no question, blanks or not.
    assert main(["deliberate", "budget={tokens: 9}"]) == 0
    assert verb.seen[-1]["budget"]["tokens"] == 9


def test_only_one_trailing_line_break_goes(verb):
    Path("q.txt").write_bytes(b"\xef\xbb\xbfa\n\n")
    assert main(["deliberate", "question=@q.txt"]) == 0
    assert verb.seen[0]["question"] == "a\n"


def test_options_may_stand_anywhere(verb, capsys):
    assert main(["deliberate", "Why?", "--cfg", "job", "rounds=5"]) == 0
    config = OmegaConf.create(capsys.readouterr().out)
    assert (config.question, config.rounds) == ("Why?", 5)
    assert verb.seen == []


def test_multirun_sweeps_settings_but_never_the_question(verb):
    assert main(["deliberate", "-m", "question=a,b", "rounds=1,2"]) == 0
    assert [(c["question"], c["rounds"]) for c in verb.seen] == [("a,b", 1), ("a,b", 2)]


def test_garbage_is_looked_for_again_when_a_program_has_imported_its_verb_and_not_among_that(verb, monkeypatch):
    job, told = verb.main, []
    verb.main = lambda: told.append((gc.isenabled(), gc.get_freeze_count())) or job()
    try:
        main(["deliberate"])
        monkeypatch.setattr(sys, "argv", ["nsed", "deliberate"])
        main()
    finally:
        gc.unfreeze()
    (inside, held), (program, frozen) = told
    assert (inside, program) == (True, True)
    assert frozen > held + 10_000


def test_process_state_is_put_back(verb, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    stderr = sys.stderr
    for verb.fails in (None, ValueError("no")):
        main(["deliberate", "Why?"])
        assert verb.arguments[0] == "nsed deliberate"
        assert sys.argv == ["pytest"]
        assert os.environ["HYDRA_FULL_ERROR"] == "0"
        assert sys.stderr is stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["question="], "expected a question, got an empty text"),
        ([" \n "], "expected a question, got an empty text"),
        (["question=@empty.txt"], "expected a question, got an empty text from empty.txt"),
        (["question=@nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["question=@bytes.bin"], "bytes.bin: expected UTF-8 text, got other bytes at byte 2"),
        (["one?", "two?"], "expected one question, got 2: ['one?', 'two?']; put quotes around a text"),
        (["one?", "question=two?"], "expected one question, got 2: ['one?', 'two?']; put quotes around a text"),
        (["Why?", "ensemble=foo"], "could not find 'ensemble/foo'; available: demo, duo"),
        (
            ["Why?", "ensemble=teams/foo.yaml"],
            (
                "could not find 'ensemble/teams/foo.yaml'; available: demo, duo; a file of your own "
                "lies in FOLDER/ensemble: --config-dir FOLDER ensemble=foo"
            ),
        ),
        (["roundz=3"], "unknown setting 'roundz'; did you mean 'rounds'? nsed deliberate --cfg job lists all"),
        (
            ["budget.token=3"],
            "unknown setting 'budget.token'; did you mean 'budget.tokens'? nsed deliberate --cfg job lists all",
        ),
        (["zzz=3"], "unknown setting 'zzz'; nsed deliberate --cfg job lists all"),
        (
            ["budget={token: 3}"],
            "unknown setting 'budget.token'; did you mean 'budget.tokens'? nsed deliberate --cfg job lists all",
        ),
        (["rounds=[1"], "no viable alternative at input '[1'"),
        (["rounds=99"], "setting 'missing' has no value; pass missing=..."),
        (["rounds=${nowhere}"], "Interpolation key 'nowhere' not found; setting rounds"),
        (["--bogus"], "unrecognized arguments: --bogus; a text that starts with a dash goes in as key='-...'"),
        (
            ["--experimental-rerun", "x.pickle"],
            "--experimental-rerun loads a pickle, which may run code: pass the overrides instead",
        ),
        (["--experimental-rerun=x.pickle"], "--experimental-rerun loads a pickle, which may run code: pass"),
    ],
)
def test_what_a_user_can_fix_is_one_line(verb, fault, arguments, line):
    Path("empty.txt").write_text("\n")
    Path("bytes.bin").write_bytes(b"ab\xff")
    assert fault("deliberate", *arguments).startswith(f"nsed deliberate: {line}")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["report", "ensemble=demo"], "nsed report has no group 'ensemble'; nsed report --help lists all"),
        (
            ["evaluate", "ensemble=demo", "backbone=endpoint"],
            "unknown setting 'backbone'; did you mean 'backbone@ensemble.engines.smollm2'?",
        ),
        (
            ["evaluate", "ensemble=two_families", "backbone=endpoint"],
            "unknown setting 'backbone'; did you mean 'backbone@ensemble.engines.gemma3' or 'backbone@ens",
        ),
    ],
)
def test_a_group_that_a_verb_does_not_have_or_has_elsewhere_is_one_line(fault, arguments, line):
    assert fault(*arguments).startswith(f"nsed {arguments[0]}: {line}")


@pytest.mark.parametrize("mode", [[], ["-m"]])
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("expected two agents,\n  got one"), "expected two agents, got one"),
        (FileNotFoundError(2, "No such file", "model.gguf"), "model.gguf: No such file"),
        (OSError("the disk is full"), "the disk is full"),
        (HydraException("no such plugin"), "no such plugin"),
    ],
)
def test_faults_inside_a_job_are_one_line(verb, fault, mode, error, line):
    verb.fails = error
    assert fault("deliberate", "Why?", *mode) == f"nsed deliberate: {line}"


def test_our_own_errors_keep_their_traceback(verb):
    verb.fails = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        main(["deliberate", "Why?"])


def test_debug_shows_the_traceback_of_any_error(verb, monkeypatch):
    monkeypatch.setenv("NSED_DEBUG", "1")
    verb.fails = ValueError("expected two agents")
    with pytest.raises(ValueError, match="expected two agents"):
        main(["deliberate", "Why?"])


@pytest.mark.parametrize("given", ["runs/it=1", None])
def test_interrupt_prints_the_command_that_goes_on(verb, fault, monkeypatch, given):
    def interrupted():
        raise KeyboardInterrupt(*[] if given else ["runs/12-30-00"])  # a verb tells its folder

    monkeypatch.setattr(verb, "main", interrupted)
    said = fault("deliberate", "Why not?", "rounds=2", *[f"output_dir={given}"] if given else [], code=130)
    command = f"nsed deliberate 'Why not?' rounds=2 output_dir={given or 'runs/12-30-00'}"
    assert said == f"nsed deliberate: interrupted; this goes on from here: {command}"


@pytest.mark.parametrize("stumbles", [False, True])
def test_a_verb_tells_the_folder_that_it_was_interrupted_in(stumbles, tmp_path, monkeypatch, capfd):
    def interrupted(*_):
        try:
            raise KeyboardInterrupt
        finally:
            if stumbles:  # as OmegaConf does where it is stopped between two lines
                raise AttributeError("'NoneType' object has no attribute '_invalidate_flags_cache'")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nsed_torch.app.verbs.deliberate.build_rnn", interrupted)
    assert main(["deliberate", "Why?"]) == 130
    command = capfd.readouterr().err.partition("goes on from here: ")[2]
    folder = command.rpartition("output_dir=")[2].strip()
    assert command.startswith("nsed deliberate 'Why?' output_dir=runs/deliberate/2")
    assert (tmp_path / folder).is_dir()


@pytest.mark.parametrize("question", ["Two  spaces?", "Two\nlines\tand 'quotes' \\\\ ?", "\x1b[31m?", "où\u202e?"])
def test_the_command_that_goes_on_says_the_very_same_words(verb, fault, monkeypatch, question):
    monkeypatch.setattr(verb, "main", lambda: (_ for _ in ()).throw(KeyboardInterrupt("runs/it")))
    said = fault("deliberate", question, code=130)
    assert said.isprintable()
    command = said.partition("goes on from here: ")[2]
    script = command.replace("nsed deliberate", "printf '%s\\0'", 1)
    read = subprocess.run(["bash", "-c", script.encode()], capture_output=True, check=True).stdout
    assert read.split(b"\0")[:2] == [os.fsencode(question), b"output_dir=runs/it"]


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.ENOSPC, "it/a: No space left on device; make space there, or choose another output_dir"),
        (errno.EROFS, "it/a: Read-only file system; give access to it, or name another place"),
        (errno.EACCES, "it/a: Permission denied; give access to it, or name another place"),
        (errno.EIO, "it/a: Input/output error"),
    ],
)
def test_what_the_system_refuses_has_a_remedy(verb, fault, number, line):
    verb.fails = OSError(number, os.strerror(number), "it/a")
    assert fault("deliberate", "Why?") == f"nsed deliberate: {line}"


def test_a_line_is_printable_and_has_an_end(verb, fault):
    verb.fails = ValueError("expected less, got \x1b]0;owned\x07" + "é" * 70_000)
    said = fault("deliberate", "Why?")
    assert said.isprintable()
    assert len(said) < 2100


def test_interrupt_promises_nothing_where_a_verb_keeps_nothing(fault, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "nsed_torch.app.verbs.train_judges", types.SimpleNamespace(main=interrupted))
    said = fault("train-judges", code=130)
    assert said == "nsed train-judges: interrupted; this begins anew: nsed train-judges"


@pytest.mark.parametrize("place", ["runs/lr=0.1", "runs/a b", "runs/问题 x=1", "~/r\u00fcn(1)", "a: b", "x}"])
def test_values_are_taken_as_they_are(verb, place):
    assert main(["deliberate", "Why?", f"missing={place}"]) == 0
    assert verb.seen[-1]["missing"] == place


def test_what_a_job_writes_to_standard_error_comes_through(verb, capsys):
    verb.main = lambda: sys.stderr.write("progress 1/2\n")
    assert main(["deliberate", "Why?"]) == 0
    assert capsys.readouterr().err == "progress 1/2\n"


@pytest.mark.parametrize(
    "entry", [["-m", "nsed_torch"], ["-m", "nsed_torch.app.cli"], [str(ROOT / "scripts" / "nsed.py")]]
)
def test_launchers_find_the_verbs(entry):
    child = subprocess.run(
        [sys.executable, *entry, "repotr", "run="],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stdout) == (2, "")
    assert child.stderr.startswith("nsed: unknown verb 'repotr'; did you mean 'report'? verbs: ")


@pytest.mark.parametrize("question", ["train", "train-conductor", "conduct"])
def test_verbs_can_be_asked_about(question, monkeypatch):
    seen = []
    verb = types.SimpleNamespace(main=lambda: seen.append(list(sys.argv)))
    monkeypatch.setitem(sys.modules, "nsed_torch.app.verbs.conduct", verb)
    assert main(["conduct", question]) == 0
    assert seen == [["nsed conduct", f"question='{question}'"]]
