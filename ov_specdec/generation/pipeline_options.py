"""The arguments of pipelines, with their descriptions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, model_validator
from typing_extensions import Self

from ov_specdec.drafters.factory import DrafterKind, DrafterName, kind_of
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.errors import Option, OptionError
from ov_specdec.models.devices import KvBackend, Precision, RuntimeConfig
from ov_specdec.models.generation_config import GenerationConfigUse
from ov_specdec.models.invariance import WantedInvariance
from ov_specdec.models.locate import check_place
from ov_specdec.options.conflicts import refuse
from ov_specdec.options.foreign_names import HINTS
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Options, option
from ov_specdec.text.pairing import PairingName

MAX_STATIC_SHAPE = 512


def as_property(value: Any) -> Any:
    """A number or boolean as the text that OpenVINO reads; other values as they are."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value) if isinstance(value, int | float) else value


PropertyValue = Annotated[
    str, BeforeValidator(as_property, json_schema_input_type=str | int | float | bool)
]
DeviceName = Annotated[str, AfterValidator(str.upper)]
Sizes = Annotated[Sequence[Annotated[int, Field(ge=1, le=MAX_STATIC_SHAPE)]], Field(min_length=1)]

ParserName = Literal["auto", "none", "hermes", "qwen3_coder", "llama3_json", "mistral"]

WHERE = "a folder or a name on the Hub"
PROPERTIES = "a mapping of names to texts, numbers or booleans"
DRAFTERS = f"one of {', '.join(get_args(DrafterName))}, or a DrafterKind"


class ModelOptions(Options):
    """Arguments of all pipelines: models, and how they are compiled."""

    of_draft: ClassVar[Sequence[str]] = ("draft", "draft_device", "draft_properties")
    """Options that need a draft model."""

    main: str | Path | None = option(
        None,
        "Main model: a folder or Hub name.",
        unset="the embedded one",
        metavar="DIR",
        expects=WHERE,
        group="Models",
    )
    draft: str | Path | None = option(
        None,
        "Draft model: a folder or Hub name.",
        unset="the embedded one; none beside another main model",
        metavar="DIR",
        expects=WHERE,
    )
    drafter: DrafterName | InstanceOf[DrafterKind] | None = option(
        None,
        "Source of draft tokens. model: the draft model. suffix: what followed the longest match "
        "in the text so far, --reference-texts or earlier outputs. both: what promises more; with "
        "a constant length, model. prompt-lookup: n-gram matches, as in other programs. none: "
        "plain decoding.",
        unset="both; suffix without a draft model",
        expects=DRAFTERS,
        group="Speculation",
    )
    device: DeviceName = option("CPU", "OpenVINO device.", group="Models")
    draft_device: DeviceName | None = option(
        None, "Device of the draft model.", unset="the main model's"
    )
    encoder_device: DeviceName | None = option(
        None, "Device of the encoder of encoder-decoder models.", unset="the model's"
    )
    num_threads: int | None = option(
        None, "CPU threads of each model.", ge=1, unset="OpenVINO decides", group="Computation"
    )
    cache_dir: str | Path | None = option(
        None,
        "Cache compiled models in this folder, for faster starts.",
        metavar="DIR",
        expects="a folder",
    )
    precision: Precision = option(
        "default", "Precision of computation; exact: f32, with only weights quantized."
    )
    properties: Mapping[str, PropertyValue] | None = option(
        None,
        "Set an OpenVINO property of both models.",
        metavar="KEY=VALUE",
        flag="property",
        expects=PROPERTIES,
    )
    draft_properties: Mapping[str, PropertyValue] | None = option(
        None,
        "Set an OpenVINO property of the draft model only, over --property.",
        metavar="KEY=VALUE",
        flag="draft-property",
        expects=PROPERTIES,
    )

    @property
    def kind(self) -> DrafterKind:
        """The drafter; by default suffix matches, and the draft model if there is one."""
        has_draft = self.main is None or self.draft is not None
        return kind_of(self.drafter or ("both" if has_draft else "suffix"))

    @property
    def main_config(self) -> RuntimeConfig:
        """How the main model is compiled."""
        return RuntimeConfig(
            self.device,
            precision=self.precision,
            properties=self.properties,
            num_threads=self.num_threads,
            cache_dir=self.cache_dir,
            encoder_device=self.encoder_device,
        )

    @property
    def configs(self) -> list[RuntimeConfig]:
        """How the models are compiled that the drafter needs, the main model first."""
        main = self.main_config
        draft = replace(
            main,
            device=self.draft_device or self.device,
            properties={**(self.properties or {}), **(self.draft_properties or {})},
            max_model_len=None,
            static_shapes="none" if main.static_shapes == "none" else "auto",
        )
        return [main, draft] if self.kind.has_draft_model else [main]

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        is_pair(self.main, self.draft)
        if self.kind.has_draft_model and self.main is not None and self.draft is None:
            check_place(self.main)  # one that does not exist is the first problem
            raise OptionError(
                "no draft model for {main}: give {draft}, or choose {suffix} or {none}",
                main=str(self.main),
                draft=...,
                suffix=Option("drafter", "suffix"),
                none=Option("drafter", "none"),
            )
        for name in () if self.kind.has_draft_model else self.of_draft:
            value = getattr(self, name)
            if value and value not in ("none", type(self).model_fields[name].default):
                raise OptionError(
                    "{option} has no effect with {drafter}: leave it out",
                    option=Option(name, str(value) if isinstance(value, Path) else value),
                    drafter=self.kind.name,
                )
        return self


