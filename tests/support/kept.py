"""Tiny random models that are kept under tests/data, with what transformers generates from them.

Optimum exports some of their families only with versions of transformers that the package itself
does not take, so `lab.families.keep` makes them in an environment that has it.
"""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from ov_specdec.drafters.base import Proposal
from ov_specdec.drafters.factory import DrafterInput
from ov_specdec.planning.plan import Offer, Plan
from ov_specdec.runner.cached_sequence import Passes
from ov_specdec.sampling.verification import Draft
from tests.support.families import SETTINGS
from tests.support.tiny import MadeModels, save_noisy, save_tokenizer

ROOT = Path(__file__).parents[2]
IR = "openvino_model.xml"
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


class Rehearsed:
    """Drafts what is expected, but for every third token. Implements `Drafter`."""

    sources = ("rehearsed",)
    caches = ()

    def __init__(self, texts: Sequence[Sequence[int]], given: DrafterInput) -> None:
        start = list(given.tokens)
        self._text = next(text for text in texts if list(text[: len(start)]) == start)

    def offers(self, tokens: Sequence[int]) -> list[Offer]:
        """One in each round."""
        return [Offer("rehearsed", 0.5)]

    def propose(self, tokens: Sequence[int], plan: Plan) -> Passes[Proposal]:
        """So many of the next tokens."""
        yield from ()
        places = range(len(tokens), min(len(tokens) + plan.length, len(self._text)))
        draft = [self._text[place] if place % 3 else 1 for place in places]
        return Proposal(Draft(draft))
