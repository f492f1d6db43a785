"""The log of a training run: one JSON record a line, on the standard output and in a file."""

import json
from pathlib import Path

from config import say


class Log:
    """Appends records to ``DATA/{name}.jsonl``; a run that goes on drops what it will do again.

    ``clock`` is the run's own: its step, seconds and tokens go into every record.
    """

    def __init__(self, data: Path, name: str, clock: dict) -> None:
        self.file, self.clock = data / f"{name}.jsonl", clock
        old = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        kept = [line + "\n" for line in old if json.loads(line)["step"] < clock["step"]]
        self.file.write_text("".join(kept), encoding="utf-8")

    def write(self, layers: int, **figures: float) -> None:
        """One record: how far the run is, and figures: losses in nats a token, shares."""
        record = {
            "step": self.clock["step"],
            "minute": round(self.clock["seconds"] / 60, 2),
            "tokens": self.clock["tokens"],
            "layers": layers,
            **{name: round(value, 4) for name, value in figures.items()},
        }
        line = json.dumps(record)
        say(line)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(line + "\n")
