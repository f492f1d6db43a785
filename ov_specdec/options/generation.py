"""The options of a generation, under the names of transformers.GenerationConfig."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from ov_specdec.options.conflicts import SAMPLING_OPTIONS, check_template, require_no_conflict
from ov_specdec.options.foreign_names import HINTS
from ov_specdec.options.kwargs import PipelineKwargs
from ov_specdec.options.model import Options, Several, Text, TokenId, option
from ov_specdec.options.structured import AnyTools, check_schema, read_choice, read_tools

Schedule = Literal["adaptive", "heuristic", "constant"]

MAX_DRAFT_LENGTH = 256
"""Maximum draft length that may be given; one pass verifies the whole draft."""

MAX_REQUESTED_LENGTH = 32
"""Maximum draft length in a request: others wait for its draft passes. "auto" plans up to 15."""

PLAIN: Mapping[str, Any] = {"num_assistant_tokens": 0, "num_assistant_tokens_schedule": None}
"""The options of plain decoding."""


def _check_bias(bias: float) -> float:
    if bias != float("-inf") and not -1e30 <= bias <= 1e30:
        raise ValueError
    return bias


Bias = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_check_bias)]
TemplateArguments = Annotated[Mapping[str, Any], AfterValidator(check_template)]
Schema = Annotated[Mapping[str, Any] | Text | type[Any], AfterValidator(check_schema)]
Tools = Annotated[
    Sequence[Mapping[str, Any]], BeforeValidator(read_tools, json_schema_input_type=AnyTools)
]
Choice = Annotated[
    Text, BeforeValidator(read_choice, json_schema_input_type=str | Mapping[str, Any])
]


class GenerationOptions(Options):
    """Options of `generate` and `stream`, validated on construction; raises `OptionError`.

    Sampling options that are not given are those of the model's generation_config.json; without
    any, decoding is greedy, as it is by default with generation_config="none" of the pipeline.
    Logits processors apply to greedy decoding too. Numbers and lists may be numpy's.
    """

    hints: ClassVar[Mapping[str, str]] = {
        **{name: f"give {name} to SpeculativePipeline" for name in PipelineKwargs.__annotations__},
        **{"draft": "give draft to SpeculativePipeline", **HINTS},
    }

    max_new_tokens: int | None = option(
        None,
        "Generate at most N tokens.",
        more="The model's context is a limit too. With prompt_logprobs, 0 only scores the prompt.",
        ge=0,
        unset="the rest of the context",
        field=None,
        group="Length and end of the output",
    )
    min_new_tokens: int = option(
        0, "Forbid end-of-sequence tokens before N tokens.", ge=0, field=None
    )
    min_tokens: int = option(
        0,
        "Let neither end-of-sequence token nor stop string end the output within N tokens.",
        ge=0,
        flag=None,
    )
    stop_strings: Several[Annotated[Text, Field(min_length=1)]] = option(
        (), "End the output before this text.", metavar="STRING", flag="stop", field="stop"
    )
    eos_token_id: Several[TokenId] | None = option(
        None, "End the text at this token.", unset="the model's", metavar="ID", field=None
    )
    ignore_eos: bool = option(False, "Continue after an end-of-sequence token.")
    stop_token_ids: Several[TokenId] = option(
        (), "End the text at this token too, and leave its text out.", metavar="ID"
    )
    include_stop_str_in_output: bool = option(
        False, "Keep the stop string or token at the end of the text."
    )
    skip_special_tokens: bool = option(True, "Leave special tokens out of the text.")
    do_sample: bool | None = option(
        None,
        "Sample tokens instead of greedy decoding.",
        more="A temperature of 0 is greedy decoding too.",
        unset=f"sample if {', '.join(SAMPLING_OPTIONS[:-1])} or {SAMPLING_OPTIONS[-1]} is given",
        field=None,
        group="Sampling",
    )
    temperature: float | None = option(None, "Divide logits by X; 0 is greedy decoding.", ge=0)
    top_k: int | None = option(None, "Keep the N most likely tokens; 0 or -1 keeps all.", ge=-1)
    top_p: float | None = option(
        None, "Keep the fewest most likely tokens whose mass reaches X.", ge=0, le=1
    )
    min_p: float | None = option(
        None, "Drop tokens less likely than X times the most likely one.", ge=0, le=1
    )
    typical_p: float | None = option(
        None,
        "Keep the tokens whose surprise is closest to the entropy until their mass reaches X.",
        gt=0,
        le=1,
    )
    seed: int | None = option(
        None,
        "Make sampling repeatable.",
        more="Each token then depends on its position and logits alone, so the text is the same "
        "with any drafter and concurrency. If passes are not batch-invariant, this needs the "
        "same settings and cache_prompt=False too.",
        ge=0,
    )
    choice: int = option(
        0,
        "Select one of several texts of the same prompt and seed: 0, 1 and so on.",
        ge=0,
        flag=None,
        field=None,
    )
    repetition_penalty: float = option(
        1.0,
        "Divide positive logits of tokens in prompt and output by X; multiply negative ones.",
        more="Above 1, these tokens become less likely.",
        ge=1e-6,
        le=1e6,
        group="Logits processors",
    )
    presence_penalty: float = option(
        0.0, "Subtract X from the logits of tokens in the output.", ge=-2, le=2
    )
    frequency_penalty: float = option(
        0.0, "Subtract X for each occurrence of a token in the output.", ge=-2, le=2
    )
    logit_bias: Mapping[TokenId, Bias] | None = option(
        None,
        "Add a bias to a token's logit; -inf forbids it.",
        metavar="ID=BIAS",
        expects="a mapping of token ids to numbers from -1e30 to 1e30, or -inf",
    )
    bad_words_ids: Sequence[Annotated[Sequence[TokenId], Field(min_length=1)]] = option(
        (), "Forbid a token sequence.", metavar="ID,ID,...", expects="sequences of ids, none empty"
    )
    suppress_tokens: Several[TokenId] = option((), "Forbid tokens.", metavar="ID,ID,...")
    no_repeat_ngram_size: int = option(
        0, "Forbid repeated n-grams of this length; 0 allows all.", ge=0
    )
    encoder_no_repeat_ngram_size: int = option(
        0, "Forbid n-grams of the prompt of this length in the output; 0 allows all.", ge=0
    )
    forced_bos_token_id: int | None = option(
        None,
        "Force the first output token of an encoder-decoder model.",
        ge=0,
        unset="the model's",
    )
    tgt_lang: Text | None = option(
        None,
        "Translate to this language, named as in the tokenizer, such as fra_Latn.",
        more="Its token becomes forced_bos_token_id.",
        metavar="LANG",
    )
    src_lang: Text | None = option(
        None,
        "Language of the source text, named as in the tokenizer.",
        unset="the tokenizer's",
        metavar="LANG",
    )
    logits_processor: Sequence[Callable[..., Any]] = option(
        (),
        "Apply your own functions of the tokens so far (prompt and output) and a row of logits "
        "[vocab], which return a row of logits.",
        more="Results may depend on these arguments alone. A function with state has a method "
        "`follow`, which gets accepted tokens in order. Functions cannot call the same "
        "pipeline. Processors of transformers work too, with torch installed.",
        flag=None,
        field=None,
        expects="a list of functions",
    )
    num_assistant_tokens: Annotated[int, Field(ge=0, le=MAX_DRAFT_LENGTH)] | Literal["auto"] = (
        option(
            "auto",
            "Draft N tokens in each round; 0 is plain decoding, auto leaves N to the schedule.",
            more=f"Requests may ask for up to {MAX_REQUESTED_LENGTH}.",
            metavar="auto|N",
            group="Speculation",
        )
    )
    num_assistant_tokens_schedule: Schedule | None = option(
        None,
        "Schedule of the draft length.",
        more='"adaptive" maximizes tokens per second by the measured cost of passes, and drafts '
        "nothing if speculation does not pay. (Seeded sampling without batch invariance uses "
        'nominal costs instead.) "heuristic" adds two after a fully accepted draft, up to '
        f'{MAX_REQUESTED_LENGTH}, and otherwise subtracts one; "constant" keeps the length.',
        unset="constant for N; adaptive for auto",
    )
    assistant_confidence_threshold: float = option(
        0.0,
        "End a draft after a draft token with a probability below X.",
        more="With a seed, the confidence after the noise counts.",
        ge=0,
        le=1,
    )
    assistant_do_sample: bool = option(
        True,
        "When sampling, sample draft tokens too, instead of taking the most likely ones.",
        more="The output has the same distribution either way.",
    )
    prompt_lookup_num_tokens: int | None = option(
        None, "Draft at most N tokens for a match of prompt-lookup.", ge=1
    )
    max_matching_ngram_size: int | None = option(
        None,
        "Match n-grams of up to N tokens in prompt-lookup.",
        ge=1,
        le=32,  # as of the suffix drafter: longer matches say no more
        unset="3",
    )
    reference_texts: Several[Text] = option(
        (),
        "Draft from matches in this text, which the output may quote.",
        more="It is not part of the prompt.",
        metavar="TEXT-FILE",
        field=None,
    )
    json_schema: Schema | None = option(
        None,
        "Constrain the output to JSON of this schema.",
        more="A mapping, its text, or a pydantic model, of which `result.parsed` is an instance.",
        metavar="JSON-FILE",
        field=None,
        group="Structured output",
        expects="a JSON schema as a mapping or text, or a pydantic model",
    )
    json_object: bool = option(False, "Constrain the output to a JSON object.", field=None)
    json_whitespace: Literal["compact", "spaced", "any"] = option(
        "compact", "Write JSON without spaces, with one after each comma and colon, or with any."
    )
    regex: Text | None = option(
        None, "Constrain the output to a regular expression.", metavar="REGEX", field=None
    )
    choices: Several[Text] = option(
        (), "Constrain the output to this text.", flag="choice", metavar="TEXT", field=None
    )
    grammar: Text | None = option(
        None, "Constrain the output to a Lark grammar.", metavar="TEXT-FILE", field=None
    )
    logprobs: int | None = option(
        None,
        "Return log-probabilities of each token and of the N most likely ones at its position.",
        ge=0,
        le=100,
        field=None,
        group="Log-probabilities",
    )
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"] = option(
        "raw_logprobs",
        "Compute log-probabilities from raw logits, or from logits after the processors.",
        more="Both are before temperature and other sampling options. Those of a prompt are raw.",
        field=None,
    )
    prompt_logprobs: int | None = option(
        None,
        "Return log-probabilities of the prompt in the same way.",
        more="The whole prompt is then prefilled.",
        ge=0,
        le=100,
        field=None,
    )
    cache_prompt: bool = option(
        True,
        "Reuse the cached prefix of the prompt, and keep it for later prompts.",
        more="False prefills the whole prompt, and keeps the suffix drafter from earlier outputs. "
        "If passes are not batch-invariant, only False gives the text of empty caches.",
        field=None,
        group="Prompt",
    )
    cache_salt: Text | None = option(
        None,
        "Share cached prefixes and earlier outputs only with prompts of the same salt.",
        more="Timing then reveals nothing of the prompts of others. Answers in messages keep the "
        "generated ids.",
        flag=None,
    )
    apply_chat_template: bool = option(
        True,
        "Render the prompt with the model's chat template, if it has one.",
        flag="chat-template",
        field=None,
    )
    add_special_tokens: bool | None = option(
        None,
        "Add the special tokens of the tokenizer, such as a beginning-of-sequence token.",
        more="A text that begins with them gets them once. Token ids are taken as they are.",
        unset="yes, unless a chat template is used",
    )
    chat_template_kwargs: TemplateArguments | None = option(
        None,
        'Pass arguments to the chat template, such as {"enable_thinking": false}.',
        metavar="JSON",
        expects="a mapping of names to values",
    )
    add_generation_prompt: bool | None = option(
        None,
        "End the prompt with the header of an answer.",
        unset="yes, unless the final message is continued",
        flag=None,
    )
    continue_final_message: bool = option(
        False,
        "Continue the final message instead of starting an answer.",
        flag=None,
    )
    tools: Tools = option(
        (),
        "List the functions that the model may call, as JSON schemas.",
        more="Or as functions with type hints and a docstring in Google's style.",
        metavar="JSON-FILE",
        field=None,
        group="Tools and reasoning",
        expects="a list of JSON schemas or functions",
    )
    tool_choice: Choice = option(
        "auto",
        "Leave it to the model whether it calls tools, forbid or require it, or name the tool.",
        more='Or as in requests: {"type": "function", "function": {"name": "area"}}.',
        metavar="auto|none|required|NAME",
        expects="auto, none, required, or a tool by its name or a mapping",
    )
    parallel_tool_calls: bool = option(True, "Allow several calls in one answer.")
    reasoning_effort: Text | None = option(
        None,
        "Ask for so much reasoning, in words of the chat template such as low.",
        more='Templates that name no effort ignore it. "none" is enable_thinking=False too, others '
        'enable_thinking=True, and "auto" that alone.',
        metavar="EFFORT",
    )
    thinking_token_budget: int | None = option(
        None,
        "Reason for at most N tokens.",
        ge=0,
        unset="any number",
    )

    _check = model_validator(mode="after")(require_no_conflict)

    def copy_with(self, **valid: Any) -> Self:
        """A copy with other values, which must be valid. Nothing is checked; lists are shared."""
        return self.model_copy(update=valid)

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        if self.do_sample is not None:
            return self.do_sample
        is_given = any(getattr(self, name) is not None for name in SAMPLING_OPTIONS)
        return is_given and self.temperature != 0

    @property
    def may_call(self) -> bool:
        """Whether the model may call tools."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def is_repeatable_draw(self) -> bool:
        """Whether tokens are sampled with a seed."""
        return self.seed is not None and self.samples

    def ending_ids(self, eos_token_ids: frozenset[int]) -> frozenset[int]:
        """All tokens that end the text. eos_token_ids: the model's own."""
        if self.ignore_eos:
            return frozenset(self.stop_token_ids)
        own = eos_token_ids if self.eos_token_id is None else self.eos_token_id
        return frozenset(own).union(self.stop_token_ids)

    def token_ids(self) -> dict[str, tuple[int, ...]]:
        """The token ids that options name, by option."""
        forced = self.forced_bos_token_id
        return {
            "eos_token_id": tuple(self.eos_token_id or ()),
            "forced_bos_token_id": () if forced is None else (forced,),
            "logit_bias": tuple(self.logit_bias or ()),
            "bad_words_ids": tuple(chain.from_iterable(self.bad_words_ids)),
            "stop_token_ids": tuple(self.stop_token_ids),
            "suppress_tokens": tuple(self.suppress_tokens),
        }
