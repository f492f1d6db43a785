"""What there is to measure: the embedded pair, and models that somebody gave."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.benchmarks import priority
from lab.benchmarks.models import Models
from lab.benchmarks.peers.asks import Setup
from lab.benchmarks.record import Row
from lab.benchmarks.texts import Prompts
from ov_specdec.models.locate import embedded_folder
from ov_specdec.text.tokenizer import load_tokenizer

SETS = {
    **dict.fromkeys(("embedded", "1b", "1b-int4", "1b-small-draft", "3b"), "heldout"),
    "chat": "tasks",
    **dict.fromkeys(("real", "real-int4"), "code_chat"),
}
"""The prompts of each pair."""

ROLES: Mapping[str, tuple[str, str | None]] = {
    "embedded": ("main", "draft"),
    "chat": ("chat", None),
    "real": ("real main", "real draft"),
    "real-int4": ("real int4", "real draft"),
    "1b-small-draft": ("expanded", "draft"),
    "1b": ("expanded", "expanded draft"),
    "1b-int4": ("expanded int4", "expanded draft"),
    "3b": ("larger", "expanded draft"),
}
"""The main model of each pair and its draft, by their roles; a chat model has no draft."""


def embedded() -> dict[str, Path]:
    """The folders of the embedded pair by role."""
    return {role: embedded_folder(role) for role in ("main", "draft")}


@dataclass(frozen=True)
class Given:
    """Folders of models by role, and recordings for a model that has the role "speech".

    properties: OpenVINO's, for all models and programs that take them. priority: that of all
    processes. rows: what was measured so far.
    """

    folders: Mapping[str, Path] = field(default_factory=embedded)
    recordings: tuple[Path, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    priority: str = priority.USUAL
    rows: list[Row] = field(default_factory=list)

    @property
    def pairs(self) -> Mapping[str, Models]:
        """Main and draft models by name, of those pairs that there are."""
        return {
            pair: Models(self.folders[main], self.folders.get(draft or ""), self.properties)
            for pair, (main, draft) in ROLES.items()
            if self.folders.keys() >= {main, draft or main}
        }

    def has(self, needs: str) -> bool:
        """Whether there is what a part needs: a pair, or speech."""
        if needs == "speech":
            return needs in self.folders and bool(self.recordings)
        return needs in self.pairs

    @contextmanager
    def setup(self, pair: str, **settings: Any) -> Iterator[Setup]:
        """A pair as other processes are told of it. settings: further fields of `Setup`."""
        with TemporaryDirectory() as scratch:
            yield Setup(self.pairs[pair], scratch, **settings)

    def known(self, pairs: Iterable[str]) -> list[str]:
        """Those of these pairs that there are."""
        return [pair for pair in pairs if pair in self.pairs]

    def prompts(self, pair: str) -> list[tuple[str, list[int]]]:
        """Task and token ids of a pair's prompts."""
        return Prompts.read(SETS[pair]).ids(load_tokenizer(self.pairs[pair].main))
