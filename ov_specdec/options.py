"""The options of a generation, under the names of transformers.GenerationConfig."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ov_specdec.checks import make_plain, require_int, require_known
from ov_specdec.conflicts import CHAT_OPTIONS, SAMPLING_OPTIONS, require_no_conflict
from ov_specdec.description import About, as_tuple, check_described, describe
from ov_specdec.nested_values import (
    require_biases,
    require_functions,
    require_template_arguments,
    require_tools,
    require_words,
)

Schedule = Literal["adaptive", "heuristic", "constant"]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]

MAX_DRAFT_LENGTH = 256
"""Maximum draft length that may be given; one pass verifies the whole draft."""

MAX_REQUESTED_LENGTH = 32
"""Maximum draft length in a request: others wait for its draft passes. "auto" plans up to 15."""

MAX_LOGPROBS = 100
"""Maximum number of top log-probabilities at each position."""

MAX_NGRAM_SIZE = 32
"""Maximum length of a match of prompt-lookup, as of the suffix drafter: longer ones say no more."""


@dataclass(frozen=True)
class GenerationOptions:
    """Options of `generate` and `stream`, validated on construction; raises `OptionError`.

    Numbers and lists may be numpy's; they become Python's. By default decoding is greedy; a
    pipeline with generation_config="model" takes the sampling options of the model's
    generation_config.json instead. Logits processors apply to greedy decoding too.

    Annotations hold the description of each option: see `About`.
    """

    max_new_tokens: Annotated[
        int | None,
        About(
            "Generate at most N tokens.",
            "The model's context is a limit too, and the only one for None.",
            low=1,
            unit="tokens",
            field=None,
            group="Length and end of the output",
        ),
    ] = 128
    min_new_tokens: Annotated[
        int,
        About(
            "Forbid end-of-sequence tokens before N tokens.",
            low=0,
            unit="tokens",
            field="min_tokens",
        ),
    ] = 0
    stop_strings: Annotated[
        str | Sequence[str],
        About(
            "End the output before this text.", low=1, metavar="STRING", flag="stop", field="stop"
        ),
    ] = ()
    eos_token_id: Annotated[
        int | Sequence[int] | None,
        About("End the text at this token.", low=0, unset="the model's", metavar="ID", field=None),
    ] = None
    ignore_eos: Annotated[bool, About("Continue after an end-of-sequence token.")] = False
    stop_token_ids: Annotated[
        Sequence[int],
        About("End the text at this token too, and leave its text out.", low=0, metavar="ID"),
    ] = ()
    include_stop_str_in_output: Annotated[
        bool, About("Keep the stop string or token at the end of the text.")
    ] = False
    skip_special_tokens: Annotated[bool, About("Leave special tokens out of the text.")] = True
    do_sample: Annotated[
        bool | None,
        About(
            "Sample tokens instead of greedy decoding.",
            "A temperature of 0 is greedy decoding too.",
            unset="sample if one of the next five is given",
            field=None,
            group="Sampling",
        ),
    ] = None
    temperature: Annotated[
        float | None, About("Divide logits by X; 0 is greedy decoding.", low=0.0)
    ] = None
    top_k: Annotated[
        int | None, About("Keep the N most likely tokens; 0 or -1 keeps all.", low=-1)
    ] = None
    top_p: Annotated[
        float | None,
        About("Keep the fewest most likely tokens whose mass reaches X.", low=0.0, high=1.0),
    ] = None
    min_p: Annotated[
        float | None,
        About("Drop tokens less likely than X times the most likely one.", low=0.0, high=1.0),
    ] = None
    typical_p: Annotated[
        float | None,
        About(
            "Keep the tokens whose surprise is closest to the entropy until their mass reaches X.",
            above=0.0,
            high=1.0,
        ),
    ] = None
    seed: Annotated[
        int | None,
        About(
            "Make sampling repeatable.",
            "Each token then depends on its position and logits alone, so the text is the same "
            "with any drafter and concurrency. If passes are not batch-invariant, this needs the "
            "same settings and cache_prompt=False too.",
            low=0,
        ),
    ] = None
    choice: Annotated[
        int,
        About(
            "Select one of several texts of the same prompt and seed: 0, 1 and so on.",
            low=0,
            flag=None,
            field=None,
        ),
    ] = 0
    repetition_penalty: Annotated[
        float,
        About(
            "Divide positive logits of tokens in prompt and output by X; multiply negative ones.",
            "Above 1, these tokens become less likely.",
            above=0.0,
            group="Logits processors",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float, About("Subtract X from the logits of tokens in the output.", low=-2.0, high=2.0)
    ] = 0.0
    frequency_penalty: Annotated[
        float, About("Subtract X for each occurrence of a token in the output.", low=-2.0, high=2.0)
    ] = 0.0
    logit_bias: Annotated[
        Mapping[int, float] | None,
        About(
            "Add a bias to a token's logit; -inf forbids it.",
            metavar="ID=BIAS",
            check=require_biases,
        ),
    ] = None
    bad_words_ids: Annotated[
        Sequence[Sequence[int]],
        About("Forbid a token sequence.", metavar="ID,ID,...", check=require_words),
    ] = ()
    suppress_tokens: Annotated[
        Sequence[int], About("Forbid tokens.", low=0, metavar="ID,ID,...")
    ] = ()
    no_repeat_ngram_size: Annotated[
        int, About("Forbid repeated n-grams of this length; 0 allows all.", low=0)
    ] = 0
    encoder_no_repeat_ngram_size: Annotated[
        int,
        About("Forbid n-grams of the prompt of this length in the output; 0 allows all.", low=0),
    ] = 0
    forced_bos_token_id: Annotated[
        int | None,
        About(
            "Force the first output token of an encoder-decoder model.",
            low=0,
            unset="the model's",
            endpoints=("completions",),
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        About(
            "Translate to this language, named as in the tokenizer, such as fra_Latn.",
            "Its token becomes forced_bos_token_id.",
            metavar="LANG",
            endpoints=("completions",),
        ),
    ] = None
    src_lang: Annotated[
        str | None,
        About(
            "Language of the source text, named as in the tokenizer.",
            unset="the tokenizer's",
            metavar="LANG",
            endpoints=("completions",),
        ),
    ] = None
    logits_processor: Annotated[
        Sequence[Callable[..., Any]],
        About(
            "Apply your own functions of the tokens so far (prompt and output) and a row of logits "
            "[vocab], which return a row of logits.",
            "Results may depend on these arguments alone. A function with state has a method "
            "`follow`, which gets accepted tokens in order. Functions cannot call the same "
            "pipeline. Processors of transformers work too, with torch installed.",
            flag=None,
            field=None,
            check=require_functions,
        ),
    ] = ()
    num_assistant_tokens: Annotated[
        int | Literal["auto"],
        About(
            "Draft N tokens in each round; 0 is plain decoding, auto leaves N to the schedule.",
            f"Requests may ask for up to {MAX_REQUESTED_LENGTH}.",
            low=0,
            high=MAX_DRAFT_LENGTH,
            unit="tokens",
            metavar="auto|N",
            group="Speculation",
        ),
    ] = "auto"
    num_assistant_tokens_schedule: Annotated[
        Schedule | None,
        About(
            "Schedule of the draft length.",
            '"adaptive" maximizes tokens per second by the measured cost of passes, and drafts '
            "nothing if speculation does not pay. (Seeded sampling without batch invariance uses "
            'nominal costs instead.) "heuristic" adds two after a fully accepted draft, up to '
            f'{MAX_REQUESTED_LENGTH}, and otherwise subtracts one; "constant" keeps the length.',
            unset="constant for N; adaptive for auto",
        ),
    ] = None
    assistant_confidence_threshold: Annotated[
        float,
        About(
            "End a draft after a draft token with a probability below X.",
            'With a seed, the confidence after the noise counts. "adaptive" also ends a draft when '
            "the next draft token would not pay.",
            low=0.0,
            high=1.0,
        ),
    ] = 0.0
    assistant_do_sample: Annotated[
        bool,
        About(
            "When sampling, sample draft tokens too, instead of taking the most likely ones.",
            "The output has the same distribution either way.",
        ),
    ] = True
    prompt_lookup_num_tokens: Annotated[
        int | None,
        About("Draft at most N tokens for a match of prompt-lookup.", low=1, unit="tokens"),
    ] = None
    max_matching_ngram_size: Annotated[
        int | None,
        About(
            "Match n-grams of up to N tokens in prompt-lookup.",
            low=1,
            high=MAX_NGRAM_SIZE,
            unit="tokens",
            unset="3",
        ),
    ] = None
    reference_texts: Annotated[
        str | Sequence[str],
        About(
            "Draft from matches in this text, which the output may quote.",
            "It is not part of the prompt.",
            metavar="TEXT-FILE",
            field=None,
        ),
    ] = ()
    logprobs: Annotated[
        int | None,
        About(
            "Return log-probabilities of each token and of the N most likely ones at its position.",
            low=0,
            high=MAX_LOGPROBS,
            field=None,
            group="Log-probabilities",
        ),
    ] = None
    logprobs_mode: Annotated[
        LogprobsMode,
        About(
            "Compute log-probabilities from raw logits, or from logits after the processors.",
            "Both are before temperature and other sampling options. Those of a prompt are raw.",
            field=None,
        ),
    ] = "raw_logprobs"
    prompt_logprobs: Annotated[
        int | None,
        About(
            "Return log-probabilities of the prompt in the same way.",
            "The whole prompt is then prefilled.",
            low=0,
            high=MAX_LOGPROBS,
            field=None,
        ),
    ] = None
    cache_prompt: Annotated[
        bool,
        About(
            "Reuse the cached prefix of the prompt, and keep it for later prompts.",
            "False prefills the whole prompt, and keeps the suffix drafter from earlier outputs. "
            "If passes are not batch-invariant, only False gives the text of empty caches.",
            field=None,
            group="Prompt",
        ),
    ] = True
    cache_salt: Annotated[
        str | None,
        About(
            "Share cached prefixes and earlier outputs only with prompts of the same salt.",
            "Timing then reveals nothing of the prompts of others.",
            flag=None,
        ),
    ] = None
    apply_chat_template: Annotated[
        bool,
        About(
            "Render the prompt with the model's chat template, if it has one.",
            flag="chat-template",
            field=None,
        ),
    ] = True
    chat_template_kwargs: Annotated[
        Mapping[str, Any] | None,
        About(
            'Pass arguments to the chat template, such as {"enable_thinking": false}.',
            metavar="JSON",
            endpoints=("chat", "responses"),
            check=require_template_arguments,
        ),
    ] = None
    tools: Annotated[
        Sequence[Mapping[str, Any] | Callable[..., Any]],
        About(
            "List the functions that the model may call, as JSON schemas.",
            "Or as functions with type hints and a docstring in Google's style.",
            metavar="JSON-FILE",
            field=None,
            check=require_tools,
        ),
    ] = ()
    add_generation_prompt: Annotated[
        bool | None,
        About(
            "End the prompt with the header of an answer.",
            unset="yes, unless the final message is continued",
            flag=None,
            endpoints=("chat", "responses"),
        ),
    ] = None
    continue_final_message: Annotated[
        bool,
        About(
            "Continue the final message instead of starting an answer.",
            flag=None,
            endpoints=("chat", "responses"),
        ),
    ] = False

    def __post_init__(self) -> None:
        make_plain(self)
        check_described(self)
        require_int("min_new_tokens", self.min_new_tokens, low=0, high=self.max_new_tokens)
        require_no_conflict(self)

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "GenerationOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        described = describe(cls)
        elsewhere = {each.field: name for name, each in described.items() if each.field}
        require_known(options, described, "option", elsewhere)
        return cls(**options)

    def copy_with(self, **valid: Any) -> "GenerationOptions":
        """A copy with other values, which must be valid. Nothing is checked; lists are shared."""
        other = copy(self)
        for name, value in valid.items():
            object.__setattr__(other, name, value)
        return other

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        if self.do_sample is None:
            return self.temperature != 0 and any(
                getattr(self, name) is not None for name in SAMPLING_OPTIONS
            )
        return self.do_sample

    @property
    def is_repeatable_draw(self) -> bool:
        """Whether tokens are sampled with a seed."""
        return self.samples and self.seed is not None

    @property
    def stops(self) -> tuple[str, ...]:
        """stop_strings as a tuple."""
        return as_tuple(self.stop_strings)

    @property
    def eos_token_ids(self) -> frozenset[int] | None:
        """eos_token_id as a set; None if the model's own apply."""
        if self.ignore_eos:
            return frozenset()
        return None if self.eos_token_id is None else frozenset(as_tuple(self.eos_token_id))

    def ending_ids(self, eos_token_ids: frozenset[int]) -> frozenset[int]:
        """All tokens that end the text. eos_token_ids: the model's own."""
        own = self.eos_token_ids
        return (eos_token_ids if own is None else own) | frozenset(as_tuple(self.stop_token_ids))

    @property
    def begins_answer(self) -> bool:
        """Whether a chat template ends the prompt with the header of an answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    def chat_options(self) -> list[str]:
        """The names of the given options that only affect a chat template."""
        return [name for name in CHAT_OPTIONS if getattr(self, name) not in (None, False, (), [])]

    def token_ids(self) -> dict[str, tuple[int, ...]]:
        """The token ids that options name, by option."""
        forced = self.forced_bos_token_id
        return {
            "eos_token_id": () if self.eos_token_id is None else as_tuple(self.eos_token_id),
            "forced_bos_token_id": () if forced is None else (forced,),
            "logit_bias": tuple(self.logit_bias or ()),
            "bad_words_ids": tuple(token for word in self.bad_words_ids for token in word),
            "stop_token_ids": as_tuple(self.stop_token_ids),
            "suppress_tokens": as_tuple(self.suppress_tokens),
        }
