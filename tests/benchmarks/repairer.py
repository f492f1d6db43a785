"""Trains a small T5 that repairs English, so that its outputs quote their sources but for errors.

`python -m tests.benchmarks repairer PARAGRAPHS OUTPUT`

PARAGRAPHS: a text file with one in each line; of every 6,000 lines the last 100 are held out. A
program puts errors into them, and the model learns to take those out: letters mistyped, words
confused, articles and commas left out, words doubled or joined. OUTPUT gets a checkpoint, and
prompts.jsonl with 60 held-out texts that have errors, for `speed`. Trains on CUDA where
there is one, else on the CPU. Muon is that of models/training.
"""

import json
import random
import re
import sys
from pathlib import Path
from time import monotonic

import click
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

sys.path.insert(0, str(Path(__file__).parents[2] / "models" / "training"))
from muon import Muon

from tests.benchmarks.options import PATH

PAD, END = 0, 1
SPECIAL = ["<pad>", "</s>", "<unk>"]
LENGTH, VOCABULARY = 192, 4096
SHAPE = {"d_model": 192, "d_kv": 32, "num_heads": 6, "d_ff": 640}
SHAPE |= {"num_layers": 4, "num_decoder_layers": 3}
RATES = (0.005, 0.003)
"""Of Muon for the layers' matrices, and of AdamW for the rest."""
BLOCK, HELD_OUT, NUM_PROMPTS = 6000, 100, 60

SHARES = (0.0, 0.04, 0.08, 0.12, 0.16, 0.22, 0.28)
"""Of words, for an error; each text has one of these."""
CONFUSED = (
    *("their there", "its it's", "then than", "to too", "your you're", "is are", "was were"),
    *("has have", "a an", "lose loose", "effect affect", "this these", "does do", "which witch"),
    *("of off", "where were", "in on", "by be"),
)
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def others():
    """By a word, those that it is confused with; by a letter, those beside it on a keyboard."""
    words, letters = {}, {}
    for first, second in map(str.split, CONFUSED):
        words.setdefault(first, []).append(second)
        words.setdefault(second, []).append(first)
    for row in KEYS:
        for place, letter in enumerate(row):
            letters[letter] = row[max(place - 1, 0) : place] + row[place + 1 : place + 2]
    return words, letters


WORDS, LETTERS = others()


def mistype(word, random):
    """A word with two letters swapped, one left out, one doubled, or the key beside it hit."""
    place = random.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    kind = random.random()
    if kind < 0.35:
        return before + after[0] + letter + after[1:]
    if kind < 0.6:
        return before + after
    return (
        before + (letter * 2 if kind < 0.75 else random.choice(LETTERS.get(letter, letter))) + after
    )


def corrupt(text, random, share=None):
    """A text with errors in about this share of its words."""
    share = random.choice(SHARES) if share is None else share
    words = []
    for word in text.split(" "):
        letters = word.rstrip(".,;:!?")
        rest, lower = word[len(letters) :], letters.lower()
        if random.random() >= share:
            words.append(word)
        elif lower in ("a", "an", "the") and random.random() < 0.7:
            continue
        elif lower in WORDS and random.random() < 0.8:
            words.append(random.choice(WORDS[lower]) + rest)
        elif rest and random.random() < 0.35:
            words.append(letters)
        elif letters[:1].isupper() and letters[1:].islower() and random.random() < 0.6:
            words.append(lower + rest)
        elif random.random() < 0.04:
            words += [letters, word]
        elif random.random() < 0.06 and words:
            words[-1] += word
        elif len(letters) > 3 and letters.isalpha():
            words.append(mistype(letters, random) + rest)
        else:
            words.append(word)
    return " ".join(words)


