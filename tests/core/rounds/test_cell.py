"""One round: who sees what, and where ratings end up."""

import hashlib
import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.app.build import consensus_cell
from nsed_torch.core.encoder import HashedEncoder
from nsed_torch.core.ratings import VerdictRating
from nsed_torch.core.round import MacroRNNCell
from nsed_torch.core.team import Team, full_team
from nsed_torch.parts.rating_modes import CritiqueRating
from nsed_torch.records.transcript import Task

TASKS = [Task("Which is larger, 17 or 71?", id="a"), Task("Is it so?", id="b"), Task("Why, then?", id="c")]
LISTED = st.sampled_from([VerdictRating(listed=True), VerdictRating(listed=False)])


def number(agent, text):
    """A rating on a grid that tells judge and text."""
    return int(hashlib.sha256(f"{agent} {text}".encode()).hexdigest(), 16) % 201 / 100 - 1


def speak(request):
    return f"#{request.seed} is mine"


def one_round(rnn, tasks=TASKS, teams=None):
    cell = rnn.cell
    return cell(tasks, teams or [full_team(cell.ensemble)] * len(tasks), cell.start(tasks), index=1)[0]


@settings(max_examples=20)
@given(st.integers(0, 2**32), LISTED, st.integers(2, 5))
def test_judges_see_every_answer_but_their_own_and_no_names(scripted, seed, rating, agents):
    rnn, engine = scripted.build(agents, write=speak, seed=seed, rating=rating)
    records = one_round(rnn)
    assert len(engine.rated) == agents * len(TASKS)
    for request in engine.rated:
        prompt = "\n".join([*(message.content for message in request.messages), *request.candidates])
        (record,) = (r for r in records if r.proposals[0].text in prompt or r.proposals[1].text in prompt)
        for proposal in record.proposals:
            assert (proposal.text in prompt) is (proposal.agent != request.agent)
        assert len(request.candidates) == agents - 1
    for request in engine.rated + engine.generated:
        prompt = "\n".join(message.content for message in request.messages).lower()
        assert not any(name.lower() in prompt for name in scripted.NAMES)


@settings(max_examples=20)
@given(st.integers(0, 2**32), LISTED, st.lists(st.booleans(), min_size=5, max_size=5))
def test_ratings_end_up_at_the_right_proposal(scripted, seed, rating, answers):
    """The judge encodes whom it rates; None and missing answers stay None."""

    def write(request):
        return speak(request) if answers[scripted.NAMES.index(request.agent)] else ""

    def judge(request, candidate):
        value = number(request.agent, scripted.judged(request, candidate))
        return None if abs(value) < 0.2 else value

    rnn, _ = scripted.build(5, write=write, judge=judge, seed=seed, rating=rating)
    for record in one_round(rnn):
        for i, j in itertools.product(range(5), range(5)):
            value = number(scripted.NAMES[i], record.proposals[j].text)
            counts = i != j and answers[j] and abs(value) >= 0.2
            assert record.vote_mask[i][j] is counts
            assert record.ratings[i][j] == (round(value, 9) if counts else None)
            assert (record.ballots[i][j] != 0) is counts
        assert [p == 0 for p in record.consensus] == [not answered for answered in answers]
        assert all(record.support[j] == 0 for j in range(5) if not answers[j])
        unanswered = [n for n, a in zip(scripted.NAMES, answers, strict=True) if not a]
        assert record.notes == [f"{name}: gave no answer" for name in unanswered]
        assert (record.winner is None) is (not any(answers))
        assert len(record.memory) == min(4, sum(answers))


def orders(scripted, seed, **switches):
    """For each request the agents in the order in which their answers were listed."""
    rnn, engine = scripted.build(5, write=speak, seed=seed, **switches)
    authors = {(i, p.text): p.agent for i, record in enumerate(one_round(rnn)) for p in record.proposals}
    known = {text: agent for (_, text), agent in authors.items()}
    return [(r.agent, [known[t] for t in scripted.fenced(r.messages[-1].content)]) for r in engine.rated]


def test_the_order_of_candidates_differs_between_judges_and_follows_the_seed(scripted):
    first = orders(scripted, seed=3)
    assert first == orders(scripted, seed=3)
    assert first != orders(scripted, seed=4)
    kept_in_place = 0
    for (_, one), (_, other) in itertools.combinations(first, 2):
        common = [agent for agent in one if agent in other]
        kept_in_place += common == [agent for agent in other if agent in common]
    # Two judges share 3 or 4 candidates, so equal orders are one in 6 or less, if each judge has its own.
    assert kept_in_place < len(list(itertools.combinations(first, 2))) / 3


