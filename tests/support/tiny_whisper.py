"""A tiny random Whisper, exported for real, a recording, and what torch makes of it."""

import json
import shutil
from pathlib import Path

import numpy as np

from ov_specdec.speech.settings import WhisperSettings
from tests.support.tiny import MadeModels, export, save_noisy, save_tokenizer
from tests.support.tiny_encoder_decoder import HEADS

RATE = 16000
WINDOW = 2
"""Seconds that the encoder takes at a time."""

NUM_TEXT = 280
MARKS = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"),
    *("<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
IDS = {mark: NUM_TEXT + place for place, mark in enumerate(MARKS)}
EOS, NO_TIMESTAMPS = IDS["<|endoftext|>"], IDS["<|notimestamps|>"]
VOCAB_SIZE = NO_TIMESTAMPS + 1 + 50 * WINDOW + 1
MAX_LENGTH = 96

GENERATION = {
    "decoder_start_token_id": IDS["<|startoftranscript|>"],
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), EOS),
    "max_length": MAX_LENGTH,
    "is_multilingual": True,
    "lang_to_id": {language: IDS[language] for language in ("<|en|>", "<|de|>")},
    "task_to_id": {task: IDS[f"<|{task}|>"] for task in ("transcribe", "translate")},
    "no_timestamps_token_id": NO_TIMESTAMPS,
    "prev_sot_token_id": IDS["<|startofprev|>"],
    "suppress_tokens": [5, 6, *range(EOS + 1, NO_TIMESTAMPS)],
    "begin_suppress_tokens": [7, EOS],
    "max_initial_timestamp_index": 25,
}

PROMPT = "def area"
CASES = {
    "short": (1.5, {"return_timestamps": False}),
    "detected": (1.5, {"return_timestamps": False, "language": None}),
    "translated": (1.5, {"return_timestamps": False, "task": "translate"}),
    "long": (5.3, {"return_timestamps": True}),
    "told": (5.3, {"return_timestamps": True, "condition_on_prev_tokens": True}),
    "prompted": (
        4.1,
        {"return_timestamps": True, "condition_on_prev_tokens": True, "prompt": PROMPT},
    ),
}
"""Seconds of the recording, and options as transformers has them."""


def recording(seconds: float) -> np.ndarray:
    """A voice-like sound: a buzz whose pitch and formants move, with pauses."""
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = 110 + 30 * np.sin(2 * np.pi * 0.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    harmonics = sum(
        np.sin(n * phase) / n * (1 + np.sin(2 * np.pi * (0.3 + 0.1 * n) * time))
        for n in range(1, 9)
    )
    syllables = np.maximum(np.sin(2 * np.pi * 2.1 * time), 0.02)
    noise = np.random.default_rng(4).normal(size=len(time), scale=0.003)
    return (0.1 * harmonics * syllables + noise).astype(np.float32)


def make_whisper(folder: Path) -> None:
    """Fill the folder of `MadeModels`; the draft has the same encoder.

    Expected are, by case, segments of tokens, with those of timestamps, as torch gives them.
    """
    made = MadeModels(folder)
    save_checkpoint(made.checkpoint)
    export(made.checkpoint, made.main, "automatic-speech-recognition", nb_max_frames=100 * WINDOW)
    shutil.copytree(made.main, made.draft)
    decoder = "openvino_decoder_model.xml"
    save_noisy(made.main / decoder, made.draft / decoder, 0.1)
    expected = {name: reference(made.checkpoint, *case) for name, case in CASES.items()}
    (folder / "expected.json").write_text(json.dumps(expected))


def save_checkpoint(folder: Path) -> None:
    """Save a random Whisper with its tokenizer and feature extractor."""
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor
    from transformers import WhisperForConditionalGeneration as Whisper

    settings = {name: value for name, value in HEADS.items() if name != "max_position_embeddings"}
    ids = {name: GENERATION[name] for name in GENERATION if name.endswith("_token_id")}
    torch.manual_seed(3)
    config = WhisperConfig(
        **settings,
        **{name: ids[name] for name in ("eos_token_id", "bos_token_id", "pad_token_id")},
        decoder_start_token_id=ids["decoder_start_token_id"],
        vocab_size=VOCAB_SIZE,
        num_mel_bins=80,
        max_source_positions=50 * WINDOW,
        max_target_positions=MAX_LENGTH,
    )
    model = Whisper(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(16.0 if "encoder_attn" in name else 4.0)
        # Or all timestamps together mostly win. These rows are those of the last layer too.
        model.model.decoder.embed_tokens.weight[NO_TIMESTAMPS:].mul_(0.3)
    model.generation_config = GenerationConfig(**GENERATION)
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80, chunk_length=WINDOW).save_pretrained(folder)
    # `NUM_TEXT` tokens, then the marks; timestamps have no text.
    save_tokenizer(folder, vocab_size=NUM_TEXT, first=(), last=MARKS)


def reference(checkpoint: Path, seconds: float, options: dict) -> list[list[int]]:
    """The tokens of each segment, decoded greedily by transformers on torch, without fallback."""
    return [
        segment["tokens"].tolist() for segment in reference_segments(checkpoint, seconds, options)
    ]


def reference_segments(checkpoint: Path, seconds: float, options: dict) -> list[dict]:
    """The segments that transformers on torch gives, decoded greedily and without fallback.

    With return_token_timestamps they have times of tokens, by all heads of the last layer.
    """
    import torch
    from transformers import AutoTokenizer, WhisperFeatureExtractor
    from transformers import WhisperForConditionalGeneration as Whisper

    model = Whisper.from_pretrained(checkpoint).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(checkpoint)
    is_long = seconds > WINDOW
    settings = {"truncation": False, "padding": "longest"} if is_long else {}
    features = extractor(
        recording(seconds), sampling_rate=RATE, return_tensors="pt", **settings
    ).input_features
    given = {"language": "en", "task": "transcribe", **options}
    if prompt := given.pop("prompt", None):
        encode = AutoTokenizer.from_pretrained(checkpoint).encode
        ids = [IDS["<|startofprev|>"], *encode(f" {prompt}", add_special_tokens=False)]
        given["prompt_ids"] = torch.tensor(ids)
    model.generation_config.alignment_heads = [[1, head] for head in range(4)]
    with torch.no_grad():
        made = model.generate(features, temperature=0.0, return_segments=True, **given)
    return made["segments"][0]


# Text below 50, the end, start, languages, tasks, previous, no speech, no timestamps; then times.
SETTINGS = WhisperSettings(
    decoder_start_token_id=51,
    eos_token_id=50,
    no_timestamps_token_id=58,
    prev_sot_token_id=56,
    vocab_size=80,
    max_target_positions=64,
    lang_to_id={"<|en|>": 52, "<|de|>": 53},
    task_to_id={"transcribe": 54, "translate": 55},
    suppress_tokens=(3, 5),
    begin_suppress_tokens=(7, 50),
    max_initial_timestamp_index=10,
)


ENGLISH = WhisperSettings(51, 50, 58, 56, 80, 64)
