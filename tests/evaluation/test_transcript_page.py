"""The report shows what a transcript holds."""

import dataclasses
import itertools
import re
from collections import Counter

import pytest
from report_pages import PLAIN, TEAM, Page, example

from nsed_torch.evaluation.pages import render_transcript, slot_histories, write_report
from nsed_torch.records.transcript import Proposal


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_transcript(example()))


def test_question_and_answer_come_first(page):
    assert page.words("h2")[:2] == ["Question", "Answer"]
    assert page.find("div", class_="text")[:2] == [example().task.question, example().answer]
    assert page.words("title") == ["Which is larger, 17 or 71?"]


def test_facts_are_the_transcript_s(page):
    facts = page.words("dl", class_="facts")[0]
    for expected in (
        "all rounds done",
        "Rounds 3",
        "Model calls 15",
        "Tokens computed 5,169",
        "4,950 in, 219 out",
        "22.1 s",
        "US$ 0.0006",
    ):
        assert expected in facts


def test_team_names_model_quantization_and_decoding(page):
    team = page.words("ul", class_="team")[0]
    for expected in (
        *TEAM,
        "gemma-3-270m",
        "quantization nf4",
        "temperature 0.7",
        "max new tokens 128",
        "no persona",
        "A quick thinker.",
    ):
        assert expected in team


def test_roles_and_the_judges_model_are_shown_where_they_are_not_the_usual(page):
    assert "takes part as" not in page.words("ul", class_="team")[0]
    whole = example()
    ada, ben, cleo = whole.agents
    agents = [
        dataclasses.replace(ada, roles=["judge"]),
        dataclasses.replace(ben, judge_identity={**ben.identity, "adapter": "f00d"}),
        cleo,
    ]
    rounds = [
        dataclasses.replace(
            turn,
            proposers=turn.proposers[1:],
            proposals=turn.proposals[1:],
            ratings=[row[1:] for row in turn.ratings],
            vote_mask=[row[1:] for row in turn.vote_mask],
            ballots=[row[1:] for row in turn.ballots],
            support=turn.support[1:],
            consensus=turn.consensus[1:],
            controversy=turn.controversy[1:],
            critiques=[],
        )
        for turn in whole.rounds
    ]
    shown = Page(render_transcript(dataclasses.replace(whole, agents=agents, rounds=rounds)))
    team = shown.words("ul", class_="team")[0]
    assert team.count("takes part as judge only") == team.count("takes part as") == 1
    assert "Ben as a judge: smollm2-135m" in shown.words("summary")
    assert any("adapter f00d" in text for text in shown.words("details"))
    assert "Ada trust 1.12 -0.78 ballot -0.84 -0.33 ballot -0.55" in shown.words("tr")


def test_every_cell_of_the_vote_matrix_says_what_it_is(page):
    rows = page.words("tr")
    assert "Ada trust 1.12 own -0.78 ballot -0.84 -0.33 ballot -0.55" in rows
    assert "Ben trust 0.77 +0.56 ballot +1.00 own no rating" in rows
    assert "Support +1.82 -1.31 -0.61" in rows
    assert "Consensus 0.88 0.04 0.08" in rows
    assert "Controversy 0.03 0.11 0.00" in rows
    assert "Cleo trust 1.20 -0.20 ballot -0.41 -1.00 ballot -0.91 +0.40 not counted" in rows


def test_colours_follow_sign_and_size_of_the_rating():
    cells = re.findall(
        r'<td class="(plus|minus)" style="--v:(\d+%)">([^\n]+)', render_transcript(example()).translate(PLAIN)
    )
    assert ("minus", "78%", "-0.78") in cells
    assert ("plus", "89%", "+0.89") in cells
    assert len(cells) == 6 + 5


def test_only_winners_are_marked_and_open(page):
    proposals = [attrs for tag, attrs in page.elements if tag == "details" and "proposal" in (attrs.get("class") or "")]
    assert len(proposals) == 9
    assert [i for i, attrs in enumerate(proposals) if "open" in attrs] == [0, 6]
    assert Counter(page.words("span", class_="won")) == {"winner": 4}


