"""What is made of a text before its request runs, by whoever asks: a step builds nothing of it."""

from threading import Event, current_thread

import pytest

from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.drafters.suffix_index import EarlierOutputs, SuffixIndex
from ov_specdec.engine.output import Reader
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.pairing import Translation
from tests.support.drafting import table_pair
from tests.support.fakes import ScriptedModel
from tests.support.scripted import PATIENCE, generator
from tests.traces.letters import Letters

LENGTH = 3
PROMPT = "ABCDEFGH" * 50
NUM_NEW = 40


def next_token(tokens):
    return (3 * tokens[-1] + 1) % 8


@pytest.fixture
def built(monkeypatch):
    """Sizes of what was encoded, indexed or translated at a time: by the steps, and by others."""
    sizes = {"steps": [], "caller": []}

    def watch(owner, name, size):
        method = getattr(owner, name)

        def watched(self, tokens, *more, **named):
            thread = "steps" if current_thread().name == "ov-specdec steps" else "caller"
            sizes[thread].append(size(self, tokens))
            return method(self, tokens, *more, **named)

        monkeypatch.setattr(owner, name, watched)

    watch(SuffixIndex, "extend", lambda index, tokens: len(tokens))
    watch(PromptLookup, "_read", lambda drafter, tokens: len(tokens) - drafter._num_read)
    watch(Translation, "read", lambda translation, tokens: len(tokens) - translation._num_read)
    watch(Letters, "encode_rendered", lambda tokenizer, text: len(text))
    return sizes


def run(text, **options):
    """A generation whose steps another thread runs, as in a server."""
    ended, errors = Event(), []
    text.loop.start(errors.append)
    chunks = []
    given = GenerationOptions(num_assistant_tokens=LENGTH, max_new_tokens=NUM_NEW, **options)
    try:
        ids = text.prompts.encode(PROMPT, given)
        reader = Reader(receive=chunks.extend, on_end=lambda _: ended.set())
        sequence = text.begin(ids, given, reader)
        text.loop.add(sequence)
        assert ended.wait(PATIENCE)
        return [token for chunk in chunks for token in chunk.token_ids]
    finally:
        text.loop.close()
        text.loop.join(PATIENCE)
        assert not errors


@pytest.mark.parametrize("name", ["suffix", "prompt-lookup", "intersection", "retokenize"])
def test_a_step_builds_nothing_but_what_the_step_before_has_added(built, name):
    main, draft = (ScriptedModel(next_token, vocab_size=8) for _ in range(2))
    options = {}
    if name in ("intersection", "retokenize"):
        text = generator(main, draft, pairing=table_pair(8, name))
    else:
        text = generator(main, drafter=name)
    if name == "suffix":
        text.sequences.earlier.remember(None, range(300), num_prompt=0)
        options["reference_texts"] = "HGFEDCBA" * 100
    tokens = run(text, **options)
    assert len(tokens) == NUM_NEW
    assert max(built["steps"]) <= LENGTH + 1
    assert sum(built["steps"]) < NUM_NEW
    assert sum(built["caller"]) >= len(PROMPT)
    if name == "suffix":
        assert {len(PROMPT), 301, 800, 801} <= set(built["caller"])


def test_an_output_is_not_indexed_by_the_step_that_ends_it(built):
    earlier = EarlierOutputs()
    for _ in range(2):
        text = generator(ScriptedModel(next_token, vocab_size=8), drafter="suffix")
        text.sequences.earlier = earlier
        run(text)
    assert max(built["steps"]) <= LENGTH + 1
    # Of the first output, with the end of its prompt, by whoever asked for the second.
    assert earlier.num_tokens == 32 + NUM_NEW + 1
    assert earlier.num_tokens in built["caller"]
