"""Rounds that are steps: the team elects the next state of some work until it elects that nothing is left to do."""

import dataclasses
import json
import random
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.answer_classes import SameTexts
from nsed_torch.core.cell import ConsensusCell
from nsed_torch.core.prompts import finished
from nsed_torch.evaluation.methods.costs_ahead import expected_deliberation
from nsed_torch.parts.forms import FORMS
from nsed_torch.parts.rating_modes import AgreementRating
from nsed_torch.records.transcript import Task, Transcript

NUMBERS = "12 + 30 - 7 + 44 + 1 - 9 + 20 + 3"
TASK = Task(f"State the final answer to the following arithmetic problem: {NUMBERS} =", id="sum")


def following(work):
    """The next step of a sum of many numbers."""
    parts = work.split()
    if len(parts) == 1:
        return f"Answer: {work}"
    first, sign, second, *others = parts
    return " ".join([str(int(first) + int(second) * (1 if sign == "+" else -1)), *others])


def stepper(scripted, wrong=lambda agent, work: False):
    """Agents that do one step of a sum, as the work shows it; some get some of them wrong by one."""

    def write(request):
        shown = scripted.fenced(request.messages[-1].content)
        if not shown:
            return re.search(r"problem: (.*) =", request.messages[-1].content)[1]
        step = following(shown[-1])
        return (
            re.sub(r"-?\d+", lambda n: str(int(n[0]) + 1), step, count=1) if wrong(request.agent, shown[-1]) else step
        )

    return write


def build(scripted, wrong=lambda agent, work: False, agents=3, **options):
    options = {"unit": "step", "slots": 1, "rating": AgreementRating(), "rounds": 40, "temperature": 0, **options}
    return scripted.build(agents, write=stepper(scripted, wrong), **options)


def test_a_team_finishes_a_computation_that_no_member_gets_right_alone(scripted):
    """Everybody errs in another step; alone that is the end, outvoted it is nothing."""
    errs = dict(zip(scripted.NAMES, (7, 5, 3), strict=False))  # by how many numbers are left

    def wrong(agent, work):
        return len(work.split()) // 2 + 1 == errs[agent]

    rnn, _ = build(scripted, wrong)
    (team,) = rnn([TASK]).transcripts
    assert (team.answer, team.stop_reason) == ("94", "finished")
    assert [len(r.proposals) for r in team.rounds] == [3] * 9
    elected = [record.proposals[record.winner].text for record in team.rounds]
    assert elected[0] == NUMBERS
    assert elected[1:] == [following(work) for work in elected[:-1]]
    assert sum(len({p.text for p in record.proposals}) > 1 for record in team.rounds) == 3
    for name in errs:
        alone, _ = build(scripted, lambda agent, work, name=name: wrong(name, work))
        assert alone([TASK]).answers[0] != "94"


@pytest.mark.parametrize(("goal", "reached"), [("94", True), ("91   + 3", True), ("1 + 3", False), ("4", False)])
def test_a_puzzle_that_knows_its_goal_is_over_when_the_work_has_it(scripted, goal, reached):
    """Words in a row count: `1 + 3` stands in `91 + 3`, and is not its words."""
    rnn, _ = build(scripted)
    (plain,) = rnn([TASK]).transcripts
    (team,) = rnn([dataclasses.replace(TASK, goal=goal)]).transcripts
    assert team.stop_reason == "finished"
    assert (team.answer == goal, len(team.rounds) < len(plain.rounds)) == (reached, reached)
    assert Task(**json.loads(json.dumps(dataclasses.asdict(team.task)))) == team.task
    assert ("goal" in team.to_line(), "goal" in plain.to_line()) == (True, False)


def test_a_step_is_asked_for_with_the_last_work_alone(scripted):
    rnn, engine = build(scripted)
    (transcript,) = rnn([TASK]).transcripts
    asked = [request.messages[-1].content for request in engine.generated[::3]]
    assert TASK.question in asked[0]
    assert not any(TASK.question in text for text in asked[1:])
    shown = [scripted.fenced(text) for text in asked[1:]]
    assert shown == [[record.proposals[record.winner].text] for record in transcript.rounds[:-1]]
    assert [len(record.memory) for record in transcript.rounds] == [1] * len(shown) + [1]


def test_more_slots_show_earlier_steps_the_newest_last_and_never_what_was_outvoted(scripted):
    rnn, engine = build(scripted, lambda agent, work: agent == "Oberon", slots=3)
    (transcript,) = rnn([TASK]).transcripts
    elected = [record.proposals[record.winner].text for record in transcript.rounds]
    for i, request in enumerate(engine.generated[3::3], start=1):
        assert scripted.fenced(request.messages[-1].content) == elected[max(i - 3, 0) : i]


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(1, 3), st.floats(0, 0.6))
def test_members_are_asked_until_an_answer_is_ahead(scripted, seed, ahead, error):
    def wrong(agent, work):
        return random.Random(f"{seed} {agent} {work}").random() < error

    rnn, engine = build(scripted, wrong, agents=5, ahead=ahead)
    (transcript,) = rnn([TASK]).transcripts
    assert len(engine.generated) == sum(len(record.proposals) for record in transcript.rounds)
    for record in transcript.rounds:
        texts = [proposal.text for proposal in record.proposals]

        def lead(texts):
            counts = sorted((texts.count(text) for text in set(texts)), reverse=True)
            return ([*counts, 0, 0])[0] - ([*counts, 0, 0])[1]

        assert len(texts) == 5 or lead(texts) >= ahead
        assert all(lead(texts[:n]) < ahead for n in range(ahead, len(texts)))
        assert record.voters == record.proposers
        if lead(texts):
            assert texts[record.winner] == max(set(texts), key=texts.count)