def train_tokenizer(texts):
    """A byte-level BPE that ends a text as T5's does."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet
    )
    backend.train_from_iterator(texts, trainer)
    end = [("</s>", END)]
    backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=end)
    names = dict(zip(("pad_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, **names
    )


class Pairs(IterableDataset):
    """Batches of ids without end: [rows, LENGTH] of texts with errors, and of the same without."""

    def __init__(self, paragraphs, backend, rows):
        self.paragraphs, self.backend, self.rows = paragraphs, backend, rows

    def text(self, random):
        """Sentences of neighbouring paragraphs, from 60 to 580 characters."""
        limit, place = random.randrange(60, 580), random.randrange(len(self.paragraphs))
        text = ""
        while len(text) < limit:
            sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", self.paragraphs[place])
            for sentence in sentences[0 if text else random.randrange(len(sentences)) :]:
                if text and len(text) + len(sentence) > limit:
                    return text
                text = f"{text} {sentence}" if text else sentence
            place = (place + 1) % len(self.paragraphs)
        return text

    def __iter__(self):
        source = random.Random(torch.initial_seed())
        self.backend.enable_padding(pad_id=PAD, length=LENGTH)
        while True:
            texts = [self.text(source) for _ in range(self.rows)]
            pairs = [corrupt(text, source) for text in texts], texts
            encoded = ([row.ids[:LENGTH] for row in self.backend.encode_batch(p)] for p in pairs)
            yield tuple(map(torch.tensor, encoded))


def loss_of(model, sources, targets):
    """Mean loss of a batch in nats a token, in bf16 on CUDA."""
    given = torch.cat([torch.full_like(targets[:, :1], PAD), targets[:, :-1]], 1)
    with torch.autocast("cuda", torch.bfloat16, enabled=sources.is_cuda):
        logits = model(
            input_ids=sources, attention_mask=sources != PAD, decoder_input_ids=given
        ).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=PAD
    )


def train(model, batches, minutes):
    """Rates rise for 100 steps and fall over the last 60 % of the time."""
    inner = [
        p for n, p in model.named_parameters() if p.ndim == 2 and not re.search("shared|bias", n)
    ]
    kept = {id(p) for p in inner}
    rest = [p for p in model.parameters() if id(p) not in kept]
    optimizers = [Muon(inner, lr=RATES[0]), torch.optim.AdamW(rest, betas=(0.9, 0.95))]
    start, step = monotonic(), 0
    while (share := (monotonic() - start) / 60 / minutes) < 1:
        loss = loss_of(model, *(ids.to(model.device) for ids in next(batches)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        factor = min(1.0, (step + 1) / 100) * max(0.01, min(1.0, (1 - share) / 0.6))
        for optimizer, rate in zip(optimizers, RATES, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 100 == 0:
            click.echo(f"{share:.0%}, step {step}: loss {loss.item():.3f}")


@click.command()
@click.argument("paragraphs", type=PATH)
@click.argument("output", type=PATH)
@click.option("--minutes", default=8.0, show_default=True, help="How long to train.")
@click.option("--rows", default=512, show_default=True, help="Texts of a batch.")
@click.option("--workers", default=6, show_default=True, help="Processes that make batches.")
def repairer(paragraphs, output, minutes, rows, workers):
    """Train a small T5 that repairs English, on PARAGRAPHS."""
    lines = paragraphs.read_text(encoding="utf-8").splitlines()
    sides = [], []
    for number, line in enumerate(lines):
        sides[number % BLOCK >= BLOCK - HELD_OUT].append(line)
    texts, held_out = sides
    tokenizer = train_tokenizer(texts)
    tokenizer.save_pretrained(output)
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, dropout_rate=0.0, decoder_start_token_id=PAD, **SHAPE)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = T5ForConditionalGeneration(config).to(device)
    pairs = Pairs(texts, tokenizer.backend_tokenizer, rows)
    train(model, iter(DataLoader(pairs, None, num_workers=workers)), minutes)
    model.to(torch.bfloat16).save_pretrained(output)
    source = random.Random(7)
    chosen = source.sample([text for text in held_out if 150 <= len(text) <= 500], NUM_PROMPTS)
    prompts = ({"task": "repair", "prompt": corrupt(text, source, 0.1)} for text in chosen)
    (output / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
