"""Answers keep the ids that they were generated with, where the prompt holds them unchanged."""

import json
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.detokenizer import CharacterStream
from ov_specdec.text.generated_tokens import EncodedText, GeneratedTokens
from tests.support.chats import KINDS, TEMPLATES, make_tokenizer
from tests.support.scripted import PATIENCE

ME = "me"
"""The salt of whoever asks."""

TEXTS = ("width", "area(width, height)", "Größe 鱻 😀 e\u0301: width", "a\n\nwidth  c", "width *\n")


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("chat") / "model", kind=request.param)


def spelled(tokenizer, text):
    """Ids that decode to a text letter by letter, and so are not those that it encodes to."""
    vocab = tokenizer.vocab
    if "▁" not in vocab:  # bytes are letters
        return [token for letter in text for token in tokenizer.encode(letter)]
    letters = ([vocab.get(letter)] for letter in text.replace(" ", "▁"))
    known = zip(text, letters, strict=True)
    return [
        token
        for letter, ids in known
        for token in (ids if ids != [None] else [vocab[f"<0x{b:02X}>"] for b in letter.encode()])
    ]


def streamed(tokenizer, ids):
    """The text of ids, special tokens included, as it is shown."""
    stream = CharacterStream(tokenizer.piece_after, [])
    return "".join(map(stream.push, ids)) + stream.finish()


class Conversation:
    """Turns of a user, and of a model whose answers are given."""

    def __init__(self, tokenizer, generated_tokens=None):
        self.tokenizer, self.generated_tokens = tokenizer, generated_tokens or GeneratedTokens()
        self.messages = []

    def render(self, messages):
        return self.tokenizer.render_chat(messages, GenerationOptions())

    def encoded(self):
        return self.tokenizer.encode_rendered(self.render(self.messages))

    def ids(self):
        told, messages = GenerationOptions(add_generation_prompt=False), [*self.messages]
        render = lambda answer: self.tokenizer.render_chat([*messages, answer], told)  # noqa: E731
        return self.generated_tokens.restore(self.encoded(), ME, render)

    def encodes_to(self, text):
        """The ids that a text has as the next message."""
        answered = [*self.messages, {"role": "assistant", "content": text}]
        encoded = self.tokenizer.encode_rendered(self.render(answered))
        start = encoded.text.rindex(text)
        first, last = encoded.token_at(start), encoded.token_at(start + len(text))
        return encoded.ids[first:last]

    def ask(self, question):
        """The ids of the prompt that ends in a question."""
        self.messages.append({"role": "user", "content": question})
        return self.ids()

    def remember(self, text, ids, message=None):
        """Keep an answer to the messages so far."""
        answer = text, ids, self.tokenizer.piece_after
        self.generated_tokens.remember(*answer, prompt=self.ids(), salt=ME, message=message)

    def call(self, text, message, result=None):
        """Let the model generate a call, or reasoning, that means a message; its ids."""
        answer = spelled(self.tokenizer, text)
        self.remember(text, [*answer, self.tokenizer.eos_token_id], message)
        # A client sends its own copy, in which arguments were text meanwhile.
        self.messages.append(json.loads(json.dumps(message)))
        if result is not None:
            self.messages.append({"role": "tool", "content": result})
        return answer

    def answer(self, text, ids, beyond=()):
        """Let the model generate the ids of a text, and some beyond it."""
        self.remember(text, [*ids, *beyond])
        self.messages.append({"role": "assistant", "content": text})


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "beyond",
    [
        lambda tokenizer: [],
        lambda tokenizer: [tokenizer.eos_token_id],
        lambda tokenizer: [tokenizer.eos_token_id] * 2,
        lambda tokenizer: spelled(tokenizer, "\n\nUser"),
        lambda tokenizer: [tokenizer.eos_token_id] * 40,
    ],
    ids=["nothing", "end", "two ends", "stop string", "many ends"],
)
def test_a_later_turn_begins_with_all_that_was_generated_of_a_text(tokenizer, beyond, text):
    chat = Conversation(tokenizer)
    prompt = chat.ask("Hello")
    answer = spelled(tokenizer, text)
    assert answer != tokenizer.encode(text)
    chat.answer(text, answer, beyond(tokenizer))
    later = chat.ask("And then?")
    assert later[: len(prompt) + len(answer)] == [*prompt, *answer]
    assert later != chat.encoded().ids
    assert tokenizer.decode_all(later) == tokenizer.decode_all(chat.encoded().ids)


