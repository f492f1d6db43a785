"""KV caches kept between generations: what they hold changes no token of what follows."""

import random
import shutil
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.cache import common_prefix
from ov_specdec.models.locate import embedded_folder
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.prompt import encode_prompt
from tests.support.flaky import make_flaky

WORDS = ["area", "width", "height", "of", "the", "field", "is", "and", "a", "total"]
KINDS = ("append", "append", "undo", "edit", "cancel", "fail")


@pytest.fixture(scope="module", params=["paged", pytest.param("stateful", marks=pytest.mark.deep)])
def kv(request):
    return request.param


class Conversation:
    """Random turns on one pipeline, each compared with the same turn on empty caches of another."""

    def __init__(self, pair, kv, *, max_tokens, as_prompt=lambda messages: messages):
        self.pipeline = SpeculativePipeline(*pair, kv=kv, precision="exact")
        self.fresh = SpeculativePipeline(*pair, kv=kv, precision="exact")
        self.flaky = [make_flaky(self.pipeline.main.runner), make_flaky(self.pipeline.draft.runner)]
        self.random = random.Random(5)  # noqa: S311
        self.messages = []
        self.held = []
        self.num_reused = 0
        self._max_tokens, self._as_prompt = max_tokens, as_prompt

    def options(self):
        drafts = {"num_assistant_tokens": self.random.choice([0, 2, 4])}
        return {"max_new_tokens": self.random.randint(2, 7), "ignore_eos": True, **drafts}

    def step(self, kind):
        """Change the conversation in one way, and check the answer."""
        if self.messages and kind == "undo":
            del self.messages[-2:]
        if self.messages and kind == "edit":
            self.random.choice(self.messages)["content"] = self.says()
        ids = self.ask()
        options = self.options()
        if kind == "cancel":
            with self.pipeline.stream(self._as_prompt(self.messages), **options) as stream:
                next(stream)
                stream.cancel()
                list(stream)
        if kind == "fail":
            request = self.random.choice(self.flaky)
            request.fails_in = self.random.randint(0, 3)
            try:
                self.pipeline.generate(self._as_prompt(self.messages), **options)
            except RuntimeError:
                self.held = []  # or what a paged cache has kept
            request.fails_in = None
        self.answer(ids, options)

    def says(self):
        return " ".join(self.random.choices(WORDS, k=self.random.randint(1, 6)))

    def ask(self):
        """Add a user's message, after leaving out the oldest turns where they are too many."""
        self.messages.append({"role": "user", "content": self.says()})
        while len(ids := self.encoded()) > self._max_tokens:
            del self.messages[:2]
        return ids

    def encoded(self):
        """What the pipeline reads for the messages."""
        generator = self.pipeline._generator
        prompt, options = self._as_prompt(self.messages), GenerationOptions()
        return encode_prompt(prompt, options, generator.tokenizer, generator.generated_tokens, 1000)

    def answer(self, ids, options):
        result = self.pipeline.generate(self._as_prompt(self.messages), **options)
        expected = self.fresh.generate(ids, cache_prompt=False, **options)
        assert result.token_ids == expected.token_ids
        assert expected.stats.cached_tokens == 0
        assert result.stats.prompt_tokens == len(ids)
        assert result.stats.cached_tokens >= min(common_prefix(self.held, ids), len(ids) - 1)
        self.num_reused += result.stats.cached_tokens > len(ids) // 2
        self.messages.append({"role": "assistant", "content": result.text})
        self.held = [*ids, *result.token_ids[:-1]]


@pytest.mark.parametrize("kv", ["paged", pytest.param("stateful", marks=pytest.mark.deep)])
def test_sixty_edits_of_a_conversation_equal_fresh_runs(chat_pair, kv):
    conversation = Conversation(chat_pair, kv, max_tokens=200)
    for _ in range(60):
        conversation.step(conversation.random.choice(KINDS))
    assert conversation.num_reused > 15


