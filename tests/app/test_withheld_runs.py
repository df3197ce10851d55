"""A benchmark whose authors ask for it is quoted in no file and on no page that a run leaves."""

import pytest

from nsed_torch.app.verbs.evaluate import evaluate, write_run
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.engine import ContextWindowError
from nsed_torch.core.halting import FixedHalting
from nsed_torch.core.rnn import MacroRNN
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.conducted import Conducted
from nsed_torch.evaluation.methods.independent import BestOf
from nsed_torch.evaluation.methods.interactive import Debate
from nsed_torch.evaluation.pages import write_report
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.questions.graded import GradedTasks
from nsed_torch.questions.graders import AnswerGrader
from nsed_torch.records.call_log import CallLog
from nsed_torch.records.trace import read_traces
from nsed_torch.records.transcript import Task
from nsed_torch.traces.collecting import collect
from nsed_torch.traces.equality import Equality

ASKED, TARGET, WRITTEN, ANSWERED = "Zanzibar", "Tirana", "Quetzal", "Lisbon"
PLANTED = [ASKED, TARGET, WRITTEN, ANSWERED]
RULE = Equality(math_verify=False)
TASKS = tuple(Task(f"What is {i} in {ASKED}?", f"q{i}", TARGET) for i in range(3))


@pytest.fixture
def rnn(tmp_path):
    """A team whose members quote everything, one of which fails on a task and quotes it in its error."""

    def write(request):
        if "What is 2" in request.messages[-1].content and request.agent == "ben":
            raise ContextWindowError(f"cannot read {request.messages[-1].content}")
        if "Criticise" in request.messages[-1].content:
            return f"{WRITTEN} of {ASKED} is poor.\nScore: {request.seed % 100}" if request.seed % 3 else WRITTEN
        return f"{WRITTEN} {request.seed} of {ASKED}. The answer is {ANSWERED}"

    with CallLog(tmp_path / "calls.sqlite") as log:
        agents = [Agent(name, "scripted") for name in ("ada", "ben")]
        engine = ScriptedEngine(write, lambda request, candidate: 0.5)
        ensemble = Ensemble({"scripted": engine}, agents, call_log=log)
        cell = MacroRNNCell(ensemble, HashedEncoder(8), ConsensusCell(8, agents=2).double(), rating=CritiqueRating())
        yield MacroRNN(cell, halting=FixedHalting(2))


def quotes(folder):
    """(file, planted text) of every file of a run but its call log, from which a killed run goes on."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("calls.sqlite")]
    assert folder / "report.html" in files
    return {(path.name, text) for path in files for text in PLANTED if text.encode() in path.read_bytes()}


def test_an_evaluation_quotes_nobody_if_its_texts_are_withheld(rnn, tmp_path):
    methods = {"debate": Debate(), "best_of_n": BestOf(), "conductor": Conducted(Agent("conductor", "scripted"))}
    names = ["deliberation", "single", *methods]
    for withheld in (False, True):
        folder = tmp_path / str(withheld)
        graded = GradedTasks(TASKS, AnswerGrader(RULE), RULE.identity(), withheld=withheld)
        contested = evaluate(rnn, graded, methods, folder, names=names, max_failures=9)
        assert any(ASKED in outcome.note for outcome in contested.outcomes)
        write_run(folder, contested, graded, {"seed": 0})
        if withheld:
            assert quotes(folder) == set()
            assert {path.name for path in folder.iterdir()} >= {
                "traces.jsonl",
                "outcomes.jsonl",
                "results.json",
                "plots",
            }
        else:
            everywhere = {
                (name, text) for name in ("traces.jsonl", "outcomes.jsonl", "report.html") for text in PLANTED
            }
            assert quotes(folder) >= everywhere - {("outcomes.jsonl", TARGET)} | {("conductor.jsonl", WRITTEN)}


def test_collected_rounds_quote_nobody_if_their_texts_are_withheld(rnn, tmp_path):
    for withheld in (False, True):
        folder = tmp_path / str(withheld)
        graded = GradedTasks(TASKS[:2], AnswerGrader(RULE), RULE.identity(), withheld=withheld)
        collect(rnn, graded, folder)
        write_report(folder)
        assert bool(quotes(folder)) is not withheld
    shown, hidden = (list(read_traces(tmp_path / name)) for name in ("False", "True"))
    assert [trace.grades for trace in shown] == [trace.grades for trace in hidden]
    assert "Show" in (tmp_path / "True" / "report.html").read_text()
