"""What workflows were like, on a study's page."""

from executed_workflows import ACCEPTED, DIAMOND, REVISED, UNREADABLE, executed

from nsed_torch.evaluation.page import StepResults, write_page
from nsed_torch.evaluation.page_workflows import workflows_table
from nsed_torch.records import PlanRecord

VALID = PlanRecord("as it should be")


def test_valid_texts_shapes_workers_and_what_was_accepted():
    first = executed(REVISED, ACCEPTED, plans=[VALID, VALID])
    found = {"a": [first, executed(DIAMOND, plans=[UNREADABLE])], "b": [executed(REVISED, REVISED, plans=[VALID])]}
    heading, _, a, b = workflows_table(found).splitlines()
    assert heading == "| run | n | valid as written | steps | shapes | workers | answers accepted |"
    names = [step.worker for step in first.levels[0].steps]
    assert a.startswith("| a | 2 | 0.500 [0.013, 0.987] | 3.50 | ")
    assert a.endswith(" | 1 of 1 |")
    assert all(name in a for name in names)
    assert b.startswith("| b | 1 | 1.000 [0.025, 1.000] | 2.00 | chain 100% | ")
    assert b.endswith(" | 0 of 1 |")


def test_a_page_reads_them_from_the_run(tmp_path):
    folder = tmp_path / "study/run/executions"
    folder.mkdir(parents=True)
    (folder / "conductor.jsonl").write_text(executed(REVISED, plans=[VALID]).to_line())
    (tmp_path / "page.md.jinja").write_text('{{ workflows_table({"one": steps.run, "two": steps.later}) }}')
    steps = [StepResults("run", tmp_path / "study", {"seconds": 1.0}), StepResults("later", tmp_path / "study", None)]
    page = write_page(str(tmp_path / "page.md.jinja"), steps, tmp_path / "page.md", figures=tmp_path / "figures")
    assert "| one | 1 | 1.000 [0.025, 1.000] | 2.00 |" in page.read_text()
    assert "*not run: two*" in page.read_text()
