"""The report shows what a transcript holds, and nothing a model writes can change the page around it."""

import dataclasses
import itertools
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.evaluation.report import render_report, slot_histories, write_report
from nsed_torch.records.task import Task
from nsed_torch.records.transcript import (
    AgentRecord,
    Critique,
    MemorySlot,
    Proposal,
    Round,
    Transcript,
    Usage,
)

TEAM = ["Ada", "Ben", "Cleo"]
VOID = {"meta", "input"}
TAGS = VOID | {
    "html",
    "head",
    "title",
    "style",
    "body",
    "main",
    "nav",
    "article",
    "section",
    "h1",
    "h2",
    "h3",
    "h4",
}
TAGS |= {"a", "p", "div", "span", "bdi", "b", "small", "ul", "ol", "li", "dl", "dt", "dd", "label"}
TAGS |= {"details", "summary", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td"}
ATTRIBUTES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "href",
    "id",
    "dir",
    "style",
    "open",
}
ATTRIBUTES |= {"tabindex", "aria-label", "aria-hidden", "type", "for", "role", "scope"}
PLAIN = str.maketrans({"\N{MINUS SIGN}": "-", "\N{MULTIPLICATION SIGN}": "*"})
HOSTILE = (
    "</div></script><img src=x onerror=alert(1)><style>*{display:none}</style>"
    "\"'><a href='javascript:alert(2)' onclick=alert(3)>{{ 7 * 7 }}{% raw %} <!-- &amp; &#60;"
)


def first_round() -> Round:
    proposals = [
        Proposal("Ada", "71 is larger: 71 - 17 = 54 > 0.", "stop", Usage(1, 210, 14, 0.00004, 1.2)),
        Proposal(
            "Ben",
            "17, because seven comes last.\n\nOn reflection:\n  1 < 7\n  so no.",
            "length",
            Usage(1, 208, 128, 0.0002, 6.1),
        ),
        Proposal(
            "Cleo",
            "Both have the digits 1 and 7, therefore they are equal.",
            "stop",
            Usage(1, 209, 16, 0.00005, 1.4),
        ),
    ]
    return Round(
        index=1,
        proposers=TEAM,
        voters=TEAM,
        proposals=proposals,
        ratings=[[None, -0.78, -0.33], [0.56, None, None], [0.89, -0.11, None]],
        vote_mask=[[False, True, True], [True, False, False], [True, True, False]],
        ballots=[[0.0, -0.838, -0.545], [1.0, 0.0, 0.0], [0.943, -0.332, 0.0]],
        reliability=[1.12, 0.77, 1.11],
        support=[1.817, -1.307, -0.611],
        consensus=[0.882, 0.039, 0.079],
        winner=0,
        all_negative=False,
        conviction=0.486,
        decisiveness=3.735,
        controversy=[0.027, 0.112, 0.0],
        memory=[
            MemorySlot(proposals[0].text, "Ada", 1, 0.882, 1.0, True),
            MemorySlot(proposals[2].text, "Cleo", 1, 0.079, 1.0, True),
            MemorySlot(proposals[1].text, "Ben", 1, 0.039, 1.0, False),
        ],
        critiques=[
            Critique(0, 1, "The last digit does not decide; compare the tens first."),
            Critique(2, 0, "Right, and the subtraction proves it."),
            Critique(2, 1, "Contradicts itself half-way."),
        ],
        notes=["Ben rated Cleo's proposal with a text that holds no number; the rating does not count"],
        usage=Usage(6, 1840, 164, 0.00031, 12.4),
    )


def silent_round(first: Round) -> Round:
    return Round(
        index=2,
        proposers=TEAM,
        voters=TEAM,
        proposals=[Proposal(name, "", "stop") for name in TEAM],
        ratings=[[None] * 3 for _ in TEAM],
        vote_mask=[[False] * 3 for _ in TEAM],
        ballots=[[0.0] * 3 for _ in TEAM],
        reliability=[1.0] * 3,
        support=[0.0] * 3,
        consensus=[0.0] * 3,
        winner=None,
        all_negative=False,
        conviction=0.0,
        decisiveness=0.0,
        controversy=[0.0] * 3,
        memory=[
            dataclasses.replace(first.memory[0], retention=0.719, gate=0.816),
            dataclasses.replace(first.memory[1], retention=0.05, gate=0.63, shown=False),
        ],
        notes=["nobody answered: the memory only faded"],
        usage=Usage(3, 900, 0, 0.0, 0.8),
    )