@settings(max_examples=25)
@given(st.integers(0, 999), st.floats(0.1, 8), st.floats(0, 0.6), st.lists(st.floats(-1, 4), min_size=5, max_size=5))
def test_members_are_asked_until_those_who_agree_are_trusted_enough(scripted, seed, ahead, error, trust):
    """Nobody whose say could not bring the lead is asked before it is known what the others said."""

    def wrong(agent, work):
        return random.Random(f"{seed} {agent} {work}").random() < error

    rnn, _ = build(scripted, wrong, agents=5, ahead=ahead, diagonal_mask=False, rounds=12)
    rnn.cell.consensus.double().trust.bias.data = torch.tensor(trust, dtype=torch.float64) - 1
    for record in rnn([TASK]).transcripts[0].rounds:
        texts = [proposal.text for proposal in record.proposals]

        def support(count, texts=texts):
            sums = dict.fromkeys(texts[:count], 0.0)
            for text, weight in zip(texts[:count], trust, strict=False):
                sums[text] += weight
            return sums

        def lead(count, support=support):
            first, second = sorted([*support(count).values(), 0, 0], reverse=True)[:2]
            return first - second

        asked = len(texts)
        assert asked == 5 or lead(asked) >= ahead - 1e-6
        before, count = 0, 0  # who is asked together can only just bring the lead
        while count < asked:
            before, missing = count, ahead - lead(count) if count else ahead
            while count < 5 and sum(map(abs, trust[before:count])) < missing - 1e-6:
                count += 1
            assert count > before
        assert count == asked
        best = support(asked)
        if lead(asked) > 1e-6:
            assert texts[record.winner] == max(best, key=best.get)


@pytest.mark.parametrize("options", [{"max_new_tokens": 13}, {"memory_tokens": 13}])
def test_steps_that_were_cut_off_are_none(scripted, options):
    """Where one member's steps are too long, the others go on; where all are, nobody wrote one."""

    def write(request):
        return stepper(scripted)(request) + " + 0" * 20 * (request.agent == "Zebulon")

    rnn, _ = scripted.build(3, write=write, unit="step", slots=1, rating=AgreementRating(), rounds=20, memory_tokens=40)
    assert rnn([TASK]).answers == ("94",)
    rnn, _ = build(scripted, rounds=2, **options)
    (transcript,) = rnn([TASK]).transcripts
    assert transcript.stop_reason == "no_answers"
    assert all("does not fit its allowance or memory_tokens" in note for note in transcript.rounds[0].notes[:3:2])


def test_work_without_an_end_stops_at_the_cap_and_is_the_answer(scripted):
    rnn, _ = build(scripted, rounds=4)
    (transcript,) = rnn([TASK]).transcripts
    assert (len(transcript.rounds), transcript.stop_reason) == (4, "rounds")
    assert transcript.answer == "79 + 1 - 9 + 20 + 3"


def test_tasks_finish_one_by_one(scripted):
    short = Task("State the final answer to the following arithmetic problem: 1 + 2 =", id="short")
    rnn, _ = build(scripted)
    both = rnn([TASK, short]).transcripts
    assert [(len(t.rounds), t.answer) for t in both] == [(9, "94"), (3, "3")]
    assert build(scripted)[0]([short]).transcripts[0].rounds == both[1].rounds


def test_answers_stay_the_default_unit(scripted):
    rnn, engine = scripted.build(3, write=lambda r: "Answer: 3", rounds=2)
    (transcript,) = rnn([TASK]).transcripts
    assert (len(transcript.rounds), transcript.answer) == (2, "Answer: 3")
    assert TASK.question in engine.generated[-1].messages[-1].content


def test_a_judge_agrees_with_what_it_wrote_itself(scripted):
    rnn, engine = build(scripted, lambda agent, work: agent == "Oberon")
    (transcript,) = rnn([TASK]).transcripts
    assert transcript.rounds[1].ratings == [[None, 1, -1], [1, None, -1], [-1, -1, None]]
    assert not engine.rated
    assert not engine.measured


@pytest.mark.parametrize("options", [{"unit": "word"}, {"ahead": 0}, {"ahead": float("inf")}])
def test_faulty_protocols_are_refused(scripted, options):
    with pytest.raises(ValueError, match="expected a unit out of answer, step and a lead above 0"):
        scripted.build(3, **options)


