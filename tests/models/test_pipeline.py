"""The Python interface, on a tiny pair."""

import gc
import json
import re
import shutil
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest

import numpy as np
import pytest

from ov_specdec import (
    ContextLengthError,
    DeviceError,
    ModelError,
    OptionError,
    SessionError,
    SpeculativePipeline,
    TokenizerMismatchError,
)
from ov_specdec.results.chunks import MEANINGS, Chunk, collect
from ov_specdec.results.stats import GenerationStats
from tests.cli.test_input import change
from tests.support.tiny import save_tokenizer

OPTIONS = {"max_new_tokens": 40, "ignore_eos": True}


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    return SpeculativePipeline(*tiny_pair, precision="exact")


def test_chunks_add_up_to_the_result(pipeline):
    result = pipeline.generate("def area(", **OPTIONS)
    chunks = list(pipeline.stream("def area(", **OPTIONS))
    assert "".join(chunk.text for chunk in chunks) == result.text
    assert [t for chunk in chunks for t in chunk.token_ids] == result.token_ids
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == result.finish_reason == "length"
    assert chunks[-1].stats is not None
    assert len(result.token_ids) == result.stats.generated_tokens == 40


def test_chunks_say_where_tokens_come_from(pipeline):
    chunks = list(pipeline.stream("def area(", num_assistant_tokens=2, **OPTIONS))
    by_origin = {
        origin: [chunk for chunk in chunks if chunk.origin == origin]
        for origin in ("draft", "correction", "bonus", "plain")
    }
    rounds = chunks[-1].stats.rounds
    all_accepted = [r.num_accepted == r.num_drafted for r in rounds if r.num_drafted]
    assert all(by_origin.values())
    assert sum(len(c.token_ids) for c in by_origin["draft"]) == chunks[-1].stats.accepted
    assert len(by_origin["bonus"]) == all_accepted.count(True)
    assert len(by_origin["correction"]) == all_accepted.count(False)
    assert len(by_origin["plain"]) == len(rounds) - len(all_accepted)
    assert all(len(c.token_ids) == 1 for c in chunks if not c.from_draft)


def test_a_correction_shows_what_it_replaced(pipeline):
    chunks = list(pipeline.stream("def area(", num_assistant_tokens=2, **OPTIONS))
    stats = chunks[-1].stats
    assert sum(len(c.rejected_ids) for c in chunks) == stats.drafted - stats.accepted > 0
    for chunk in chunks:
        assert bool(chunk.rejected_ids) == (chunk.origin == "correction")
        assert chunk.rejected_ids[:1] != chunk.token_ids


def test_ids_are_as_good_as_text(pipeline):
    ids = pipeline.tokenizer.encode("def area(")
    by_text, by_ids = (pipeline.generate(prompt, **OPTIONS) for prompt in ("def area(", ids))
    assert by_text.token_ids == by_ids.token_ids
    assert by_ids.stats.prompt_tokens == len(ids)


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup", "none"])
def test_every_drafter_gives_the_same_output(pipeline, tiny_pair, drafter):
    other = SpeculativePipeline(tiny_pair[0], drafter=drafter, precision="exact")
    expected = pipeline.generate("def area(", **OPTIONS)
    # With a number, since a tiny model's passes may be too cheap for any draft token to pay.
    length = {} if drafter == "none" else {"num_assistant_tokens": 4}
    result = other.generate("def area(", **OPTIONS, **length)
    assert (result.token_ids, result.text) == (expected.token_ids, expected.text)
    assert (result.stats.drafted > 0) is (drafter != "none")


def test_end_of_sequence_ends_the_text_as_in_plain_decoding(pipeline):
    full = pipeline.generate("def area(", **OPTIONS)
    for place in range(3, 30):
        eos = full.token_ids[place]
        plain, speculative = (
            pipeline.generate("def area(", max_new_tokens=40, eos_token_id=eos, **lengths)
            for lengths in ({"num_assistant_tokens": 0}, {"num_assistant_tokens": 4})
        )
        assert plain.token_ids == speculative.token_ids
        assert plain.token_ids == full.token_ids[: full.token_ids.index(eos) + 1]
        assert plain.finish_reason == speculative.finish_reason == "stop"


