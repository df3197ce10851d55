"""Who reads what in a debate, and how it is decided."""

from nsed_torch.evaluation.methods.interactive import Debate


def test_agents_read_themselves_and_the_others_and_the_last_answers_vote(team):
    texts = {"Z": ["is 1", "is 2"], "Q": ["is 2", "still 2"], "O": ["is 3", "is 1"]}
    panel, engine = team.build(team.says(**texts))
    (answer,) = Debate()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 2", "votes: 2 of 3; rounds: 2")
    updates = [request for request in engine.requests if team.kind(request) == "debate"]
    # What an agent itself said stands last, below the others.
    assert [(r.agent[0], team.fenced(r)) for r in updates] == [
        ("Z", ["is 2", "is 3", "is 1"]),
        ("Q", ["is 1", "is 3", "is 2"]),
        ("O", ["is 1", "is 2", "is 3"]),
    ]
    own = [request.messages[-1].content.split("What you answered:")[1] for request in updates]
    assert ["is 1" in own[0], "is 2" in own[1], "is 3" in own[2]] == [True] * 3


def test_empty_answers_are_not_shown(team):
    texts = {"Z": ["", "is 4"], "Q": ["is 2", ""], "O": ["", "is 2"]}
    panel, engine = team.build(team.says(**texts))
    (answer,) = Debate()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 4", "votes: 1 of 3; rounds: 2")
    prompts = {r.agent[0]: r for r in engine.requests if team.kind(r) == "debate"}
    assert {name: team.fenced(request) for name, request in prompts.items()} == {
        "Z": ["is 2"],
        "Q": ["is 2"],
        "O": ["is 2"],
    }
    assert "What you answered" not in prompts["Z"].messages[-1].content
    assert "What the other experts answered" not in prompts["Q"].messages[-1].content


def test_three_rounds_read_the_second(team):
    texts = {name[0]: [f"{name[0]}{i} is 1" for i in (1, 2, 3)] for name in team.names}
    panel, engine = team.build(team.says(**texts))
    (answer,) = Debate(rounds=3)(panel, team.tasks[:1], None)
    assert answer.text == "Z3 is 1"
    assert team.fenced(engine.requests[-1]) == ["Z2 is 1", "Q2 is 1", "O2 is 1"]
