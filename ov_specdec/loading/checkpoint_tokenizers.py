"""Compares the tokenizers of two checkpoints before their export."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ov_specdec.text.guard import GuardReport, compare_tokenizers
from ov_specdec.text.tokenizer import load_tokenizer


def compare_checkpoints(
    main: str, draft: str, *, trust_remote_code: bool = False
) -> GuardReport | None:
    """The guard's report on the tokenizers that two checkpoints will have once exported.

    main, draft: Hub names or folders; only tokenizer files are downloaded. None if a tokenizer
    cannot be read: the export will report the same error. Ignores the width of the logits.
    """
    from transformers import AutoTokenizer  # as Optimum reads and writes them

    with TemporaryDirectory() as folder:
        places = {Path(folder, "main"): main, Path(folder, "draft"): draft}
        try:
            for place, name in places.items():
                read = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
                read.save_pretrained(place)
            a, b = map(load_tokenizer, places)
        except Exception:  # of the Hub, a family, or a model's own code
            return None
        width = max(a.vocab_size, b.vocab_size)
        return compare_tokenizers(a, b, main_width=width, draft_width=width)