def test_stop_strings_end_the_text_as_in_plain_decoding(pipeline):
    full = pipeline.generate("def area(", **OPTIONS)
    checked = 0
    for start in range(2, len(full.text) - 3, 5):
        stop = full.text[start : start + 2]
        plain, speculative = (
            pipeline.generate("def area(", stop_strings=[stop], **OPTIONS, **lengths)
            for lengths in ({"num_assistant_tokens": 0}, {"num_assistant_tokens": 4})
        )
        assert plain.text == speculative.text == full.text[: full.text.index(stop)]
        assert plain.token_ids == speculative.token_ids
        assert speculative.finish_reason == "stop"
        assert speculative.stats.as_dict()["stop_string"] == stop
        assert speculative.finish_message == f"stop string {stop!r}"
        assert full.stats.stop_string is None
        assert speculative.stats.generated_tokens == len(speculative.token_ids)
        checked += 1
    assert checked > 5


def test_a_stop_string_is_part_of_the_text_where_it_is_to_be(pipeline):
    full = pipeline.generate("def area(", **OPTIONS).text
    stop = full[8:11]
    options = {**OPTIONS, "stop_strings": [stop], "include_stop_str_in_output": True}
    assert pipeline.generate("def area(", **options).text == full[: full.index(stop) + len(stop)]
    pieces = [chunk.text for chunk in pipeline.stream("def area(", **options)]
    assert "".join(pieces) == pipeline.generate("def area(", **options).text


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


def test_special_tokens_are_shown_where_they_are_not_to_be_skipped(pipeline):
    eos = pipeline.tokenizer.eos_token_id
    options = {"max_new_tokens": 3, "logit_bias": {eos: 1000.0}}
    name = pipeline.tokenizer.decode_all([eos])
    assert name
    assert pipeline.generate("x", **options).text == ""
    # What ends a text is no part of it.
    assert pipeline.generate("x", skip_special_tokens=False, **options).text == ""
    shown = {**options, "skip_special_tokens": False}
    assert pipeline.generate("x", include_stop_str_in_output=True, **shown).text == name
    assert pipeline.generate("x", ignore_eos=True, **shown).text == name * 3


