"""KV caches kept between generations: what they hold changes no token of what follows."""

import shutil
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

from ov_specdec import OptionError, SessionError, SpeculativePipeline

SAVED = """
import sys
from ov_specdec import SpeculativePipeline

main, draft, file = sys.argv[1:]
pipeline = SpeculativePipeline(main, draft, kv="paged", precision="exact")
pipeline.load_cache(file)
result = pipeline.generate("area = width * height", max_new_tokens=12, ignore_eos=True)
print(result.stats.cached_tokens, *result.token_ids)
"""


def test_a_saved_cache_is_taken_up_by_another_process(tiny_pair, tmp_path):
    file = tmp_path / "caches" / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        prompt = pipeline.tokenizer.encode("area = width * height")
        result = pipeline.generate(prompt, max_new_tokens=12, ignore_eos=True)
        pipeline.save_cache(file)
    arguments = (*map(str, tiny_pair), str(file))
    done = subprocess.run(
        [sys.executable, "-c", SAVED, *arguments], capture_output=True, text=True, check=True
    )
    cached, *token_ids = map(int, done.stdout.split())
    assert (cached, token_ids) == (len(prompt) - 2, result.token_ids)  # two are read together
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "prompt.draft.safetensors",
        "prompt.safetensors",
    ]


def test_a_saved_prompt_is_found_under_its_own_salt_only(tiny_pair, tmp_path):
    file, prompt = tmp_path / "prompt.safetensors", "area = width * height"
    options = {"max_new_tokens": 4, "ignore_eos": True}
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        pipeline.generate(prompt, cache_salt="tenant", **options)
        pipeline.save_cache(file)
        assert pipeline.generate(prompt, **options).stats.cached_tokens == 0
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        for other in (None, "other"):
            with pytest.raises(OptionError, match=f"not saved with cache_salt={other!r}: give"):
                pipeline.load_cache(file, cache_salt=other)
        with pytest.raises(OptionError, match="cache_salt=3 must be a text"):
            pipeline.load_cache(file, cache_salt=3)
        pipeline.load_cache(file, cache_salt="tenant")
        pipeline.save_cache(tmp_path / "again.safetensors")
        for other in (None, "other"):
            assert pipeline.generate(prompt, cache_salt=other, **options).stats.cached_tokens == 0
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        pipeline.load_cache(tmp_path / "again.safetensors", cache_salt="tenant")
        assert pipeline.generate(prompt, cache_salt="tenant", **options).stats.cached_tokens > 0
    assert b"tenant" not in file.read_bytes()


def test_what_was_not_to_be_cached_is_not_saved(tiny_pair, tmp_path):
    file = tmp_path / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        pipeline.generate("secret", max_new_tokens=4, cache_prompt=False)
        with pytest.raises(OptionError, match=r"nothing to save in .*, with cache_prompt on"):
            pipeline.save_cache(file)
        pipeline.generate("area", max_new_tokens=4)
        pipeline.generate("secret", max_new_tokens=4, cache_prompt=False)
        pipeline.save_cache(file)
        assert pipeline.generate("secret", max_new_tokens=4).stats.cached_tokens == 0
        held = load_file(file)["tokens"].tolist()
        assert pipeline.tokenizer.decode(held).startswith("area")


def test_a_stateful_cache_is_not_saved(tiny_pair, tmp_path):
    with SpeculativePipeline(*tiny_pair, kv="stateful") as pipeline:
        pipeline.generate("area", max_new_tokens=4)
        with pytest.raises(SessionError, match="cannot be saved"):
            pipeline.save_cache(tmp_path / "prompt.safetensors")


@pytest.fixture(scope="module")
def saved(tiny_pair, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "prompt.safetensors"
    with SpeculativePipeline(*tiny_pair, kv="paged", precision="exact") as pipeline:
        pipeline.generate("area", max_new_tokens=4)
        pipeline.save_cache(file)
    return file


def test_a_cache_of_another_model_backend_or_precision_is_refused(tiny_pair, saved, tmp_path):
    changed = shutil.copytree(tiny_pair[0], tmp_path / "main")
    weights = changed / "openvino_model.bin"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    for main, settings in (
        (changed, {"kv": "paged", "precision": "exact"}),
        (tiny_pair[0], {"kv": "stateful", "precision": "exact"}),
        (tiny_pair[0], {"kv": "paged", "precision": "f32"}),
    ):
        with SpeculativePipeline(main, drafter="none", **settings) as pipeline:
            with pytest.raises(OptionError, match=r"prompt\.safetensors' was made with another"):
                pipeline.load_cache(saved)
            assert pipeline.generate("area", max_new_tokens=2).stats.cached_tokens == 0


def test_a_file_with_a_flipped_bit_is_refused_wherever_that_is(tiny_pair, saved, tmp_path):
    content, flipped = saved.read_bytes(), tmp_path / "flipped.safetensors"
    end_of_header = 8 + int.from_bytes(content[:8], "little")
    tensors = range(end_of_header, len(content), len(content) // 100 | 1)
    with SpeculativePipeline(tiny_pair[0], drafter="none", kv="paged", precision="exact") as own:
        for place in (*range(end_of_header), *tensors):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            flipped.write_bytes(changed)
            with pytest.raises(OptionError, match=rf"'{flipped}' (is damaged|cannot be read)"):
                own.load_cache(flipped)
        assert own.generate("area", max_new_tokens=2).stats.cached_tokens == 0
        own.load_cache(saved)


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
        with pytest.raises(OptionError, match=r"cut\.draft\.safetensors' cannot be written"):
            pipeline.save_cache(tmp_path / "cut.safetensors")
        assert not (tmp_path / "cut.safetensors").exists()
        assert pipeline.main.runner.num_free == free
