"""What users of transformers try first: it works, or the error says what to give instead."""

import inspect

import numpy as np
import pytest

from ov_specdec import (
    DeviceError,
    GenerationOptions,
    OptionError,
    SpeculativePipeline,
    SpeechPipeline,
)
from ov_specdec.description import describe
from ov_specdec.foreign_options import FOREIGN, drop_neutral
from ov_specdec.loading.generation_config import defaults_of

TEXT = "def area(w, h):"
OPTIONS = {"max_new_tokens": 12, "ignore_eos": True}
OTHERWISE = {
    *("self", "inputs", "generation_config", "kwargs"),  # arguments of their own here too
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


def test_there_is_an_answer_to_every_option_of_transformers():
    from transformers import GenerationConfig, GenerationMixin

    theirs = {
        *GenerationConfig().to_dict(),
        *inspect.signature(GenerationMixin.generate).parameters,
    }
    assert len(theirs) > 60
    assert not theirs - OTHERWISE - set(FOREIGN) - set(describe(GenerationOptions))
    assert not set(FOREIGN) & set(describe(GenerationOptions))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"assistant_model": 3}, r"assistant_model=3: the draft model is the pipeline's, Spec.*\("),
        ({"stop": ["\n"]}, r"stop=\['\\n'\]: give stop_strings"),
        ({"max_length": 20}, "max_length=20 counts the prompt: give max_new_tokens"),
        ({"streamer": 3}, r"streamer=3: read stream\(prompt\)"),
        ({"return_dict_in_generate": True}, "=True: what is returned has text, token_ids"),
        ({"num_beams": 4}, "num_beams=4: there is no beam search"),
        ({"use_cache": False}, "use_cache=False: there is no generation without a KV cache"),
        ({"device": "GPU"}, "device='GPU': it is chosen when the pipeline is made"),
        ({"messages": [1]}, r"messages=\[1\]: give it as the first argument, without a name"),
        ({"generator": 3}, "generator=3: give seed"),
        ({"num_speculative_tokens": 4}, "num_speculative_tokens=4: give num_assistant_tokens"),
        ({"n": 2}, "n=2: give generate_batch the prompt so many times"),
        ({"stream": True}, r"stream=True: read stream\(prompt\)"),
        ({"guided_json": {}}, "there is no structured output"),
        ({"enable_thinking": False}, "give chat_template_kwargs="),
        ({"return_full_text": True}, "text is the output without the prompt"),
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


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ([TEXT, TEXT], "is a list of texts: generate takes one prompt, generate_batch a list"),
        ([[1, 2], [3]], "has 2 rows: generate takes one prompt, generate_batch a list"),
        (np.array([[1, 2], [3, 4]]), "has 2 rows: generate takes one"),
    ],
)
def test_several_prompts_are_generate_batchs(prompt, complaint, pipeline):
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate(prompt)


def test_options_have_names(pipeline):
    with pytest.raises(OptionError, match=r"64 has no name: .* by name, such as max_new_tokens=64"):
        pipeline.generate(TEXT, 64)
    with pytest.raises(OptionError, match=r"prompts=.*: give it as the first argument"):
        pipeline.generate(prompts=[TEXT])
    with pytest.raises(OptionError, match="must be a list of mappings, one for each prompt"):
        pipeline.generate_batch([TEXT], options={"seed": 1})


def test_none_is_the_default_of_every_option(pipeline, expected):
    nothing = {"stop_strings": None, "logits_processor": None, "repetition_penalty": None}
    assert pipeline.generate(TEXT, **nothing, **OPTIONS).token_ids == expected
    with pytest.raises(OptionError, match="unknown option 'wings'"):
        pipeline.generate(TEXT, wings=None)


def test_a_batch_wants_a_list(pipeline):
    with pytest.raises(OptionError, match="of lists of messages"):
        pipeline.generate_batch([{"role": "user", "content": "Hello"}])
    with pytest.raises(OptionError, match="of texts, of lists of ids, or of lists of messages"):
        pipeline.generate_batch(pipeline.tokenizer(TEXT))


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
        ({"assistant_model": "a"}, "assistant_model='a': give draft"),
        ({"pretrained_model_name_or_path": "a"}, ": give main"),
        ({"dtype": "bfloat16"}, 'give precision, "default" or "exact", which is float32'),
        ({"device_map": "cuda"}, "device_map='cuda': give device"),
        ({"do_sample": True}, "do_sample=True is an option of a generation: give it to generate"),
        ({"drafer": "none"}, r"unknown option 'drafer': did you mean drafter"),
        ({"wings": 2}, r"unknown option 'wings': see help\(SpeculativePipeline\)"),
    ],
)
def test_what_others_are_made_with_is_refused_with_what_to_give_instead(options, complaint):
    with pytest.raises(OptionError, match=complaint):
        SpeculativePipeline(**options)
    assert [*inspect.signature(SpeculativePipeline).parameters][:3] == ["main", "draft", "drafter"]


def test_what_others_are_made_with_is_accepted_where_it_changes_nothing(tiny_pair):
    neutral = {"device_map": "auto", "trust_remote_code": False, "assistant_model": None}
    with SpeculativePipeline(*tiny_pair, device="cpu", **neutral) as made:
        assert made.main.config.device == "CPU"


def test_devices_of_torch_are_not_openvinos():
    with pytest.raises(DeviceError, match=r"'CUDA' is not available: OpenVINO finds .*Intel GPU"):
        SpeculativePipeline(device="cuda")


def test_members_that_others_have_name_what_there_is(pipeline):
    result = pipeline.generate(TEXT, max_new_tokens=2)
    with pytest.raises(AttributeError, match=r"call SpeculativePipeline\(main, draft\)"):
        SpeculativePipeline.from_pretrained("owner/model")
    with pytest.raises(AttributeError, match=r"call SpeechPipeline\(main, draft\)"):
        SpeechPipeline.from_pretrained("owner/model")
    with pytest.raises(TypeError, match=r"call generate\(prompt\)"):
        pipeline(TEXT)
    with pytest.raises(TypeError, match="read text or token_ids"):
        result[0]["generated_text"]
    with pytest.raises(AttributeError, match="has token_ids"):
        _ = result.sequences
    assert not hasattr(result, "sequences")
    with pytest.raises(AttributeError, match="give generate the messages"):
        pipeline.tokenizer.apply_chat_template([])
    assert inspect.getmembers(type(result))
    with pytest.raises(AttributeError, match="has vocab: the id of each token"):
        pipeline.tokenizer.get_vocab()


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
        ({"num_beams": 4}, "num_beams=4: there is no beam search"),
        ({"max_length": 20}, "max_length=20 counts the prompt"),
        ({"temprature": 1.0}, r"unknown option 'temprature': did you mean temperature\?"),
        ({"decoder_start_token_id": 5}, "decoder_start_token_id=5: the one in the model's folder"),
        ("greedy", "generation_config='greedy' must be a transformers.GenerationConfig"),
    ],
)
def test_what_a_generation_config_holds_beyond_that_is_refused(config, complaint, pipeline):
    with pytest.raises(OptionError, match=complaint):
        pipeline.generate(TEXT, generation_config=config)


def test_a_config_may_name_the_models_own_start_of_a_decoder():
    assert "decoder_start_token_id" not in defaults_of({"decoder_start_token_id": 5}, {}, 5).values


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
