"""The options of a generation, under the names of transformers.GenerationConfig."""

from collections.abc import Callable, Mapping, Sequence
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
"""Longest draft of any schedule; all of it is verified in one pass."""

MAX_LOGPROBS = 100
"""Most likely tokens that can be named at each place."""


@dataclass(frozen=True)
class GenerationOptions:
    """Options of `generate` and `stream`. Checked when made; `OptionError` names what is wrong.

    Numbers and lists may be numpy's; they are kept as Python's. The defaults of sampling are the
    identity, so that decoding is greedy; a pipeline that was made with generation_config="model"
    takes those of the model's generation_config.json instead. Logits processors apply to greedy
    decoding too.

    What an annotation says of an option is all that is said of it anywhere: see `About`.
    """

    max_new_tokens: Annotated[
        int | None,
        About(
            "Generate at most so many tokens.",
            "Fewer where the model's context ends, which alone ends it at None.",
            low=1,
            unit="tokens",
            field=None,
            group="Length and end of the output",
        ),
    ] = 128
    min_new_tokens: Annotated[
        int,
        About(
            "Tokens before which the text cannot end by itself.",
            "No end-of-sequence token comes before.",
            low=0,
            unit="tokens",
            field="min_tokens",
        ),
    ] = 0
    stop_strings: Annotated[
        str | Sequence[str],
        About(
            "Text that ends the output.",
            "The output stops short of it.",
            low=1,
            metavar="S",
            flag="stop",
            field="stop",
        ),
    ] = ()
    eos_token_id: Annotated[
        int | Sequence[int] | None,
        About("Token that ends the text.", low=0, unset="the model's", metavar="ID", field=None),
    ] = None
    ignore_eos: Annotated[bool, About("Go on after an end-of-sequence token.")] = False
    stop_token_ids: Annotated[
        Sequence[int],
        About(
            "Token that ends the text beside the end-of-sequence tokens, whose text is left out.",
            low=0,
            metavar="ID",
        ),
    ] = ()
    include_stop_str_in_output: Annotated[
        bool, About("Leave the stop string or token in the text that it ends.")
    ] = False
    skip_special_tokens: Annotated[bool, About("Leave special tokens out of the text.")] = True
    do_sample: Annotated[
        bool | None,
        About(
            "Draw tokens, or take the most likely ones.",
            "A temperature of 0 takes them too.",
            unset="draw if one of the next five is given",
            field=None,
            group="Sampling",
        ),
    ] = None
    temperature: Annotated[
        float | None, About("Logits are divided by it; 0 is greedy decoding.", low=0.0)
    ] = None
    top_k: Annotated[int | None, About("Keep the N most likely tokens; 0 keeps all.", low=0)] = None
    top_p: Annotated[
        float | None,
        About("Keep the fewest most likely tokens whose mass reaches X.", low=0.0, high=1.0),
    ] = None
    min_p: Annotated[
        float | None,
        About("Drop tokens less likely than this part of the most likely one.", low=0.0, high=1.0),
    ] = None
    typical_p: Annotated[
        float | None,
        About(
            "Keep the tokens of most typical surprise whose mass reaches X.", above=0.0, high=1.0
        ),
    ] = None
    seed: Annotated[
        int | None,
        About(
            "Makes the run repeat.",
            "Decides each token by its place in the sequence and its logits alone, so that the "
            "text is the same whatever is drafted, and whatever runs beside it. Where passes are "
            "not batch-invariant, that takes the same settings and cache_prompt=False too.",
            low=0,
        ),
    ] = None
    choice: Annotated[
        int,
        About(
            "Tells texts of one prompt and one seed apart: 0, 1 and so on draw other tokens.",
            low=0,
            flag=None,
            field=None,
        ),
    ] = 0
    repetition_penalty: Annotated[
        float,
        About(
            "Above 1: tokens in prompt and output get less likely.",
            "Their logits are divided by it.",
            above=0.0,
            group="Logits processors",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float, About("Subtracted from the logits of tokens in the output.", low=-2.0, high=2.0)
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        About(
            "Subtracted once for each time that a token occurs in the output.", low=-2.0, high=2.0
        ),
    ] = 0.0
    logit_bias: Annotated[
        Mapping[int, float] | None,
        About(
            "Added to a token's logit, -inf forbids it.", metavar="ID=BIAS", check=require_biases
        ),
    ] = None
    bad_words_ids: Annotated[
        Sequence[Sequence[int]],
        About(
            "Token sequence that must not be generated.", metavar="ID,ID,...", check=require_words
        ),
    ] = ()
    suppress_tokens: Annotated[
        Sequence[int], About("Tokens that must not be generated.", low=0, metavar="ID,ID,...")
    ] = ()
    no_repeat_ngram_size: Annotated[
        int, About("Length of n-grams that must not repeat; 0 allows all.", low=0)
    ] = 0
    encoder_no_repeat_ngram_size: Annotated[
        int,
        About(
            "Length of n-grams of the prompt that must not occur in the output; 0 allows all.",
            low=0,
        ),
    ] = 0
    forced_bos_token_id: Annotated[
        int | None,
        About(
            "Token that the output of an encoder-decoder model begins with.",
            low=0,
            unset="the model's",
            endpoints=("completions",),
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        About(
            "Language to translate into, as the tokenizer names it, such as fra_Latn.",
            "Its token becomes the forced_bos_token_id.",
            metavar="LANG",
            endpoints=("completions",),
        ),
    ] = None
    src_lang: Annotated[
        str | None,
        About(
            "Language of the text that is translated, named in the same way.",
            unset="the tokenizer's",
            metavar="LANG",
            endpoints=("completions",),
        ),
    ] = None
    logits_processor: Annotated[
        Sequence[Callable[..., Any]],
        About(
            "Functions of your own, from the tokens so far (prompt and output) and one row of "
            "logits [vocab] to a row of logits.",
            "They may not have the same pipeline generate. What they return may depend on these "
            "arguments alone; one that keeps state of one text has a method `follow`, which is "
            "told of the tokens that stand, as they come. transformers' own processors work too.",
            flag=None,
            field=None,
            check=require_functions,
        ),
    ] = ()
    num_assistant_tokens: Annotated[
        int | Literal["auto"],
        About(
            "Draft tokens per round; 0 is plain decoding.",
            '"auto" leaves it to a schedule.',
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
            "How the number of draft tokens changes.",
            '"adaptive" takes the length that yields most tokens per second, and none where '
            "speculation does not pay, by what passes were measured to cost (when sampling with a "
            "seed from logits that are not the same in any pass: on an imagined machine); "
            '"heuristic" adds two after a round in which all draft tokens were accepted, else '
            'takes one off; "constant" keeps the number.',
            unset="constant for N; adaptive for auto",
        ),
    ] = None
    assistant_confidence_threshold: Annotated[
        float,
        About(
            "End a draft after a draft token that the draft model gives less probability.",
            'With a seed, after the noise. "adaptive" also ends it where the next draft token '
            "would not pay.",
            low=0.0,
            high=1.0,
        ),
    ] = 0.0
    assistant_do_sample: Annotated[
        bool,
        About(
            "When sampling: whether the draft model draws too, or takes its most likely tokens.",
            "The output has the same distribution either way.",
        ),
    ] = True
    prompt_lookup_num_tokens: Annotated[
        int | None,
        About("At most so many draft tokens for a match of prompt-lookup.", low=1, unit="tokens"),
    ] = None
    max_matching_ngram_size: Annotated[
        int | None,
        About("Longest n-gram that prompt-lookup looks for.", low=1, unit="tokens", unset="3"),
    ] = None
    reference_texts: Annotated[
        str | Sequence[str],
        About(
            "Text that the output may quote: what follows a match in it becomes draft tokens.",
            "The model does not see it.",
            metavar="FILE",
            field=None,
        ),
    ] = ()
    logprobs: Annotated[
        int | None,
        About(
            "Tell each token's log-probability, and those of the N most likely in its place.",
            low=0,
            high=MAX_LOGPROBS,
            field=None,
            group="What to tell of the output",
        ),
    ] = None
    logprobs_mode: Annotated[
        LogprobsMode,
        About(
            "Log-probabilities of the main model's own rows, or of those after the logits "
            "processors.",
            "Both are before what sampling does to them. Of a prompt they are always raw.",
            field=None,
        ),
    ] = "raw_logprobs"
    prompt_logprobs: Annotated[
        int | None,
        About(
            "Tell those of the prompt's tokens in the same way.",
            "All of it is read then.",
            low=0,
            high=MAX_LOGPROBS,
            field=None,
        ),
    ] = None
    cache_prompt: Annotated[
        bool,
        About(
            "Read only what the KV caches do not hold already of the prompt.",
            "False reads all of it. Where passes are not batch-invariant, a token may else be "
            "another than on empty caches. With False the suffix drafter does not look into "
            "earlier outputs either.",
            field=None,
            group="Prompt",
        ),
    ] = True
    cache_salt: Annotated[
        str | None,
        About(
            "What is cached is shared only with prompts that have the same salt.",
            "So nobody can tell from the time that it takes what others have asked; so are the "
            "earlier outputs that the suffix drafter looks into.",
            flag=None,
        ),
    ] = None
    apply_chat_template: Annotated[
        bool,
        About(
            "Put the prompt into the model's chat template, where it has one.",
            flag="chat-template",
            field=None,
        ),
    ] = True
    chat_template_kwargs: Annotated[
        Mapping[str, Any] | None,
        About(
            'What else the chat template reads, such as {"enable_thinking": false}.',
            metavar="JSON",
            endpoints=("chat", "responses"),
            check=require_template_arguments,
        ),
    ] = None
    tools: Annotated[
        Sequence[Mapping[str, Any] | Callable[..., Any]],
        About(
            "Functions that the model may call, as a list of their JSON schemas.",
            "Or as functions with type hints and a docstring in Google's style.",
            metavar="JSON-FILE",
            field=None,
            check=require_tools,
        ),
    ] = ()
    add_generation_prompt: Annotated[
        bool | None,
        About(
            "End the prompt with the beginning of an answer.",
            unset="yes, unless the final message is continued",
            flag=None,
            endpoints=("chat", "responses"),
        ),
    ] = None
    continue_final_message: Annotated[
        bool,
        About(
            "Leave the final message open, so that the output continues it.",
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

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        if self.do_sample is None:
            return self.temperature != 0 and any(
                getattr(self, name) is not None for name in SAMPLING_OPTIONS
            )
        return self.do_sample

    @property
    def is_repeatable_draw(self) -> bool:
        """Whether tokens are drawn, and the same ones in each run."""
        return self.samples and self.seed is not None

    @property
    def stops(self) -> tuple[str, ...]:
        """stop_strings as a tuple."""
        return as_tuple(self.stop_strings)

    @property
    def eos_token_ids(self) -> frozenset[int] | None:
        """eos_token_id as a set; None where the model's own apply."""
        if self.ignore_eos:
            return frozenset()
        return None if self.eos_token_id is None else frozenset(as_tuple(self.eos_token_id))

    def ending_ids(self, eos_token_ids: frozenset[int]) -> frozenset[int]:
        """All tokens that end the text. eos_token_ids: the model's own."""
        own = self.eos_token_ids
        return (eos_token_ids if own is None else own) | frozenset(as_tuple(self.stop_token_ids))

    @property
    def begins_answer(self) -> bool:
        """Whether a chat template ends the prompt with the beginning of an answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    def chat_options(self) -> list[str]:
        """The names of the given options that only a chat template has a use for."""
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
