"""The page shows workflows as graphs that are valid XML, whatever the texts, and every text beside them."""

import dataclasses
import itertools
import re
from functools import cache
from xml.etree import ElementTree

import pytest
from executed_workflows import DIAMOND, PLAN, REVISED, everything, executed, said
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, Page, outcome, trace
from scripted_workers import NAMES, flow
from workflow_texts import subtasks, workflows

from nsed_torch.evaluation.comparison import Comparison
from nsed_torch.evaluation.pages import render_execution, render_run, write_report
from nsed_torch.evaluation.run_folder import Run, TaskEntry
from nsed_torch.records.execution import Execution
from nsed_torch.records.outcome import Verdict
from nsed_torch.records.transcript import Task, Usage


def graphs(html):
    """The graphs of a page, as XML."""
    return [
        ElementTree.fromstring(text) for text in re.findall(r'<svg class="flow".*?</svg>(?=\n</div>)', html, re.DOTALL)
    ]


def edges(graph):
    """Pairs of source and target of its lines."""
    ids = [path.get("id") for path in graph.iter("path") if path.get("class", "").startswith("edge")]
    return [tuple(map(int, re.search(r"-e(-?\d+)-(\d+)$", name).groups())) for name in ids]


def words(element):
    return " ".join(" ".join(element.itertext()).split())


@pytest.fixture(scope="module")
def html():
    return render_execution(everything())


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_each_workflow_is_a_graph_of_its_steps(html):
    first, second = graphs(html)
    assert sorted(edges(first)) == [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 3), (3, 4)]
    assert [words(link) for link in first.iter("a")] == [
        "0 Zebulon Solve it with an equation. 35 tokens",
        "1 Quillfeather Solve it by trying numbers. empty answer",
        "2 Oberon Compare both ways and say which of them i… 72 tokens",
        "3 Zebulon Check the comparison against the question. 85 tokens",
        "4 Quillfeather Write the final answer. 83 tokens",
    ]
    unheard = [path.get("id") for path in first.iter("path") if path.get("class") == "edge unheard"]
    assert unheard == ["t1-l0-e1-2", "t1-l0-e1-3"]
    assert edges(second) == [(-1, 1), (0, 1)]
    assert words(second).startswith("previous answer ")
    boxes = [box.get("class") for graph in (first, second) for box in graph.iter("rect") if "box" in box.get("class")]
    assert boxes == ["box", "box failed", "box", "box", "box", "box before", "box", "box answers"]


def test_a_step_in_the_graph_leads_to_its_texts(html, page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [link for graph in graphs(html) for link in graph.iter("a")]
    assert [link.get("href") for link in links] == [f"#t1-l0-s{k}" for k in range(5)] + ["#t1-l1-s0", "#t1-l1-s1"]
    assert links[2].get("aria-label").startswith("Step 2, Oberon, reads step 0, step 1 (no response): Compare both")
    assert links[1].get("aria-label").endswith("; no response")
    assert links[-1].get("aria-label") == "Step 1, Zebulon, reads the previous answer, step 0: Correct it.; the answer"
    # Browsers open a closed fold for what is within it.
    folds = re.findall(r'<details class="proposal[^"]*"[^>]*>\n  <summary>\d.*?</details>', html, re.DOTALL)
    assert [re.search(r'id="([^"]+)"', fold)[1] for fold in folds] == [link.get("href")[1:] for link in links]


def test_every_text_of_a_step_is_shown(page):
    folds = page.words("details", class_="proposal")
    failed = next(fold for fold in folds if fold.startswith("1 Quill"))
    assert failed.startswith("1 Quillfeather empty answer 2 attempts Solve it by trying numbers. Subtask Solve it by")
    assert "reads nothing Response No response (empty answer). " in failed
    assert failed.endswith("attempt 1: empty answer attempt 2: empty answer")
    (answer,) = page.words("details", class_="proposal winner")
    assert "answers Correct it. Subtask Correct it. reads the previous answer, step 0 Response" in answer
    assert everything().answer in answer


def test_levels_reasons_and_costs_are_told(page):
    first, second, third = page.words("section", class_="workflow")
    assert "tree (each step but the last feeds exactly one): 5 steps in 4 waves." in first
    assert "The Conductor's text had to be mended: unknown_worker, too_many_steps ." in first
    assert "I would ask two of them. model_id = [0, 9] 400 tokens in, 60 out, 0.0 s its allowance shrank" in first
    assert "Models: 0 Zebulon , 1 Quillfeather , 2 Oberon" in first
    assert "mended" not in second
    assert "accept (no step: the answer before stands)." in third
    assert "could not be read, which counts as accepting: no_lists ." in third
    facts = page.words("dl", class_="facts")[0]
    usage = everything().usage
    assert facts.startswith(f"Workflows 3 Steps 7 Model calls {usage.calls} Tokens computed {usage.tokens:,} ")


def test_no_answer_says_why():
    page = Page(render_execution(executed(flow((0, "Fail.", ())), silent="Fail.")))
    assert page.words("dl", class_="facts")[0].startswith("No answer because empty answer ")
    assert page.words("section", class_="answer")[0].startswith("Answer Nobody answered.")


def test_a_deliberation_that_is_a_worker_tells_its_rounds():
    execution = executed(flow((0, "Count.", ())), pool=("team", *NAMES))
    (fold,) = Page(render_execution(execution)).words("details", class_="proposal winner")
    rounds = execution.levels[0].steps[0].transcript.rounds
    assert len(rounds) == 2
    assert all(f"Round {turn.index} {turn.proposals[turn.winner].agent}" in fold for turn in rounds)


def test_a_workflow_within_a_step_is_told_there():
    inner = executed(REVISED)
    outer = executed(flow((0, "Do it in parts.", ())))
    (step,) = outer.levels[0].steps
    held = dataclasses.replace(step, worker="conductor", response=inner.answer, inner=inner)
    outer = dataclasses.replace(outer, levels=[dataclasses.replace(outer.levels[0], steps=[held])])
    (fold,) = Page(render_execution(outer)).words("details", class_="proposal winner")
    assert "Its own workflow Step 0 " in fold
    for within in inner.levels[0].steps:
        assert f"{within.worker} {within.subtask} {within.response}" in fold


def test_page_is_self_contained_and_can_be_read_by_keyboard(html, page):
    assert "script" not in next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face|<script", html)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    assert {attrs["href"] for tag, attrs in page.elements if tag == "a"} <= {f"#{name}" for name in ids}


@settings(max_examples=10)
@given(workflows(texts=subtasks))
def test_lines_are_the_visible_pairs_of_any_workflow(workflow):
    pool = (*NAMES, NAMES[0])
    (graph,) = graphs(render_execution(executed(workflow, pool=pool)).encode().decode())
    pairs = [(i, k) for k in range(len(workflow.steps)) for i in workflow.visible(k)]
    assert sorted(edges(graph)) == sorted(pairs)
    assert len(list(graph.iter("a"))) == len(workflow.steps)


def test_hostile_text_stays_text():
    hostile, plain = render_execution(said(HOSTILE, HOSTILE)), render_execution(said("q", "a"))
    page = Page(hostile)
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in Page(plain).elements}
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    assert page.find("div", class_="text").count(HOSTILE) == 2 + 2 * (1 + 2 * 2)  # two levels of plan and two steps
    tags = [[element.tag for element in graph.iter() if element.tag != "text"] for graph in graphs(hostile)]
    assert tags == [[element.tag for element in graph.iter() if element.tag != "text"] for graph in graphs(plain)]
    assert "7 * 7" in page.texts[0]


