"""A team against baselines, from Python."""

import pytest

from nsed_torch import MacroRNN, MacroRNNCell, collect, evaluate, tasks
from nsed_torch.core.agent import Agent, Ensemble
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.engines.scripted import ScriptedEngine
from nsed_torch.evaluation.methods.independent import Plurality
from nsed_torch.records.call_log import CallLog

ASKED = tasks([{"id": f"q{i}", "question": f"{i} + 1?", "target": str(i + 1)} for i in range(6)])


def team(calls=None):
    """Ant and bee are right, cat never is; judges know."""

    def say(request):
        if calls is not None:
            calls.append(request.agent)
        number = int(request.messages[-1].content.split("+")[0].split()[-1])
        return str(number + (7 if request.agent == "cat" else 1))

    engine = ScriptedEngine(say, lambda request, candidate: -0.5 if "7" in candidate else 0.5)
    agents = [Agent(name, "tiny") for name in ("ant", "bee", "cat")]
    cell = MacroRNNCell(Ensemble({"tiny": engine}, agents), HashedEncoder(8), ConsensusCell(8, 3).double())
    return MacroRNN(cell, rounds=1)


def test_a_table_with_intervals_and_the_numbers_behind_it():
    found = evaluate(team(), ASKED)
    assert set(found.accuracy) == {"deliberation", "single:ant", "single:bee", "single:cat", "best_single", "plurality"}
    assert (found.accuracy["deliberation"], found.accuracy["single:cat"]) == (1, 0)
    assert "deliberation minus it" in str(found)
    assert len(found.traces) == 6
    assert len(found.outcomes) == 6 * 6


def test_methods_of_ones_own_stand_beside_names():
    found = evaluate(team(), ASKED, {"deliberation": None, "heads": Plurality()})
    assert set(found.accuracy) == {"deliberation", "heads"}
    with pytest.raises(ValueError, match=r"methods: expected names out of deliberation, single, .* got best: correct"):
        evaluate(team(), ASKED, ["best"])


def test_finished_calls_are_kept_in_the_folder(tmp_path):
    calls = []
    first = evaluate(team(calls), ASKED, folder=tmp_path)
    assert calls
    calls.clear()
    assert str(evaluate(team(calls), ASKED, folder=tmp_path)) == str(first)
    assert not calls
    assert (tmp_path / "traces.jsonl").is_file()


def test_places_are_texts_or_paths(tmp_path):
    transcript = team()("1 + 1?").transcripts[0]
    transcript.save(f"{tmp_path}/said.json")
    assert type(transcript).load(f"{tmp_path}/said.json") == transcript
    with CallLog(f"{tmp_path}/calls.sqlite") as log:
        assert len(log) == 0


def test_what_a_team_says_is_collected_once_and_its_call_log_is_its_own_again(tmp_path):
    calls = []
    rnn = team(calls)
    own = rnn.cell.ensemble.call_log
    traces = collect(rnn, ASKED, tmp_path)
    assert rnn.cell.ensemble.call_log is own
    assert rnn.cell.answers is None
    assert (len(traces), len(traces.episodes())) == (6, 6)
    assert "6 tasks, 6 rounds, 6 of 6 right" in str(traces)
    calls.clear()
    collect(team(calls), ASKED, tmp_path)
    assert not calls