class PipelineOptions(ModelOptions):
    """Arguments of `SpeculativePipeline`."""

    of_draft = (*ModelOptions.of_draft, "pairing", "profile", "draft_vocabulary")
    hints: ClassVar[Mapping[str, str]] = {
        **{name: f"give {name} to generate" for name in GenerationOptions.model_fields},
        **HINTS,
    }

    pairing: PairingName | None = option(
        None,
        "Pair models with different tokenizers. intersection: draft only common tokens; "
        "retokenize: encode the draft's text again; auto: choose by sample texts.",
        unset="refuse such a draft",
        group="Models",
    )
    draft_vocabulary: Annotated[int, Field(ge=1)] | Literal["full"] = option(
        "full",
        "Let the draft model propose only N tokens: special ones, characters, and the first that "
        "the tokenizer's merges make. Its passes are faster; rarer tokens are never drafted.",
        metavar="full|N",
        expects="'full', or a number of tokens",
    )
    kv: KvBackend = option(
        "auto",
        "Type of KV cache; auto: paged if the model and device support it.",
        group="KV cache",
    )
    max_masked_tokens: int | None = option(
        None,
        "With --kv stateful: maximum rejected tokens that stay masked in the KV cache before a "
        "trim; 0: trim after every rejection.",
        ge=0,
        unset="128",
    )
    kv_cache_size: float | None = option(
        None,
        "Maximum memory in GB for the KV caches of both models, on each device.",
        ge=0,
        unset="enough for --max-batch-size, at most half of the free memory",
        metavar="GB",
    )
    max_model_len: int | None = option(
        None,
        "Maximum tokens of prompt and output together.",
        ge=2,
        unset="the main model's context",
    )
    profile: str | Path = option(
        "auto",
        "Use settings that ov-specdec tune found for these models on this machine.",
        metavar="auto|none|FILE",
        expects="'auto', 'none' or a file",
        group="Computation",
    )
    generation_config: GenerationConfigUse = option(
        "model",
        "Default sampling options: those of the main model's generation_config.json, or none: "
        "greedy, or of requests a temperature of 1.",
        group="Sampling",
    )
    chat_template: str | Path | None = option(
        None,
        "Render messages with this Jinja file.",
        unset="the main model's template",
        metavar="FILE",
        expects="a file",
        group="Prompt",
    )
    tool_call_parser: ParserName = option(
        "auto",
        "Format of tool calls. auto: read from the chat template; none: calls stay in the text.",
        group="Tools and reasoning",
    )
    reasoning_parser: ParserName = option(
        "auto",
        "Markers of reasoning. auto: read from the chat template; none: it stays in the text.",
    )
    static_shapes: Sizes | Literal["auto", "none"] = option(
        "auto",
        "Compile the models for fixed numbers of tokens in a pass, in the background after two "
        "seconds of decoding: passes are faster, and take more memory. auto: for small models, the "
        "sizes that save most time; N,N,...: these sizes for the main model.",
        metavar="auto|none|N,N,...",
        expects=f"'auto', 'none', or numbers of tokens from 1 to {MAX_STATIC_SHAPE}",
        group="Computation",
    )
    max_batch_size: int = option(
        16, "Maximum concurrent sequences; more wait.", ge=1, group="Requests"
    )
    max_prefill_tokens_per_step: int | None = option(
        None,
        "Maximum prefill tokens of a pass for each prompt in it, while other requests decode.",
        ge=1,
        unset=str(StepLimits.max_prefill_tokens_per_step),
    )
    batch_invariant: WantedInvariance = option(
        "auto",
        "Run passes in a form that gives each token the same logits, to the bit, at any draft "
        "length and concurrency. auto: if this machine can; true: fail if it cannot; false: never, "
        "which may be faster without drafts, with AVX2 above all.",
        expects="'auto', True or False",
        group="Computation",
    )

    @property
    def main_config(self) -> RuntimeConfig:
        """How the main model is compiled."""
        return replace(
            super().main_config,
            kv=self.kv,
            max_masked_tokens=self.max_masked_tokens,
            static_shapes=self.static_shapes,
            max_model_len=self.max_model_len,
        )

    @property
    def limits(self) -> StepLimits:
        """The limits of concurrency."""
        most = self.max_prefill_tokens_per_step or StepLimits.max_prefill_tokens_per_step
        return StepLimits(self.max_batch_size, most)

    @property
    def may_tune(self) -> bool:
        """Whether a profile may set properties: not if the caller set them."""
        set_by_caller = (self.properties, self.num_threads, self.draft_properties)
        on_one_device = self.draft_device in (None, self.device)
        return self.precision == "default" and not any(set_by_caller) and on_one_device

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if self.max_masked_tokens is not None and self.kv == "paged":
            refuse(self, "{max_masked_tokens} has no effect with {kv}")
        if self.draft_vocabulary != "full" and self.pairing is not None:
            refuse(
                self, "{draft_vocabulary} cannot be used with {pairing}: leave out one of the two"
            )
        if self.profile not in ("auto", "none") and not self.may_tune:
            raise OptionError(
                "{profile} has no effect where {precision}, {properties}, {num_threads} or "
                "{draft_device} are given: leave out one of the two",
                profile=str(self.profile),
                precision=...,
                properties=...,
                num_threads=...,
                draft_device=...,
            )
        return self


class SpeechPipelineOptions(ModelOptions):
    """Arguments of `SpeechPipeline`."""

    main: str | Path = option(
        ..., "Whisper: a folder or Hub name.", metavar="DIR", expects=WHERE, group="Models"
    )
    draft: str | Path | None = option(
        None, "Draft model, a smaller Whisper: a folder or Hub name.", metavar="DIR", expects=WHERE
    )
    drafter: DrafterName | InstanceOf[DrafterKind] | None = option(
        None,
        "Source of draft tokens.",
        unset="both with --draft, else suffix",
        expects=DRAFTERS,
        group="Speculation",
    )


def is_pair(main: str | Path | None, draft: str | Path | None) -> bool:
    """Whether there is a draft; the embedded main model has one, and refuses others."""
    if draft is not None and main is None:
        raise OptionError("{draft} needs {main}: give that too", draft=str(draft), main=...)
    return main is None or draft is not None
