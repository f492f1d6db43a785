"""Makes tiny models with the transformers of the environment that it runs in.

`python -m lab.families.make FOLDER FAMILY...` fills FOLDER/FAMILY with a model, and what
transformers generates; where that fails, with error.txt.
"""

import json
import shutil
import sys
from pathlib import Path

from ov_specdec.models.optimum_process import allow_gemma4
from tests.support.families import SETTINGS
from tests.support.kept import prompts
from tests.support.tiny import export, reference, save_tokenizer

NUM_TOKENS = 40
ERROR = "error.txt"


def make(family: str, folder: Path) -> None:
    """Make a model and expected outputs."""
    if family == "gemma4_text":
        allow_gemma4()
    _save_checkpoint(family, folder / "checkpoint")
    export(folder / "checkpoint", folder / "main")
    texts = prompts((20, 37, 150))
    outputs = [(ids, reference(folder / "checkpoint", ids, NUM_TOKENS)) for ids in texts]
    (folder / "expected.json").write_text(json.dumps(outputs))


def _save_checkpoint(family: str, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(family.split()[0], **SETTINGS[family])
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                # As initialized, attention hardly looks around and every token repeats itself.
                weight.normal_(0, 0.08)
    model.save_pretrained(folder)
    save_tokenizer(folder)


def main(target: Path, *families: str) -> None:
    """Make each of them; an error of one leaves the others."""
    for family in families:
        folder = target / family
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            make(family, folder)
        except Exception as error:
            (folder / ERROR).write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
