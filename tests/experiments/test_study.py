"""`nsed study`: from a list of commands to a page, and what its config may say."""

from pathlib import Path

import pytest
from report_pages import example

from nsed_torch.cli import main
from nsed_torch.experiments.steps import Step, check, chosen_names, read_steps

STUDY = """
name: mine
steps:
  deliberated: {verb: report, overrides: [run=run]}
  again: {verb: report, overrides: ["run=run"], needs: [deliberated]}
page: {template: mine.md.jinja, output: "docs/mine.md", figures: docs/mine}
"""


@pytest.fixture
def nsed(tmp_path, monkeypatch, capfd):
    """The command line with a study of our own; returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NSED_DEBUG", raising=False)
    Path("conf/study").mkdir(parents=True)
    Path("conf/study/mine.yaml").write_text(STUDY)
    example().save(Path("run/transcript.json"))
    Path("mine.md.jinja").write_text("{{ command(steps.deliberated) }}\n\n{{ costs(steps) }}\n")

    def run(*arguments):
        capfd.readouterr()
        code = main(["study", "--config-dir", "conf", "study=mine", "output_dir=out", *arguments])
        return code, *capfd.readouterr()

    return run


def test_steps_run_once_and_the_page_tells_of_them(nsed, tmp_path):
    code, out, err = nsed("dry_run=true")
    commands = ["nsed report run=run output_dir=out/deliberated", "nsed report run=run output_dir=out/again"]
    assert (code, out, err) == (0, "".join(f"not run   {command}\n" for command in commands), "")

    code, out, err = nsed("steps=[deliberated]")
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"step 1 of 1, deliberated: {commands[0]}", "run/report.html", "docs/mine.md"]
    page = (tmp_path / "docs/mine.md").read_bytes()
    assert f"```sh\n{commands[0]}\n```" in page.decode()
    assert "| deliberated | complete |" in page.decode()
    assert "| again | not run |" in page.decode()
    assert str(tmp_path) not in page.decode()

    code, out, _ = nsed("steps=[deliberated]")
    assert (code, out.count("complete already")) == (0, 1)
    assert nsed("page_only=true") == (0, "docs/mine.md\n", "")
    assert (tmp_path / "docs/mine.md").read_bytes() == page

    # The step's command changes; nothing runs, and the page says so.
    Path("conf/study/mine.yaml").write_text(STUDY.replace("run=run]", "run=run, hydra.verbose=false]"))
    assert [line[:8] for line in nsed("dry_run=true")[1].splitlines()] == ["outdated", "not run "]
    code, out, _ = nsed("page_only=true")
    assert out.startswith("step deliberated: the page shows an earlier command's results")
    assert "| deliberated | outdated |" in (tmp_path / "docs/mine.md").read_text()


def test_a_partial_study_gives_a_partial_page(nsed, tmp_path):
    assert nsed("page_only=true")[0] == 0
    assert (tmp_path / "docs/mine.md").read_text().startswith("*not run: deliberated*\n")


@pytest.mark.parametrize(
    ("arguments", "study", "line"),
    [
        (
            ["steps=[agian]"],
            STUDY,
            "steps: expected names out of deliberated, again, got 'agian'; did you mean 'again'?",
        ),
        (["steps=[again]"], STUDY, "step again: expected deliberated to be complete, got not run; name it among steps"),
        ([], STUDY.replace("run=run]", "runn=run]"), "step deliberated: Could not override 'runn'"),
        ([], STUDY.replace("run=run]", '"run=[a]"]'), "step deliberated: "),
        ([], STUDY.replace("figures: docs/mine", "plots: x"), "study page: expected template, output and figures, got"),
        ([], STUDY.replace("run=run]", "run=run"), "while parsing a flow sequence in "),
        (["output_dir=a,b"], STUDY, "Ambiguous value for argument 'output_dir=a,b'"),
        (["dry=1"], STUDY, "unknown setting 'dry'; did you mean 'dry_run'? nsed study --help lists all"),
    ],
)
def test_what_a_user_can_fix_is_one_line_before_anything_runs(nsed, tmp_path, arguments, study, line):
    Path("conf/study/mine.yaml").write_text(study)
    code, out, err = nsed(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"nsed study: {line}")
    assert err.count("\n") == 1
    assert not list(tmp_path.rglob("step.*"))


def test_a_step_s_words_name_other_steps_folders():
    steps = read_steps(
        {
            "steps": {
                "one": {"verb": "collect", "overrides": [["limit=2", ["rounds=1"]], "+tasks.options={max_terms: 3}"]},
                "two": {"verb": "fetch"},
                "three": {"verb": "tune", "overrides": ["data_dir={one}/traces", "seeds=${x}"], "needs": ["two"]},
            }
        }
    )
    assert [step.needs for step in steps] == [(), (), ("one", "two")]
    first, _, last = (step.words(Path("runs/x")) for step in steps)
    assert first == ["collect", "limit=2", "rounds=1", "+tasks.options={max_terms: 3}", "output_dir=runs/x/one"]
    assert last == ["tune", "data_dir=runs/x/one/traces", "seeds=${x}", "output_dir=runs/x/three"]
    assert steps[0].command(Path("out")).endswith("'+tasks.options={max_terms: 3}' output_dir=out/one")


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ({}, "expected a study with steps, got none"),
        ({"One": {"verb": "collect"}}, "step 'One': expected a name of small letters"),
        ({"one": ["collect"]}, "step one: expected verb, overrides and needs, got ['collect']"),
        ({"one": {"verb": "collect", "override": []}}, "step one: expected verb, overrides and needs, got"),
        (
            {"one": {"verb": "colect"}},
            "step one: expected a verb out of bench, collect, conduct, deliberate, evaluate, fetch, ",
        ),
        ({"one": {"verb": "base"}}, "step one: expected a verb out of "),
        ({"one": {"verb": "collect", "overrides": [{"rounds": 1}]}}, "step one: expected overrides as texts such as"),
        ({"one": {"verb": "collect", "overrides": ["output_dir=x"]}}, "step one: expected no output_dir"),
        ({"one": {"verb": "tune", "overrides": ["data_dir={two}"]}}, "step one: expected steps before it, out of none"),
        ({"one": {"verb": "tune", "needs": ["one"]}}, "step one: expected steps before it, out of none, got 'one'"),
    ],
)
def test_what_no_study_may_say(steps, line):
    with pytest.raises(ValueError) as fault:  # noqa: PT011 - the line is compared below
        read_steps({"steps": steps})
    assert str(fault.value).startswith(line)


@pytest.mark.parametrize(
    ("verb", "override", "line"),
    [
        ("collect", "roundz=2", "Could not override 'roundz'"),
        ("collect", "rounds=two", "rounds: expected a whole number, got 'two'"),
        ("collect", "ensemble=nobody", "In 'collect': Could not find 'ensemble/nobody'"),
        ("collect", "rounds=[1", "no viable alternative at input '[1'"),
        ("evaluate", "roundz=1,2", "Could not override 'roundz'"),
    ],
)
def test_wrong_overrides_are_found_before_anything_runs(verb, override, line):
    with pytest.raises(ValueError, match=r"^step one: ") as fault:
        check(Step("one", verb, ("-m", override), ()), Path("out"))
    assert str(fault.value).removeprefix("step one: ").startswith(line)
    assert "\n" not in str(fault.value)


def test_right_overrides_of_any_form_pass():
    words = ("-m", "rounds=1,2", "ensemble=demo,two_families", "methods=[deliberation]", "hydra.verbose=false")
    check(Step("one", "evaluate", words, ()), Path("out"))
    check(Step("one", "deliberate", ("Is 17 larger, or 71?", "rounds=1"), ()), Path("out"))
    check(Step("one", "collect", ("+tasks.options={max_terms: 3}", "~broker"), ()), Path("out"))


def test_all_steps_unless_some_are_named():
    steps = [Step(name, "fetch", (), ()) for name in "abc"]
    assert chosen_names(steps, None) == ["a", "b", "c"]
    assert chosen_names(steps, ["c"]) == ["c"]
