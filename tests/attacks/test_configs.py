"""A config from a stranger builds what configs need and nothing else, whatever Hydra would make of it."""

import logging
import pydoc
import re
import time
from pathlib import Path

import pytest
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from omegaconf import OmegaConf

from nsed_torch.app.cli import main
from nsed_torch.app.config.hydra_node import check_hydra, check_search_path, checked, checked_compositions
from nsed_torch.app.config.instantiate import CONSTRUCTORS, instantiate
from nsed_torch.app.config.paths import check_yaml, conf_dir
from nsed_torch.core.named import NAMED
from nsed_torch.core.prompts import Prompts
from nsed_torch.records import rendering as templates

RUNS = "imaplib.IMAP4_stream"  # starts its `command`


@pytest.fixture
def strange(tmp_path, monkeypatch, capfd):
    """Run `nsed fetch` with a stranger's config; returns its one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # --info adds one

    def run(node, *arguments):
        (tmp_path / "strange/evil").mkdir(parents=True, exist_ok=True)
        text = node if isinstance(node, str) else OmegaConf.to_yaml(node)
        (tmp_path / "strange/evil/evil.yaml").write_text("# @package _global_\n" + text)
        settings = [] if "--hydra-help" in arguments else ["offline=true"]  # which reads no setting of a verb
        assert main(["fetch", *settings, "--config-dir", "strange", "+evil=evil", *arguments]) == 2
        out, err = capfd.readouterr()
        assert err.count("\n") == 1, err
        assert "PWNED" not in [path.name for path in tmp_path.iterdir()]
        return out + err

    return run


@pytest.mark.parametrize("options", [[], ["-m"], ["--cfg", "job"], ["--hydra-help"], ["--info", "config"]], ids=str)
def test_a_callback_never_runs(strange, options):
    node = {"hydra": {"callbacks": {"x": {"_target_": RUNS, "command": "touch PWNED"}}}}
    assert f"hydra.callbacks.x._target_: expected one of {'hydra._internal'}" in strange(node, *options)


def test_every_job_of_a_sweep_is_checked(strange, tmp_path):
    (tmp_path / "strange/more").mkdir(parents=True)
    for name, handler in (("a", "logging.NullHandler"), ("b", RUNS)):
        logging_node = {"version": 1, "root": {"handlers": ["x"]}, "handlers": {"x": {"class": handler}}}
        text = "# @package _global_\n" + OmegaConf.to_yaml({"hydra": {"job_logging": logging_node}, "unknown": 1})
        (tmp_path / f"strange/more/{name}.yaml").write_text(text)
    assert "hydra.job_logging.handlers.x.class: expected one of " in strange({}, "-m", "+more=b,a")


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ({"launcher": {"_target_": RUNS}}, "launcher._target_"),
        ({"sweeper": {"sampler": [{"_target_": RUNS}]}}, "sweeper.sampler.0._target_"),
        ({"sweeper": {"_target_": "${oc.select:x}"}}, "sweeper._target_"),
        ({"callbacks": {"x": "${evil}"}}, "callbacks.x"),
        ({"callbacks": {"x": "${evil.${job.num}}"}, "job": {"num": "???"}}, "callbacks.x"),
        ({"callbacks": {"x": "${output_dir}"}}, "callbacks.x"),
        (
            {"job_logging": {"handlers": {"x": {"class": "logging.handlers.SMTPHandler"}}}},
            "job_logging.handlers.x.class",
        ),
        ({"hydra_logging": {"formatters": {"x": {"()": "logging.Formatter"}}}}, "hydra_logging.formatters.x.()"),
        ({"job_logging": {"handlers": {"x": {"stream": "ext://os.environ"}}}}, "job_logging.handlers.x.stream"),
        ({"job_logging": {"handlers": {"x": {"stream": "${a}ext"}}}}, "job_logging.handlers.x.stream"),
        ({"job": {"env_set": {"PATH": "."}}}, "job.env_set"),
        ({"job": {"env_copy": ["SECRET"]}}, "job.env_copy"),
        ({"launcher": {"setup": ["touch PWNED"]}}, "launcher.setup"),
        ({"launcher": {"comment": "a\ntouch PWNED"}}, "launcher.comment"),
        ({"sweeper": {"custom_search_space": "os.system"}}, "sweeper.custom_search_space"),
    ],
    ids=str,
)
def test_hydra_is_told_nothing_that_runs_code(node, place):
    config = OmegaConf.create({"hydra": node, "evil": {"_target_": RUNS}, "output_dir": {"_target_": RUNS}})
    with pytest.raises(ValueError, match=rf"^hydra\.{re.escape(place)}: expected "):
        check_hydra(config.hydra)


def test_hydras_own_settings_pass():
    for file in ("job_logging/default", "job_logging/stdout", "hydra_logging/default", "hydra_logging/hydra_debug"):
        group, name = file.split("/")
        logging = OmegaConf.load(f"{pydoc.locate('hydra').__path__[0]}/conf/hydra/{group}/{name}.yaml")
        runtime = {"output_dir": "/run", "job": {"name": "a"}}
        check_hydra(OmegaConf.create({"hydra": {group: logging, "runtime": runtime}}).hydra)


@pytest.mark.parametrize("path", ["pkg://this", "pkg://hydra.confusion", "structured://this", "pkg://", "zip://a"])
def test_no_package_is_imported_for_its_configs(path):
    places = ConfigSearchPathImpl()
    places.append("main", path)
    with pytest.raises(ValueError, match=r"^hydra\.searchpath: expected a folder as file://FOLDER, got "):
        check_search_path(places)


def test_search_paths_are_checked_before_they_are_imported(strange, tmp_path, monkeypatch):
    (tmp_path / "evil_package").mkdir()
    (tmp_path / "evil_package/__init__.py").write_text("import pathlib; pathlib.Path('PWNED').touch()")
    monkeypatch.syspath_prepend(tmp_path)
    assert "expected a folder as file://FOLDER, got 'pkg://evil_package'" in strange(
        {}, "hydra.searchpath=[pkg://evil_package]"
    )


def test_no_secret_of_the_environment_is_read(strange, monkeypatch):
    monkeypatch.setenv("SECRET", "open sesame")
    for text in ("${oc.env:SECRET}", "${oc.${word}:SECRET}", '${oc.decode:"$${oc.env:SECRET}"}'.replace("$$", "$")):
        line = strange({"output_dir": text, "word": "env"})
        assert "sesame" not in line
        assert "expected one of HOME, SCRATCH, SLURM_JOB_ID, TMPDIR, USER, got 'SECRET'" in line


def test_variables_that_are_no_secret_are_read(strange, monkeypatch, tmp_path):
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    strange({"output_dir": "${oc.env:SCRATCH}/run", "unknown": 1})
    assert (tmp_path / "scratch/run").is_dir()
    assert OmegaConf.create({"a": "${oc.env:SCRATCH}", "b": "${oc.env:PATH}"}).b  # as before, once the verb has ended


def test_variables_stay_guarded_where_a_verb_composes_anothers_settings(monkeypatch):
    monkeypatch.setenv("SECRET", "open sesame")
    with checked_compositions():  # of a verb, as nsed serve, which composes those of its models
        checked("fetch", [])
        with pytest.raises(ValueError, match="expected one of HOME"):
            _ = OmegaConf.create({"a": "${oc.env:SECRET}"}).a
    assert OmegaConf.create({"a": "${oc.env:SECRET}"}).a == "open sesame"


@pytest.mark.parametrize(
    "target",
    [
        "nsed_torch.questions.sandbox._version",
        "nsed_torch.questions.sandbox.Sandbox.run",
        "nsed_torch.questions.sandbox.Sandbox",
        "nsed_torch.core.agent.Agent.usage",
        "nsed_torch.engines.weights.resolve",
        "nsed_torch.core.engine.Message",
        "nsed_torch.app.sweep.SweepTable",
        "torch.optim.Optimizer",
        "torch.optim._functional.adam",
    ],
)
def test_what_is_not_listed_is_not_built(target):
    with pytest.raises(
        ValueError, match=r"^_target_: expected one of nsed_torch\.app\.config\.instantiate\.CONSTRUCTORS"
    ):
        instantiate({"_target_": target, "bwrap": "./evil.sh"})


def test_the_list_has_what_configs_name_and_no_more():
    texts = [path.read_text() for path in conf_dir().rglob("*.yaml")]
    named = {name for text in texts for name in re.findall(r"_target_[:=] ?([\w.]+)", text)}
    named -= {"nsed_torch.app.sweep.SweepTable", "mine.Gate"}  # Hydra's callback, and what a help text stands for
    assert named <= CONSTRUCTORS
    choices = {f"nsed_torch.{home}" for part in ("vote", "gate") for home in NAMED[part].values()}
    assert choices <= CONSTRUCTORS
    optimizers = {name for name in CONSTRUCTORS if name.startswith("torch.optim.")}
    assert CONSTRUCTORS - choices - optimizers == named - choices - optimizers
    for name in CONSTRUCTORS:
        assert callable(pydoc.locate(name)), name


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40))
TEXTS = "a0: xx\n" + "".join(f"a{n + 1}: ${{a{n}}}${{a{n}}}\n" for n in range(40))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: &a {b: *a}\n", "not a config (a part that holds itself)"),
        ("name: &a [[[*a]]]\n", "not a config (a part that holds itself)"),
        ("name: &a {b: &b {c: *a}, d: *b}\n", "not a config (a part that holds itself)"),
        ("? &a [*a]\n: 1\n", "not a config (a part that holds itself)"),
        (BOMB, "expected at most 100000 parts, aliases written out, got more"),
        (
            "a: &a {b: 1}\nc: {<<: *a}\n" + BOMB.replace("a0:", "z:").replace("&a0", "&a0"),
            "expected at most 100000 parts",
        ),
        ("name: " + "[" * 2000, "not a config (maximum recursion"),
        ("name: " + "x" * 200_001, "expected at most 200000 bytes"),
        ("name: !!python/object/apply:os.system ['touch PWNED']", "could not determine a constructor"),
        ("name: *nowhere", "found undefined alias"),
        ("name: a\nname: b\n", "duplicate key"),
        (TEXTS, "unknown setting 'a0'"),
    ],
    ids=range(12),
)
def test_yaml_that_holds_itself_or_grows_is_one_line(strange, text, says):
    start = time.process_time()
    assert says in strange(text)
    assert time.process_time() - start < 10


def test_yaml_that_repeats_itself_a_little_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a {b: [1, 2]}\nc: *a\nd: {<<: *a, e: 1}\n")
    check_yaml(tmp_path / "a.yaml")


GIANTS = ["range(10**9)|list", "'x' * 10**10", "'%99999999999d' % 3", "'%1000000000d'|format(1)", "'a'|indent(10**9)"]
GIANTS += ["10 ** (10 ** 9)", "'x'|center(10**10)", "[1] * 10**10", "('x' * 10**7)|replace('x', 'y' * 10**5)"]


@pytest.mark.parametrize("text", GIANTS)
def test_a_giant_of_a_template_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setattr(templates, "PATIENCE", 1.0)
    (tmp_path / "propose.jinja").write_text("{% block system %}{{ " + text + " }}{% endblock %}")
    with pytest.raises(ValueError, match=r"^prompt template propose\.jinja: (?!.*\n)"):
        Prompts(folder=tmp_path).render("propose", 1, "system", question="?")
    assert peak(templates._RENDERER._process) < 1_000_000


def peak(process):
    """KiB that a process has taken at most; none of one that was ended."""
    status = "" if process is None else Path(f"/proc/{process.pid}/status").read_text()
    return int((re.findall(r"VmHWM:\s+(\d+) kB", status) or [0])[0])


def test_a_template_writes_no_half_of_a_character(tmp_path):
    (tmp_path / "propose.jinja").write_text(r"{% block system %}{{ 'a\ud800b' }}{% endblock %}")
    assert Prompts(folder=tmp_path).render("propose", 1, "system", question="?") == "a\ufffdb"


# They end by themselves after some seconds even where nothing stops them; real ones would go on for years.
LOOPS = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
MACRO = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}"
BLOCK = "{% set x %}{% for a in range(3000) %}{% for b in range(9999) %}word{% endfor %}{% endfor %}{% endset %}"


@pytest.mark.parametrize("text", [LOOPS, MACRO, BLOCK])
def test_a_template_without_end_is_stopped(tmp_path, monkeypatch, text):
    monkeypatch.setattr(templates, "PATIENCE", 0.2)
    (tmp_path / "propose.jinja").write_text("{% block system %}" + text + "{% endblock %}")
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"^prompt template propose\.jinja: did not end within 0\.2 s: correct it$"):
        Prompts(folder=tmp_path).render("propose", 1, "system", question="?")
    assert time.monotonic() - start < 5


def test_a_template_writes_no_prompt_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "LONGEST", 10_000)
    (tmp_path / "propose.jinja").write_text("{% block system %}{{ 'word' * 2501 }}{% endblock %}")
    with pytest.raises(ValueError, match=r"propose\.jinja: expected at most 10000 characters, got more"):
        Prompts(folder=tmp_path).render("propose", 1, "system", question="?")