def test_equal_answers_keep_their_own_ids(tokenizer):
    chat = Conversation(tokenizer)
    for turn in range(4):
        prompt = chat.ask(f"Question {turn}: width or width?")
        letters = spelled(tokenizer, "width")
        answer = letters if turn % 2 else chat.encodes_to("width")
        chat.answer("width", answer)
        later = chat.ids()
        assert later[: len(prompt) + len(answer)] == [*prompt, *answer]
    assert chat.ids() != chat.encoded().ids


def test_an_answer_keeps_its_ids_only_in_its_own_conversation(tokenizer):
    chat = Conversation(tokenizer)
    chat.ask("Hello")
    chat.answer("width", spelled(tokenizer, "width"))
    other = Conversation(tokenizer, chat.generated_tokens)
    other.ask("Howdy")
    other.messages.append(chat.messages[1])
    assert len(other.encoded().ids) == len(chat.encoded().ids)
    assert other.ids() == other.encoded().ids
    assert chat.ids() != chat.encoded().ids
    chat.messages[1] = {"role": "assistant", "content": "length"}
    assert chat.ids() == chat.encoded().ids


def test_what_a_template_strips_is_left_out(tmp_path):
    template = TEMPLATES["strips"]
    tokenizer = make_tokenizer(tmp_path / "model", kind="byte fallback", template=template)
    chat = Conversation(tokenizer)
    prompt = chat.ask("  Hello ")
    space, answer = spelled(tokenizer, " "), spelled(tokenizer, "It is 12.")
    chat.answer(" It is 12.\n", [*space, *answer], spelled(tokenizer, "\n"))
    # The template's own space and that of the answer are one character in two places.
    assert chat.ask("And?")[: len(prompt) + 1 + len(answer)] == [*prompt, *space, *answer]


@pytest.mark.parametrize(
    "shown",
    [
        "{{ m['content'].split('>')[-1] }}",
        "{{ m['content'] if m['role'] == 'user' or '>' not in m['content'] }}",
        "{{ m['content'] }} {{ m['content'] }}",
        "{{ m['content'] if '>' in m['content'] or loop.last else raise_exception('no >') }}",
    ],
)
def test_what_a_template_changes_is_read_again(shown, tmp_path):
    template = f"{{% for m in messages %}}<eos>{shown}<eos>{{% endfor %}}"
    chat = Conversation(make_tokenizer(tmp_path / "model", template=template))
    chat.ask("> width?")
    chat.answer("think> width", spelled(chat.tokenizer, "think> width"))
    chat.messages.append({"role": "user", "content": "And then?"})
    assert chat.ids() == chat.encoded().ids


def test_an_answer_that_shares_a_token_with_the_template_is_read_again(tmp_path):
    template = "{% for m in messages %}<eos>wid{{ m['content'] }}<eos>{% endfor %}"
    chat = Conversation(make_tokenizer(tmp_path / "model", template=template))
    chat.ask("Hello")
    chat.answer("th", spelled(chat.tokenizer, "th"))
    assert chat.ask("And then?") == chat.encoded().ids


def test_special_tokens_are_no_text(tokenizer):
    """A model may spell out the name of a special token, and may generate one that is not shown."""
    chat = Conversation(tokenizer)
    prompt = chat.ask("Hello")
    spelled_out = spelled(tokenizer, "<") + spelled(tokenizer, "eos>")
    chat.answer("<eos>", spelled_out)
    assert chat.ids()[: len(prompt) + len(spelled_out)] == [*prompt, *spelled_out]
    chat = Conversation(tokenizer)
    chat.ask("Hello")
    hidden = [*spelled(tokenizer, "Y"), tokenizer.eos_token_id, *spelled(tokenizer, "es")]
    chat.answer("Yes", hidden)
    assert chat.ids() == chat.encoded().ids


def test_the_texts_that_were_used_longest_ago_are_forgotten_first(tokenizer):
    generated_tokens = GeneratedTokens(max_texts=3)
    chats = [Conversation(tokenizer, generated_tokens) for _ in range(3)]
    for turn, chat in enumerate(chats):
        chats[0].ids()  # is used again and again
        chat.ask(f"Question {turn}?")
        chat.answer(f"width {turn}", spelled(tokenizer, f"width {turn}"))
    assert [chat.ids() != chat.encoded().ids for chat in chats] == [True, False, True]