def test_edits_of_a_conversation_on_the_embedded_pair_equal_fresh_runs(kv):
    pair = embedded_folder("main"), embedded_folder("draft")
    conversation = Conversation(
        pair,
        kv,
        max_tokens=60,
        as_prompt=lambda messages: "\n".join(f"# {m['content']}" for m in messages) + "\n",
    )
    for _ in range(16):
        conversation.step(conversation.random.choice(KINDS))
    assert conversation.num_reused > 3


def test_a_second_turn_reads_only_what_is_new(chat_pair, kv):
    with SpeculativePipeline(*chat_pair, kv=kv, precision="exact") as pipeline:
        messages = [{"role": "user", "content": "What is the area?"}]
        first = pipeline.generate(messages, max_new_tokens=8, ignore_eos=True)
        messages += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "And the height?"},
        ]
        second = pipeline.generate(messages, max_new_tokens=8, ignore_eos=True)
        known = first.stats.prompt_tokens + 8
        assert second.stats.rounds[0].pass_tokens == second.stats.prompt_tokens - known + 1
        assert second.stats.cached_tokens == known - 1
        again = pipeline.generate(messages, max_new_tokens=8, cache_prompt=False)
        assert again.stats.cached_tokens == 0


def test_conversations_in_turns_are_all_kept_on_a_paged_cache(chat_pair):
    with SpeculativePipeline(*chat_pair, kv="paged", precision="exact") as pipeline:
        system = {"role": "system", "content": "Be brief and name the area of every field."}
        talks = [[system, {"role": "user", "content": text}] for text in ("area?", "height?")]
        cached, known = [], []
        for _ in range(2):
            for talk in talks:
                result = pipeline.generate(talk, max_new_tokens=8, ignore_eos=True)
                talk += [
                    {"role": "assistant", "content": result.text},
                    {"role": "user", "content": "And the total?"},
                ]
                cached.append(result.stats.cached_tokens)
                known.append(result.stats.prompt_tokens)
        assert cached[0] == 0
        assert cached[1] > 20  # the system message, read by the first conversation
        assert all(now >= before for now, before in zip(cached[2:], known[:2], strict=True))


SAVED = """
import sys
from ov_specdec import SpeculativePipeline

main, draft, kv, file = sys.argv[1:]
pipeline = SpeculativePipeline(main, draft, kv=kv, precision="exact")
pipeline.load_cache(file)
result = pipeline.generate("area = width * height", max_new_tokens=12, ignore_eos=True)
print(result.stats.cached_tokens, *result.token_ids)
"""


def test_a_saved_cache_is_taken_up_by_another_process(tiny_pair, kv, tmp_path):
    file = tmp_path / "caches" / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        prompt = pipeline.tokenizer.encode("area = width * height")
        result = pipeline.generate(prompt, max_new_tokens=12, ignore_eos=True)
        pipeline.save_cache(file)
    arguments = (*map(str, tiny_pair), kv, str(file))
    done = subprocess.run(
        [sys.executable, "-c", SAVED, *arguments], capture_output=True, text=True, check=True
    )
    cached, *token_ids = map(int, done.stdout.split())
    assert (cached, token_ids) == (len(prompt) - 1, result.token_ids)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "prompt.draft.safetensors",
        "prompt.safetensors",
    ]


def test_a_saved_prompt_is_found_under_its_own_salt_only(tiny_pair, kv, tmp_path):
    file, prompt = tmp_path / "prompt.safetensors", "area = width * height"
    options = {"max_new_tokens": 4, "ignore_eos": True}
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        pipeline.generate(prompt, cache_salt="tenant", **options)
        pipeline.save_cache(file)
        assert pipeline.generate(prompt, **options).stats.cached_tokens == 0
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        for other in (None, "other"):
            with pytest.raises(OptionError, match=f"not saved with cache_salt={other!r}: give"):
                pipeline.load_cache(file, cache_salt=other)
        with pytest.raises(OptionError, match="cache_salt=3 must be a text"):
            pipeline.load_cache(file, cache_salt=3)
        pipeline.load_cache(file, cache_salt="tenant")
        pipeline.save_cache(tmp_path / "again.safetensors")
        for other in (None, "other"):
            assert pipeline.generate(prompt, cache_salt=other, **options).stats.cached_tokens == 0
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        pipeline.load_cache(tmp_path / "again.safetensors", cache_salt="tenant")
        assert pipeline.generate(prompt, cache_salt="tenant", **options).stats.cached_tokens > 0
    assert b"tenant" not in file.read_bytes()


