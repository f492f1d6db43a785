"""The options of a generation, under the names of transformers.GenerationConfig."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ov_specdec.checks import make_plain, require_int, require_known, require_number
from ov_specdec.description import About, as_tuple, check_described, describe
from ov_specdec.errors import Option, OptionError, shorten

Schedule = Literal["adaptive", "heuristic", "constant"]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]

MAX_DRAFT_LENGTH = 256
"""Maximum draft length of any schedule; one pass verifies the whole draft."""

MAX_LOGPROBS = 100
"""Maximum number of top log-probabilities at each position."""

CHAT_OPTIONS = (
    *("tools", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that only affect prompts in a chat template."""

NOT_FOR_TEMPLATES = (
    *("messages", "conversations", "chat_template", "tools", "add_generation_prompt"),
    *("continue_final_message", "return_assistant_tokens_mask"),
)
"""Arguments of a chat template that transformers sets from other options."""

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that only affect sampling."""

GROUPS = {
    "Length and end of the output": "max_new_tokens",
    "Sampling": "do_sample",
    "Logits processors": "repetition_penalty",
    "Speculation": "num_assistant_tokens",
    "Log-probabilities": "logprobs",
    "Prompt": "cache_prompt",
}
"""The first option of each group, by the group's title."""


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
            speech=True,
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
            "End the output before this text.",
            low=1,
            metavar="S",
            flag="stop",
            field="stop",
        ),
    ] = ()
    eos_token_id: Annotated[
        int | Sequence[int] | None,
        About(
            "End the text at this token.",
            low=0,
            unset="the model's",
            metavar="ID",
            field=None,
        ),
    ] = None
    ignore_eos: Annotated[bool, About("Continue after an end-of-sequence token.")] = False
    stop_token_ids: Annotated[
        Sequence[int],
        About(
            "End the text at this token too, and leave its text out.",
            low=0,
            metavar="ID",
        ),
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
        ),
    ] = None
    temperature: Annotated[
        float | None, About("Divide logits by X; 0 is greedy decoding.", low=0.0)
    ] = None
    top_k: Annotated[
        int | None, About("Keep the N most likely tokens; 0 keeps all.", low=0, speech=True)
    ] = None
    top_p: Annotated[
        float | None,
        About(
            "Keep the fewest most likely tokens whose mass reaches X.",
            low=0.0,
            high=1.0,
            speech=True,
        ),
    ] = None
    min_p: Annotated[
        float | None,
        About(
            "Drop tokens less likely than X times the most likely one.",
            low=0.0,
            high=1.0,
            speech=True,
        ),
    ] = None
    typical_p: Annotated[
        float | None,
        About(
            "Keep the tokens whose surprise is closest to the entropy until their mass reaches X.",
            above=0.0,
            high=1.0,
            speech=True,
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
            speech=True,
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
            speech=True,
        ),
    ] = 1.0
    presence_penalty: Annotated[
        float,
        About("Subtract X from the logits of tokens in the output.", low=-2.0, high=2.0),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        About("Subtract X for each occurrence of a token in the output.", low=-2.0, high=2.0),
    ] = 0.0
    logit_bias: Annotated[
        Mapping[int, float] | None,
        About(
            "Add a bias to a token's logit; -inf forbids it.",
            metavar="ID=BIAS",
            speech=True,
        ),
    ] = None
    bad_words_ids: Annotated[
        Sequence[Sequence[int]],
        About(
            "Forbid a token sequence.",
            metavar="ID,ID,...",
            speech=True,
        ),
    ] = ()
    suppress_tokens: Annotated[
        Sequence[int],
        About(
            "Forbid tokens.",
            low=0,
            metavar="ID,ID,...",
            speech=True,
        ),
    ] = ()
    no_repeat_ngram_size: Annotated[
        int,
        About("Forbid repeated n-grams of this length; 0 allows all.", low=0, speech=True),
    ] = 0
    encoder_no_repeat_ngram_size: Annotated[
        int,
        About(
            "Forbid n-grams of the prompt of this length in the output; 0 allows all.",
            low=0,
        ),
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
            "pipeline. Processors of transformers work too.",
            flag=None,
            field=None,
            speech=True,
        ),
    ] = ()
    num_assistant_tokens: Annotated[
        int | Literal["auto"],
        About(
            "Draft N tokens in each round; 0 is plain decoding, auto leaves N to the schedule.",
            low=0,
            high=MAX_DRAFT_LENGTH,
            unit="tokens",
            metavar="auto|N",
            speech=True,
        ),
    ] = "auto"
    num_assistant_tokens_schedule: Annotated[
        Schedule | None,
        About(
            "Schedule of the draft length.",
            '"adaptive" maximizes tokens per second by the measured cost of passes, and drafts '
            "nothing if speculation does not pay. (Seeded sampling without batch invariance uses "
            'nominal costs instead.) "heuristic" adds two after a fully accepted draft, and '
            'otherwise subtracts one; "constant" keeps the length.',
            unset="constant for N; adaptive for auto",
            speech=True,
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
            speech=True,
        ),
    ] = 0.0
    assistant_do_sample: Annotated[
        bool,
        About(
            "When sampling, sample draft tokens too, instead of taking the most likely ones.",
            "The output has the same distribution either way.",
            speech=True,
        ),
    ] = True
    prompt_lookup_num_tokens: Annotated[
        int | None,
        About(
            "Draft at most N tokens for a match of prompt-lookup.",
            low=1,
            unit="tokens",
            speech=True,
        ),
    ] = None
    max_matching_ngram_size: Annotated[
        int | None,
        About(
            "Match n-grams of up to N tokens in prompt-lookup.",
            low=1,
            unit="tokens",
            unset="3",
            speech=True,
        ),
    ] = None
    reference_texts: Annotated[
        str | Sequence[str],
        About(
            "Draft from matches in this text, which the output may quote.",
            "It is not part of the prompt.",
            metavar="FILE",
            field=None,
            speech=True,
        ),
    ] = ()
    logprobs: Annotated[
        int | None,
        About(
            "Return log-probabilities of each token and of the N most likely ones at its position.",
            low=0,
            high=MAX_LOGPROBS,
            field=None,
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
        ),
    ] = True
    cache_salt: Annotated[
        str | None,
        About(
            "Share cached prefixes and earlier outputs only with prompts of the same salt.",
            "Timing then reveals nothing of the prompts of others.",
            flag=None,
            speech=True,
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
        ),
    ] = None
    tools: Annotated[
        Sequence[Mapping[str, Any] | Callable[..., Any]],
        About(
            "List the functions that the model may call, as JSON schemas.",
            "Or as functions with type hints and a docstring in Google's style.",
            metavar="JSON-FILE",
            field=None,
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
        self._check_ends()
        self._check_sampling()
        self._check_processors()
        self._check_speculation()
        self._check_chat()

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "GenerationOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        described = describe(cls)
        elsewhere = {each.field: name for name, each in described.items() if each.field}
        require_known(options, described, "option", elsewhere)
        return cls(**options)

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        if self.do_sample is None:
            return self.temperature != 0 and bool(self._given_sampling_options())
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

    def _given_sampling_options(self) -> list[str]:
        return [name for name in SAMPLING_OPTIONS if getattr(self, name) is not None]

    def _named(self, name: str) -> Option:
        return Option(name, getattr(self, name))

    def _refuse(
        self, name: str, reason: str, other: str, remedy: str = "leave out one of the two"
    ) -> None:
        """Raise an error for two contradictory options."""
        raise OptionError(self._named(name), f" {reason} ", self._named(other), f": {remedy}")

    def _check_ends(self) -> None:
        require_int("min_new_tokens", self.min_new_tokens, low=0, high=self.max_new_tokens)
        if self.ignore_eos and self.eos_token_id is not None:
            self._refuse("eos_token_id", "has no effect with", "ignore_eos")
        if self.logprobs is None and self.logprobs_mode != "raw_logprobs":
            raise OptionError(
                self._named("logprobs_mode"),
                " has no effect without ",
                Option("logprobs"),
                ": give both",
            )

    def _check_sampling(self) -> None:
        if self.do_sample and self.temperature == 0:
            self._refuse("temperature", "is greedy decoding, so it contradicts", "do_sample")
        if self.do_sample is False and (given := self._given_sampling_options()):
            self._refuse(given[0], "has no effect with", "do_sample")
        if self.choice and self.seed is None:
            raise OptionError(
                self._named("choice"), " has no effect without ", Option("seed"), ": give both"
            )

    def _check_processors(self) -> None:
        if self.tgt_lang is not None and self.forced_bos_token_id is not None:
            self._refuse("tgt_lang", "contradicts", "forced_bos_token_id")
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise OptionError(self._named("logit_bias"), " must map token ids to biases")
        for token, bias in (self.logit_bias or {}).items():
            require_int("logit_bias", token, low=0)
            if bias != float("-inf"):
                require_number("logit_bias", bias)
        for word in as_tuple(self.bad_words_ids):
            if not isinstance(word, Sequence) or isinstance(word, str) or not word:
                raise OptionError(
                    Option("bad_words_ids", word), " must be sequences of ids, none empty"
                )
            for token in word:
                require_int("bad_words_ids", token, low=0)
        functions = self.logits_processor
        if not isinstance(functions, Sequence) or not all(map(callable, functions)):
            raise OptionError(self._named("logits_processor"), " must be a list of functions")

    def _check_speculation(self) -> None:
        number, schedule = self.num_assistant_tokens, self.num_assistant_tokens_schedule
        if schedule == "constant" and number == "auto":
            raise OptionError(
                self._named("num_assistant_tokens_schedule"),
                " needs a number in ",
                Option("num_assistant_tokens"),
            )
        if schedule == "adaptive" and number != "auto":
            self._refuse(
                "num_assistant_tokens", "has no effect with", "num_assistant_tokens_schedule"
            )

    def _check_chat(self) -> None:
        if self.cache_salt is not None and not self.cache_prompt:
            self._refuse("cache_salt", "has no effect with", "cache_prompt")
        if self.add_generation_prompt and self.continue_final_message:
            self._refuse(
                "add_generation_prompt",
                "begins an answer, so it contradicts",
                "continue_final_message",
            )
        if not isinstance(self.tools, Sequence) or isinstance(self.tools, str):
            raise OptionError(self._named("tools"), " must be a list")
        for index, tool in enumerate(self.tools):
            if not isinstance(tool, Mapping) and not callable(tool):
                raise OptionError(
                    Option("tools"),
                    f"[{index}]={shorten(tool)} must be a JSON schema or a function",
                )
        kwargs = {} if self.chat_template_kwargs is None else self.chat_template_kwargs
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise OptionError(self._named("chat_template_kwargs"), " must map names to values")
        if taken := [name for name in kwargs if name in NOT_FOR_TEMPLATES]:
            raise OptionError(
                Option("chat_template_kwargs"),
                f" contains '{taken[0]}', which another option sets: leave it out there",
            )
        if not self.apply_chat_template and (given := self.chat_options()):
            raise OptionError(
                Option(given[0]),
                " has no effect with ",
                self._named("apply_chat_template"),
                ": leave out one of the two",
            )


def by_group(options: type = GenerationOptions) -> dict[str, list[str]]:
    """The names of all options by group."""
    groups: dict[str, list[str]] = {}
    begins = {first: group for group, first in GROUPS.items()}
    for name in describe(options):
        if name in begins:
            present = groups.setdefault(begins[name], [])
        present.append(name)
    return groups