def test_long_texts_are_forgotten_before_many(tokenizer):
    generated_tokens = GeneratedTokens(max_tokens=200)
    first, second = (Conversation(tokenizer, generated_tokens) for _ in range(2))
    for chat, question in ((first, "Hello"), (second, "And? " * 40)):
        chat.ask(question)
        chat.answer("width", spelled(tokenizer, "width"))
    assert first.ids() == first.encoded().ids


def test_a_conversation_is_kept_once_however_long_it_gets(tokenizer):
    chat = Conversation(tokenizer)
    for turn in range(20):
        chat.ask(f"Question {turn}?")
        chat.answer("width", spelled(tokenizer, "width"))
    assert len(chat.generated_tokens._kept) <= 3
    del chat.messages[5:]  # the user goes back
    restored = chat.ask("Question 3?")
    assert restored != chat.encoded().ids
    assert tokenizer.decode_all(restored) == tokenizer.decode_all(chat.encoded().ids)


def test_of_two_answers_to_one_prompt_each_keeps_its_ids(tokenizer):
    chat = Conversation(tokenizer)
    prompt = chat.ask("Hello")
    answers = {text: spelled(tokenizer, text) for text in ("width", "area")}
    for text, ids in answers.items():
        chat.generated_tokens.remember(text, ids, tokenizer.piece_after, prompt=prompt, salt=ME)
    for text, ids in answers.items():
        chat.messages[1:] = [{"role": "assistant", "content": text}]
        assert chat.ids()[: len(prompt) + len(ids)] == [*prompt, *ids]


AGENT = (
    "{% set last = messages | map(attribute='role') | list %}"
    "{% for m in messages %}<eos>{{ m.role }}\n{% if m.reasoning_content and "
    "'user' not in last[loop.index0:] %}<think>\n{{ m.reasoning_content | trim }}\n</think>\n\n"
    "{% endif %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}<call>"
    "{{ call.function | tojson }}</call>{% endfor %}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<eos>assistant\n{% endif %}"
)
"""Writes calls as JSON, and reasoning after the last question only."""


def calls(arguments, reasoning=None):
    """The message of a call."""
    call = {"type": "function", "function": {"name": "area", "arguments": arguments}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    return message if reasoning is None else {**message, "reasoning_content": reasoning}


@pytest.fixture
def agent(tokenizer, monkeypatch):
    """A conversation in a template with calls and reasoning."""
    monkeypatch.setattr(tokenizer, "chat_template", AGENT)
    chat = Conversation(tokenizer)
    chat.ask("Hello")
    return chat


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name": "area", "arguments": {"width": 3}}', {"width": 3}),
        ('{"name":"area","arguments":{"width":\t3.00}}', {"width": 3.0}),
        ('{"name": "area", "arguments": {"\\u0077idth": "\\u00e9\\/"}}', {"width": "é/"}),
    ],
    ids=["as the template", "spaces", "escapes"],
)
@pytest.mark.parametrize("reasoning", [None, "width\n\nheight"])
def test_a_loop_of_calls_reuses_all_before_its_new_result(agent, written, arguments, reasoning):
    thought = "" if reasoning is None else f"<think>\n{reasoning}\n\n\n</think>"
    for turn in range(8):
        prompt = agent.ids()
        answer = agent.call(
            f"{thought}<call>{written}</call>", calls(arguments, reasoning), f"= {turn}"
        )
        later = agent.ids()
        assert later[: len(prompt) + len(answer)] == [*prompt, *answer]
        text = agent.tokenizer.decode_all(later[len(prompt) + len(answer) :])
        new = f"<eos>\n<eos>tool\n= {turn}<eos>\n<eos>assistant\n"
        assert text.replace("<eos> ", "<eos>") == new


def test_reasoning_that_a_template_drops_stays_dropped(agent):
    written = '{"name": "area", "arguments": {"width": 3}}'
    agent.call(
        f"<think>\nOf it?\n</think><call>{written}</call>", calls({"width": 3}, "Of it?"), "3"
    )
    assert "Of it?" in agent.tokenizer.decode_all(agent.ids())
    later = agent.ask("And then?")
    assert later == agent.encoded().ids
    assert "Of it?" not in agent.tokenizer.decode_all(later)
    # What was encoded anew is then kept as it is.
    answer = agent.call(f" <call>{written}</call>", calls({"width": 3}), "4")
    assert agent.ids()[: len(later) + len(answer)] == [*later, *answer]


