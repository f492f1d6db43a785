"""Tiny random models that are kept under tests/data, with what transformers generates from them.

Optimum exports some of their families only with versions of transformers that the package itself
does not take. `python -m tests.support.kept --make FOLDER FAMILY...` makes them anew in an
environment that has it, as that of `ov-specdec export --transformers`.
"""

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.families.settings import SETTINGS
from tests.support.tiny import MadeModels, export, reference, save_noisy, save_tokenizer

ROOT = Path(__file__).parents[2]
IR, WEIGHTS = "openvino_model.xml", "openvino_model.bin"
KEPT = (
    *(IR, WEIGHTS, "config.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)
HYBRIDS = {"lfm2": "5.2", "qwen3_5_text": "5.2", "qwen3_next": "4.57"}
"""Families, and the transformers that Optimum exports them with."""
WINDOWED = {
    **{"gemma3_text": "5.0", "gpt_neo": "5.5", "gpt_oss": "5.5"},
    **{"llama4_text": "4.57", "phi3": "5.5"},
}
"""The same of models with windows, chunks and borders; all outputs end beyond those."""
NUM_TOKENS = 60


def open_kept(family: str, target: Path) -> MadeModels:
    """A copy, for a test to do with as it likes.

    Of a draft at most its weights are kept: its graph is the main model's. A hybrid's is made here.
    """
    kept = ROOT / "tests" / "data" / ("hybrid" if family in HYBRIDS else "windows") / family
    models = MadeModels(Path(shutil.copytree(kept, target)))
    models.draft.mkdir(exist_ok=True)
    for file in models.main.iterdir():
        if not (models.draft / file.name).exists():
            shutil.copy(file, models.draft)
    if family in HYBRIDS:
        save_noisy(models.main / IR, models.draft / IR, 0.03)
    return models


def prompts(lengths: Sequence[int]) -> list[list[int]]:
    """Three of random ids, the second one with repetitions, as quoting texts have them."""
    generator = random.Random(1)  # noqa: S311
    ids = [generator.choices(range(1, 290), k=length) for length in lengths]
    ids[1][20:30] = ids[1][5:15]
    return ids


def save_checkpoint(family: str, folder: Path, noise: float = 0.0) -> None:
    """Save a random model, the same for the same family, plus noise on its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    settings = SETTINGS["phi3 with LongRoPE" if family == "phi3" else family]
    if family in HYBRIDS:
        settings = {**settings, "max_position_embeddings": 512}
    config = AutoConfig.for_model(family, **settings)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            # As initialized, attention hardly looks around and every token repeats itself.
            if weight.dim() > 1 and family in HYBRIDS:
                weight.mul_(4.0)
            elif weight.dim() > 1:
                weight.normal_(0, 4.0 * config.initializer_range)
                weight.add_(torch.randn_like(weight) * weight.std() * noise)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def make(family: str, target: Path) -> None:
    """Fill the folder of `MadeModels`; expected are prompts and outputs."""
    is_hybrid = family in HYBRIDS
    with tempfile.TemporaryDirectory() as made:
        checkpoint = Path(made) / "checkpoint"
        save_checkpoint(family, checkpoint)
        kept = {export(checkpoint, Path(made) / "main"): KEPT}
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
    for family in sys.argv[3:]:  # after --make
        make(family, Path(sys.argv[2]) / family)
