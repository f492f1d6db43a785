"""Options of transformers and its like that are otherwise here: what to give in their place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.errors import Option, OptionError


@dataclass(frozen=True)
class Foreign:
    """An option that others have. instead: completes "name=value ...", with what to do.

    neutral: values that change no text, so that they are accepted; None always does.
    """

    instead: str
    neutral: tuple[object, ...] = ()

    def accepts(self, value: object) -> bool:
        """Whether a value changes nothing."""
        return value is None or self.neutral is ANY or value in self.neutral


ANY: tuple[object, ...] = ("any value",)
"""Of options that decide nothing here."""

NOTHING = ": there is no counterpart here, leave it out"
NO_BEAMS = ": there is no beam search, leave it out"
IN_PROMPT = ": the prompt is a text, token ids or messages"
OF_PIPELINE = ": it is chosen when the pipeline is made"
SAME = " decides nothing here: leave it out"

CHOOSING: Mapping[str, Foreign] = {
    "begin_suppress_tokens": Foreign(NOTHING, ([], ())),
    "constraints": Foreign(NOTHING, ([],)),
    "diversity_penalty": Foreign(NO_BEAMS, (0.0,)),
    "dola_layers": Foreign(NOTHING),
    "encoder_repetition_penalty": Foreign(NOTHING, (1.0,)),
    "epsilon_cutoff": Foreign(NOTHING, (0.0,)),
    "eta_cutoff": Foreign(NOTHING, (0.0,)),
    "exponential_decay_length_penalty": Foreign(NOTHING),
    "force_words_ids": Foreign(NOTHING, ([],)),
    "forced_eos_token_id": Foreign(NOTHING),
    "guidance_scale": Foreign(NOTHING, (1.0,)),
    "num_beams": Foreign(NO_BEAMS, (1,)),
    "penalty_alpha": Foreign(NOTHING, (0.0,)),
    "sequence_bias": Foreign(": give logit_bias, for single tokens", ({}, [])),
    "token_healing": Foreign(NOTHING, (False,)),
    "top_h": Foreign(NOTHING),
    "watermarking_config": Foreign(NOTHING, ({},)),
}
"""What decides which tokens are chosen, and may stand in a generation_config.json."""

FOREIGN: Mapping[str, Foreign] = {
    **CHOOSING,
    # Their names here.
    "max_length": Foreign(" counts the prompt: give max_new_tokens, which does not"),
    "min_length": Foreign(" counts the prompt: give min_new_tokens, which does not", (0,)),
    "stop": Foreign(": give stop_strings"),
    "stopping_criteria": Foreign(
        ": give stop_strings, or read stream(prompt) and call its cancel()", ([], ())
    ),
    "max_time": Foreign(": read stream(prompt), and call its cancel() when it is time"),
    "streamer": Foreign(": read stream(prompt), which yields chunks of text"),
    "prefix_allowed_tokens_fn": Foreign(": give a logits_processor that forbids the other tokens"),
    "num_return_sequences": Foreign(
        ": give generate_batch the prompt so many times, with other seeds or choices", (1,)
    ),
    "return_dict_in_generate": Foreign(
        ": what is returned has text, token_ids, finish_reason, logprobs and stats already",
        (False,),
    ),
    "output_scores": Foreign(": give logprobs=N", (False,)),
    "output_logits": Foreign(": give logprobs=N", (False,)),
    "output_attentions": Foreign(NOTHING, (False,)),
    "output_hidden_states": Foreign(NOTHING, (False,)),
    # Of the pipeline.
    "assistant_model": Foreign(
        ": the draft model is the pipeline's, SpeculativePipeline(main, draft)"
    ),
    "assistant_tokenizer": Foreign(
        ": each model has the tokenizer in its folder; where they differ, "
        'SpeculativePipeline(main, draft, pairing="auto")'
    ),
    "cache_implementation": Foreign(f"{OF_PIPELINE}, by kv", ("dynamic", "static")),
    "decoder_start_token_id": Foreign(": the one in the model's folder is taken, leave it out"),
    "past_key_values": Foreign(
        ": what the KV caches hold of a prompt is found by itself; save_cache and load_cache keep "
        "it in a file"
    ),
    "use_cache": Foreign(
        ": there is no generation without a KV cache; cache_prompt=False takes nothing from it",
        (True,),
    ),
    "use_model_defaults": Foreign(f'{OF_PIPELINE}, by generation_config="model"'),
    # Of the prompt.
    "decoder_input_ids": Foreign(IN_PROMPT),
    "inputs_embeds": Foreign(IN_PROMPT),
    "negative_prompt_ids": Foreign(NOTHING),
    "negative_prompt_attention_mask": Foreign(NOTHING),
    # What has no effect: there are no beams, and tokens and caches are the engine's.
    **dict.fromkeys(
        (
            *("assistant_early_exit", "assistant_lookbehind", "bos_token_id", "cache_config"),
            *("compile_config", "continuous_batching_config", "disable_compile", "early_stopping"),
            *("is_assistant", "length_penalty", "low_memory", "pad_token_id"),
            *("prefill_chunk_size", "renormalize_logits", "return_legacy_cache"),
            *("target_lookbehind", "tokenizer"),
        ),
        Foreign(SAME, ANY),
    ),
    "custom_generate": Foreign(NOTHING),
    "num_beam_groups": Foreign(NO_BEAMS, (1,)),
    "remove_invalid_values": Foreign(": logits that are no numbers are an error", (False,)),
    "synced_gpus": Foreign(SAME, (False,)),
}
"""By name: all that `transformers.GenerationConfig` and `generate` take, and this project does not.
"""


def drop_neutral(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without foreign ones that change nothing; `OptionError` for those that would."""
    for name, value in options.items():
        foreign = FOREIGN.get(name)
        if foreign is not None and not foreign.accepts(value):
            raise OptionError(Option(name, value), foreign.instead)
    return {name: value for name, value in options.items() if name not in FOREIGN}
