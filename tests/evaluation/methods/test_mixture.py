"""Who reads whose texts, and who writes the last one."""

from nsed_torch.evaluation.methods.interactive import MixtureOfAgents, SelfMoA


def test_the_lead_reads_its_own_samples(team):
    panel, engine = team.build(team.says(Q=["is 1", "", "is 2", "so 3"]), leads={"a": "Quillfeather"})
    (answer,) = SelfMoA()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("so 3", "samples: 3")
    assert [team.kind(request) for request in engine.requests] == ["propose"] * 3 + ["aggregate"]
    assert team.fenced(engine.requests[-1]) == ["is 1", "is 2"]
    assert {request.agent for request in engine.requests} == {"Quillfeather"}


def test_a_lone_sample_is_not_aggregated(team):
    panel, engine = team.build(team.says(Z=["is 1"]), temperatures=(0, 1, 1))
    (answer,) = SelfMoA()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("is 1", "samples: 1; temperature 0: another sample would be equal")
    assert answer.usage == engine.usage


def test_each_layer_reads_the_one_before_and_the_lead_writes_the_last_text(team):
    texts = {"Z": ["z1", "z2", "last"], "Q": ["q1", "q2"], "O": ["o1", ""]}
    panel, engine = team.build(team.says(**texts))
    (answer,) = MixtureOfAgents()(panel, team.tasks[:1], None)
    assert (answer.text, answer.note) == ("last", "layers: 2")
    assert [(r.agent[0], team.kind(r), team.fenced(r)) for r in engine.requests] == [
        ("Z", "propose", []),
        ("Q", "propose", []),
        ("O", "propose", []),
        ("Z", "aggregate", ["z1", "q1", "o1"]),
        ("Q", "aggregate", ["z1", "q1", "o1"]),
        ("O", "aggregate", ["z1", "q1", "o1"]),
        ("Z", "aggregate", ["z2", "q2"]),
    ]
    assert len({request.seed for request in engine.requests}) == 7


def test_another_lead_writes_where_it_leads(team):
    panel, engine = team.build(leads={"b": "Oberon"})
    MixtureOfAgents(layers=1)(panel, team.tasks[:2], None)
    assert [request.agent for request in engine.requests[-2:]] == ["Zebulon", "Oberon"]
