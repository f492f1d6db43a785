"""What there is to measure: the embedded pair, and models that somebody gave."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ov_specdec.loading.locate import embedded_folder
from tests.benchmarks.options import Models
from tests.benchmarks.peers.setup import Setup

PAIRS = ("embedded", "chat", "expanded")


@dataclass(frozen=True)
class Given:
    """Folders of models, and recordings. None: not given.

    expanded: the embedded main at the cost of a larger one. chat: a chat model, which has no draft
    model. gguf: the same for llama.cpp. speech: a Whisper. scratch: for what other frameworks want
    converted. properties: OpenVINO's, for all models and frameworks that take them.
    """

    expanded: Path | None = None
    chat: Path | None = None
    gguf: Path | None = None
    speech: Path | None = None
    recordings: tuple[Path, ...] = ()
    scratch: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def pairs(self) -> Mapping[str, Models]:
        """Main and draft models by name."""
        main, draft = embedded_folder("main"), embedded_folder("draft")
        pairs = {"embedded": Models(main, draft, properties=self.properties)}
        if self.chat:
            pairs["chat"] = Models(self.chat, properties=self.properties)
        if self.expanded:
            pairs["expanded"] = Models(self.expanded, draft, properties=self.properties)
        return pairs

    @property
    def folders(self) -> Mapping[str, Path]:
        """The models by role, for their hashes."""
        given = {"expanded": self.expanded, "chat": self.chat, "speech": self.speech}
        embedded = {role: embedded_folder(role) for role in ("main", "draft")}
        return {**embedded, **{role: path for role, path in given.items() if path}}

    def has(self, needs: str) -> bool:
        """Whether there is what a part needs: a pair, speech, or a chat model for llama.cpp."""
        if needs == "speech":
            return bool(self.speech and self.recordings)
        return bool(self.chat and self.gguf) if needs == "gguf" else needs in self.pairs

    @contextmanager
    def setup(self, pair: str) -> Iterator[Setup]:
        """A pair as other processes and frameworks are told of it."""
        models = self.pairs[pair]
        draft = str(models.draft) if models.draft else ""
        with TemporaryDirectory(dir=self.scratch or None) as scratch:
            yield Setup(
                str(models.main),
                draft,
                properties=self.properties,
                scratch=scratch,
                gguf=str(self.gguf or ""),
            )
