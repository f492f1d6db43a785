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
}
"""The prompts of each pair."""


@dataclass(frozen=True)
class Given:
    """Folders of models, and recordings. None: not given.

    expanded, larger: the embedded main at the cost of 1 B and of 3 B parameters. int4: the former
    in int4. draft: the embedded draft at that of 100 M.
    chat: a chat model, which has no draft model. speech: a Whisper.
    properties: OpenVINO's, for all models and programs that take them. priority: that of all
    processes. rows: what was measured so far.
    """

    expanded: Path | None = None
    larger: Path | None = None
    int4: Path | None = None
    draft: Path | None = None
    chat: Path | None = None
    speech: Path | None = None
    recordings: tuple[Path, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    priority: str = priority.USUAL
    rows: list[Row] = field(default_factory=list)

    @property
    def pairs(self) -> Mapping[str, Models]:
        """Main and draft models by name."""
        main, draft = embedded_folder("main"), embedded_folder("draft")
        pairs = {"embedded": Models(main, draft, properties=self.properties)}
        if self.chat:
            pairs["chat"] = Models(self.chat, properties=self.properties)
        if self.expanded:
            pairs["1b-small-draft"] = Models(self.expanded, draft, properties=self.properties)
        if self.expanded and self.draft:
            pairs["1b"] = Models(self.expanded, self.draft, properties=self.properties)
        if self.int4 and self.draft:
            pairs["1b-int4"] = Models(self.int4, self.draft, properties=self.properties)
        if self.larger and self.draft:
            pairs["3b"] = Models(self.larger, self.draft, properties=self.properties)
        return pairs

    @property
    def folders(self) -> Mapping[str, Path]:
        """The models by role, for their hashes."""
        given = {"expanded": self.expanded, "larger": self.larger, "expanded int4": self.int4}
        given |= {"expanded draft": self.draft, "chat": self.chat, "speech": self.speech}
        embedded = {role: embedded_folder(role) for role in ("main", "draft")}
        return {**embedded, **{role: path for role, path in given.items() if path}}

    def has(self, needs: str) -> bool:
        """Whether there is what a part needs: a pair, or speech."""
        if needs == "speech":
            return bool(self.speech and self.recordings)
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
