"""The Python interface, on a tiny pair."""

import gc
import re
import shutil
import subprocess
import sys
import weakref

import pytest

from ov_specdec import (
    ContextLengthError,
    DeviceError,
    ModelError,
    OptionError,
    SessionError,
    SpeculativePipeline,
)
from ov_specdec.results.chunks import Chunk, collect
from ov_specdec.results.origins import MEANINGS
from ov_specdec.results.stats import GenerationStats
from tests.support.folders import changed
from tests.support.server import wait_until

OPTIONS = {"max_new_tokens": 40, "ignore_eos": True}


@pytest.mark.parametrize("num_assistant_tokens", [0, 4])
def test_a_stop_token_ends_the_text_which_does_not_show_it(pipeline, num_assistant_tokens):
    full = pipeline.generate("def area(", **OPTIONS).token_ids
    end = next(i for i, token in enumerate(full) if i > 5 and token not in full[:i])
    options = {**OPTIONS, "num_assistant_tokens": num_assistant_tokens}
    options |= {"stop_token_ids": full[end]}
    result = pipeline.generate("def area(", **options)
    shown = pipeline.generate("def area(", include_stop_str_in_output=True, **options)
    assert result.token_ids == shown.token_ids == full[: end + 1]
    assert (result.finish_reason, shown.finish_reason) == ("stop", "stop")
    decode = pipeline.tokenizer.decode
    assert (result.text, shown.text) == (decode(full[:end]), decode(full[: end + 1]))
    assert result.text != shown.text