@pytest.mark.parametrize(
    "team",
    [
        Team((0, 1), (2, 3)),  # those who propose never judge
        Team((0, 1, 3), ()),  # nobody judges
        Team((2,), (2,)),  # the only judge wrote the only answer
        Team((1,), (0, 2, 3)),
        Team((0, 1, 2, 3), (3,)),
    ],
)
def test_any_team_alone_and_beside_others(scripted, team):
    everybody = Team((0, 1, 2, 3), (0, 1, 2, 3))
    (alone,) = one_round(scripted.build(4)[0], TASKS[:1], [team])
    beside = one_round(scripted.build(4)[0], TASKS, [team, everybody, Team((3,), (1,))])
    assert alone == beside[0]
    assert alone.proposers == [scripted.NAMES[a] for a in team.proposers]
    assert alone.voters == [scripted.NAMES[a] for a in team.voters]
    assert len(alone.support) == len(alone.consensus) == len(alone.controversy) == len(team.proposers)
    assert len(alone.ratings) == len(alone.ballots) == len(alone.trust) == len(team.voters)
    if team.voters:
        assert math.isclose(sum(alone.trust), len(team.voters))
    for voter, row in zip(alone.voters, alone.vote_mask, strict=True):
        assert not any(counts for name, counts in zip(alone.proposers, row, strict=True) if name == voter)


def test_a_batch_in_which_nobody_judges(scripted):
    records = one_round(scripted.build(3, write=speak)[0], TASKS, [Team((0, 1, 2), ())] * 3)
    for record in records:
        assert record.support == [0, 0, 0]
        assert record.winner == 0
        assert record.conviction == 0


def test_there_is_no_team_of_nobody():
    with pytest.raises(
        ValueError, match=r"^expected a team with at least one proposer, got none and the voters \(0,\)$"
    ):
        Team((), (0,))


def test_blank_answers_are_none(scripted):
    def write(request):
        return "  \n" if request.agent == scripted.NAMES[0] else "<text-ab>\n</text-ab>"

    for record in one_round(scripted.build(2, write=write)[0]):
        assert [p.text for p in record.proposals] == ["", ""]
        assert record.winner is None
        assert record.memory == []
        assert record.notes == [f"{name}: gave no answer" for name in scripted.NAMES[:2]]


@pytest.mark.parametrize(("dim", "agents"), [(9, 3), (8, 4)])
def test_a_consensus_cell_of_other_sizes_is_refused(scripted, dim, agents):
    ensemble = scripted.build(3)[0].cell.ensemble
    what, expected, got = ("dim", 8, 9) if dim == 9 else ("agents", 3, 4)
    with pytest.raises(ValueError, match=rf"^expected a consensus cell of {what}={expected}, got {got}: build it"):
        MacroRNNCell(ensemble, HashedEncoder(8), consensus_cell(dim=dim, agents=agents))


def test_a_cell_saved_for_other_agents_is_refused(scripted):
    """In another order, every weight would go to the wrong voter without a word."""
    ensemble, consensus = scripted.build(2)[0].cell.ensemble, consensus_cell(dim=8, agents=2)
    consensus.agent_names = ("Quillfeather", "Zebulon")
    with pytest.raises(
        ValueError, match=r"of the agents \('Zebulon', .*, got one of \('Quillfeather', .*: load it for"
    ):
        MacroRNNCell(ensemble, HashedEncoder(8), consensus)
    consensus.agent_names = ("Zebulon", "Quillfeather")
    MacroRNNCell(ensemble, HashedEncoder(8), consensus)


def whole(request):
    """All that a request of either kind shows a model."""
    return "\n".join([*(message.content for message in request.messages), *getattr(request, "candidates", ())])


@pytest.mark.parametrize("listed", [True, False])
def test_without_the_diagonal_mask_ones_own_answer_is_seen_rated_and_counted(scripted, listed):
    """The last agent gives no answer, the first no ratings; neither is made up."""

    def write(request):
        return "" if request.agent == scripted.NAMES[3] else speak(request)

    def judge(request, candidate):
        return (
            None if request.agent == scripted.NAMES[0] else number(request.agent, scripted.judged(request, candidate))
        )

    rating = VerdictRating(listed=listed)
    rnn, engine = scripted.build(4, write=write, judge=judge, rating=rating, diagonal_mask=False)
    records = one_round(rnn)
    for record in records:
        for i, j in itertools.product(range(4), range(4)):
            counts = i != 0 and j != 3
            value = round(number(scripted.NAMES[i], record.proposals[j].text), 9)
            assert record.ratings[i][j] == (value if counts else None)
            assert record.vote_mask[i][j] is counts
            assert (record.ballots[i][j] != 0) is (counts and value != 0)
        for ballot in record.ballots[1:]:
            assert math.isclose(sum(vote**2 for vote in ballot), 1, abs_tol=1e-6)
    for request in engine.rated:
        assert len(request.candidates) == 3
        (record,) = (r for r in records if r.proposals[0].text in whole(request))
        assert all(proposal.text in whole(request) for proposal in record.proposals)


