"""The options of a generation, under the names of transformers.GenerationConfig."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from ov_specdec.checks import (
    make_plain,
    require_bool,
    require_choice,
    require_int,
    require_known,
    require_number,
    require_text,
    require_utf8,
    shorten,
)
from ov_specdec.errors import OptionError

Schedule = Literal["adaptive", "heuristic", "constant"]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]

MAX_DRAFT_LENGTH = 256
"""Longest draft of any schedule; all of it is verified in one pass."""

MAX_LOGPROBS = 100
"""Most likely tokens that can be named at each place."""

CHAT_OPTIONS = (
    *("tools", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that mean something only where the prompt is put into a chat template."""

NOT_FOR_TEMPLATES = (
    *("messages", "conversations", "chat_template", "tools", "add_generation_prompt"),
    *("continue_final_message", "return_assistant_tokens_mask"),
)
"""What transformers gives to a chat template by itself, from other options."""

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that mean something only where tokens are drawn."""


@dataclass(frozen=True)
class GenerationOptions:
    """Options of `generate` and `stream`. Checked when made; `OptionError` names what is wrong.

    Numbers and lists may be numpy's; they are kept as Python's.

    Length and end of the output:

    max_new_tokens: most tokens to generate; fewer where the model's context ends, which alone ends
        it at None.
    min_new_tokens: tokens before which no end-of-sequence token may come.
    eos_token_id: ids that end the text; None takes the model's own.
    ignore_eos: go on after an end-of-sequence token.
    stop_strings: texts that end the output; the output stops short of them.

    Sampling. Defaults are the identity, so decoding is greedy; a pipeline that was made with
    generation_config="model" takes those of the model's generation_config.json instead.

    do_sample: draw tokens instead of taking the most likely; None: if one of the next five is set,
        and temperature is not 0.
    temperature: logits are divided by it; 0 is greedy decoding, whatever the next four say.
    top_k: keep the k most likely tokens; 0 keeps all.
    top_p: 0 to 1; keep the fewest most likely tokens whose mass reaches it.
    min_p: 0 to 1; drop tokens less likely than this part of the most likely one.
    typical_p: above 0, up to 1; keep the tokens of most typical surprise whose mass reaches it.
    seed: decides each token by its place in the sequence and its logits alone, so that the text is
        the same whatever is drafted, and whatever runs beside it. Where passes are not
        batch-invariant, that takes the same settings and cache_prompt=False too.
    choice: tells texts of one prompt and one seed apart: 0, 1 and so on draw other tokens.

    Logits processors; they apply to greedy decoding too:

    repetition_penalty: above 0; divides the logits of tokens in prompt and output, 1 changes none.
    presence_penalty, frequency_penalty: -2 to 2; subtracted from the logits of tokens in the
        output once, and once per occurrence, as in the OpenAI API.
    logit_bias: by token id, added to its logit; -inf forbids the token.
    bad_words_ids: sequences of ids that must not be generated.
    suppress_tokens: ids that must not be generated.
    no_repeat_ngram_size: length of n-grams that must not occur twice; 0 allows all.
    encoder_no_repeat_ngram_size: length of n-grams of the prompt that must not occur in the output;
        0 allows all.
    forced_bos_token_id: id that an output begins with whose prompt is a single token, as that of
        the decoder of an encoder-decoder model is; None takes the model's own, where it has one.
    tgt_lang: language of a translation as the tokenizer names it, such as "fra_Latn"; its token
        becomes the forced_bos_token_id.
    src_lang: the same of the text that is translated, where the tokenizer tells the model of it;
        None: the language that the tokenizer was saved with.
    logits_processor: functions of your own, from the tokens so far (prompt and output) and one row
        of logits [vocab] to a row of logits. They may not have the same pipeline generate. What
        they return may depend on these arguments alone; one that keeps state of one text has a
        method `follow`, which is told of the tokens that stand, as they come.

    Speculation:

    num_assistant_tokens: draft tokens per round; 0 is plain decoding; "auto" leaves it to a
        schedule.
    num_assistant_tokens_schedule: "adaptive" takes the length that yields most tokens per second,
        and none where speculation does not pay, by what passes were measured to cost (when
        sampling with a seed from logits that are not the same in any pass: on an imagined machine);
        "heuristic" adds two after a round in which all draft tokens were accepted, else takes one
        off; "constant" keeps the number. None takes "constant" for a number, "adaptive" for "auto".
    assistant_confidence_threshold: 0 to 1; a draft ends after a draft token that the draft model
        gives less probability, with a seed after the noise. "adaptive" also ends it where the next
        draft token would not pay.
    assistant_do_sample: whether a draft model draws its draft tokens where the main model draws its
        tokens, or takes the most likely ones. The output has the same distribution either way.
    prompt_lookup_num_tokens: most draft tokens per match of prompt lookup; None: no limit of its
        own.
    max_matching_ngram_size: longest n-gram that prompt lookup looks for; None takes 3.
    reference_texts: texts that the output may quote, such as the file that it changes: the suffix
        drafter looks for matches in them too. The model does not see them.

    What to tell of the output, as in vLLM:

    logprobs: give the log-probability of each token of the output, and so many of the most likely
        tokens of its place; 0 gives its own alone.
    logprobs_mode: "raw_logprobs" are the main model's own; "processed_logprobs" are those after the
        logits processors, before what sampling does to them. Of a prompt they are always raw.
    prompt_logprobs: the same for each token of the prompt, all of which is read then.

    Prompt. All but the first two as in transformers' `apply_chat_template`:

    cache_prompt: read only what the KV caches do not hold already of the prompt, from generations
        before; False reads all of it. Where passes are not batch-invariant, a token may then be
        another than on empty caches. With False the suffix drafter does not look into earlier
        outputs either.
    cache_salt: what is cached is shared only with prompts that have the same salt, so that nobody
        can tell from the time that it takes what others have asked; so are the earlier outputs that
        the suffix drafter looks into.
    apply_chat_template: put a prompt text into the model's chat template, where it has one.
    tools: functions that the model may call, as JSON schemas, or as functions with type hints and a
        docstring in Google's style.
    chat_template_kwargs: what else the template reads, by name, for example enable_thinking.
    add_generation_prompt: end the prompt with the beginning of an answer; None: yes, unless the
        final message is continued.
    continue_final_message: leave the final message open, so that the output continues it.
    """

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    eos_token_id: int | Sequence[int] | None = None
    ignore_eos: bool = False
    stop_strings: str | Sequence[str] = ()
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    seed: int | None = None
    choice: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    bad_words_ids: Sequence[Sequence[int]] = ()
    suppress_tokens: Sequence[int] = ()
    no_repeat_ngram_size: int = 0
    encoder_no_repeat_ngram_size: int = 0
    forced_bos_token_id: int | None = None
    tgt_lang: str | None = None
    src_lang: str | None = None
    logits_processor: Sequence[Callable[..., Any]] = ()
    num_assistant_tokens: int | Literal["auto"] = "auto"
    num_assistant_tokens_schedule: Schedule | None = None
    assistant_confidence_threshold: float = 0.0
    assistant_do_sample: bool = True
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None
    reference_texts: str | Sequence[str] = ()
    logprobs: int | None = None
    logprobs_mode: LogprobsMode = "raw_logprobs"
    prompt_logprobs: int | None = None
    cache_prompt: bool = True
    cache_salt: str | None = None
    apply_chat_template: bool = True
    tools: Sequence[Mapping[str, Any] | Callable[..., Any]] = ()
    chat_template_kwargs: Mapping[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        make_plain(self)
        self._check_ends()
        self._check_sampling()
        self._check_processors()
        self._check_speculation()
        self._check_chat()

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "GenerationOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        require_known(options, [field.name for field in fields(cls)], "option")
        return cls(**options)

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn."""
        if self.do_sample is None:
            return self.temperature != 0 and bool(self._given_sampling_options())
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
            "suppress_tokens": as_tuple(self.suppress_tokens),
        }

    def _given_sampling_options(self) -> list[str]:
        return [name for name in SAMPLING_OPTIONS if getattr(self, name) is not None]

    def _check_ends(self) -> None:
        if self.max_new_tokens is not None:
            require_int("max_new_tokens", self.max_new_tokens, low=1)
        require_int("min_new_tokens", self.min_new_tokens, low=0, high=self.max_new_tokens)
        require_bool("ignore_eos", self.ignore_eos)
        for token in () if self.eos_token_id is None else as_tuple(self.eos_token_id):
            require_int("eos_token_id", token, low=0)
        if self.ignore_eos and self.eos_token_id is not None:
            raise OptionError(
                f"eos_token_id={self.eos_token_id!r} has no effect with ignore_eos=True: leave out "
                "one of the two"
            )
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                raise OptionError(f"stop_strings={self.stop_strings!r} must be texts, none empty")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), low=0, high=MAX_LOGPROBS)
        require_choice("logprobs_mode", self.logprobs_mode, get_args(LogprobsMode))
        if self.logprobs is None and self.logprobs_mode != "raw_logprobs":
            raise OptionError(
                f"logprobs_mode={self.logprobs_mode!r} has no effect without logprobs: give both"
            )

    def _check_sampling(self) -> None:
        if self.do_sample is not None:
            require_bool("do_sample", self.do_sample)
        if self.do_sample and self.temperature == 0:
            raise OptionError(
                "temperature=0 is greedy decoding, so it contradicts do_sample=True: leave out one "
                "of the two"
            )
        if self.do_sample is False and (given := self._given_sampling_options()):
            raise OptionError(
                f"{given[0]}={getattr(self, given[0])!r} has no effect with do_sample=False: "
                "leave out one of the two"
            )
        ranges: dict[str, dict[str, float]] = {
            "temperature": {"low": 0.0},
            "top_p": {"low": 0.0, "high": 1.0},
            "min_p": {"low": 0.0, "high": 1.0},
            "typical_p": {"above": 0.0, "high": 1.0},
        }
        for name, allowed in ranges.items():
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), **allowed)
        for name in ("top_k", "seed"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), low=0)
        require_int("choice", self.choice, low=0)
        if self.choice and self.seed is None:
            raise OptionError(f"choice={self.choice} has no effect without seed: give both")

    def _check_processors(self) -> None:
        require_number("repetition_penalty", self.repetition_penalty, above=0.0)
        require_number("presence_penalty", self.presence_penalty, low=-2.0, high=2.0)
        require_number("frequency_penalty", self.frequency_penalty, low=-2.0, high=2.0)
        for name in ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"):
            require_int(name, getattr(self, name), low=0)
        if self.forced_bos_token_id is not None:
            require_int("forced_bos_token_id", self.forced_bos_token_id, low=0)
        if self.src_lang is not None:
            require_text("src_lang", self.src_lang)
        if self.tgt_lang is not None:
            require_text("tgt_lang", self.tgt_lang)
            if self.forced_bos_token_id is not None:
                raise OptionError(
                    f"tgt_lang={self.tgt_lang!r} contradicts forced_bos_token_id="
                    f"{self.forced_bos_token_id}: leave out one of the two"
                )
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise OptionError(f"logit_bias={self.logit_bias!r} must map token ids to biases")
        for token, bias in (self.logit_bias or {}).items():
            require_int("logit_bias", token, low=0)
            if bias != float("-inf"):
                require_number(f"logit_bias[{token}]", bias)
        for token in as_tuple(self.suppress_tokens):
            require_int("suppress_tokens", token, low=0)
        for word in as_tuple(self.bad_words_ids):
            if not isinstance(word, Sequence) or isinstance(word, str) or not word:
                raise OptionError(f"bad_words_ids={word!r} must be sequences of ids, none empty")
            for token in word:
                require_int("bad_words_ids", token, low=0)
        if not isinstance(self.logits_processor, Sequence):
            raise OptionError(
                f"logits_processor={self.logits_processor!r} must be a list of functions"
            )
        for function in self.logits_processor:
            if not callable(function):
                raise OptionError(f"logits_processor={function!r} must be functions")

    def _check_speculation(self) -> None:
        require_bool("assistant_do_sample", self.assistant_do_sample)
        number, schedule = self.num_assistant_tokens, self.num_assistant_tokens_schedule
        if number != "auto":
            require_int("num_assistant_tokens", number, low=0, high=MAX_DRAFT_LENGTH)
        if schedule is not None:
            require_choice("num_assistant_tokens_schedule", schedule, get_args(Schedule))
        if schedule == "constant" and number == "auto":
            raise OptionError(
                "num_assistant_tokens_schedule='constant' needs a number in num_assistant_tokens"
            )
        if schedule == "adaptive" and number != "auto":
            raise OptionError(
                f"num_assistant_tokens={number} has no effect with "
                "num_assistant_tokens_schedule='adaptive': leave out one of the two"
            )
        threshold = self.assistant_confidence_threshold
        require_number("assistant_confidence_threshold", threshold, low=0.0, high=1.0)
        for name in ("prompt_lookup_num_tokens", "max_matching_ngram_size"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), low=1)
        for text in as_tuple(self.reference_texts):
            require_text("reference_texts", text)
            require_utf8("reference_texts", text)

    def _check_chat(self) -> None:
        require_bool("cache_prompt", self.cache_prompt)
        if self.cache_salt is not None:
            require_text("cache_salt", self.cache_salt)
        if self.cache_salt is not None and not self.cache_prompt:
            raise OptionError(
                f"cache_salt={self.cache_salt!r} has no effect with cache_prompt=False: leave out "
                "one of the two"
            )
        require_bool("apply_chat_template", self.apply_chat_template)
        require_bool("continue_final_message", self.continue_final_message)
        if self.add_generation_prompt is not None:
            require_bool("add_generation_prompt", self.add_generation_prompt)
        if self.add_generation_prompt and self.continue_final_message:
            raise OptionError(
                "add_generation_prompt=True begins an answer, so it contradicts "
                "continue_final_message=True: leave out one of the two"
            )
        if not isinstance(self.tools, Sequence) or isinstance(self.tools, str):
            raise OptionError(f"tools={shorten(self.tools)} must be a list")
        for index, tool in enumerate(self.tools):
            if not isinstance(tool, Mapping) and not callable(tool):
                raise OptionError(
                    f"tools[{index}]={shorten(tool)} must be a JSON schema or a function"
                )
        kwargs = {} if self.chat_template_kwargs is None else self.chat_template_kwargs
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise OptionError(f"chat_template_kwargs={shorten(kwargs)} must map names to values")
        if taken := [name for name in kwargs if name in NOT_FOR_TEMPLATES]:
            raise OptionError(
                f"chat_template_kwargs holds '{taken[0]}', which is given in another way: leave it "
                "out there"
            )
        if not self.apply_chat_template and (given := self.chat_options()):
            raise OptionError(
                f"{given[0]} has no effect with apply_chat_template=False: leave out one of the two"
            )


class GenerationKwargs(TypedDict, total=False):
    """The same options as keyword arguments, so that editors and type checkers know them."""

    max_new_tokens: int | None
    min_new_tokens: int
    eos_token_id: int | Sequence[int] | None
    ignore_eos: bool
    stop_strings: str | Sequence[str]
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    seed: int | None
    choice: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    bad_words_ids: Sequence[Sequence[int]]
    suppress_tokens: Sequence[int]
    no_repeat_ngram_size: int
    encoder_no_repeat_ngram_size: int
    forced_bos_token_id: int | None
    tgt_lang: str | None
    src_lang: str | None
    logits_processor: Sequence[Callable[..., Any]]
    num_assistant_tokens: int | Literal["auto"]
    num_assistant_tokens_schedule: Schedule | None
    assistant_confidence_threshold: float
    assistant_do_sample: bool
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    reference_texts: str | Sequence[str]
    logprobs: int | None
    logprobs_mode: LogprobsMode
    prompt_logprobs: int | None
    cache_prompt: bool
    cache_salt: str | None
    apply_chat_template: bool
    tools: Sequence[Mapping[str, Any] | Callable[..., Any]]
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(value) if several else (value,)