def test_what_was_not_to_be_cached_is_not_saved(tiny_pair, kv, tmp_path):
    file = tmp_path / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv=kv, precision="exact") as pipeline:
        pipeline.generate("secret", max_new_tokens=4, cache_prompt=False)
        with pytest.raises(OptionError, match=r"nothing to save in .*, with cache_prompt on"):
            pipeline.save_cache(file)
        pipeline.generate("area", max_new_tokens=4)
        pipeline.generate("secret", max_new_tokens=4, cache_prompt=False)
        pipeline.save_cache(file)
        assert pipeline.generate("secret", max_new_tokens=4).stats.cached_tokens == 0
        held = load_file(file)["tokens"].tolist()
        assert pipeline.tokenizer.decode(held).startswith("area")


@pytest.fixture(scope="module")
def saved(tiny_pair, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        pipeline.generate("area", max_new_tokens=4)
        pipeline.save_cache(file)
    return file


def test_a_cache_of_another_model_backend_or_precision_is_refused(tiny_pair, saved):
    for main, settings in (
        (tiny_pair[1], {"kv": "paged", "precision": "exact"}),
        (tiny_pair[0], {"kv": "stateful", "precision": "exact"}),
        (tiny_pair[0], {"kv": "paged", "precision": "f32"}),
    ):
        with SpeculativePipeline(main, drafter="none", **settings) as pipeline:
            with pytest.raises(OptionError, match=r"prompt\.safetensors' was made with another"):
                pipeline.load_cache(saved)
            assert pipeline.generate("area", max_new_tokens=2).stats.cached_tokens == 0


def test_other_weights_of_the_same_shape_are_another_model(tiny_pair, saved, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    weights = main / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    weights.write_bytes(content)
    pipeline = SpeculativePipeline(main, drafter="none", kv="paged", precision="exact")
    with pipeline, pytest.raises(OptionError, match="made with another model"):
        pipeline.load_cache(saved)


def test_a_file_with_a_flipped_bit_is_refused(tiny_pair, saved, tmp_path):
    content, spoilt = saved.read_bytes(), tmp_path / "spoilt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        for place in [*range(0, 600, 9), *range(600, len(content), len(content) // 60)]:
            flipped = content[place] ^ 1 << place % 8
            spoilt.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            with pytest.raises(OptionError, match="delete it and save it again"):
                pipeline.load_cache(spoilt)
        assert pipeline.generate("area", max_new_tokens=2).stats.cached_tokens == 0
        pipeline.load_cache(saved)


def test_files_that_cannot_be_used_are_named(tiny_pair, saved, tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(saved.read_bytes()[:-100])
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        with pytest.raises(OptionError, match=r"nothing to save in .*: generate something first"):
            pipeline.save_cache(tmp_path / "empty")
        with pytest.raises(OptionError, match=rf"'{broken}' cannot be read .*: delete it"):
            pipeline.load_cache(broken)
        for path in (tmp_path / "missing", tmp_path):
            with pytest.raises(OptionError, match=rf"no cache file '{path}': save it .* or give"):
                pipeline.load_cache(path)
        with pytest.raises(OptionError, match="path=3 must be a file"):
            pipeline.save_cache(3)
        pipeline.generate("area", max_new_tokens=4)
        free = pipeline.main.runner.num_free
        with pytest.raises(OptionError, match="cannot be written"):
            pipeline.save_cache(saved / "below a file")
        (tmp_path / "cut.draft.safetensors").mkdir()
        with pytest.raises(OptionError, match=r"cut\.draft\.safetensors' is a folder: name"):
            pipeline.save_cache(tmp_path / "cut.safetensors")
        assert not (tmp_path / "cut.safetensors").exists()
        assert pipeline.main.runner.num_free == free
