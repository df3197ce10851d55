"""One agent by itself."""

from nsed_torch.evaluation.methods.independent import Single
from nsed_torch.evaluation.methods.interactive import SelfCorrection


def test_one_agent_answers_once(team):
    panel, engine = team.build(prices=(1e6, 1e6))
    answers = Single("Oberon")(panel, team.tasks, None)
    assert [answer.text for answer in answers] == [generation.text for _, generation in engine.generated]
    assert {request.agent for request in engine.requests} == {"Oberon"}
    assert all(answer.usage.price == answer.usage.tokens > 0 for answer in answers)
    assert Single("Oberon")(panel, team.tasks, [10**6] * 4) == answers


def test_an_agent_reads_its_last_answer_and_its_last_text_counts(team):
    panel, engine = team.build(team.says(Z=["is 1", "no, 2", "rather 3"]))
    (answer,) = SelfCorrection()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("rather 3", "corrections: 2")
    assert [(team.kind(r), team.fenced(r)) for r in engine.requests] == [
        ("propose", []),
        ("correct", ["is 1"]),
        ("correct", ["no, 2"]),
    ]


def test_nothing_to_correct_is_asked_again_and_an_empty_correction_counts(team):
    panel, engine = team.build(team.says(Z=["", "is 2"]))
    assert SelfCorrection(rounds=1)(panel, team.tasks[:1], None)[0].text == "is 2"
    assert team.fenced(engine.requests[-1]) == []
    panel, _ = team.build(team.says(Z=["is 2", ""]))
    assert SelfCorrection(rounds=1)(panel, team.tasks[:1], None)[0].text == ""


def test_without_rounds_it_is_the_answer_alone(team):
    panel, engine = team.build(team.says(Z=["is 1"]))
    assert SelfCorrection(rounds=0)(panel, team.tasks[:1], None)[0].text == "is 1"
    assert len(engine.requests) == 1


def test_a_copied_mark_is_no_part_of_an_answer(team):
    panel, _ = team.build(team.says(Z=["<text-12345678>\nis 1\n</text-12345678>"]))
    assert Single("Zebulon")(panel, team.tasks[:1], None)[0].text == "is 1"
