"""What a model's generation_config.json recommends, and what callers make of it."""

import json
import shutil

import pytest

from ov_specdec import GenerationOptions, ModelError, OptionError, SpeculativePipeline
from ov_specdec.models.generation_config import read_sampling_defaults
from ov_specdec.options.conflicts import fill

QWEN = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}
IDLE = {"temperature": 0.6, "top_p": 0.9, "no_repeat_ngram_size": 3}


def read(folder, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "generation_config.json").write_text(text)
    return read_sampling_defaults(folder, vocab_size=300)


def complete(folder, content, **given):
    return GenerationOptions(**fill(given, read(folder, content)))


def test_what_decides_which_tokens_are_chosen_is_taken(tmp_path):
    others = {"max_new_tokens": 7, "max_length": 9, "bos_token_id": 1, "use_cache": False}
    bans = {"bad_words_ids": [[5, 6]], "suppress_tokens": [7], "no_repeat_ngram_size": 3}
    bans |= {"encoder_no_repeat_ngram_size": 4, "forced_bos_token_id": 8}
    content = {**QWEN, **bans, **others, "min_p": None, "num_beams": 1, "typical_p": 1.0}
    assert complete(tmp_path, content) == GenerationOptions(**QWEN, **bans, typical_p=1.0)


def test_a_language_that_is_given_wins_over_the_models(tmp_path):
    given = complete(tmp_path, {"forced_bos_token_id": 8}, tgt_lang="fra_Latn")
    assert (given.forced_bos_token_id, given.tgt_lang) == (None, "fra_Latn")


def test_a_model_without_the_file_recommends_nothing(tmp_path):
    assert read_sampling_defaults(tmp_path, vocab_size=300) == {}
    assert fill({"top_k": 3}, {}) == {"top_k": 3}


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"temperature": 0.2}, {"do_sample": None, "temperature": 0.2}),
        ({"repetition_penalty": 1.0, "top_k": 0}, {"do_sample": None, "top_k": 0}),
        ({"temperature": None, "max_new_tokens": 5}, {"max_new_tokens": 5}),
        ({"do_sample": True, "top_p": 0.1}, {"top_p": 0.1}),
    ],
)
def test_options_that_are_given_win(given, changed, tmp_path):
    expected = {**QWEN, "repetition_penalty": given.get("repetition_penalty", 1.1), **changed}
    result = complete(tmp_path, QWEN, **given)
    assert result == GenerationOptions(**expected)
    assert result.samples


@pytest.mark.parametrize("given", [{"do_sample": False}, {"temperature": 0}])
def test_greedy_decoding_contradicts_no_default(given, tmp_path):
    result = complete(tmp_path, QWEN, **given)
    assert not result.samples
    assert result == GenerationOptions(**given, repetition_penalty=1.1)


@pytest.mark.parametrize("content", [IDLE, {**IDLE, "do_sample": False}])
def test_without_do_sample_the_rest_waits_until_the_caller_draws(content, tmp_path):
    assert complete(tmp_path, content) == GenerationOptions(do_sample=False, no_repeat_ngram_size=3)
    for given in ({"do_sample": True}, {"temperature": 0.6}):
        drawn = complete(tmp_path, content, **given)
        assert (drawn.samples, drawn.temperature, drawn.top_p) == (True, 0.6, 0.9)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"top_p": 1.5}, "top_p 1.5 must be a number from 0 to 1; correct it"),
        ({"do_sample": True, "temperature": 0}, "contradicts do_sample True"),
        ({"suppress_tokens": [4, 300]}, "the model has no token id 300"),
        ({"num_beams": 4}, "num_beams is 4, which is not supported; .*'none'"),
        ("[]", "holds no JSON object"),
        ("{", "is not valid JSON"),
    ],
)
def test_what_cannot_be_used_is_the_fault_of_the_model(content, complaint, tmp_path):
    with pytest.raises(ModelError, match=complaint) as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


def test_a_pipeline_samples_as_its_model_recommends_unless_that_is_left_out(tiny_pair, tmp_path):
    main = shutil.copytree(tiny_pair[0], tmp_path / "main")
    file = main / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **QWEN, "temperature": 5.0}))
    outputs = {}
    for use, given in {"none": {"generation_config": "none"}, "model": {}}.items():
        with SpeculativePipeline(main, drafter="none", **given) as pipeline:
            options = {"max_new_tokens": 12, "ignore_eos": True}
            assert pipeline.complete_options(**options).samples is (use == "model")
            outputs[use] = [pipeline.generate("def", **options).token_ids for _ in range(3)]
            outputs[f"{use}, greedy"] = pipeline.generate(
                "def", do_sample=False, repetition_penalty=1.0, **options
            ).token_ids
    greedy = outputs["none, greedy"]
    assert outputs["none"] == [greedy] * 3
    assert outputs["model, greedy"] == greedy
    assert outputs["model"][0] != outputs["model"][1]
    with pytest.raises(OptionError, match="generation_config='all' must be one of none, model"):
        SpeculativePipeline(main, drafter="none", generation_config="all")