def last_round(first: Round) -> Round:
    proposals = [
        Proposal(
            "Ada",
            "71. Compare the tens: 7 > 1, so 71 > 17 whatever the ones say.",
            "stop",
            Usage(1, 260, 30, 0.0001, 2.2),
        ),
        Proposal("Ben", "It is hard to say which is larger.", "stop", Usage(1, 258, 12, 0.0001, 1.0)),
        Proposal("Cleo", "71, as 71 = 17 + 54.", "stop", Usage(1, 259, 13, 0.0001, 1.1)),
    ]
    return Round(
        index=3,
        proposers=TEAM,
        voters=TEAM,
        proposals=proposals,
        ratings=[[None, -0.9, -0.2], [-0.1, None, -0.3], [-0.2, -1.0, 0.4]],
        vote_mask=[[False, True, True], [True, False, True], [True, True, False]],
        ballots=[[0.0, -0.905, -0.426], [-0.5, 0.0, -0.866], [-0.408, -0.913, 0.0]],
        reliability=[1.2, 0.6, 1.2],
        support=[-0.79, -2.18, -1.03],
        consensus=[0.51, 0.13, 0.36],
        winner=0,
        all_negative=True,
        conviction=-0.198,
        decisiveness=4.0,
        controversy=[0.003, 0.003, 0.003],
        memory=[
            MemorySlot(first.memory[0].text, "Ada", 1, 0.602, 0.837, True),
            MemorySlot(proposals[0].text, "Ada", 3, 0.51, 1.0, True),
            MemorySlot("71, as 71 = …", "Cleo", 3, 0.36, 1.0, False),
        ],
        usage=Usage(6, 2210, 55, 0.0003, 8.9),
    )


