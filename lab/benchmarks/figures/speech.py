"""Transcription: plain, with suffix matches, and openvino.genai, interleaved."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import compact
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.record import Row
from ov_specdec import SpeechPipeline
from ov_specdec.speech.audio import read_audio

RATE = 16000
OPTIONS: dict[str, Any] = {
    "language": "en",
    "temperature": 0.0,
    "logprob_threshold": None,
    "compression_ratio_threshold": None,
    "condition_on_prev_tokens": False,
    "return_timestamps": True,
    "silence_threshold": None,
}
"""What all run with: English, greedy, no fallback, no previous text, timestamps, all windows."""

Transcribe = Callable[[Any], Row]


def speech(given: Given, rounds: int) -> Measurements:
    """Seconds of transcribing all recordings, joined to one."""
    samples = np.concatenate([read_audio(file, RATE) for file in given.recordings])
    methods = methods_of(given)
    names = list(methods)

    def measure(name: str, turn: int) -> Row:
        # Softer each time, for what was heard before is not encoded again.
        heard = samples * np.float32(1.0 - 0.01 * turn - 0.001 * names.index(name))
        audio = heard.tolist() if name.startswith("genai") else heard
        methods[name](audio[:RATE])  # untimed, since other models ran last
        start = perf_counter()
        found = methods[name](audio)
        seconds = perf_counter() - start
        row = {"seconds": seconds, "duration": len(samples) / RATE, "speed": 1 / seconds}
        return compact({**found, **row})

    for turn in range(rounds):
        for name in in_turns(names, turn):
            yield {"turn": turn, "prompt": 0, "method": name}, partial(measure, name, turn)


def methods_of(given: Given) -> dict[str, Transcribe]:
    """What transcribes samples, by name. openvino.genai's says nothing about it."""
    import openvino_genai

    pipeline = SpeechPipeline(str(given.folders["speech"]), properties=dict(given.properties))
    pipeline.prepare()
    peer = openvino_genai.WhisperPipeline(str(given.folders["speech"]), "CPU", **given.properties)
    config = peer.get_generation_config()
    config.language, config.task, config.return_timestamps = "<|en|>", "transcribe", True

    def own(samples: Any, **options: Any) -> Row:
        stats = pipeline.transcribe((samples, RATE), **OPTIONS, **options).stats.generation
        row = {"tokens": stats.generated_tokens, "passes": stats.main_passes}
        return {**row, "drafted": stats.drafted, "accepted": stats.accepted}

    def genai(samples: list[float]) -> Row:
        peer.generate(samples, config)
        return {}

    plain = partial(own, num_assistant_tokens=0)
    plains = dict.fromkeys(("plain", "plain-again"), plain)
    return {**plains, "default": own, "genai-plain": genai, "genai-plain-again": genai}
