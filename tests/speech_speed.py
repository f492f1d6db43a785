"""Measures transcription: plain, suffix and draft against openvino.genai, in turns.

usage: python -m tests.speech_speed MAIN DRAFT RECORDING... [--rounds N]

MAIN, DRAFT: exported Whispers; RECORDING: files, which are joined to one. All run with the same
options: English, greedy, no fallback, no previous text, timestamps. Prints a table of medians.
"""

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from ov_specdec import SpeechPipeline
from ov_specdec.speech.audio import read_audio

RATE = 16000
OPTIONS = {
    "language": "en",
    "temperature": 0.0,
    "logprob_threshold": None,
    "compression_ratio_threshold": None,
    "condition_on_prev_tokens": False,
    "return_timestamps": True,
}


def genai(main):
    """openvino.genai's pipeline: seconds of a transcription of some samples."""
    import openvino_genai

    pipeline = openvino_genai.WhisperPipeline(str(main), "CPU")
    config = pipeline.get_generation_config()
    config.language, config.task, config.return_timestamps = "<|en|>", "transcribe", True

    def run(samples):
        start = perf_counter()
        pipeline.generate(samples.tolist(), config)
        return perf_counter() - start, None

    return run


def own(main, draft=None, **options):
    """This project's: seconds, and the statistics."""
    pipeline = SpeechPipeline(main, draft)
    if options.get("num_assistant_tokens") != 0:
        pipeline.prepare()

    def run(samples):
        start = perf_counter()
        result = pipeline.transcribe((samples, RATE), **OPTIONS, **options)
        return perf_counter() - start, result.stats

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("main", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    samples = np.concatenate([read_audio(file, RATE) for file in given.recordings])
    methods = {
        "openvino.genai": genai(given.main),
        "plain": own(given.main, num_assistant_tokens=0),
        "suffix, auto": own(given.main),
        "suffix, 4": own(given.main, num_assistant_tokens=4),
        "draft, auto": own(given.main, given.draft),
        "draft, 4": own(given.main, given.draft, num_assistant_tokens=4),
    }
    times = {name: [] for name in methods}
    stats = {}
    for number in range(given.rounds + 1):  # the first is for warming up
        # Softer each time, for what was heard before is not encoded again.
        heard = samples * np.float32(1.0 - 0.01 * number)
        for name, run in methods.items():
            seconds, stats[name] = run(heard)
            if number:
                times[name].append(seconds)
    print(f"{len(samples) / RATE:.1f} s of speech, medians of {given.rounds} rounds in turns\n")
    print(
        "| method | seconds | real-time factor | to plain | tokens per pass | accepted | encoder |"
    )
    print("|---|---|---|---|---|---|---|")
    plain = median(times["plain"])
    for name, all_seconds in times.items():
        seconds, told = median(all_seconds), stats[name]
        figures = ["", "", ""]
        if told is not None:
            decoding = told.generation
            figures = [
                f"{decoding.tokens_per_main_pass:.2f}",
                f"{decoding.acceptance_rate:.0%}" if decoding.drafted else "",
                f"{told.encoder_share:.0%}",
            ]
        factor = seconds / (len(samples) / RATE)
        columns = [name, f"{seconds:.2f}", f"{factor:.3f}", f"{plain / seconds:.2f}", *figures]
        print(f"| {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
