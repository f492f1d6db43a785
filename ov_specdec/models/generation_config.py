"""Options from a `transformers.GenerationConfig`: the model's own file, or a given one."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from ov_specdec.errors import ModelError, OptionError
from ov_specdec.files import read_json
from ov_specdec.options.conflicts import SAMPLING_OPTIONS
from ov_specdec.options.foreign_names import CHOOSING, drop_neutral, is_neutral
from ov_specdec.options.generation import GenerationOptions

GenerationConfigUse = Literal["none", "model"]

TAKEN = (
    *("do_sample", *SAMPLING_OPTIONS),
    *("repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
    *("bad_words_ids", "suppress_tokens", "forced_bos_token_id"),
)
"""Options that affect the choice of tokens. The caller sets lengths, such as max_new_tokens;
end-of-sequence tokens always come from the file."""


def read_sampling_defaults(folder: Path, *, vocab_size: int) -> dict[str, Any]:
    """The defaults of a model folder's generation_config.json; none if there is no file.

    As in transformers, it enables sampling only with do_sample. Raises `ModelError` for an invalid
    value, and for an unsupported option such as beams.
    """
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    content = {name: value for name, value in read_json(path).items() if value is not None}
    for name in content.keys() & CHOOSING:
        if not is_neutral(name, content[name]):
            raise _unusable(path, f"{name} is {content[name]!r}, which is not supported")
    values = {name: content[name] for name in TAKEN if name in content}
    if values.get("temperature") == 0 and not values.get("do_sample"):
        del values["temperature"]  # another way to write do_sample=False
    # Without do_sample=False, so that sampling options are checked too.
    drawn = {k: v for k, v in values.items() if k != "do_sample" or v is not False}
    try:
        checked = GenerationOptions(**drawn)
    except OptionError as error:
        # In the format of the file: no option was typed.
        reason = error.render(lambda option: str(option).replace("=", " ", 1))
        raise _unusable(path, reason) from error
    named = chain.from_iterable(checked.token_ids().values())
    if unknown := [token for token in named if token >= vocab_size]:
        raise _unusable(path, f"the model has no token id {unknown[0]}")
    return {"do_sample": False, **{k: getattr(checked, k) for k in drawn}}


def defaults_of(
    config: object, given: Mapping[str, Any], decoder_start_token_id: int | None
) -> dict[str, Any]:
    """The defaults from a `transformers.GenerationConfig`, or its content.

    given: other options, which take precedence. decoder_start_token_id: the model's own, which it
    may repeat. Raises `OptionError` for an unsupported option that would change the output.
    """
    content = getattr(config, "to_diff_dict", lambda: config)()
    if not isinstance(content, Mapping):
        kinds = "be a transformers.GenerationConfig, or map its options to values"
        raise OptionError(f"{{generation_config}} must {kinds}", generation_config=config)
    values = {
        name: value
        for name, value in content.items()
        if value is not None and not name.startswith("_") and name != "transformers_version"
    }
    for limit in ("max", "min"):  # precedence is as in transformers
        ours = f"{limit}_new_tokens"
        if given.get(ours) is not None or ours in values:
            values.pop(f"{limit}_length", None)
    if values.get("decoder_start_token_id") == decoder_start_token_id:
        values.pop("decoder_start_token_id", None)
    return {"do_sample": False, **drop_neutral(values)}


def _unusable(path: Path, reason: str) -> ModelError:
    problem = f"{path}: {reason}; correct it, or leave it out with {{generation_config}}"
    return ModelError(problem, generation_config="none")
