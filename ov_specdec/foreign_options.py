"""What transformers and its like have otherwise: what to give, call or read in its place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, TypeVar

from ov_specdec.checks import suggest
from ov_specdec.errors import Option, OptionError

Class = TypeVar("Class", bound=type)


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
NOT_STRUCTURED = ": there is no structured output; a logits_processor may forbid tokens"
SAME = " decides nothing here: leave it out"

SYSTEM = ': give messages that begin with {"role": "system", "content": ...}'

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
    **dict.fromkeys(("n_predict", "num_predict"), Foreign(": give max_new_tokens")),
    **dict.fromkeys(
        ("draft_max", "n_draft", "num_draft_tokens", "num_speculative_tokens"),
        Foreign(": give num_assistant_tokens"),
    ),
    "repeat_penalty": Foreign(": give repetition_penalty"),
    "temp": Foreign(": give temperature"),
    "sampling_params": Foreign(": give its options by their names, such as temperature=0.7"),
    **dict.fromkeys(("system", "system_prompt"), Foreign(SYSTEM)),
    "enable_thinking": Foreign(': give chat_template_kwargs={"enable_thinking": ...}'),
    **dict.fromkeys(
        (
            *("allowed_token_ids", "grammar", "guided_choice", "guided_grammar", "guided_json"),
            *("guided_regex", "json_schema", "response_format", "structured_outputs"),
        ),
        Foreign(NOT_STRUCTURED),
    ),
    "detokenize": Foreign(": read token_ids of the result", (True,)),
    "stream": Foreign(": read stream(prompt), which yields chunks of text", (False,)),
    "callback": Foreign(": read stream(prompt), which yields chunks of text"),
    "timeout": Foreign(": read stream(prompt), and call its cancel() when it is time"),
    "truncation": Foreign(": shorten the prompt, which is never cut", (False,)),
    "prompt_lookup": Foreign(f'{OF_PIPELINE}, by drafter="prompt-lookup"', (False,)),
    "speculative_config": Foreign(f"{OF_PIPELINE}, by draft; num_assistant_tokens is given here"),
    "stopping_criteria": Foreign(
        ": give stop_strings, or read stream(prompt) and call its cancel()", ([], ())
    ),
    "max_time": Foreign(": read stream(prompt), and call its cancel() when it is time"),
    "streamer": Foreign(": read stream(prompt), which yields chunks of text"),
    "prefix_allowed_tokens_fn": Foreign(": give a logits_processor that forbids the other tokens"),
    **dict.fromkeys(
        ("best_of", "n", "num_return_sequences"),
        Foreign(
            ": give generate_batch the prompt so many times, with other seeds or choices", (1,)
        ),
    ),
    "return_dict_in_generate": Foreign(
        ": what is returned has text, token_ids, finish_reason, logprobs and stats already",
        (False,),
    ),
    **dict.fromkeys(
        ("echo", "return_full_text"), Foreign(": text is the output without the prompt", (False,))
    ),
    **dict.fromkeys(("generator", "manual_seed", "random_seed"), Foreign(": give seed")),
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
    **dict.fromkeys(
        (
            *("batch_invariant", "device", "draft", "draft_device", "drafter", "kv", "main"),
            *("kv_cache_size", "max_batch_size", "max_model_len", "num_threads", "pairing"),
            *("precision", "properties", "static_shapes"),
        ),
        Foreign(OF_PIPELINE),
    ),
    # Of the prompt.
    **dict.fromkeys(
        ("conversation", "messages", "prompts", "text", "text_inputs"),
        Foreign(": give it as the first argument, without a name"),
    ),
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
"""By name: all that `transformers.GenerationConfig` and `generate` take and this project does not,
and what belongs to the prompt or the pipeline.
"""


OF_GENERATION = Foreign(" is an option of a generation: give it to generate")
AT_EXPORT = ": ov-specdec export quantizes weights, by --weight-format"

OF_MODELS: Mapping[str, Foreign] = {
    **dict.fromkeys(
        ("model", "model_id", "model_path", "models_path", "pretrained_model_name_or_path"),
        Foreign(": give main"),
    ),
    **dict.fromkeys(
        ("assistant_model", "draft_model", "speculative_model"), Foreign(": give draft")
    ),
    **dict.fromkeys(("load_in_4bit", "load_in_8bit"), Foreign(AT_EXPORT, (False,))),
    **dict.fromkeys(
        ("dtype", "torch_dtype"),
        Foreign(': give precision, "default" or "exact", which is float32', ("auto",)),
    ),
    "compile": Foreign(SAME, ANY),
    "device_map": Foreign(': give device, such as "CPU" or "GPU"', ("auto", "cpu")),
    "export": Foreign(": ov-specdec export writes a folder to give as main", (False,)),
    **dict.fromkeys(("enable_prefix_caching", "enable_chunked_prefill"), Foreign(SAME, (True,))),
    "kv_cache_dtype": Foreign(': give properties={"KV_CACHE_PRECISION": ...}', ("auto",)),
    "tensor_parallel_size": Foreign(": one process runs on one device, leave it out", (1,)),
    "gpu_memory_utilization": Foreign(": give kv_cache_size, in GB"),
    "max_num_seqs": Foreign(": give max_batch_size"),
    "n_ctx": Foreign(": give max_model_len"),
    "n_threads": Foreign(": give num_threads"),
    "num_speculative_tokens": Foreign(": give num_assistant_tokens to generate"),
    "ov_config": Foreign(": give properties"),
    "prompt_lookup": Foreign(': give drafter="prompt-lookup"', (False,)),
    **dict.fromkeys(("quantization", "quantization_config"), Foreign(AT_EXPORT)),
    "scheduler_config": Foreign(": give max_batch_size and kv_cache_size"),
    "speculative_config": Foreign(": give draft, and num_assistant_tokens to generate"),
    "task": Foreign(": what a model does is in its folder", ("text-generation",)),
    "tokenizer": Foreign(": the one in the folder of main is taken"),
    "trust_remote_code": Foreign(": code of models is run by ov-specdec export alone", (False,)),
}
"""By name: what pipelines of transformers, Optimum, openvino.genai, vLLM and llama.cpp are made
with."""


def drop_neutral(
    options: Mapping[str, Any], others: Mapping[str, Foreign] = FOREIGN
) -> dict[str, Any]:
    """The options without foreign ones that change nothing; `OptionError` for those that would."""
    for name, value in options.items():
        foreign = others.get(name)
        if foreign is not None and not foreign.accepts(value):
            raise OptionError(Option(name, value), foreign.instead)
    return {name: value for name, value in options.items() if name not in others}


def refuse_foreign(others: Mapping[str, Foreign]) -> Callable[[Class], Class]:
    """Have a class be made with its own options only: `OptionError` says what to give instead.

    Its signature stays as it is, so that editors and type checkers know the options.
    """

    def decorate(made: Class) -> Class:
        begin = made.__init__  # type: ignore[misc]  # of this class, and of no other
        own = signature(made).parameters
        foreign = {name: each for name, each in others.items() if name not in own}

        @wraps(begin)
        def checked(self: object, *args: Any, **options: Any) -> None:
            options = drop_neutral(options, foreign)
            for name in options:
                if name not in own:
                    hint = suggest(name, own, f"see help({made.__name__})")
                    raise OptionError(f"unknown option '{name}': {hint}")
            begin(self, *args, **options)

        made.__init__ = checked  # type: ignore[misc]
        return made

    return decorate


@dataclass(frozen=True)
class Missing:
    """A member that a class does not have, and others do. instead: what to do, as a sentence.

    Raises what Python raises for one that is missing, so that `hasattr` is right.
    """

    instead: str
    error: type[Exception] = AttributeError

    def __get__(self, instance: object, owner: type) -> NoReturn:
        error = AttributeError if instance is None else self.error
        raise error(f"{owner.__name__} {self.instead}")


def name_missing(members: Mapping[str, Missing]) -> Callable[[Class], Class]:
    """Have a class say what to do in place of members that it does not have.

    They are set so that type checkers do not know them.
    """

    def decorate(made: Class) -> Class:
        for name, missing in members.items():
            setattr(made, name, missing)
        return made

    return decorate


LOADED = "is made of folders or Hub names: call {}(main, draft)"
"""In place of a class method that loads."""

OF_PIPELINES: Mapping[str, Missing] = {
    "__call__": Missing("is not called: call generate(prompt)", TypeError),
    "from_pretrained": Missing(LOADED.format("SpeculativePipeline")),
    "to": Missing("stays on its device: give device when it is made"),
    "get_tokenizer": Missing("has the attribute tokenizer"),
    **dict.fromkeys(
        ("chat", "create_chat_completion", "start_chat"),
        Missing("keeps no conversation: call generate(messages) with all messages"),
    ),
}

OF_SPEECH: Mapping[str, Missing] = {
    **OF_PIPELINES,
    "__call__": Missing("is not called: call transcribe(audio)", TypeError),
    "from_pretrained": Missing(LOADED.format("SpeechPipeline")),
}

OF_TOKENIZERS: Mapping[str, Missing] = {
    "apply_chat_template": Missing(
        "is not asked for the template: give generate the messages, and it applies the template"
    ),
    "batch_decode": Missing("has decode(ids), for one list of ids"),
    **dict.fromkeys(
        ("convert_ids_to_tokens", "tokenize"),
        Missing("has encode(text), and piece(id) for the bytes of a token"),
    ),
    **dict.fromkeys(
        ("convert_tokens_to_ids", "get_vocab"), Missing("has vocab: the id of each token")
    ),
    "from_pretrained": Missing("is the pipeline's: read pipeline.tokenizer"),
}

OF_RESULTS: Mapping[str, Missing] = {
    "__getitem__": Missing("holds one output: read text or token_ids", TypeError),
    "generated_text": Missing("has text: the output without the prompt"),
    "scores": Missing("has logprobs: give logprobs=N"),
    **dict.fromkeys(
        ("choices", "outputs", "texts", "tokens"),
        Missing("holds one output: read text or token_ids"),
    ),
    "perf_metrics": Missing("has stats"),
    "sequences": Missing("has token_ids: the output without the prompt"),
}
