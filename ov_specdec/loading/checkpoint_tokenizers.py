"""Whether two checkpoints have the same tokenizer, seen before either is exported."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ov_specdec.text.guard import GuardReport, compare_tokenizers
from ov_specdec.text.tokenizer import load_tokenizer


def compare_checkpoints(
    main: str, draft: str, *, trust_remote_code: bool = False
) -> GuardReport | None:
    """The guard's report on the tokenizers that two checkpoints will have once exported.

    main, draft: Hub names or folders; of the Hub only the files of tokenizers are downloaded. None
    where a tokenizer cannot be read: its export meets the same error, and explains it. The width of
    the logits is not looked at.
    """
    from transformers import AutoTokenizer  # as Optimum reads and writes them

    with TemporaryDirectory() as folder:
        places = {Path(folder, "main"): main, Path(folder, "draft"): draft}
        try:
            for place, name in places.items():
                read = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
                read.save_pretrained(place)
            a, b = map(load_tokenizer, places)
        except Exception:  # of the Hub, of a family, or of code that a model brings
            return None
        width = max(a.vocab_size, b.vocab_size)
        return compare_tokenizers(a, b, main_width=width, draft_width=width)