def test_a_round_in_which_nobody_answered_says_so(page):
    second = page.words("section", id="t1-r2")[0]
    assert "Nobody answered in this round." in second
    assert second.count("no answer No answer (stop).") == 3
    assert "winner" not in second
    assert "Votes" not in second
    assert len(page.find("table", class_="votes")) == 2
    assert "Even the winner has negative support" in page.words("section", id="t1-r3")[0]


def test_notes_and_critiques_are_shown_with_their_authors(page):
    assert page.words("ul", class_="notes")[0] == example().rounds[0].notes[0]
    critiques = page.words("div", class_="critique")
    assert "Cleo wrote Right, and the subtraction proves it." in critiques
    assert len(critiques) == 3


def test_memory_is_followed_from_birth_to_loss():
    by_text = {history.text: history for history in slot_histories(example())}
    kept = by_text[example().rounds[0].proposals[0].text]
    assert [state.retention for state in kept.states] == [0.882, 0.719, 0.602]
    assert kept.source == (1, 0)
    lost = by_text[example().rounds[0].proposals[1].text]
    assert (lost.born, lost.last, lost.states[1:]) == (1, 1, [None, None])
    assert by_text["71, as 71 = …"].source is None


def test_memory_timeline_shows_retention_gate_and_what_agents_read(page):
    rows = page.words("table", class_="memory")[0]
    assert "0.88 new shown 0.72 *0.82 shown 0.60 *0.84 shown" in rows
    assert "0.08 new shown 0.05 *0.63 hidden dropped" in rows
    assert "0.04 new hidden dropped dropped" in rows
    late = example().rounds[2].proposals[0].text
    assert f"Ada round 3 {late} 0.51 new shown" in page.words("tr")  # blank before its birth, not dropped


def test_settings_and_identities_stand_at_the_end(page):
    end = page.words("section", id="t1-settings")[0]
    for expected in (
        "seed 0",
        "vote.activation quadratic",
        "budgets {}",
        "revision 7e27bd9f",
        "adapter null",
        "task digits-17",
    ):
        assert expected in end
    assert page.words("h2")[-1] == "Settings and provenance"


def test_page_can_be_read_by_keyboard_and_screen_reader():
    page = Page(render_transcript(example()))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in page.elements if tag == "th")
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [attrs["href"][1:] for tag, attrs in page.elements if tag == "a"]
    targets += [attrs["for"] for tag, attrs in page.elements if tag == "label"]
    assert set(targets) <= set(ids)
    assert targets[0] == "main"


@pytest.mark.parametrize("count", [0, 1, 7])
def test_any_team_size_is_drawn(count):
    base = example()
    turn = base.rounds[1]
    names = [f"agent {i}" for i in range(count)]
    empty = {name: [0.0] * count for name in ("trust", "support", "consensus", "controversy")}
    turn = dataclasses.replace(
        turn,
        proposers=names,
        voters=names,
        proposals=[Proposal(name, "71", "stop") for name in names],
        winner=count - 1 if count else None,
        ratings=[[None] * count for _ in names],
        vote_mask=[[False] * count for _ in names],
        ballots=[[0.0] * count for _ in names],
        memory=[],
        **empty,
    )
    page = Page(render_transcript(dataclasses.replace(base, rounds=[turn])))
    assert len(page.find("table", class_="votes")) == (1 if count else 0)
    assert "Nothing was kept." in page.words("section", id="t1-memory")[0]


def test_a_run_folder_becomes_a_page(tmp_path):
    example().save(tmp_path / "transcript.json")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == render_transcript(example())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html", "transcript.json"]


@pytest.mark.parametrize("folder", ["missing", "."])
def test_a_folder_without_transcript_is_one_clear_line(tmp_path, folder):
    with pytest.raises(ValueError, match=r"expected a run folder with a transcript\.json") as caught:
        write_report(tmp_path / folder)
    assert str(tmp_path / folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_transcript_leaves_no_page(tmp_path):
    (tmp_path / "transcript.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"transcript\.json"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()
