"""Nothing a model writes can change the page around it."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, Page, answered, example

from nsed_torch.core.rnn import Deliberation
from nsed_torch.evaluation.pages import render_transcript

# fmt: off
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "nav", "article", "section", "h1", "h2", "h3", "h4", "a",
    "p", "div", "span", "bdi", "b", "small", "ul", "ol", "li", "dl", "dt", "dd", "label", "input", "details", "summary",
    "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td",
}
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "href", "id", "dir", "style", "open", "tabindex",
    "aria-label", "aria-hidden", "type", "for", "role", "scope",
}
# fmt: on


def test_page_is_self_contained_and_allows_no_script():
    html = render_transcript(example())
    policy = next(attrs["content"] for _, attrs in Page(html).elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script" not in policy
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face|<script", html)
    assert all(attrs["href"].startswith("#") for _, attrs in Page(html).elements if "href" in attrs)


def test_hostile_text_stays_text():
    page = Page(render_transcript(answered(HOSTILE, HOSTILE)))
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
    html = render_transcript(answered("Why?", written))
    page = Page(html.encode().decode())
    assert page.find("div", class_="text", dir="auto")[1] == shown


def test_a_long_question_is_folded_away_but_whole():
    question = "Given that " + "x is y and " * 900 + "what is z?"
    page = Page(render_transcript(answered(question, "z")))
    assert page.find("div", class_="text")[0] == question
    assert "Given that x is y" in page.words("summary")[0]
    assert len(page.words("summary")[0]) == 400


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_no_text_changes_the_page_around_it(text):
    def skeleton(words: str) -> list[tuple[str, list[str]]]:
        page = Page(render_transcript(answered("q" + words, "a" + words)).encode().decode())
        return [(tag, sorted(attrs)) for tag, attrs in page.elements]

    assert skeleton(text) == skeleton("")


def test_a_notebook_shows_the_page_in_one_frame_that_no_text_leaves():
    """What a text says stays in the frame: read as HTML, the outer page holds the frame alone."""
    shown = answered(HOSTILE, HOSTILE)._repr_html_()
    tags = []
    outer = HTMLParser()
    outer.handle_starttag = lambda tag, attributes: tags.append((tag, dict(attributes)))
    outer.feed(shown)
    ((tag, attributes),) = tags
    assert tag == "iframe"
    assert attributes["srcdoc"] == render_transcript(answered(HOSTILE, HOSTILE))
    assert attributes["sandbox"] is None  # empty: no script, no form, no other window
    inner = Page(attributes["srcdoc"])
    assert not inner.find("script")
    assert inner.find("div", class_="text").count(HOSTILE) == 4


def test_a_notebook_shows_every_deliberation_of_a_run():
    both = Deliberation((example(), answered("Why?", "Because.")))
    assert both._repr_html_().count("<iframe ") == 2