def test_generation_ends_with_the_context(pipeline):
    result = pipeline.generate([5] * 250, max_new_tokens=100, ignore_eos=True)
    assert len(result.token_ids) == 6  # the context is 256
    assert result.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "options", "complaint"),
    [
        ("", {}, "the prompt is empty"),
        ([], {}, "the prompt is empty"),
        ([5] * 256, {}, "length is 256 tokens. The prompt is too long, with 256 tokens"),
        ([5, 290], {}, "token id 290: the model has 0 to 289"),
        ([-1], {}, "token id -1"),
        ("x", {"max_new_tokens": 0}, "max_new_tokens=0"),
        ("x", {"temprature": 1}, "unknown option 'temprature'"),
        ("x", {"prompt_lookup_num_tokens": 3}, "needs drafter='prompt-lookup'"),
        ("x", {"stop_token_ids": [290]}, "stop_token_ids holds token id 290"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(pipeline, prompt, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        pipeline.stream(prompt, **options)


def test_a_pipeline_is_freed_with_its_last_reference(tiny_pair):
    gc.collect()
    gc.disable()  # a reference cycle would be found by the collector only
    try:
        pipeline = SpeculativePipeline(*tiny_pair)
        pipeline.check_batch_invariant()  # in idle time, a thread would hold the runner for a pass
        pipeline.generate("def", max_new_tokens=8)
        parts = [pipeline, pipeline.main.runner, pipeline.draft.runner]
        watched = [weakref.ref(part) for part in parts]
        del pipeline, parts
        assert [reference() for reference in watched] == [None] * 3
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


def test_what_is_cancelled_at_the_end_of_the_last_step_ends(tiny_pair, monkeypatch):
    with SpeculativePipeline(tiny_pair[0], drafter="none") as pipeline:
        short = pipeline.stream("def", max_new_tokens=2, ignore_eos=True)
        long = pipeline.stream("abc", max_new_tokens=20, ignore_eos=True)
        next(long)
        next(short)
        engine = pipeline._generator.loop.engine
        step = engine.step

        def last_step():
            step()
            long.cancel()

        monkeypatch.setattr(engine, "step", last_step)
        assert next(short).finish_reason == "length"
        assert engine.scheduler.running == []
        assert [chunk.finish_reason for chunk in long][-1] == "cancelled"


def test_a_stream_that_was_made_before_the_end_runs_no_pass_after_it(tiny_pair):
    pipeline = SpeculativePipeline(*tiny_pair)
    chunks = pipeline.stream("def", **OPTIONS)
    pipeline.close()
    assert [chunk.finish_reason for chunk in chunks] == ["cancelled"]


def test_cancelling_frees_the_pipeline(pipeline):
    chunks = pipeline.stream("def area(", **OPTIONS)
    next(chunks)
    chunks.cancel()
    assert list(chunks)[-1].finish_reason == "cancelled"
    assert pipeline.generate("x", max_new_tokens=2).token_ids


def test_a_failure_in_a_users_processor_leaves_no_trace(pipeline):
    def fails(tokens, logits):
        if len(tokens) > 20:
            raise ZeroDivisionError
        return logits

    expected = pipeline.generate("def area(", **OPTIONS).token_ids
    with pytest.raises(ZeroDivisionError):
        pipeline.generate("width * height", logits_processor=[fails], **OPTIONS)
    assert pipeline.generate("def area(", **OPTIONS).token_ids == expected


def test_temperature_0_is_greedy(pipeline):
    greedy = pipeline.generate("def area(", **OPTIONS)
    same = pipeline.generate("def area(", temperature=0, top_p=0.5, seed=1, **OPTIONS)
    assert same.token_ids == greedy.token_ids


def test_ids_may_be_numpys(pipeline):
    ids = pipeline.tokenizer.encode("def area(")
    expected = pipeline.generate(ids, **OPTIONS).token_ids
    assert pipeline.generate(np.array(ids), **OPTIONS).token_ids == expected
    assert pipeline.generate(list(np.array(ids)), **OPTIONS).token_ids == expected


def test_streams_that_are_read_in_turns_give_what_each_gives_alone(pipeline):
    prompts = ["def area(", "width * height"]
    expected = [pipeline.generate(prompt, **OPTIONS).token_ids for prompt in prompts]
    streams = [pipeline.stream(prompt, **OPTIONS) for prompt in prompts]
    chunks = [[], []]
    for both in zip_longest(*streams):
        for own, chunk in zip(chunks, both, strict=True):
            own += [] if chunk is None else chunk.token_ids
    assert chunks == expected


def test_generations_of_several_threads_give_what_each_gives_alone(pipeline):
    prompts = ["def area(", "width * height", "print", "return"]
    expected = [pipeline.generate(prompt, **OPTIONS) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        results = list(pool.map(lambda prompt: pipeline.generate(prompt, **OPTIONS), prompts))
    assert [r.text for r in results] == [r.text for r in expected]
    assert pipeline.main.runner.pool.num_used == pipeline.draft.runner.pool.num_used == 0


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


def test_a_batch_gives_what_each_prompt_gives_alone(pipeline):
    prompts = ["def area(", [5, 6, 7], "width"]
    own = [{}, {"temperature": 0.8, "seed": 1}, {"max_new_tokens": 3}]
    results = pipeline.generate_batch(prompts, own, ignore_eos=True, max_new_tokens=20)
    for prompt, options, result in zip(prompts, own, results, strict=True):
        alone = pipeline.generate(
            prompt, **{"ignore_eos": True, "max_new_tokens": 20, **options}, cache_prompt=False
        )
        assert (result.token_ids, result.text) == (alone.token_ids, alone.text)
    assert [len(result.token_ids) for result in results] == [20, 20, 3]
    assert pipeline.generate_batch([]) == []


@pytest.mark.parametrize(
    ("prompts", "options", "complaint"),
    [
        ("def area(", None, "prompts='def area.' must be a list of prompts"),
        ({"a", "b"}, None, "must be a list of prompts"),
        (["a", "b"], [{}], "1 options were given for 2 prompts"),
        (["a", ""], None, "the prompt is empty"),
        (["a", "b"], [{}, {"temprature": 1}], "unknown option 'temprature'"),
    ],
)
def test_a_batch_that_cannot_be_run_is_refused_as_a_whole(pipeline, prompts, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate_batch(prompts, options)


def test_a_small_cache_is_enough_for_many_and_too_small_for_one_that_cannot_fit(tiny_pair):
    with SpeculativePipeline(*tiny_pair, precision="exact", kv="paged") as large:
        needed = 128 * (large.main.runner.bytes_per_token + large.draft.runner.bytes_per_token)
        prompts = [[5 + n, 6, 7] * 20 for n in range(4)]
        expected = [large.generate(prompt, **OPTIONS).token_ids for prompt in prompts]
    with SpeculativePipeline(
        *tiny_pair, precision="exact", kv="paged", kv_cache_size=5 * needed / 1e9
    ) as small:
        results = small.generate_batch(prompts, **OPTIONS)
        assert [result.token_ids for result in results] == expected


def test_a_context_may_be_shorter_than_the_models(tiny_pair):
    with SpeculativePipeline(*tiny_pair, max_model_len=40, max_batch_size=1) as pipeline:
        result = pipeline.generate([5] * 20, max_new_tokens=None, ignore_eos=True)
        assert len(result.token_ids) == 20
        assert (result.finish_reason, result.stats.length_limit) == ("length", "max_model_len")
        with pytest.raises(ContextLengthError, match=r"length is 40 tokens\. .* with 40 tokens:"):
            pipeline.generate([5] * 40)
    with pytest.raises(OptionError, match=r"max_model_len=4000 is more than the context .* 256"):
        SpeculativePipeline(*tiny_pair, max_model_len=4000)


def test_a_draft_with_a_shorter_context_keeps_its_own(tiny_pair, tmp_path):
    short = shutil.copytree(tiny_pair[1], tmp_path / "draft")
    change(short / "config.json", max_position_embeddings=32)
    with SpeculativePipeline(tiny_pair[0], short, max_model_len=64) as pipeline:
        assert pipeline.main.runner.max_length == 64
        assert pipeline.draft.runner.max_length == 32


def test_an_abandoned_generation_leaves_no_trace(pipeline):
    expected = pipeline.generate("def area(", **OPTIONS).token_ids
    for chunk in pipeline.stream("width * height", **OPTIONS):
        if chunk.from_draft:
            break
    assert pipeline.generate("def area(", **OPTIONS).token_ids == expected


def test_a_draft_with_wider_logits_is_cut_to_the_tokenizer(tiny_pair, wide_draft, pipeline):
    wide = SpeculativePipeline(tiny_pair[0], wide_draft, precision="exact")
    result = wide.generate("def area(", **OPTIONS)
    assert result.token_ids == pipeline.generate("def area(", **OPTIONS).token_ids
    assert max(result.token_ids) < 290


def test_a_draft_with_another_tokenizer_is_refused(tiny_pair, tmp_path):
    draft = shutil.copytree(tiny_pair[1], tmp_path / "draft")
    save_tokenizer(draft, sample="something else entirely, with other merges")
    with pytest.raises(TokenizerMismatchError, match="different tokenizers"):
        SpeculativePipeline(tiny_pair[0], draft)
    with pytest.raises(OptionError, match="needs main: give that too"):
        SpeculativePipeline(draft=draft)


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        (
            {"drafter": "oracle"},
            OptionError,
            "'oracle' must be one of model, suffix, both, prompt-lookup, none",
        ),
        ({"kv": "ring"}, OptionError, "kv='ring'"),
        ({"precision": "f8"}, OptionError, "precision='f8'"),
        ({"max_masked_tokens": -1}, OptionError, "max_masked_tokens=-1"),
        ({"max_masked_tokens": 4, "kv": "paged"}, OptionError, "max_masked_tokens=4 has no effect"),
        ({"max_masked_tokens": 4}, OptionError, "max_masked_tokens=4 has no effect on"),
        ({"max_batch_size": 0}, OptionError, "max_batch_size=0"),
        ({"kv_cache_size": -1}, OptionError, "kv_cache_size=-1"),
        (
            {"kv_cache_size": 1e-9},
            OptionError,
            r"kv_cache_size=1e-09 has no room for 32 tokens: .* take .* GB",
        ),
        ({"max_model_len": 1}, OptionError, "max_model_len=1"),
        ({"kv_cache_size": 1, "kv": "stateful"}, OptionError, "kv_cache_size=1.0 has no effect"),
        ({"max_prefill_tokens_per_step": 0}, OptionError, "max_prefill_tokens_per_step=0"),
        ({"main": 3}, OptionError, "main=3 must be a folder"),
        ({"device": None}, OptionError, "device=None must be a text"),
        ({"device": ["CPU"]}, OptionError, r"device=\['CPU'\] must be a text"),
        ({"draft_device": 0}, OptionError, "draft_device=0 must be a text"),
        ({"profile": 3}, OptionError, "profile=3 must be"),
        ({"profile": None}, OptionError, "profile=None must be"),
        (
            {"properties": "A=1"},
            OptionError,
            "properties='A=1' must be a mapping of names to values",
        ),
        (
            {"properties": {"A": 1}},
            OptionError,
            "properties=1 must be a mapping of names to values",
        ),
        ({"draft_properties": [1]}, OptionError, r"draft_properties=\[1\] must be a mapping"),
        ({"cache_dir": 3}, OptionError, "cache_dir=3 must be a folder"),
        ({"cache_dir": __file__}, OptionError, "cache_dir='.*' is a file: give a folder"),
        ({"cache_dir": "/dev/null/x"}, OptionError, "cache_dir='/dev/null/x' cannot be made"),
        ({"device": "TPU"}, DeviceError, "device 'TPU' is not available: OpenVINO finds .*CPU"),
        ({"draft_device": "TPU"}, DeviceError, "'TPU'"),
        ({"properties": {"NO_SUCH": "1"}}, DeviceError, "NO_SUCH=1 .*Unsupported property"),
        (
            {"drafter": "none", "draft_device": "CPU"},
            OptionError,
            "has no effect with drafter='none'",
        ),
        (
            {"draft": None, "drafter": "suffix", "profile": "p.json"},
            OptionError,
            "profile='p.json' has no effect with drafter='suffix'",
        ),
        ({"draft": None, "drafter": "model"}, OptionError, "no draft model for main"),
        ({"main": "/no/where", "draft": None}, ModelError, "'/no/where' does not exist"),
        ({"main": "gpt2", "draft": None}, ModelError, "'gpt2' is not a folder here.*owner/model"),
        ({"draft": "nowhere"}, ModelError, "'nowhere' is not a folder"),
        ({"main": "nowhere"}, ModelError, "'nowhere' is not a folder"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(tiny_pair, arguments, error, complaint):
    main, draft = tiny_pair
    with pytest.raises(error, match=complaint):
        SpeculativePipeline(**{"main": main, "draft": draft, **arguments})


def test_lengths_without_a_drafter_are_refused(tiny_pair):
    plain = SpeculativePipeline(tiny_pair[0], drafter="none")
    with pytest.raises(OptionError, match="num_assistant_tokens=4 needs a drafter"):
        plain.generate("x", num_assistant_tokens=4)


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("openvino_model.xml", "holds no openvino_model.xml: export the model first"),
        ("openvino_model.bin", "cannot be read .* export the model again"),
        ("config.json", "config.json is missing"),
        ("tokenizer.json", "holds no tokenizer.json"),
    ],
)
def test_a_folder_that_lacks_a_file_is_refused(tiny_pair, tmp_path, file, complaint):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    (main / file).unlink()
    with pytest.raises(ModelError, match=complaint):
        SpeculativePipeline(main, drafter="none")


def test_a_broken_configuration_is_refused(tiny_pair, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    (main / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not valid JSON"):
        SpeculativePipeline(main, drafter="none")
    (main / "config.json").write_text("{}")
    (main / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read"):
        SpeculativePipeline(main, drafter="none")


TEMPLATE = (
    "{% for m in messages %}<eos>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_chat_template_is_applied_unless_switched_off(tiny_pair, tmp_path, place):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    if place == "tokenizer_config.json":
        settings = json.loads((main / place).read_text())
        (main / place).write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    else:
        (main / place).write_text(TEMPLATE)
    chat = SpeculativePipeline(main, drafter="none")
    templated = "<eos>user: def area(\nassistant:"
    ids = chat.tokenizer.encode(templated)
    assert chat.generate("def area(", max_new_tokens=4).stats.prompt_tokens == len(ids)
    plain = chat.generate("def area(", max_new_tokens=4, apply_chat_template=False)
    assert plain.stats.prompt_tokens == len(chat.tokenizer.encode("def area("))
    with pytest.raises(OptionError, match="empty"):
        chat.generate("")


def test_a_result_is_shown_in_three_lines(tiny_pair):
    with SpeculativePipeline(*tiny_pair) as pipeline:
        result = pipeline.generate("def area(w, h):", max_new_tokens=20, ignore_eos=True)
    lines = repr(result).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) < 120
    assert lines[1] == "    20 token_ids, finish_reason='length' (the output has max_new_tokens),"
    assert f"of {result.stats.drafted} draft tokens accepted" in lines[2]


def test_a_notebook_shows_where_the_tokens_of_a_result_come_from():
    stats = GenerationStats(3, length_limit="kv_cache_size")
    chunks = [
        Chunk("<b>", [1], "plain"),
        Chunk("def", [2], "draft"),
        Chunk(" a", [3], "draft"),
        Chunk("&", [4], "correction", finish_reason="length", stats=stats),
    ]
    html = collect(chunks)._repr_html_()
    text, small = re.findall(r"<(pre|small)(?: style.*?)?>(.*?)</\1>", html)
    pieces = re.findall(r"<span[^>]*>(.*?)</span>|([^<]+)", text[1])
    assert pieces == [("", "&lt;b&gt;"), ("def a", ""), ("&amp;", "")]
    assert "cut short: prompt and output fill the KV caches, kv_cache_size" in small[1]
    assert "replacement of a rejected draft token" in small[1]
    assert MEANINGS["bonus"] not in small[1]
    assert " color:" not in html, "the text keeps the notebook's colour, light or dark"


def test_a_main_model_alone_drafts_by_suffix_matches(tiny_pair):
    with SpeculativePipeline(tiny_pair[0]) as alone, SpeculativePipeline(*tiny_pair) as pair:
        assert (alone.drafter, pair.drafter) == ("suffix", "model")
    with pytest.raises(OptionError, match="no draft model for main"):
        SpeculativePipeline(tiny_pair[0], drafter="model")
