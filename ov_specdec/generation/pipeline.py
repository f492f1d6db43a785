"""How the models of a pipeline are opened, and its generator made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ov_specdec.engine.answers import Answers
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.errors import DeviceError, OptionError
from ov_specdec.files import expand_home
from ov_specdec.generation.pipeline_options import ModelOptions, PipelineOptions
from ov_specdec.generation.sequence_factory import SequenceFactory
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.agreement import verifiable
from ov_specdec.models.budgets import kept_costs, limit_memory
from ov_specdec.models.compile import LoadedModel, load_models
from ov_specdec.models.devices import NOT_PAGED, RuntimeConfig
from ov_specdec.models.exported import ExportedModel, open_exported
from ov_specdec.models.invariance import SLOWER, Invariance, configure, open_invariance
from ov_specdec.models.locate import locate
from ov_specdec.models.profile import find_profile
from ov_specdec.planning.costs import Role
from ov_specdec.planning.policies import LearnedStats
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.runner.paged import PagedModel
from ov_specdec.text.pairing import TokenizerPair

USUAL_STEPS: Mapping[str, Mapping[int, int]] = {
    "main": {2: 4},
    "draft": {1: 8, 2: 4},
    "parallel": {8: 8, 16: 4},
}
"""Initial counts of passes by their tokens, for a process that has not decoded yet."""


def check_devices(configs: Sequence[RuntimeConfig]) -> None:
    """Refuse, before models are read, settings that their devices do not support.

    configs: the main model's first. Raises `DeviceError` and `OptionError`.
    """
    main = configs[0]
    if main.cache_dir is not None:  # OpenVINO would fail later, with a vague message
        try:
            expand_home(main.cache_dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"{{cache_dir}} cannot be made ({error.strerror}): give another folder",
                cache_dir=str(main.cache_dir),
            ) from error
    encoders = [replace(c, device=c.encoder_device, kv="auto") for c in configs if c.encoder_device]
    for config in (*configs, *encoders):
        config.openvino_properties()
        device = config.target
        if config.kv == "paged" and not device.supports_paged:
            raise DeviceError(f"{NOT_PAGED} {device.name}: leave out {{kv}}", kv="paged")
    device = main.target
    if not device.is_cpu and main.static_sizes:
        raise OptionError(
            f"{{static_shapes}} cannot be used on {device.name}, which does not run a paged KV "
            "cache with static shapes: leave it out",
            static_shapes=main.static_sizes,
        )
    if main.num_threads is not None and not any(c.target.is_cpu for c in (*configs, *encoders)):
        raise OptionError(
            f"{{num_threads}} has no effect on {device.name}: leave it out, or run a model on CPU",
            num_threads=main.num_threads,
        )


def open_models(
    options: ModelOptions, chat_template: str | Path | None = None
) -> list[ExportedModel]:
    """Read the folders of the main model and of the draft model, if the drafter has one.

    Raises first what `check_devices` does.
    """
    check_devices(options.configs)
    found = [open_exported(locate(options.main), chat_template)]
    if options.kind.has_draft_model:
        found.append(open_exported(locate(options.draft, "draft")))
    return found


def make_generator(
    exported: Sequence[ExportedModel],
    pairing: TokenizerPair | None,
    options: PipelineOptions,
) -> tuple[TextGenerator, Invariance, Path | None]:
    """Load a main model, and its draft if there is one, and make the generator on them.

    pairing: of a draft with another tokenizer. Returns also the invariance of the main model's
    passes, and the file of a profile that is used. Raises as `SpeculativePipeline` does for models
    and devices.
    """
    first, text_to_text = exported[0], exported[0].text_to_text()
    configs, off, profile = _configure(exported, options)
    loaded = load_models(list(zip(exported, configs, strict=True)))
    limit_memory(loaded, options.kv_cache_size, options.max_batch_size)
    models = [verifiable(model) for model in loaded]
    invariance = open_invariance(models[0], off)
    if options.batch_invariant is True and not invariance.verify().is_verified:
        raise DeviceError(f"{{batch_invariant}}: {invariance.status.reason}", batch_invariant=True)
    costs = kept_costs(models)
    main, draft, *_ = *(model.runner for model in models), None
    shapes = _make_static_shapes(models)
    answers = Answers(main)
    engine = Engine(main, draft, options.limits, costs, shapes)
    ends, learned, kept = first.eos_token_ids, LearnedStats(costs), models[-1].config.kept_tokens
    own = draft, pairing, learned, invariance, kept
    sequences = SequenceFactory(main, options.kind, ends, *own)
    generator = TextGenerator(
        sequences,
        EngineLoop(engine, (invariance, answers, costs)),
        answers,
        first.tokenizer,
        first.vocab_size,
        models,
        text_to_text,
        (options.tool_call_parser, options.reasoning_parser),
    )
    return generator, invariance, profile


def _configure(
    exported: Sequence[ExportedModel], options: PipelineOptions
) -> tuple[list[RuntimeConfig], BatchInvariance | None, Path | None]:
    """How to compile the models; why passes are not invariant; and the file of a profile."""
    main, *drafts = options.configs
    file, folder, wanted = None, exported[0].folder, main.precision
    if drafts:
        main = replace(main, projection=exported[1].folder.projection)
    others = SLOWER if wanted == "default" and not main.properties else ()
    if drafts:
        if options.draft_vocabulary != "full":
            kept = exported[1].tokenizer.first_tokens(options.draft_vocabulary)
            drafts = [replace(drafts[0], kept_tokens=kept)]
        profile = options.profile if options.may_tune else "none"
        if found := find_profile(profile, folder, exported[1].folder, main.device, main.kv):
            file, tuned = found
            main = replace(main, properties=tuned.main_properties)
            drafts = [replace(drafts[0], properties=tuned.draft_properties)]
    main, off = configure(options.batch_invariant, folder, main, others)
    if main.precision != wanted:  # batch_invariant's precision replaces the profile's
        file = None
    return [main, *drafts], off, file


def _make_static_shapes(models: Sequence[LoadedModel]) -> dict[Role, StaticShapes]:
    """The static shapes of the models that may have some; a draft model compiles first."""
    roles: tuple[Role, Role] = "main", "draft"
    main = models[0].runner
    return {
        role: StaticShapes(
            model.runner,
            model.compiler,
            model.folder.num_bytes,
            usual=USUAL_STEPS[role if model.runner.mask_token is None else "parallel"],
            sizes=tuple(model.config.static_sizes) or None,
            can_swap=lambda: main.is_verified,
        )
        for role, model in reversed(list(zip(roles, models, strict=False)))
        if model.compiler is not None and isinstance(model.runner, PagedModel)
    }
