"""What a family's tiny model does here, on each KV cache."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ov_specdec import SpeculativePipeline
from ov_specdec.drafters.factory import DrafterKind
from ov_specdec.errors import SpecdecError, openvino_message
from tests.support.kept import Rehearsed

EXACT, PLAIN, WRONG = "exact", "exact, without drafts", "WRONG"
LENGTH = 5
"""Draft tokens of a round."""


@dataclass(frozen=True)
class Verdict:
    """Of one family. Of each KV cache: exact, with drafts or without, WRONG, or why it is refused.

    transformers: the version that Optimum exports it with. reason: why there is no export.
    """

    family: str
    transformers: str
    paged: str = ""
    stateful: str = ""
    reason: str = ""

    @property
    def outline(self) -> tuple[str, ...]:
        """All but the reasons, which may name any of several states."""
        caches = (each.partition(":")[0] for each in (self.paged, self.stateful))
        return (self.family, self.transformers, *caches)


def judge(family: str, version: str, folder: Path) -> Verdict:
    """Compare texts on both KV caches, plain and with drafts, with those of transformers."""
    return Verdict(family, version, _compare(folder, "paged"), _compare(folder, "stateful"))


def _compare(folder: Path, kv: Literal["paged", "stateful"]) -> str:
    expected = json.loads((folder / "expected.json").read_text())
    texts = [[*prompt, *output] for prompt, output in expected]
    kind = DrafterKind("rehearsed", (partial(Rehearsed, texts),))
    options: dict[str, Any] = {"max_new_tokens": len(expected[0][1]), "ignore_eos": True}
    try:
        with SpeculativePipeline(
            folder / "main", drafter=kind, precision="exact", kv=kv
        ) as pipeline:
            prompts, outputs = zip(*expected, strict=True)
            found = [
                [pipeline.generate(p, num_assistant_tokens=n, **options).token_ids for p in prompts]
                for n in (0, LENGTH)  # the second time on a kept KV cache
            ]
            together = pipeline.generate_batch(prompts, num_assistant_tokens=LENGTH, **options)
            found.append([result.token_ids for result in together])
            right = PLAIN if pipeline.main.runner.max_draft_tokens == 0 else EXACT
    except SpecdecError as error:
        return f"refused: {error}".replace(f"{folder}/", "")
    except RuntimeError as error:  # OpenVINO's
        return f"{WRONG}: {openvino_message(error)}"
    return right if all(ids == list(outputs) for ids in found) else WRONG
