"""Train the byte-level BPE tokenizer and encode the corpus with it.

Byte-level BPE as of GPT-2 (Radford et al. 2019), with a split made for source text: a run of two
or more spaces (an indentation) is one piece, runs of newlines another, and an identifier falls
apart at its underscores. Result: ``DATA/tokenizer/`` and ``DATA/{train,heldout}.tokens``.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from config import CONTEXT, END, REPEATS, VOCABULARY, say, tokens_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# Alternatives in order: indentation, word, digits (three at most), punctuation, newlines, other.
SPLIT = r" {2,}| ?_*[^\W\d_]+| ?\d{1,3}| ?(?:[^\s\w]|_)+|\n+|\s"


def read(data: Path, side: str) -> Iterator[dict[str, str]]:
    """The files of one side of the corpus."""
    with (data / "corpus" / f"{side}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def train(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer of exactly ``vocabulary`` entries, END (id 0) among them."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=32,
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    if core.get_vocab_size() != vocabulary:
        raise SystemExit(
            f"the corpus is too small: {core.get_vocab_size()} tokens, not {vocabulary}"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def encode(files: list[dict[str, str]], tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """The files' token ids one after the other, each file ended by END; uint16."""
    core = tokenizer.backend_tokenizer
    ids: list[np.ndarray] = []
    for start in range(0, len(files), 256):
        texts = [file["text"] for file in files[start : start + 256]]
        ids += [
            np.array([*encoding.ids, tokenizer.eos_token_id], dtype=np.uint16)
            for encoding in core.encode_batch(texts, add_special_tokens=False)
        ]
    return np.concatenate(ids)


def build(data: Path, vocabulary: int = VOCABULARY) -> None:
    """Train on the training side, and encode both sides."""
    tokenizer = train((file["text"] for file in read(data, "train")), vocabulary)
    tokenizer.save_pretrained(data / "tokenizer")
    write_tokens(data, tokenizer)


def write_tokens(data: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Encode both sides of the corpus, their files in a random order."""
    for side in ("train", "heldout"):
        files = list(read(data, side))
        characters = sum(len(file["text"]) for file in files)
        if side == "train":
            files = [file for file in files for _ in range(REPEATS.get(file["package"], 1))]
        order = np.random.default_rng(0).permutation(len(files))
        ids = encode([files[index] for index in order], tokenizer)
        ids.tofile(tokens_file(data, side))
        say(f"{side}: {len(files)} files, {len(ids)} tokens, {characters} characters")


def main() -> None:
    """Train on a corpus and encode it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that corpus.py filled")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    args = parser.parse_args()
    build(args.data, args.vocabulary)


if __name__ == "__main__":
    main()
