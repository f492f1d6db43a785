"""Tiny random encoder-decoder models, exported for real, and what torch generates from them."""

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.tiny import VOCAB_SIZE, export, save_tokenizer

TEXT = ("t5", "bart", "mbart", "pegasus", "m2m_100")
NUM_IDS = 290
"""Columns of the logits that the tokenizer has a token for."""

SOURCES = ([20, 21, 22, 23, 24, 25, 26, 27] * 2, [280, 17, 200] * 12)
NUM_TOKENS = 40
NUM_BINS, NUM_FRAMES = 80, 100
START, PAD, BOS = 2, 1, 3

HEADS = {
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 96 for part in ("encoder", "decoder")},
    "d_model": 48,
    "max_position_embeddings": 128,
}
SETTINGS = {
    "t5": {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    **dict.fromkeys(("bart", "mbart", "pegasus", "m2m_100"), HEADS),
    "whisper": {
        **HEADS,
        "num_mel_bins": NUM_BINS,
        "max_source_positions": NUM_FRAMES // 2,
        "max_target_positions": 128,
    },
}

SCALES = {"t5": {"shared": 0.1, "": 3.0}, "whisper": {"encoder_attn": 16.0, "": 4.0}}
"""By what weights are multiplied, by the first that is in their name; others by 4. As initialized,
attention hardly looks around and every token repeats itself, whatever the source is."""


@dataclass(frozen=True)
class TinyEncoderDecoder:
    """A main model, its checkpoint, and drafts that agree with it sometimes.

    expected: what torch generates from the checkpoint for each of `SOURCES`.
    """

    folder: Path

    @property
    def main(self) -> Path:
        return self.folder / "main"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def draft(self) -> Path:
        """A draft with an encoder of its own."""
        return self.folder / "draft"

    @property
    def sharing_draft(self) -> Path:
        """A draft with the main model's encoder."""
        return self.folder / "sharing-draft"

    @property
    def expected(self) -> list[list[int]]:
        return json.loads((self.folder / "expected.json").read_text())


def features(seed: int) -> np.ndarray:
    """What stands for a recording: [1, bins, frames]."""
    return np.random.default_rng(seed).normal(size=(1, NUM_BINS, NUM_FRAMES)).astype(np.float32)


def make_encoder_decoder(architecture: str, folder: Path) -> None:
    """Fill the folder of a `TinyEncoderDecoder`."""
    made = TinyEncoderDecoder(folder)
    task = "automatic-speech-recognition" if architecture == "whisper" else "text2text-generation"
    save_checkpoint(architecture, made.checkpoint)
    export(made.checkpoint, made.main, task, nb_max_frames=NUM_FRAMES)
    for draft, parts in ((made.draft, ("encoder", "decoder")), (made.sharing_draft, ("decoder",))):
        shutil.copytree(made.main, draft)
        for part in parts:
            add_noise(made.main, draft, f"openvino_{part}_model.xml")
    sources = [features(seed) for seed in (0, 1)] if architecture == "whisper" else SOURCES
    outputs = [reference(made.checkpoint, source) for source in sources]
    (folder / "expected.json").write_text(json.dumps(outputs))


def save_checkpoint(architecture: str, folder: Path) -> None:
    """Save a random model, the same for the same architecture."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, WhisperFeatureExtractor
    from transformers import WhisperForConditionalGeneration as Whisper

    common = {
        **{"vocab_size": VOCAB_SIZE, "eos_token_id": 0, "forced_eos_token_id": None},
        **{"pad_token_id": PAD, "decoder_start_token_id": START, "bos_token_id": BOS},
        "tie_word_embeddings": False,
    }
    torch.manual_seed(1)
    config = AutoConfig.for_model(architecture, **common, **SETTINGS[architecture])
    is_speech = architecture == "whisper"
    model = (Whisper if is_speech else AutoModelForSeq2SeqLM.from_config)(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scales = SCALES.get(architecture, {"": 4.0})
            if weight.dim() > 1:
                weight.mul_(next(scale for part, scale in scales.items() if part in name))
    model.save_pretrained(folder)
    if is_speech:
        WhisperFeatureExtractor(feature_size=NUM_BINS, chunk_length=1).save_pretrained(folder)
    save_tokenizer(folder)


def add_noise(main: Path, draft: Path, file: str) -> None:
    """Write a model's IR with a little noise on its weights into a draft's folder."""
    import openvino as ov
    from openvino import opset13 as ops

    random = np.random.default_rng(2)
    model = ov.Core().read_model(main / file)
    for node in model.get_ops():
        if (
            node.get_type_name() == "Constant"
            and node.data.ndim == 2
            and node.data.size > VOCAB_SIZE
        ):
            weights = node.data
            noise = 0.1 * weights.std() * random.normal(size=weights.shape)
            noisy = ops.constant((weights + noise).astype(weights.dtype))
            node.output(0).replace(noisy.output(0))
    ov.save_model(model, draft / file, compress_to_fp16=False)


@cache
def load_checkpoint(checkpoint: Path, *, is_speech: bool) -> Any:
    """A checkpoint on torch."""
    from transformers import AutoModelForSeq2SeqLM
    from transformers import WhisperForConditionalGeneration as Whisper

    return (Whisper if is_speech else AutoModelForSeq2SeqLM).from_pretrained(checkpoint).eval()


def reference(checkpoint: Path, source: object, **options: object) -> list[int]:
    """`NUM_TOKENS` tokens, decoded greedily by transformers on torch.

    source: ids, or features.
    """
    import torch
    from transformers import GenerationConfig

    model = load_checkpoint(checkpoint, is_speech=isinstance(source, np.ndarray))
    if isinstance(source, np.ndarray):
        tokens = [START]
        with torch.no_grad():
            hidden = model.model.encoder(torch.tensor(source)).last_hidden_state
            for _ in range(NUM_TOKENS):
                ids = torch.tensor([tokens])
                row = model(encoder_outputs=(hidden,), decoder_input_ids=ids, use_cache=False)
                tokens.append(int(row.logits[0, -1, :NUM_IDS].argmax()))
        return tokens[1:]
    given = {"max_new_tokens": NUM_TOKENS, "decoder_start_token_id": START, "pad_token_id": PAD}
    given["suppress_tokens"] = list(range(NUM_IDS, VOCAB_SIZE))
    config = GenerationConfig(**given, **options)
    with torch.no_grad():
        return model.generate(torch.tensor([source]), generation_config=config)[0, 1:].tolist()
