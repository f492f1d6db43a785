"""Names of other programs: values that change nothing here, and what to give instead."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def _each(table: Mapping[str, T]) -> dict[str, T]:
    """A table by single names; its keys are names with spaces between."""
    return {name: value for names, value in table.items() for name in names.split()}


NEUTRAL: Mapping[str, tuple[Any, ...] | None] = _each(
    {
        "assistant_early_exit assistant_lookbehind bos_token_id cache_config compile_config "
        "continuous_batching_config disable_compile early_stopping is_assistant length_penalty "
        "low_memory pad_token_id prefill_chunk_size renormalize_logits return_legacy_cache "
        "target_lookbehind tokenizer": None,
        "begin_suppress_tokens constraints diversity_penalty echo epsilon_cutoff eta_cutoff "
        "force_words_ids min_length output_attentions output_hidden_states output_logits "
        "output_scores penalty_alpha remove_invalid_values return_dict_in_generate "
        "return_full_text sequence_bias stream synced_gpus token_healing truncation "
        "trust_remote_code watermarking_config": (0, (), [], {}),
        "best_of encoder_repetition_penalty guidance_scale n num_beam_groups num_beams "
        "num_return_sequences": (1,),
        "cache_implementation": ("dynamic", "static"),
        "device_map": ("auto", "cpu"),
        "use_cache": (True,),
    }
)
"""Values that change no text, by option of transformers, besides None. In their place None: all."""

NO_COUNTERPART = "it has no counterpart here, leave it out"

HINTS: Mapping[str, str] = _each(
    {
        "begin_suppress_tokens constraints custom_generate diversity_penalty dola_layers "
        "encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty "
        "force_words_ids forced_eos_token_id guidance_scale penalty_alpha sequence_bias "
        "token_healing top_h watermarking_config": NO_COUNTERPART,
        "-a alias": "served_model_name",
        "-c ctx_size n_ctx": "max_model_len",
        "--chat -cnv": "run ov-specdec chat",
        "-ctk -ctv ov_config": "properties",
        "-f file": "prompt_file",
        "-fa enable_chunked_prefill enable_prefix_caching": "it is always done, leave it out",
        "-hf -m main_model model model_path": "main",
        "-hfd -md assistant_model draft_model model_draft speculative_config speculative_model": (
            "draft"
        ),
        "-n max_length max_tokens n_predict num_predict": "max_new_tokens",
        "-ngl device_map gpu_layers n_gpu_layers": "device",
        "-ngld": "draft_device",
        "-no-cnv": "give --no-chat-template",
        "-np max_num_seqs parallel": "max_batch_size",
        "-p messages prompt": "give the prompt without a name, as the first argument",
        "-sys system_prompt": "system",
        "-t -tb threads": "num_threads",
        "--stream": "the text comes as it is generated, leave it out",
        "data_parallel_size tensor_parallel_size": "replicas",
        "decoder_start_token_id": "the one in the model's folder is taken, leave it out",
        "disable_log_requests": "log_level",
        "draft_max num_speculative_tokens": "num_assistant_tokens",
        "dtype torch_dtype": "precision",
        "enable_thinking": "chat_template_kwargs",
        "generator": "seed",
        "gpu_memory_utilization": "kv_cache_size",
        "max_num_batched_tokens": "max_prefill_tokens_per_step",
        "max_time": "read stream(prompt), and call its cancel() when it is time",
        "min_length": "min_new_tokens",
        "num_beams": "there is no beam search, leave it out",
        "num_return_sequences": "give generate_batch the prompt so many times, with other seeds",
        "output_scores": "logprobs",
        "prefix_allowed_tokens_fn": "give a logits_processor that forbids the other tokens",
        "quantization": "export the model with --weight-format",
        "repeat_penalty": "repetition_penalty",
        "guided_json response_format": "json_schema",
        "guided_choice": "choices",
        "guided_grammar": "grammar",
        "guided_regex": "regex",
        "structured_outputs": "give json_schema, json_object, regex, choices or grammar",
        "return_dict_in_generate": "a result has text, token_ids, logprobs and stats already",
        "stop": "stop_strings",
        "stopping_criteria": "give stop_strings, or call cancel() of stream(prompt)",
        "stream streamer": "read stream(prompt), which yields chunks of text",
        "system": 'give messages that begin with {"role": "system", "content": ...}',
        "temp": "temperature",
        "use_cache": "there is no generation without a KV cache; cache_prompt=False reuses nothing",
    }
)
"""What to give, by other names: an option, or a sentence. Those with hyphens are for commands."""

CHOOSING = {"num_beams", *(name for name, hint in HINTS.items() if hint == NO_COUNTERPART)}
"""Options of transformers that choose tokens in ways that there are not here."""


def drop_neutral(options: Mapping[str, Any], own: Collection[str] = ()) -> dict[str, Any]:
    """The options without those of other programs that change nothing. own: names of ours."""
    foreign = (NEUTRAL.keys() | HINTS.keys()) - {*own}
    return {k: v for k, v in options.items() if k not in foreign or not is_neutral(k, v)}


def is_neutral(name: str, value: object) -> bool:
    """Whether this value of an option of another program changes no text."""
    values = NEUTRAL.get(name, ())
    return value is None or values is None or value in values
