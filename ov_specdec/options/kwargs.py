"""The options as keyword arguments, so that editors and type checkers know them.

Made from their descriptions by `python -m lab.docs`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class SpeechKwargs(TypedDict, total=False):
    """Those of `GenerationOptions` that mean something for speech too."""

    max_new_tokens: int | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    seed: int | None
    repetition_penalty: float
    logit_bias: Mapping[int, float] | None
    bad_words_ids: Sequence[Sequence[int]]
    suppress_tokens: int | Sequence[int]
    no_repeat_ngram_size: int
    logits_processor: Sequence[Callable[..., Any]]
    num_assistant_tokens: int | Literal["auto"]
    num_assistant_tokens_schedule: Literal["adaptive", "heuristic", "constant"] | None
    assistant_confidence_threshold: float
    assistant_do_sample: bool
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    reference_texts: str | Sequence[str]
    cache_salt: str | None


class GenerationKwargs(SpeechKwargs, total=False):
    """All of them, and what transformers' `generate` takes besides."""

    min_new_tokens: int
    min_tokens: int
    stop_strings: str | Sequence[str]
    eos_token_id: int | Sequence[int] | None
    ignore_eos: bool
    stop_token_ids: int | Sequence[int]
    include_stop_str_in_output: bool
    skip_special_tokens: bool
    do_sample: bool | None
    temperature: float | None
    choice: int
    presence_penalty: float
    frequency_penalty: float
    encoder_no_repeat_ngram_size: int
    forced_bos_token_id: int | None
    tgt_lang: str | None
    src_lang: str | None
    json_schema: Mapping[str, Any] | str | type[Any] | None
    json_object: bool
    json_whitespace: Literal["compact", "spaced", "any"]
    regex: str | None
    choices: str | Sequence[str]
    grammar: str | None
    logprobs: int | None
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"]
    prompt_logprobs: int | None
    cache_prompt: bool
    apply_chat_template: bool
    add_special_tokens: bool | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool
    tools: Sequence[Mapping[str, Any] | Callable[..., Any]]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    reasoning_effort: str | None
    thinking_token_budget: int | None
    generation_config: Any
    input_ids: Any
    attention_mask: Any


class TranscriptionKwargs(SpeechKwargs, total=False):
    """Those of `TranscriptionOptions`."""

    language: str | None
    task: Literal["transcribe", "translate"]
    return_timestamps: bool
    word_timestamps: bool
    initial_prompt: str | None
    temperature: float | Sequence[float]
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_prev_tokens: bool
    silence_threshold: float | None


class SpeechPipelineKwargs(TypedDict, total=False):
    """Those of `SpeechPipelineOptions`, besides the models."""

    drafter: Literal["model", "suffix", "both", "prompt-lookup", "none"] | Any | None
    device: str
    draft_device: str | None
    encoder_device: str | None
    num_threads: int | None
    cache_dir: str | Path | None
    precision: Literal["default", "exact", "f32", "bf16", "f16"]
    properties: Mapping[str, str | int | float | bool] | None
    draft_properties: Mapping[str, str | int | float | bool] | None


class PipelineKwargs(SpeechPipelineKwargs, total=False):
    """Those of `PipelineOptions`, besides the models."""

    pairing: Literal["intersection", "retokenize", "auto"] | None
    draft_vocabulary: int | Literal["full"]
    kv: Literal["auto", "paged", "stateful"]
    max_masked_tokens: int | None
    kv_cache_size: float | None
    max_model_len: int | None
    profile: str | Path
    generation_config: Literal["none", "model"]
    chat_template: str | Path | None
    tool_call_parser: Literal["auto", "none", "hermes", "qwen3_coder", "llama3_json", "mistral"]
    reasoning_parser: Literal["auto", "none", "hermes", "qwen3_coder", "llama3_json", "mistral"]
    static_shapes: Sequence[int] | Literal["auto", "none"]
    max_batch_size: int
    max_prefill_tokens_per_step: int | None
    batch_invariant: bool | Literal["auto"]