@settings(max_examples=8)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=200))
def test_no_text_changes_the_page_around_it(text):
    def skeleton(some):
        html = render_execution(said("q" + some, "a" + some)).encode().decode()
        assert len(graphs(html)) == 2
        # A longer text takes more lines of its box.
        return [(tag, sorted(attrs)) for tag, attrs in Page(html).elements if tag != "text"]

    assert skeleton(text) == skeleton("c")


@cache
def tasks(count):
    """The first task has a deliberation as well; the others have workflows alone."""
    entries = []
    for k in range(count):
        name = f"task {k}"
        execution = executed([DIAMOND, REVISED][k % 2], plans=[PLAN], task=Task(f"What is {k}?", name))
        made = (outcome("conductor", name, [Verdict.RIGHT, Verdict.WRONG][k % 2], execution.answer, "71"),)
        entries.append(
            TaskEntry(name, None if k else trace(name, True, True), made, executions={"conductor": execution})
        )
    return entries


def run(count=3, **about):
    return Run(about, Comparison("", {}, {}), tasks(count), [])


def test_each_task_of_a_run_has_its_graph():
    html = render_run(run())
    page = Page(html)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for tag, attrs in page.elements if tag == "a" and "href" in attrs} <= set(ids)
    assert [len(edges(graph)) for graph in graphs(html)] == [7, 1, 7]
    articles = page.words("article")
    assert "Memory Workflow of conductor Methods" in articles[0]
    assert "conductor : workflow 0 tree" in articles[0]
    assert (
        "Question What is 1? No deliberation of this task is recorded here. conductor : workflow 0 chain" in articles[1]
    )
    assert any(item.startswith("task 1 What is 1?") for item in page.words("li"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_withheld_texts_are_nowhere():
    shown, hidden = render_run(run()), render_run(run(withheld=True))
    for text in ("What is 1?", "Look for a mistake.", "I would ask two"):
        assert (text in shown, text in hidden) == (True, False)
    assert graphs(hidden) == []


def test_a_graph_stays_small():
    assert (len(render_run(run(5))) - len(render_run(run(3)))) / 2 < 20_000


def test_a_folder_of_one_question_becomes_its_page(tmp_path):
    everything().save(tmp_path / "conduct.json")
    path = write_report(tmp_path)
    execution = Execution.load(tmp_path / "conduct.json")
    assert path.read_text(encoding="utf-8") == render_execution(execution)


def test_executions_beside_outcomes_are_part_of_a_run(tmp_path):
    entries = tasks(3)
    (tmp_path / "executions").mkdir()
    kept = tmp_path / "executions" / "conductor.jsonl"
    kept.write_text("".join(entry.executions["conductor"].to_line() for entry in entries), encoding="utf-8")
    (tmp_path / "outcomes.jsonl").write_text("".join(e.outcomes[0].to_line() for e in entries), encoding="utf-8")
    html = write_report(tmp_path).read_text(encoding="utf-8")
    assert len(graphs(html)) == 3
    kept.write_text(kept.read_text(encoding="utf-8") + "{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"conductor\.jsonl:4: not valid JSON"):
        write_report(tmp_path)


def test_unpriced_and_unnamed_workers_are_drawn_too():
    execution = executed(REVISED)
    level = dataclasses.replace(
        execution.levels[0],
        steps=[dataclasses.replace(step, worker="stranger", usage=Usage()) for step in execution.levels[0].steps],
    )
    (graph,) = graphs(render_execution(dataclasses.replace(execution, levels=[level])))
    assert [link.get("class") for link in graph.iter("a")] == ["a7", "a7"]
