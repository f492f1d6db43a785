"""What users of transformers try first: it works, or the error says what to give instead."""

import numpy as np
import pytest
from transformers import BatchEncoding, GenerationConfig  # noqa: F401

from ov_specdec import (
    GenerationOptions,
    OptionError,
    SpecdecError,
    SpeculativePipeline,
    SpeechPipeline,
)
from ov_specdec.options.foreign_names import drop_neutral

TEXT = "def area(w, h):"
OPTIONS = {"max_new_tokens": 12, "ignore_eos": True}


@pytest.fixture(scope="module")
def expected(pipeline):
    return pipeline.generate(TEXT, **OPTIONS).token_ids


def test_neutral_values_of_every_option_of_transformers_are_accepted(pipeline, expected):
    defaults = GenerationConfig().to_dict().keys() - {"_from_model_config", "transformers_version"}
    assert len(defaults) > 50
    neutral = {"pad_token_id": 0, "use_cache": True, "num_beams": 1, "num_return_sequences": 1}
    neutral |= {"output_scores": False, "streamer": None, "assistant_model": None}
    for given in (dict.fromkeys(defaults), neutral):
        assert pipeline.generate(TEXT, **{**given, **OPTIONS}).token_ids == expected
    assert drop_neutral({"num_beams": 1, "top_k": 3}) == {"top_k": 3}


WORKS = (
    "pipeline.tokenizer(TEXT)",
    "generate(TEXT, max_new_tokens=4, pad_token_id=0, use_cache=True, num_beams=1)",
    "generate(TEXT, generation_config=GenerationConfig(max_new_tokens=4, do_sample=False))",
    "generate(ids, max_new_tokens=4)",
    "generate(input_ids=ids, max_new_tokens=4)",
    "generate([ids], max_new_tokens=4)",
    "generate(BatchEncoding({'input_ids': [ids], 'attention_mask': [[1] * len(ids)]}))",
    "pipeline.generate_batch([TEXT, TEXT], max_new_tokens=4)",
    "generate(TEXT, attention_mask=[1] * len(ids), max_new_tokens=4)",
    "generate(TEXT, max_new_tokens=4)._repr_html_()",
    "SpeculativePipeline(device='cpu', device_map='auto').close()",
    "pipeline.tokenizer.decode(ids, skip_special_tokens=True)",
    "pipeline.tokenizer.encode(TEXT, add_special_tokens=False)",
    "len(pipeline.tokenizer)",
    "generate(TEXT, top_k=-1, max_new_tokens=4)",
)
"""Is accepted."""

HINTS = {
    "generate([TEXT, TEXT])": "generate_batch",
    "generate(TEXT, assistant_model='models/draft')": "give draft to SpeculativePipeline",
    "generate(TEXT, stop=['x'])": "stop_strings",
    "generate(TEXT, num_beams=4)": "beam",
    "generate(TEXT, max_length=20)": "max_new_tokens",
    "generate(TEXT, streamer=print)": "stream(",
    "generate(TEXT, max_tokens=4)": "max_new_tokens",
    "generate(TEXT, temprature=0.5)": "temperature",
    "generate(TEXT, attention_mask=[0, 1])": "leave it out",
    "generate(attention_mask=[0, 1, 1], input_ids=[1, 2, 3])": "without padding",
    "SpeculativePipeline('gpt2')": "owner/model",
    "SpeculativePipeline(assistant_model='models/draft')": "did you mean draft",
    "SpeculativePipeline(device='cuda')": "Intel GPU",
    "SpeculativePipeline(dtype='float32')": "precision",
    "SpeculativePipeline(temperature=0.5)": "give temperature to generate",
    "generate(input_ids=[1], inputs=[2])": "the prompt is given 2 times: give one",
    "generate()": "there is no prompt: give one, such as generate('Hello')",
    "generate(TEXT, generation_config={'num_beams': 4})": "there is no beam search",
    "generate(TEXT, generation_config={'temprature': 1.0})": "did you mean temperature?",
    "generate(TEXT, generation_config='greedy')": "must be a transformers.GenerationConfig",
}
"""Is refused, with a hint that names this, and no list of all options."""


@pytest.mark.parametrize("guess", [*WORKS, *HINTS])
def test_first_guesses_work_or_are_refused_with_what_to_give(guess, pipeline):
    ids = pipeline.tokenizer.encode(TEXT)
    names = {**globals(), "pipeline": pipeline, "generate": pipeline.generate, "ids": ids}
    hint = HINTS.get(guess)
    if hint is None:
        eval(guess, names)  # noqa: S307
    else:
        with pytest.raises((SpecdecError, TypeError)) as refused:
            eval(guess, names)  # noqa: S307
        assert hint in str(refused.value)
        assert "there are: " not in str(refused.value), "a list of all options"


def test_a_printed_result_fits_a_screen(pipeline):
    assert len(str(pipeline.generate(TEXT, max_new_tokens=64))) <= 400


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


def test_from_pretrained_is_the_constructor(tiny_pair, whisper):
    with SpeculativePipeline.from_pretrained(*tiny_pair, drafter="model") as made:
        assert made.drafter == "model"
    with SpeechPipeline.from_pretrained(whisper.main, whisper.draft) as made:
        assert made.drafter == "both"


def test_a_tokenizer_decodes_as_those_of_transformers_do(pipeline):
    tokenizer = pipeline.tokenizer
    with_end = [*tokenizer.encode(TEXT), tokenizer.eos_token_id]
    assert tokenizer.decode(with_end) == TEXT
    assert tokenizer.decode(with_end, skip_special_tokens=False) != TEXT


def test_a_generation_config_is_honoured(pipeline):
    greedy = GenerationConfig(max_new_tokens=9, num_beams=1, pad_token_id=0, eos_token_id=[2, 3])
    assert pipeline.complete_options(generation_config=greedy) == GenerationOptions(
        max_new_tokens=9, eos_token_id=[2, 3], do_sample=False
    )
    drawn = GenerationConfig(do_sample=True, top_k=5, temperature=0.5, max_length=4096)
    options = pipeline.complete_options(generation_config=drawn, temperature=0.7, max_new_tokens=8)
    assert options == GenerationOptions(top_k=5, temperature=0.7, max_new_tokens=8)
    result = pipeline.generate(TEXT, generation_config=greedy, ignore_eos=True)
    assert len(result.token_ids) == 9


def test_transformers_own_processors_work(pipeline):
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        SuppressTokensLogitsProcessor,
    )

    plain = pipeline.generate(TEXT, repetition_penalty=1.5, **OPTIONS).token_ids
    penalty = RepetitionPenaltyLogitsProcessor(1.5)
    given = pipeline.generate(TEXT, logits_processor=[penalty], **OPTIONS).token_ids
    assert given == plain
    both = LogitsProcessorList([penalty, SuppressTokensLogitsProcessor([plain[0]])])
    assert plain[0] not in pipeline.generate(TEXT, logits_processor=both, **OPTIONS).token_ids
