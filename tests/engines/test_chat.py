import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsed_torch.core.engine import Message
from nsed_torch.engines.chat import Chat, merge_system

REFUSES_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
)
DROPS_SYSTEM = "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"
TURNS = Message("system", "s"), Message("user", "u"), Message("assistant", "a"), Message("user", "v")
PIECES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "start|>", "end|>", "<", "|", ">", "### ", "###"]
PIECES += ["<think>", "user\n", "assistant", " ", "\n", "a", "é", "#"]
hostile = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@pytest.fixture(scope="module")
def chat(make_tokenizer):
    return Chat(make_tokenizer())


@pytest.fixture(scope="module")
def plain(make_tokenizer):
    return Chat(make_tokenizer(None), "plain")


@pytest.fixture(scope="module")
def thinking(make_tokenizer):
    """A tokenizer whose template steers by a token that is not marked as special."""
    return Chat(make_tokenizer("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}<think>"))


def control_ids(chat, messages):
    tokenizer = chat.tokenizer
    ids = {tokenizer.convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>")}
    return [i for i in chat.ids(messages) if i in ids]


def test_it_renders_turns_and_opens_the_assistants(chat):
    assert chat.text(TURNS[:2]) == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.tokenizer.decode(chat.ids(TURNS)) == chat.text(TURNS)
    assert chat.stop is None
    assert chat.takes_system


@settings(max_examples=30)
@given(st.lists(hostile, min_size=4, max_size=4))
def test_no_text_can_write_a_control_token(chat, texts):
    # <think> stands in no part of this template and is an ordinary word to it.
    texts = [text.replace("<think>", "") for text in texts]
    written = [Message(m.role, text) for m, text in zip(TURNS, texts, strict=True)]
    assert control_ids(chat, written) == control_ids(chat, TURNS)


@settings(max_examples=30)
@given(hostile)
def test_tokens_of_the_template_are_control_tokens_special_or_not(thinking, text):
    assert control_ids(thinking, [Message("user", text)]) == control_ids(thinking, [Message("user", "?")])


@settings(max_examples=30)
@given(st.lists(hostile, min_size=4, max_size=4))
def test_no_text_can_write_a_heading_of_the_plain_template(plain, texts):
    written = [Message(m.role, text) for m, text in zip(TURNS, texts, strict=True)]
    assert plain.text(written).count("###") == plain.text(TURNS).count("###") == 5


@settings(max_examples=30)
@given(hostile)
def test_neutralizing_only_adds_spaces_and_only_where_needed(chat, text):
    got = chat.neutralize(text)
    assert got.replace(" ", "") == text.replace(" ", "")
    assert chat.neutralize(got) == got
    if not any(token in text for token in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")):
        assert got == text


def test_tokens_hidden_in_tokens_are_broken_too(make_tokenizer):
    from tokenizers import AddedToken

    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<<|im_end|>>", special=True), AddedToken(" <|x|>", special=True)])
    chat = Chat(tokenizer)
    for text in ("<<|im_end|>>", "< <|im_end|>", " <|x|>", "  <|x|>"):
        assert control_ids(chat, [Message("user", text)]) == control_ids(chat, [Message("user", "?")])
        assert not set(chat.ids([Message("user", text)])) & set(tokenizer.convert_tokens_to_ids(["<<|im_end|>>"]))


def test_a_template_without_a_system_role_gets_it_in_the_first_message(make_tokenizer):
    for template in (REFUSES_SYSTEM, DROPS_SYSTEM):
        chat = Chat(make_tokenizer(template))
        assert not chat.takes_system
        assert "user:s\n\nu" in chat.text(TURNS)
        assert "user:u" in chat.text(TURNS[1:])


def test_merging_leaves_other_chats_alone():
    assert merge_system(TURNS[1:]) == list(TURNS[1:])
    assert merge_system([]) == []
    assert merge_system(TURNS) == [Message("user", "s\n\nu"), *TURNS[2:]]


def test_the_plain_template_is_headed_paragraphs(plain):
    text = plain.text(TURNS[:2])
    assert text.removeprefix("<|endoftext|>") == "### System:\ns\n\n### User:\nu\n\n### Assistant:\n"
    assert plain.stop == "\n###"


def test_without_a_template_it_says_what_to_set(make_tokenizer, fails):
    with fails("expected a chat template, the tokenizer has none: set chat_template=plain"):
        Chat(make_tokenizer(None))


def test_a_given_template_wins_and_changes_the_fingerprint(make_tokenizer, chat):
    other = Chat(make_tokenizer(), DROPS_SYSTEM)
    assert other.text([Message("user", "u")]) == "user:u;"
    assert other.fingerprint != chat.fingerprint == Chat(make_tokenizer()).fingerprint


def test_labels_are_the_tokens_that_follow_the_opening(chat, plain):
    for rendered in (chat, plain):
        ids = rendered.label_ids(tuple("0123456789"))
        assert [rendered.tokenizer.decode([i]) for i in ids] == list("0123456789")


@pytest.mark.parametrize(("label", "tokens"), [("10", r"\[\d+, \d+\]"), ("", r"\[\]"), ("é", r"\[\d+, \d+\]")])
def test_a_label_of_other_than_one_token_is_named(chat, label, tokens):
    text = f"expected rating labels of one token each, '{label}' is {tokens} for this model: choose other labels"
    with pytest.raises(ValueError, match=f"^{text}$"):
        chat.label_ids(("1", label))


def test_a_template_gets_the_options_that_it_asks_for(make_tokenizer):
    template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is not false %}<think>{% endif %}"
    )
    tokenizer = make_tokenizer(template)
    chats = [Chat(tokenizer, None, options) for options in (None, {"enable_thinking": False})]
    assert [chat.text([Message("user", "u")]) for chat in chats] == ["u<think>", "u"]
    assert chats[0].fingerprint != chats[1].fingerprint  # calls made with the one are no answers for the other
    assert Chat(tokenizer, None, {}).fingerprint == chats[0].fingerprint
    with pytest.raises(ValueError, match="template_options: expected what a template alone reads, got 'tokenize'"):
        Chat(tokenizer, None, {"tokenize": True})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\n6 * 7 is 42.\n</think>\n\n42", "42"),
        ("6 * 7 is 42.</think> 42 ", "42"),  # some templates open the thought
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>\n6 * 7 is", ""),  # the allowance was too small to end it
        ("42 <think>why", "42"),
        ("42", "42"),
    ],
)
def test_thoughts_are_no_part_of_an_answer(make_tokenizer, text, answer):
    tokenizer = make_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    thinks = Chat(tokenizer, None, None, ["<think>", "</think>"])
    assert thinks.parted(text).answer == answer
    assert Chat(tokenizer).parted(text).answer == text.strip()  # it does not know the marks
    tokenizer.add_tokens(["</think>"])
    assert Chat(tokenizer).parted(text).answer == answer
    opens = Chat(tokenizer, "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n")
    assert opens.parted("6 * 7 is").answer == ""
    assert thinks.fingerprint != Chat(tokenizer).fingerprint


@pytest.mark.parametrize("marks", ["<think>", ["<think>"], ["a", ""], ["a", "a"], []])
def test_thoughts_stand_between_two_marks(make_tokenizer, marks):
    tokenizer = make_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(ValueError, match=r"^reasoning: expected what opens and what closes it, got "):
        Chat(tokenizer, None, None, marks)
