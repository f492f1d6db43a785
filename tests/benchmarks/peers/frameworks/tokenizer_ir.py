"""Converts a tokenizer to OpenVINO IR, as a process of its own with MODEL and FOLDER."""

import sys
from pathlib import Path
from typing import Any

import openvino as ov


def convert(model: Path, folder: Path) -> None:
    """Write openvino_tokenizer.xml and openvino_detokenizer.xml of a model into a folder."""
    from openvino_tokenizers import convert_tokenizer
    from transformers import PreTrainedTokenizerFast

    load: Any = PreTrainedTokenizerFast  # which has no types
    tokenizer = load(tokenizer_file=str(model / "tokenizer.json"))
    for part, name in zip(
        convert_tokenizer(tokenizer, with_detokenizer=True),
        ("openvino_tokenizer.xml", "openvino_detokenizer.xml"),
        strict=True,
    ):
        ov.save_model(part, folder / name)


if __name__ == "__main__":
    convert(*map(Path, sys.argv[1:]))
