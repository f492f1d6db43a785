"""Options that `generate` and `compare` share: prompt, models and generation."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

from ov_specdec.arguments import usual_drafter
from ov_specdec.cli.generation_options import (
    GENERATION_OPTIONS,
    length_option,
    option_of,
)
from ov_specdec.cli.model_options import (
    PIPELINE_OPTIONS,
    STATIC_SHAPES_OPTION,
    pop_pipeline,
    typed,
    with_options,
)
from ov_specdec.cli.prompt import read_prompt
from ov_specdec.drafters.factory import DrafterFactory, kind_of
from ov_specdec.options import GenerationOptions
from ov_specdec.text.messages import Message

SYSTEM_OPTION = click.option(
    "--system", metavar="TEXT", help="System message, for chat models. [none]"
)

PROMPT_OPTIONS = (
    click.argument("prompt", nargs=-1, metavar="[PROMPT]"),
    click.option(
        "--prompt-file",
        metavar="F",
        help="Read the prompt from a file, - for stdin. [stdin if there is no PROMPT]",
    ),
    SYSTEM_OPTION,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object only."),
)

GENERATION_NAMES = tuple(field.name for field in fields(GenerationOptions))


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of prompt, pipeline and generation.

    It is called with `prompt` (a text or messages), `pipeline` and `generation` (keyword arguments
    for `SpeculativePipeline` and its `generate`), and with its own options.
    """

    @functools.wraps(command)
    def gathered(
        prompt: tuple[str, ...], prompt_file: str | None, system: str | None, **options: Any
    ) -> None:
        pipeline = pop_pipeline(options)
        generation = pop_generation(options)
        check_generation(generation, pipeline)
        text = read_prompt(prompt, prompt_file)
        command(
            prompt=text if system is None else with_system(system, text),
            pipeline=pipeline,
            generation=generation,
            **options,
        )

    template = option_of("apply_chat_template")
    generation_options = (length_option(), *GENERATION_OPTIONS, template)
    loading_options = (*PIPELINE_OPTIONS, STATIC_SHAPES_OPTION)
    return with_options((*PROMPT_OPTIONS, *loading_options, *generation_options))(gathered)


def pop_generation(options: dict[str, Any]) -> dict[str, Any]:
    """Take the given generation options out of a command's.

    The pipeline has defaults for the others, and may take them from the model.
    """
    own = {name: options.pop(name) for name in GENERATION_NAMES if name in options}
    generation = typed(own)
    if "logit_bias" in generation:
        generation["logit_bias"] = dict(generation["logit_bias"])
    return generation


def with_system(system: str, prompt: str) -> list[Message]:
    """A conversation of a system message and the user's."""
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]


def check_generation(options: Mapping[str, Any], pipeline: Mapping[str, Any]) -> None:
    """Refuse invalid options of a generation before models are loaded."""
    drafter = pipeline["drafter"] or usual_drafter(pipeline["main"], pipeline["draft"])
    DrafterFactory(kind_of(drafter)).check(GenerationOptions.from_kwargs(options))