NEEDS_ID = "{% if m.tool_calls and not m.tool_calls[0].id %}{{ raise_exception('id') }}{% endif %}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{{ m.reasoning_content | trim }}", ""),
        ("{% for call", NEEDS_ID + "{% for call"),
        ("<eos>", "\n\n"),
    ],
    ids=["drops reasoning", "needs an id", "another end"],
)
def test_an_answer_that_a_template_does_not_write_is_read_again(agent, old, new, monkeypatch):
    monkeypatch.setattr(agent.tokenizer, "chat_template", AGENT.replace(old, new))
    written = '<think>Of it?</think><call>{"name":"area", "arguments":{"width":3}}</call>'
    agent.call(written, calls({"width": 3}, "Of it?"))
    agent.messages[-1]["tool_calls"][0]["id"] = "1"
    decode = agent.tokenizer.decode_all
    assert decode(agent.ids()) == decode(agent.encoded().ids)


@settings(max_examples=100)
@given(st.data())
def test_what_was_never_answered_depends_on_its_messages_alone(tokenizer, data):
    """Whatever else the same salt has asked, where no text begins with an answered one."""
    chat = Conversation(tokenizer)
    texts = st.text(max_size=8) | st.sampled_from(TEXTS)
    for _ in range(data.draw(st.integers(1, 4))):
        chat.messages = []
        chat.ask("1" + data.draw(texts))
        chat.answer(answer := data.draw(texts), spelled(tokenizer, answer))
    chat.messages = []
    assert chat.ask("2" + data.draw(texts)) == chat.encoded().ids


@settings(max_examples=100)
@given(st.data())
def test_any_ids_leave_the_text_what_it_is(tokenizer, data):
    chat = Conversation(tokenizer)
    for _ in range(data.draw(st.integers(1, 4))):
        prompt = chat.ask(data.draw(st.text(max_size=8) | st.sampled_from(TEXTS)))
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=8))
        before = tokenizer.decode(prompt)
        chat.answer(tokenizer.decode([*prompt, *ids]).removeprefix(before), ids)
    restored, encoded = chat.ids(), chat.encoded()
    assert streamed(tokenizer, restored) == streamed(tokenizer, encoded.ids)


class Hooked(str):
    """A salt that calls a function once, in the given one of the look-ups that hash it."""

    def on_hash(self, number, function):
        self.hooks = [*[lambda: None] * (number - 1), function]

    def __hash__(self):
        if hooks := getattr(self, "hooks", ()):
            hooks.pop(0)()
        return str.__hash__(self)


@pytest.mark.parametrize("number", range(1, 4))
def test_conversations_may_come_from_several_threads(number):
    generated_tokens, salt = GeneratedTokens(max_texts=1), Hooked("salt")
    encoded = EncodedText("area?", [1, 2], [(0, 4), (4, 5)])
    generated_tokens.restore(encoded, salt)
    other = Thread(target=generated_tokens.restore, args=(encoded, "other"))

    def interrupt():
        other.start()
        other.join(0.5)  # it ends now, where nothing keeps it from it

    salt.on_hash(number, interrupt)
    generated_tokens.restore(encoded, salt)
    other.join(PATIENCE)
    assert not other.is_alive()
    assert len(generated_tokens._kept) == 1


def test_only_conversations_that_a_prompt_continues_are_rendered(agent, monkeypatch):
    """Others of a salt may be many, and the answers of all wait meanwhile."""
    rendered, render = [], agent.tokenizer.render_chat
    monkeypatch.setattr(
        agent.tokenizer, "render_chat", lambda *given: rendered.append(given) or render(*given)
    )
    for n in range(4):
        agent.messages = []
        agent.ask(f"Question {n}")
        agent.call('<call>{"name": "area", "arguments": {}}</call>', calls({}))
    agent.ids()
    told = [messages for messages, options in rendered if options.add_generation_prompt is False]
    assert [messages[0]["content"] for messages in told] == ["Question 3"]
