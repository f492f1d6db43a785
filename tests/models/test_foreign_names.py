"""What users of transformers try first: it works, or the error says what to give instead."""

import numpy as np
import pytest

from ov_specdec import (
    GenerationOptions,
    OptionError,
    SpeculativePipeline,
    SpeechPipeline,
)
from ov_specdec.options.foreign_names import drop_neutral

TEXT = "def area(w, h):"
OPTIONS = {"max_new_tokens": 12, "ignore_eos": True}
OTHERWISE = {
    "_from_model_config",
    "transformers_version",
}


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    with SpeculativePipeline(*tiny_pair, precision="exact") as made:
        yield made


@pytest.fixture(scope="module")
def expected(pipeline):
    return pipeline.generate(TEXT, **OPTIONS).token_ids


def test_neutral_values_of_every_option_of_transformers_are_accepted(pipeline, expected):
    from transformers import GenerationConfig

    defaults = GenerationConfig().to_dict().keys() - OTHERWISE
    assert len(defaults) > 50
    options = dict.fromkeys(defaults) | OPTIONS
    assert pipeline.generate(TEXT, **options).token_ids == expected


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"assistant_model": 3}, "'assistant_model': give draft to SpeculativePipeline"),
        ({"stop": ["\n"]}, "'stop': did you mean stop_strings"),
        ({"max_length": 20}, "'max_length': did you mean max_new_tokens"),
        ({"streamer": 3}, r"'streamer': read stream\(prompt\)"),
        ({"num_beams": 4}, "'num_beams': there is no beam search"),
        ({"guidance_scale": 2.0}, "'guidance_scale': it has no counterpart here"),
        ({"use_cache": False}, "'use_cache': there is no generation without a KV cache"),
        ({"device": "GPU"}, "'device': give device to SpeculativePipeline"),
        ({"messages": [1]}, "'messages': give the prompt without a name"),
        ({"num_return_sequences": 2}, "give generate_batch the prompt so many times"),
        ({"attention_mask": [0] + [1] * 3, "input_ids": [1, 2, 3, 4]}, "without padding"),
        ({"attention_mask": [1, 1], "input_ids": [1, 2, 3]}, "is for 2 tokens, and .* has 3"),
        ({"attention_mask": [1] * 99}, r"is for 99 tokens, and .*: leave it out"),
        ({"input_ids": [1], "inputs": [2]}, "the prompt is given 2 times: give one"),
        ({}, r"there is no prompt: give one, such as generate\('Hello'\)"),
    ],
)
def test_what_would_change_the_text_is_refused_with_what_to_give_instead(
    options, complaint, pipeline
):
    prompt = None if "input_ids" in options or not options else TEXT
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate(prompt, **options)


def test_none_is_the_default_of_every_option(pipeline, expected):
    nothing = {"stop_strings": None, "logits_processor": None, "repetition_penalty": None}
    assert pipeline.generate(TEXT, **nothing, **OPTIONS).token_ids == expected
    with pytest.raises(OptionError, match="unknown option 'wings'"):
        pipeline.generate(TEXT, wings=None)


def test_what_changes_nothing_is_accepted(pipeline, expected):
    neutral = {"pad_token_id": 0, "use_cache": True, "num_beams": 1, "num_return_sequences": 1}
    neutral |= {"output_scores": False, "streamer": None, "assistant_model": None}
    assert pipeline.generate(TEXT, **neutral, **OPTIONS).token_ids == expected
    assert drop_neutral({"num_beams": 1, "top_k": 3}) == {"top_k": 3}