def test_who_reads_backwards_is_shown_the_work_from_its_end_and_votes_with_the_others(scripted):
    def write(request):
        shown = scripted.fenced(request.messages[-1].content)
        if not shown:
            return NUMBERS
        return following(" ".join(reversed(shown[-1].split())) if request.agent == "Oberon" else shown[-1])

    rnn, engine = scripted.build(
        3, write=write, forms={"Oberon": "backwards"}, unit="step", slots=2, rating=AgreementRating(), rounds=20
    )
    (transcript,) = rnn([TASK]).transcripts
    assert transcript.answer == "94"
    assert all(len(record.elected) == 3 for record in transcript.rounds)
    assert transcript.settings["forms"] == {"Oberon": "backwards"}
    plain, turned = (
        [scripted.fenced(r.messages[-1].content) for r in engine.generated if r.agent == name]
        for name in ("Zebulon", "Oberon")
    )
    assert [[" ".join(reversed(text.split())) for text in texts] for texts in turned] == plain
    assert max(map(len, plain)) == 2
    assert expected_deliberation(rnn, [TASK]).calls == 60
    with pytest.raises(ValueError, match="form of their own only where rounds are steps, got Oberon: set protocol"):
        scripted.build(3, forms={"Oberon": "backwards"})


@pytest.mark.parametrize("name", ["counted", "placed"])
def test_who_has_a_form_reads_writes_and_rates_in_it_among_others(scripted, name):
    own, numbers = FORMS[name], "77 + 22 + 1 + 100"

    def write(request):
        shown = scripted.fenced(request.messages[-1].content)
        if request.agent != "Oberon":
            return following(shown[-1]) if shown else numbers
        return own.written(following(own.plain(shown[-1])) if shown else numbers)

    rnn, engine = scripted.build(3, write=write, forms={"Oberon": name}, unit="step", slots=1, rounds=20)
    (transcript,) = rnn([Task(f"{numbers} =", id="sum")]).transcripts
    assert transcript.answer == "200"
    assert all(len(record.elected) == 3 for record in transcript.rounds)
    said = [p.text for record in transcript.rounds for p in record.proposals if p.agent == "Oberon"]
    assert said[:2] == [numbers, "99 + 1 + 100"]
    read, plain = (
        [scripted.fenced(r.messages[-1].content) for r in engine.generated if r.agent == agent]
        for agent in ("Oberon", "Zebulon")
    )
    assert read == [[own.shown(text) for text in texts] for texts in plain]
    judged = [scripted.fenced(r.messages[-1].content)[-2:] for r in engine.rated if r.agent == "Oberon"]
    assert judged == [[own.written(record.proposals[0].text)] * 2 for record in transcript.rounds]


def test_a_step_that_is_not_of_its_form_is_none(scripted):
    rnn, _ = build(scripted, forms={"Oberon": "placed"}, rounds=1)
    (transcript,) = rnn([TASK]).transcripts
    assert {p.text for p in transcript.rounds[0].proposals if p.agent == "Oberon"} == {""}
    assert {p.text for p in transcript.rounds[0].proposals if p.agent != "Oberon"} == {NUMBERS}
    assert "Oberon: a step that is not placed is none" in transcript.rounds[0].notes


def test_equal_texts_are_one_answer_whatever_their_blanks():
    assert SameTexts().classes(TASK, ["1 + 2", "3", "1  + 2\n", "", "3"]) == [0, 1, 0, -1, 1]


def test_only_a_step_that_begins_with_it_gives_an_answer():
    assert [finished(text) for text in ("Answer: 3", "Answer:", "The Answer: 3", "3")] == ["3", "", None, None]


def test_the_winner_alone_enters_the_memory_and_gradients_reach_the_gate():
    cell = ConsensusCell(dim=4, agents=3, slots=2).double()
    g = torch.Generator().manual_seed(0)
    state, entered = None, []
    for _ in range(3):
        embeddings = torch.randn(1, 3, 4, generator=g, dtype=torch.float64)
        ratings = torch.tensor([[[0.0, 1, -1], [1, 0, -1], [-1, -1, 0]]], dtype=torch.float64)
        output, state = cell(
            embeddings, ratings, ~torch.eye(3, dtype=torch.bool)[None], embeddings[:, 0], state, winner_alone=True
        )
        entered.append(embeddings[0, output.winner[0]])
    assert torch.equal(state.embeddings[0], torch.stack([entered[-1], entered[-2]]))
    assert state.retention[0, 0] == 1
    assert state.retention[0, 1] < 1
    (gradient,) = torch.autograd.grad(state.retention.sum(), cell.gate.bias)
    assert gradient.abs() > 0


def test_work_that_is_given_is_what_the_first_step_reads(scripted):
    """And no step reads the question."""
    task = Task(TASK.question, start=NUMBERS)
    rnn, engine = build(scripted)
    (transcript,) = rnn([task]).transcripts
    assert (len(transcript.rounds), transcript.answer) == (8, "94")
    assert scripted.fenced(engine.generated[0].messages[-1].content) == [NUMBERS]
    assert not any(TASK.question in request.messages[-1].content for request in engine.generated)
    assert Transcript.from_line(transcript.to_line(), "").task == task
