"""Any text reaches the config unchanged, through Hydra's own compose."""

from dataclasses import dataclass, field

import pytest
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from nsed_torch.app.config.overrides import escape, quote

PARSER = OverridesParser.create()


@dataclass
class Root:
    question: str = "default"
    other: str = "other"
    texts: dict[str, str] = field(default_factory=lambda: {f"t{i}": "" for i in range(12)})


ConfigStore.instance().store(name="overrides_test_root", node=Root)
ConfigStore.instance().store(name="overrides_test_plain", node={"question": "default"})


@pytest.fixture(scope="module", autouse=True)
def hydra_session():
    with initialize(version_base="1.3", config_path=None):
        yield


CHARACTERS = [
    "\\",
    "'",
    '"',
    "$",
    "{",
    "}",
    ",",
    "=",
    " ",
    "\t",
    "[",
    "]",
    "(",
    ")",
    ":",
    "~",
    "#",
    "@",
    "%",
    "é",
    "🦉",
]
PIECES = st.sampled_from([*CHARACTERS, "${", "\n", "\r\n", "\x00", "\u2028", "???", "other", "oc.env:HOME", "null"])
TEXTS = st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=20)
NASTY = [
    "",
    "???",
    "null",
    "true",
    "1e3",
    "0x10",
    "1,2,3",
    "a=b",
    "${other}",
    "\\${other}",
    "\\\\${other}",
    "${oc.env:HOME}",
    "${",
    "${???}",
    "trailing \\",
    "two \\\\",
    "\\' \\\" '",
    "a\\'b\\\\'c\"d\\",
    "  spaces  ",
    "line\nbreak\r\n\tand tab",
    "{a: 1}",
    "[1, 2]",
    "choice(1,2)",
    "Which is larger, 17 or 71?",
    "Is x=3 a root of x^2=9?",
    "où? 🦉",
]


def check(text):
    for name in ("overrides_test_root", "overrides_test_plain"):
        config = compose(name, [f"question={quote(text)}"])
        assert config.question == text
        assert OmegaConf.to_container(config, resolve=True)["question"] == text


@pytest.mark.parametrize("text", NASTY)
def test_known_nasty_texts(text):
    check(text)


# Composing costs far more than parsing, so each example brings several texts.
@settings(max_examples=30)
@given(texts=st.lists(TEXTS, min_size=6, max_size=12))
@example(["\\\\\\${\\${\\"])
def test_any_text(texts):
    config = compose("overrides_test_root", [f"texts.t{i}={quote(text)}" for i, text in enumerate(texts)])
    assert [config.texts[f"t{i}"] for i in range(len(texts))] == texts


@given(text=TEXTS)
def test_no_text_is_a_sweep(text):
    (override,) = PARSER.parse_overrides([f"question={quote(text)}"])
    assert not override.is_sweep_override()
    # Hydra's sweeper writes the value out again for each job, and parses that.
    (again,) = PARSER.parse_overrides([f"question={override.get_value_element_as_str()}"])
    assert again.value() == override.value()


@given(text=TEXTS)
def test_escape_alone_holds_for_values_set_in_python(text):
    assert OmegaConf.create({"a": escape(text), "other": "o"}).a == text


def test_bytes_that_are_no_text():
    with pytest.raises(ValueError, match="expected UTF-8 text, got other bytes at character 2"):
        quote(b"ab\xff".decode("utf-8", "surrogateescape"))