def test_ones_own_critique_is_scored_and_not_heard_as_anothers(scripted):
    def write(request):
        asks = "Criticise" in request.messages[-1].content
        return f"{request.agent} has an opinion\nScore: 50" if asks else speak(request)

    cell = scripted.build(3, write=write, rating=CritiqueRating(), diagonal_mask=False)[0].cell
    (record,), state = cell(TASKS[:1], [full_team(cell.ensemble)], cell.start(TASKS[:1]), index=1)
    assert record.ratings == [[0.5] * 3] * 3
    assert len(record.critiques) == 9
    for name, heard in state.critiques[0].items():
        assert sorted(text.split()[0] for text in heard) == sorted(set(scripted.NAMES[:3]) - {name})


@pytest.mark.parametrize("rating", [cls(listed=listed) for cls in (VerdictRating, CritiqueRating) for listed in (0, 1)])
def test_without_anonymity_judges_see_who_wrote_what_and_proposers_do_not(scripted, rating):
    def write(request):
        return "No.\nScore: 5" if "Score:" in request.messages[-1].content else speak(request)

    rnn, engine = scripted.build(3, write=write, judge=lambda r, c: 0.5, rating=rating, anonymous=False)
    records = one_round(rnn)
    authors = {p.text: p.agent for record in records for p in record.proposals}
    asked = engine.rated + [r for r in engine.generated if "Score:" in r.messages[-1].content]
    seen = 0
    for request in asked:
        text = whole(request)
        assert "Candidate_" not in text
        for name, _, answer in re.findall(r"(\S+):\n<text-([0-9a-f]+)>\n(.*?)\n</text-\2>", text):
            assert name == authors[answer] != request.agent
            seen += 1
    assert seen == 3 * 3 * 2 * (2 if rating == CritiqueRating(listed=1) else 1)
    for request in engine.generated:
        if request not in asked:
            assert not any(name in whole(request) for name in scripted.NAMES)


def test_unshuffled_every_judge_sees_the_ensembles_order(scripted):
    for rows in (orders(scripted, seed=3, shuffled=False), orders(scripted, seed=4, shuffled=False)):
        for judge, shown in rows:
            assert shown == [name for name in scripted.NAMES if name != judge]


def test_the_switches_are_on_by_default_and_then_change_no_request(scripted):
    options = {"agents": 4, "write": speak, "judge": lambda r, c: 0.5}
    runs = [scripted.build(**options), scripted.build(**options, diagonal_mask=True, anonymous=True, shuffled=True)]
    records = [one_round(rnn) for rnn, _ in runs]
    assert records[0] == records[1]
    assert runs[0][1].rated == runs[1][1].rated
    protocol = {"diagonal_mask": True, "anonymous": True, "shuffled": True}
    assert protocol.items() <= runs[0][0].settings().items()
    for name in protocol:
        rnn, engine = scripted.build(**options, **{name: False})
        one_round(rnn)
        assert engine.rated != runs[0][1].rated
        assert engine.generated == runs[0][1].generated
        assert {key: rnn.settings()[key] for key in protocol} == {**protocol, name: False}


def test_with_worthless_ratings_proposals_stay_and_each_judges_ratings_change_places(scripted):
    options = {"agents": 4, "write": speak, "judge": scripted.judge}
    (honest, _), (control, _) = scripted.build(**options), scripted.build(**options, control="ratings")
    before, after = one_round(honest), one_round(control)
    assert [r.proposals for r in after] == [r.proposals for r in before]
    assert [r.ratings for r in after] != [r.ratings for r in before]
    for old, new in zip(before, after, strict=True):
        assert [sorted(map(str, row)) for row in new.ratings] == [sorted(map(str, row)) for row in old.ratings]
    assert control.settings()["control"] == "ratings"
    assert "control" not in honest.settings()


@pytest.mark.parametrize("tasks", [1, 3])
def test_with_another_tasks_memory_nobody_reads_its_own(scripted, tasks):
    rnn, engine = scripted.build(3, rounds=2, control="memory")
    done = rnn([Task(f"Question {i}?", f"task {i}") for i in range(tasks)]).transcripts
    held = [{slot.text for slot in transcript.rounds[0].memory if slot.shown} for transcript in done]
    assert all(held)
    for request in engine.generated[3 * tasks :]:
        row = int(re.search(r"Question (\d)\?", whole(request))[1])
        read = [{text for text in texts if text in whole(request)} for texts in held]
        assert read == [texts if tasks > 1 and i == (row + 1) % tasks else set() for i, texts in enumerate(held)]


@pytest.mark.parametrize(("control", "unit"), [("memories", "answer"), ("memory", "step")])
def test_an_unknown_control_is_refused_in_one_line(scripted, control, unit):
    with pytest.raises(ValueError, match=r"^protocol: expected a control out of null, ratings and, .*: correct it$"):
        scripted.build(3, control=control, unit=unit)