def example() -> Transcript:
    """Three agents, three rounds: masks, negative ratings, notes, critiques, and a round without answers."""
    first = first_round()
    personas = ["A careful mathematician who checks each step.", "A quick thinker.", ""]
    agents = [
        AgentRecord(
            name,
            "smollm2-135m" if name != "Cleo" else "gemma-3-270m",
            persona,
            {
                "quantization": "nf4",
                "dtype": "float32",
                "revision": "7e27bd9f95328f0f3b08261d1252705110c806f8",
                "adapter": None,
            },
            {"max_new_tokens": 128, "temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.1},
            0.1,
            0.4,
        )
        for name, persona in zip(TEAM, personas, strict=True)
    ]
    rounds = [first, silent_round(first), last_round(first)]
    return Transcript(
        task=Task("Which is larger, 17 or 71?", "digits-17", "71"),
        agents=agents,
        rounds=rounds,
        answer=rounds[2].proposals[0].text,
        stop_reason="rounds",
        usage=Usage.sum(turn.usage for turn in rounds),
        seed=0,
        settings={
            "vote": {"activation": "quadratic", "beta": 1.0, "kappa": 0.0},
            "gate": {"mode": "learned", "slots": 3, "bias": 1.5},
            "halting": {"rule": "fixed", "rounds": 3},
            "templates": {"propose": "5f1c9a", "rate": "b83e02"},
            "budgets": {},
            "nsed_torch": "0.1.0",
        },
    )


def answered(question: str, text: str) -> Transcript:
    """The example with one text in every place that takes a model's or a user's words."""
    base = example()
    first = base.rounds[0]
    turn = dataclasses.replace(
        first,
        proposals=[dataclasses.replace(first.proposals[0], text=text), *first.proposals[1:]],
        memory=[
            dataclasses.replace(first.memory[0], text=text),
            dataclasses.replace(first.memory[1], text="w" + text),
        ],
        critiques=[Critique(1, 0, text)],
        notes=[text],
    )
    agents = [dataclasses.replace(base.agents[0], persona=text, backbone=text), *base.agents[1:]]
    return dataclasses.replace(
        base,
        task=Task(question, "x" + text, text),
        agents=agents,
        rounds=[turn],
        answer=text,
        settings={text: text, "list": [text]},
        stop_reason=text,
    )


class Page(HTMLParser):
    """Collects what a browser would see: elements in order, and the text inside each."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[int] = []
        self.texts: dict[int, str] = {}
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {[self.elements[i] for i in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_data(" ")
        self.elements.append((tag, dict(attrs)))
        self.texts[len(self.elements) - 1] = ""
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag
        self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for position in self.open:
            self.texts[position] += data

    def find(self, tag: str, **attributes: str) -> list[str]:
        """Texts of the elements of that tag that have these attribute values; white space as it stands."""
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return [
            self.texts[i]
            for i, (name, attrs) in enumerate(self.elements)
            if name == tag and all(attrs.get(key) == value for key, value in wanted.items())
        ]

    def words(self, tag: str, **attributes: str) -> list[str]:
        """The same with single spaces, a space at every tag, and plain signs."""
        return [" ".join(text.translate(PLAIN).split()) for text in self.find(tag, **attributes)]


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render_report([example()]))


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
        "Tokens 5,169",
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


def test_every_cell_of_the_vote_matrix_says_what_it_is(page):
    rows = page.words("tr")
    assert "Ada reliability 1.12 own -0.78 ballot -0.84 -0.33 ballot -0.55" in rows
    assert "Ben reliability 0.77 +0.56 ballot +1.00 own no rating" in rows
    assert "Support +1.82 -1.31 -0.61" in rows
    assert "Consensus 0.88 0.04 0.08" in rows
    assert "Controversy 0.03 0.11 0.00" in rows
    assert "Cleo reliability 1.20 -0.20 ballot -0.41 -1.00 ballot -0.91 +0.40 not counted" in rows


def test_colours_follow_sign_and_size_of_the_rating():
    cells = re.findall(
        r'<td class="(plus|minus)" style="--v:(\d+%)">([^\n]+)', render_report([example()]).translate(PLAIN)
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


def test_page_is_self_contained_and_allows_no_script(page):
    html = render_report([example()])
    policy = next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face|<script", html)
    assert all(attrs["href"].startswith("#") for _, attrs in page.elements if "href" in attrs)


def test_page_can_be_read_by_keyboard_and_screen_reader():
    page = Page(render_report([example(), example()]))
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


def test_several_deliberations_share_a_page():
    other = dataclasses.replace(example(), task=Task("Is 51 prime?", "prime-51"), answer="")
    page = Page(render_report([example(), other]))
    assert page.words("h1") == ["2 deliberations"]
    assert page.words("ol", class_="contents")[0] == "digits-17 Which is larger, 17 or 71? prime-51 Is 51 prime?"
    assert page.words("section", class_="answer")[1] == "Answer Nobody answered."


def test_hostile_text_stays_text():
    page = Page(render_report([answered(HOSTILE, HOSTILE)]))
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, attrs in page.elements for name in attrs} <= ATTRIBUTES
    assert page.find("div", class_="text").count(HOSTILE) == 4  # question, answer, proposal, critique
    assert "7 * 7" in page.texts[0]
    assert "49" not in page.words("section", class_="answer")[0]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("nul \0 bell \a", "nul \u2400 bell \u2407"),
        ("\u202eright to left\u202c", "\u202eright to left\u202c"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("lines\r\nof a\rteletype", "lines\nof a\u240dteletype"),
        ("w" * 10_000, "w" * 10_000),
        ("ten thousand words " * 530, "ten thousand words " * 530),
    ],
)
def test_awkward_texts_are_shown_whole_and_isolated(written, shown):
    html = render_report([answered("Why?", written)])
    page = Page(html.encode().decode())
    assert page.find("div", class_="text", dir="auto")[1] == shown


def test_a_long_question_is_folded_away_but_whole():
    question = "Given that " + "x is y and " * 900 + "what is z?"
    page = Page(render_report([answered(question, "z")]))
    assert page.find("div", class_="text")[0] == question
    assert "Given that x is y" in page.words("summary")[0]
    assert len(page.words("summary")[0]) == 400


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_no_text_changes_the_page_around_it(text):
    def skeleton(words: str) -> list[tuple[str, list[str]]]:
        page = Page(render_report([answered("q" + words, "a" + words)]).encode().decode())
        return [(tag, sorted(attrs)) for tag, attrs in page.elements]

    assert skeleton(text) == skeleton("")


@pytest.mark.parametrize("count", [0, 1, 7])
def test_any_team_size_is_drawn(count):
    base = example()
    turn = base.rounds[1]
    names = [f"agent {i}" for i in range(count)]
    empty = {name: [0.0] * count for name in ("reliability", "support", "consensus", "controversy")}
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
    page = Page(render_report([dataclasses.replace(base, rounds=[turn])]))
    assert len(page.find("table", class_="votes")) == (1 if count else 0)
    assert "Nothing was kept." in page.words("section", id="t1-memory")[0]


def test_a_run_folder_becomes_a_page(tmp_path):
    example().save(tmp_path / "transcript.json")
    path = write_report(tmp_path)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == render_report([example()])
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


def test_no_transcripts_are_refused():
    with pytest.raises(ValueError, match="expected at least one transcript"):
        render_report([])
