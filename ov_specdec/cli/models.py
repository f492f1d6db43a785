"""Models of a command: their options, and how they are loaded, with a spinner on stderr."""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ov_specdec.cli.terminal import console
from ov_specdec.description import About, Described
from ov_specdec.engine import Limits
from ov_specdec.errors import Option, OptionError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import locate
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.speech_pipeline import SpeechPipeline
from ov_specdec.stats import BatchInvariance

ABOUT = {
    "main": About("Main model: a folder or Hub name.", unset="embedded", metavar="DIR"),
    "draft": About("Draft model: a folder or Hub name.", unset="embedded", metavar="DIR"),
    "drafter": About(
        "Source of draft tokens. [model; suffix for --main without --draft] model: the draft "
        "model, --draft. suffix: what followed the longest match in the prompt, the output, "
        "--reference-texts or earlier outputs, without a draft model. both: suffix, or the draft "
        "model in rounds where it promises more. prompt-lookup: n-gram matches in prompt and "
        "output, as in other programs. none: plain decoding.",
    ),
    "pairing": About(
        "Pair models with different tokenizers. intersection: draft only common tokens; "
        "retokenize: encode the draft's text again; auto: choose by sample texts.",
        unset="refuse such a draft",
    ),
    "device": About("OpenVINO device."),
    "draft_device": About("Device of the draft model.", unset="the main model's"),
    "encoder_device": About(
        "Device of the encoder of encoder-decoder models.", unset="the model's"
    ),
    "num_threads": About("CPU threads of each model.", unset="OpenVINO decides"),
    "cache_dir": About("Cache compiled models in this folder, for faster starts.", metavar="DIR"),
    "kv": About("Type of KV cache; auto: paged if the model and device support it."),
    "max_hidden_tokens": About(
        "With --kv stateful: maximum rejected tokens that stay masked in the KV cache before a "
        "trim; 0: trim after every rejection.",
        unset="128",
    ),
    "kv_cache_size": About(
        "Maximum memory in GB for the KV caches of both models, on each device.",
        unset="enough for --max-batch-size, at most half of the free memory",
        metavar="GB",
    ),
    "max_model_len": About(
        "Maximum tokens of prompt and output together.", unset="the main model's context"
    ),
    "profile": About(
        "Use settings that ov-specdec tune found for these models on this machine.",
        metavar="auto|none|FILE",
    ),
    "precision": About("Precision of computation; exact: f32, with only weights quantized."),
    "properties": About(
        "Set an OpenVINO property of both models.", metavar="KEY=VALUE", flag="property"
    ),
    "draft_properties": About(
        "Set an OpenVINO property of the draft model only, over --property.",
        metavar="KEY=VALUE",
        flag="draft-property",
    ),
    "batch_invariant": About(
        "Run passes in a form that gives each token the same logits, to the bit, at any draft "
        "length and concurrency. auto: if this machine can; true: fail if it cannot; false: never, "
        "slightly faster."
    ),
    "generation_config": About(
        "Default sampling options. model: from the main model's generation_config.json; none: "
        "greedy."
    ),
    "chat_template": About(
        "Render messages with this Jinja file.", unset="the main model's template", metavar="FILE"
    ),
    "static_shapes": About(
        "Compile the models for fixed numbers of tokens in a pass, in the background after two "
        "seconds of decoding: passes are faster, and take more memory. auto: for small models, the "
        "sizes that save most time; N,N,...: these sizes for the main model.",
        metavar="auto|none|N,N,...",
    ),
    "max_batch_size": About("Maximum concurrent sequences; others wait."),
    "max_prefill_tokens_per_step": About(
        "Maximum prefill tokens of a pass for each prompt in it, while other requests decode.",
        unset=str(Limits.max_prefill_tokens_per_step),
    ),
}
"""What the help says of each argument; types and defaults are those of the pipeline."""


def arguments_of(pipeline: type, about: Mapping[str, About]) -> dict[str, Described]:
    """The arguments of a pipeline, with these descriptions."""
    return {
        name: Described(name, parameter.annotation, parameter.default, about[name])
        for name, parameter in signature(pipeline).parameters.items()
    }


PIPELINE = arguments_of(SpeculativePipeline, ABOUT)
OF_SPEECH = tuple(signature(SpeechPipeline).parameters)

MODELS = ("main", "draft")
COMPILATION = ("precision", "properties")
PLACES = ("draft_device", "encoder_device", "num_threads", "cache_dir")
RUNTIME = (
    *("pairing", "device", *PLACES, "kv", "max_hidden_tokens", "kv_cache_size", "max_model_len"),
    *("profile", *COMPILATION, "draft_properties", "batch_invariant"),
)
ONE_REQUEST = (*MODELS, "drafter", *RUNTIME, "generation_config", "static_shapes")
CONCURRENT = (*ONE_REQUEST, "max_batch_size", "max_prefill_tokens_per_step")
"""Arguments of commands with concurrent requests."""


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the current command that the user gave; the others have their defaults."""
    source = click.get_current_context().get_parameter_source
    return {k: v for k, v in options.items() if source(k) is not ParameterSource.DEFAULT}


def model_name(main: str | None) -> str:
    """The default name of a model in requests: that of its folder."""
    return "ov-specdec" if main is None else Path(main).resolve().name


def is_speech(main: str | None) -> bool:
    """Whether a main model is a speech model; the embedded one is not."""
    return main is not None and bool(ModelFolder.read(locate(main)).features)


def speech_arguments(pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `SpeculativePipeline` that `SpeechPipeline` takes too.

    Refuses others that were given.
    """
    if others := sorted(typed(pipeline).keys() - set(OF_SPEECH)):
        raise OptionError(
            Option(others[0], pipeline[others[0]]),
            " has no effect with a speech model: leave it out",
        )
    return {name: pipeline[name] for name in OF_SPEECH if name in pipeline}


def make_speech_pipeline(arguments: Mapping[str, Any]) -> SpeechPipeline:
    """Load a speech model and its draft."""
    with console.status("Loading models"):
        return SpeechPipeline(**arguments)


def make_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load the models. The default maximum batch size is 1."""
    with console.status("Loading models"):
        return SpeculativePipeline(**{"max_batch_size": 1, **arguments})


def make_lasting_pipeline(arguments: Mapping[str, Any]) -> SpeculativePipeline:
    """Load models for a long run, and check batch invariance."""
    pipeline = make_pipeline(arguments)
    check_invariance(pipeline)
    return pipeline


def prepare(pipeline: SpeculativePipeline) -> None:
    """Measure the cost of passes and compile static shapes."""
    doing = "Measuring, and compiling static shapes"
    with console.status(doing) as status:
        pipeline.prepare(lambda share: status.update(f"{doing}: {share:.0%}"))


def check_invariance(pipeline: SpeculativePipeline) -> BatchInvariance:
    """Check whether passes of the main model agree."""
    doing = "Checking whether passes agree"
    with console.status(doing) as status:
        return pipeline.check_batch_invariant(lambda share: status.update(f"{doing}: {share:.0%}"))