@pytest.mark.parametrize(
    ("prompt", "options", "complaint"),
    [
        ("", {}, "the prompt is empty"),
        ([], {}, "the prompt is empty"),
        ([5] * 256, {}, "length is 256 tokens. The prompt is too long, with 256 tokens"),
        ([5, 290], {}, "token id 290: the model has 0 to 289"),
        ([-1], {}, "token id -1"),
        ("x", {"temprature": 1}, "unknown option 'temprature'"),
        ("x", {"prompt_lookup_num_tokens": 3}, "needs drafter='prompt-lookup'"),
        ("x", {"stop_token_ids": [290]}, "stop_token_ids holds token id 290"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(pipeline, prompt, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        pipeline.stream(prompt, **options)


def test_a_pipeline_is_freed_with_its_last_reference(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # so that all checks and costs are measured
    gc.collect()
    gc.disable()  # a reference cycle would be found by the collector only
    try:
        pipeline = SpeculativePipeline(*tiny_pair)
        pipeline.check_batch_invariant()  # in idle time, a thread would hold the runner for a pass
        pipeline.generate("def", max_new_tokens=8)
        parts = [pipeline, pipeline.main.runner, pipeline.draft.runner]
        watched = [weakref.ref(part) for part in parts]
        del pipeline, parts
        # The idle thread looks at it now and then.
        wait_until(lambda: [reference() for reference in watched] == [None] * 3, 10)
    finally:
        gc.enable()


def test_ctrl_c_after_a_pipeline_has_gone_is_an_interruption(tiny_pair):
    code = f"""
import os, signal, time
from ov_specdec import SpeculativePipeline
pipeline = SpeculativePipeline({str(tiny_pair[0])!r}, {str(tiny_pair[1])!r})
pipeline.generate("def", max_new_tokens=4)
del pipeline
memory = [bytearray(1 << 20) for _ in range(50)]
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")


def test_a_closed_pipeline_frees_its_models_and_says_that_it_is_closed(tiny_pair, tmp_path):
    with SpeculativePipeline(*tiny_pair) as pipeline:
        running = pipeline.stream("def", **OPTIONS)
        next(running)
        runner = weakref.ref(pipeline.main.runner)
    assert [chunk.finish_reason for chunk in running] == ["cancelled"]
    del running
    assert runner() is None
    file = tmp_path / "prompt.safetensors"
    for use in (
        lambda: pipeline.generate("def"),
        lambda: pipeline.main,
        lambda: pipeline.save_cache(file),
        lambda: pipeline.load_cache(file),
    ):
        with pytest.raises(SessionError, match="this pipeline is closed"):
            use()
    pipeline.close()


def test_models_are_not_used_otherwise_while_a_generation_runs(pipeline, tmp_path):
    file = tmp_path / "prompt.safetensors"
    stream = pipeline.stream("def area(", **OPTIONS)
    next(stream)
    for use in (
        lambda: pipeline.save_cache(file),
        lambda: pipeline.load_cache(file),
        lambda: pipeline.prepare(seconds=0.0),
    ):
        with pytest.raises(SessionError, match=r"a generation is running .*: read it to its end"):
            use()
    stream.close()
    pipeline.save_cache(file)
    pipeline.load_cache(file)


@pytest.mark.parametrize(
    ("prompts", "options", "complaint"),
    [
        ("def area(", None, "prompts='def area.' must be a list of prompts"),
        (["a", "b"], [{}], "1 options were given for 2 prompts"),
        (["a", ""], None, "the prompt is empty"),
    ],
)
def test_a_batch_that_cannot_be_run_is_refused_as_a_whole(pipeline, prompts, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate_batch(prompts, options)


def test_a_context_may_be_shorter_than_the_models(tiny_pair, tmp_path):
    short = changed(tiny_pair[1], tmp_path / "draft", config={"max_position_embeddings": 32})
    with SpeculativePipeline(tiny_pair[0], short, max_model_len=40, max_batch_size=1) as pipeline:
        lengths = [model.runner.max_length for model in (pipeline.main, pipeline.draft)]
        assert lengths == [40, 32]
        result = pipeline.generate([5] * 20, max_new_tokens=None, ignore_eos=True)
        assert len(result.token_ids) == 20
        assert (result.finish_reason, result.stats.length_limit) == ("length", "max_model_len")
        with pytest.raises(ContextLengthError, match=r"length is 40 tokens\. .* with 40 tokens:"):
            pipeline.generate([5] * 40)
    with pytest.raises(OptionError, match=r"max_model_len=4000 is more than the context .* 256"):
        SpeculativePipeline(*tiny_pair, max_model_len=4000)


WRONG = [
    ({"drafter": "oracle"}, "'oracle' must be one of model, suffix, both"),
    ({"kv_cache_size": 1e-9}, r"kv_cache_size=1e-09 has no room for 32 tokens: .* take .* GB"),
    ({"properties": {"A": [1]}}, r"properties=\[1\] must be a mapping of names to"),
    ({"main": 3}, "main=3 must be a folder"),
    ({"cache_dir": __file__}, "cache_dir=.* cannot be made .File exists.: give"),
    ({"max_masked_tokens": 4, "kv": "paged"}, "max_masked_tokens=4 has no effect"),
    ({"max_masked_tokens": 4}, "=4 has no effect on"),  # the cache that was found
    ({"kv_cache_size": 1, "kv": "stateful"}, "kv_cache_size=1.0 has no effect"),
    ({"drafter": "none", "draft_device": "CPU"}, "has no effect with drafter='none'"),
    (
        {"draft": None, "drafter": "suffix", "profile": "p"},
        "='p' has no effect with drafter='suffix'",
    ),
    ({"draft": None, "drafter": "prompt-lookup", "pairing": "auto"}, "='auto' has no effect"),
    ({"draft": None, "drafter": "model"}, "no draft model for main"),
    ({"draft_device": "TPU"}, "'TPU' is not available: OpenVINO finds .*CPU"),
    ({"properties": {"NO_SUCH": "1"}}, "NO_SUCH=1.*Unsupported property"),
]


@pytest.mark.parametrize(("arguments", "complaint"), WRONG)
def test_what_cannot_be_loaded_is_refused_by_name(tiny_pair, arguments, complaint):
    main, draft = tiny_pair
    with pytest.raises((OptionError, DeviceError, ModelError), match=complaint):
        SpeculativePipeline(**{"main": main, "draft": draft, **arguments})


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("openvino_model.xml", None, "holds no openvino_model.xml: export the model first"),
        ("openvino_model.bin", None, "cannot be read .* export the model again"),
        ("config.json", None, "config.json is missing"),
        ("config.json", "{", "not valid JSON"),
        ("tokenizer.json", None, "holds no tokenizer.json"),
        ("tokenizer.json", "{}", "tokenizer.json cannot be read"),
    ],
)
def test_a_folder_that_lacks_or_breaks_a_file_is_refused(
    tiny_pair, tmp_path, file, content, complaint
):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    (main / file).unlink()
    if content is not None:
        (main / file).write_text(content)
    with pytest.raises(ModelError, match=complaint):
        SpeculativePipeline(main, drafter="none")


def test_a_notebook_shows_where_the_tokens_of_a_result_come_from():
    last = {"finish_reason": "length", "stats": GenerationStats(3, length_limit="kv_cache_size")}
    chunks = [Chunk("<b>", [1], "plain"), Chunk("def", [2], "draft"), Chunk(" a", [3], "draft")]
    html = collect([*chunks, Chunk("&", [4], "correction", **last)])._repr_html_()
    text, small = re.findall(r"<(pre|small)(?: style.*?)?>(.*?)</\1>", html)
    pieces = re.findall(r"<span[^>]*>(.*?)</span>|([^<]+)", text[1])
    assert pieces == [("", "&lt;b&gt;"), ("def a", ""), ("&amp;", "")]
    assert "cut short: prompt and output fill the KV caches, kv_cache_size" in small[1]
    assert "replacement of a rejected draft token" in small[1]
    assert MEANINGS["bonus"] not in small[1]
    assert " color:" not in html, "the text keeps the notebook's colour, light or dark"


def test_a_main_model_alone_drafts_by_suffix_matches(tiny_pair, pipeline):
    with SpeculativePipeline(tiny_pair[0]) as alone:
        assert (alone.drafter, pipeline.drafter) == ("suffix", "both")


def test_a_given_draft_length_is_the_draft_models(pipeline):
    repeated = [7, 8, 9, 7, 8, 9, 7, 8, 9]
    for references in ((), ("a text",)):
        stats = pipeline.generate(
            repeated,
            max_new_tokens=24,
            ignore_eos=True,
            num_assistant_tokens=3,
            reference_texts=references,
        ).stats
        found = {each["source"] for each in stats.draft_lengths if each["drafted"]}
        assert (found == {"model"}) is not bool(references)


def test_a_batch_that_is_closed_ends_its_prompts_and_holds_no_place(pipeline):
    with pipeline.open_batch() as batch:
        for key in (1, 2):
            batch.add(key, "def f(x):", max_new_tokens=200, ignore_eos=True)
        batch.step()
        batch.add(3, "x")  # not even begun
        for key, options in ((3, {}), (4, {"max_new_tokens": 0})):
            with pytest.raises(OptionError, match=r"key=3 is the key of an|max_new_tokens=0"):
                batch.add(key, "x", **options)
        assert len(batch) == 3
    assert (len(batch), batch.step()) == (0, [])
    with pipeline.open_batch() as batch:
        batch.add(1, [5, 6], max_new_tokens=3, ignore_eos=True)
        chunks = [chunk for _ in range(9) for _, chunk in batch.step()]
        assert chunks[-1].stats.generated_tokens == 3
