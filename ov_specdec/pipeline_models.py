"""The models of a pipeline: their folders, their configurations, and their static shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ov_specdec.drafters.factory import DrafterKind
from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.loading.compile import LoadedModel
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import find_profile
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.loading.source import ModelSource, open_source
from ov_specdec.planning.costs import KeptCosts, Role
from ov_specdec.runner.paged import PagedModel

USUAL_STEPS: Mapping[Role, Mapping[int, float]] = {
    "main": {2: 3.0, 8: 3.0},
    "draft": {1: 4.0, 2: 1.0},
}
"""Tokens of passes that are expected of a process which has not decoded yet."""


def open_sources(
    main: str | Path | None,
    draft: str | Path | None,
    drafter: DrafterKind,
    chat_template: str | Path | None,
) -> list[ModelSource]:
    """The main model, and the draft model where the drafter has one, as read from their folders."""
    chosen = {"main": (main, chat_template)}
    if drafter.has_draft_model:
        chosen["draft"] = (draft, None)
    return [
        open_source(embedded_folder(role) if name is None else locate(name), template)
        for role, (name, template) in chosen.items()
    ]


def take_profile(
    profile: str | Path, sources: Sequence[ModelSource], configs: list[RuntimeConfig]
) -> tuple[Path | None, list[RuntimeConfig]]:
    """The file of the pair's profile, None where there is none, and the configurations by it."""
    main, draft = configs
    folders = [source.folder for source in sources]
    found = find_profile(profile, folders[0], folders[1], main.device, main.kv)
    if found is None:
        return None, configs
    path, tuned = found
    return path, [
        replace(main, properties=tuned.main_properties),
        replace(draft, properties=tuned.draft_properties),
    ]


def make_static_shapes(
    models: Sequence[LoadedModel], costs: KeptCosts, drafter: DrafterKind
) -> dict[Role, StaticShapes]:
    """The static shapes of those models that may have some; a draft's come soonest."""
    roles: tuple[Role, Role] = "main", "draft"
    main = models[0].runner
    return {
        role: StaticShapes(
            role,
            model.runner,
            model.compiler,
            costs,
            usual={1: 1.0} if drafter.name == "none" else USUAL_STEPS[role],
            wanted=None if isinstance(sizes := model.config.static_shapes, str) else tuple(sizes),
            can_swap=lambda: main.is_proven,
        )
        for role, model in reversed(list(zip(roles, models, strict=False)))
        if model.compiler is not None and isinstance(model.runner, PagedModel)
    }
