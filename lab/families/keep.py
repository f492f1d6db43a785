"""Makes the tiny models below tests/data: `python -m lab.families.keep FOLDER FAMILY...`.

It runs in an environment with the transformers that the family wants, as that of
`ov-specdec export --transformers`.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.kept import HYBRIDS, IR, NUM_TOKENS, prompts, save_checkpoint
from tests.support.tiny import export, reference

WEIGHTS = "openvino_model.bin"
KEPT = (
    *(IR, WEIGHTS, "config.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)


def make(family: str, target: Path) -> None:
    """Fill the folder of `MadeModels`; expected are prompts and outputs."""
    is_hybrid = family in HYBRIDS
    with tempfile.TemporaryDirectory() as made:
        checkpoint = Path(made) / "checkpoint"
        save_checkpoint(family, checkpoint)
        kept: dict[Path, tuple[str, ...]] = {export(checkpoint, Path(made) / "main"): KEPT}
        texts = prompts((5 if is_hybrid else 20, 37, 150))
        outputs = [(ids, reference(checkpoint, ids, NUM_TOKENS)) for ids in texts]
        if not is_hybrid:
            save_checkpoint(family, checkpoint, noise=0.03)
            kept[export(checkpoint, Path(made) / "draft")] = (WEIGHTS,)
        shutil.rmtree(target, ignore_errors=True)
        for folder, names in kept.items():
            (target / folder.name).mkdir(parents=True)
            for name in names:
                shutil.copy(folder / name, target / folder.name)
        (target / "expected.json").write_text(json.dumps(outputs) + "\n")


if __name__ == "__main__":
    for family in sys.argv[2:]:
        make(family, Path(sys.argv[1]) / family)
