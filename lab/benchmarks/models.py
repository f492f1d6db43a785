"""The models of a run. Processes of other frameworks import this, and nothing of this project."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ov_specdec import SpeculativePipeline
    from ov_specdec.drafters.factory import DrafterName


@dataclass(frozen=True)
class Models:
    """The models of a run, and OpenVINO's properties. draft: None where none takes part."""

    main: Path
    draft: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def pipeline(
        self, drafter: "DrafterName | None" = None, **settings: Any
    ) -> "SpeculativePipeline":
        """A pipeline of them, with what was asked for and nothing that `tune` has left behind.

        drafter: by default the project's.
        """
        from ov_specdec import SpeculativePipeline
        from ov_specdec.drafters.factory import WITH_DRAFT

        drafts = {"draft": self.draft} if drafter is None or drafter in WITH_DRAFT else {}
        usual = {"profile": "none", "generation_config": "none"}
        given = {"properties": dict(self.properties), **usual, **drafts, **settings}
        return SpeculativePipeline(self.main, drafter=drafter, **given)