def test_a_prompt_may_be_what_tokenizers_return(pipeline, expected):
    ids = pipeline.tokenizer.encode(TEXT)
    inputs = pipeline.tokenizer(TEXT)
    tensors = pipeline.tokenizer(TEXT, return_tensors="pt")
    assert inputs.input_ids == ids
    assert tensors.input_ids.shape == (1, len(ids))
    for prompt in (inputs, tensors, tensors.input_ids, np.array([ids]), [ids], np.array(ids)):
        assert pipeline.generate(prompt, **OPTIONS).token_ids == expected
    assert pipeline.generate(**tensors, **OPTIONS).token_ids == expected
    assert pipeline.generate(input_ids=ids, **OPTIONS).token_ids == expected
    results = pipeline.generate_batch([tensors.input_ids, TEXT], **OPTIONS)
    assert [result.token_ids for result in results] == [expected, expected]
    with pytest.raises(OptionError, match="is not a text: give one text at a time"):
        pipeline.tokenizer([TEXT])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"draft_model": "a"}, "'draft_model': did you mean draft"),
        ({"dtype": "bfloat16"}, "'dtype': did you mean precision"),
        ({"device_map": "cuda"}, "'device_map': did you mean device"),
        ({"do_sample": True}, "'do_sample': give do_sample to generate"),
        ({"drafer": "none"}, r"'drafer': did you mean drafter"),
        ({"wings": 2}, "'wings': there are: main, .*, batch_invariant$"),
    ],
)
def test_what_pipelines_do_not_have_is_refused_with_what_to_give_instead(options, complaint):
    with pytest.raises(OptionError, match=f"unknown option {complaint}"):
        SpeculativePipeline(**options)


def test_from_pretrained_is_the_constructor(tiny_pair, whisper):
    with SpeculativePipeline.from_pretrained(*tiny_pair, drafter="both") as made:
        assert made.drafter == "both"
    with SpeechPipeline.from_pretrained(whisper.main, whisper.draft) as made:
        assert made.drafter == "model"


def test_a_tokenizer_takes_what_those_of_transformers_take(pipeline):
    tokenizer = pipeline.tokenizer
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == TEXT
    with_end = [*ids, tokenizer.eos_token_id]
    assert (
        tokenizer.decode(with_end) == TEXT != tokenizer.decode(with_end, skip_special_tokens=False)
    )
    assert len(tokenizer) == tokenizer.vocab_size > 0


def test_a_generation_config_is_honoured(pipeline):
    from transformers import GenerationConfig

    greedy = GenerationConfig(max_new_tokens=9, num_beams=1, pad_token_id=0, eos_token_id=[2, 3])
    assert pipeline.complete_options(generation_config=greedy) == GenerationOptions(
        max_new_tokens=9, eos_token_id=[2, 3], do_sample=False
    )
    drawn = GenerationConfig(do_sample=True, top_k=5, temperature=0.5, max_length=4096)
    options = pipeline.complete_options(generation_config=drawn, temperature=0.7, max_new_tokens=8)
    assert options == GenerationOptions(top_k=5, temperature=0.7, max_new_tokens=8)
    result = pipeline.generate(TEXT, generation_config=greedy, ignore_eos=True)
    assert len(result.token_ids) == 9


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"num_beams": 4}, "'num_beams': there is no beam search"),
        ({"max_length": 20}, "'max_length': did you mean max_new_tokens"),
        ({"temprature": 1.0}, r"unknown option 'temprature': did you mean temperature\?"),
        ({"decoder_start_token_id": 5}, "'decoder_start_token_id': the one in the model's folder"),
        ("greedy", "generation_config='greedy' must be a transformers.GenerationConfig"),
    ],
)
def test_what_a_generation_config_holds_beyond_that_is_refused(config, complaint, pipeline):
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate(TEXT, generation_config=config)


def test_transformers_own_processors_work(pipeline):
    from transformers import LogitsProcessor, LogitsProcessorList, RepetitionPenaltyLogitsProcessor

    class Ban(LogitsProcessor):
        def __call__(self, input_ids, scores):
            assert input_ids.shape[0] == scores.shape[0] == 1
            scores[:, banned] = float("-inf")
            return scores

    plain = pipeline.generate(TEXT, repetition_penalty=1.5, **OPTIONS).token_ids
    penalty = RepetitionPenaltyLogitsProcessor(1.5)
    given = pipeline.generate(TEXT, logits_processor=[penalty], **OPTIONS).token_ids
    assert given == plain
    banned = plain[0]
    both = LogitsProcessorList([penalty, Ban()])
    result = pipeline.generate(TEXT, logits_processor=both, **OPTIONS)
    assert banned not in result.token_ids
