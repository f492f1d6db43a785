"""Measures transcription: plain, suffix and draft against openvino.genai and torch, in turns.

usage: python -m tests.speech_speed MAIN DRAFT RECORDING... [--rounds N] [--lengths N ...]
       [--others [suffix] [genai]] [--torch MAIN_CHECKPOINT DRAFT_CHECKPOINT]

MAIN, DRAFT: exported Whispers; RECORDING: files, which are joined to one. All run with the same
options: English, greedy, no fallback, no previous text, timestamps. Each round begins with another
method. Prints a table of medians over rounds, and ratios with bootstrap intervals of 95 %; then
what a pass of the main model over several tokens costs, in passes over one. --torch: transformers
in f32, plain and with an assistant, once each.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from ov_specdec import SpeechPipeline
from ov_specdec.speech.audio import read_audio
from tests.planner_speed import interval

RATE = 16000
OPTIONS = {
    "language": "en",
    "temperature": 0.0,
    "logprob_threshold": None,
    "compression_ratio_threshold": None,
    "condition_on_prev_tokens": False,
    "return_timestamps": True,
}
MOST = 440
SIZES, CACHED = (1, 2, 3, 5, 9, 17), 64


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


def own(pipeline, **options):
    """This project's: seconds, and the statistics."""

    def run(samples):
        start = perf_counter()
        result = pipeline.transcribe((samples, RATE), **OPTIONS, **options)
        return perf_counter() - start, result.stats

    return run


def on_torch(main, draft=None):
    """transformers: seconds of a transcription, with an assistant or without."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    extract = WhisperFeatureExtractor.from_pretrained(main)
    load = WhisperForConditionalGeneration.from_pretrained
    model = load(main).float().eval()
    helped = {"assistant_model": load(draft).float().eval()} if draft else {}

    def run(samples):
        start = perf_counter()
        given = extract(samples, sampling_rate=RATE, return_tensors="pt")
        with torch.inference_mode():
            model.generate(
                given.input_features,
                **helped,
                language="en",
                return_timestamps=True,
                do_sample=False,
                max_new_tokens=MOST,  # with an assistant the output may end early all the same
            )
        return perf_counter() - start, None

    return run


def row(name, seconds, stats, duration, plain):
    """A method's line of the table."""
    figures = ["", "", ""]
    if stats is not None:
        decoding = stats.generation
        accepted = f"{decoding.acceptance_rate:.0%}" if decoding.drafted else ""
        share = f"{stats.encoder_share:.0%}"
        figures = [f"{decoding.tokens_per_main_pass:.2f}", accepted, share]
    ratio = f"{plain / seconds:.2f}" if plain else ""
    columns = [name, f"{seconds:.2f}", f"{seconds / duration:.3f}", ratio, *figures]
    return f"| {' | '.join(columns)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("main", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("recordings", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="*", default=[4])
    parser.add_argument("--others", nargs="*", default=["suffix", "genai"])
    parser.add_argument("--torch", type=Path, nargs=2, default=())
    given = parser.parse_args()
    samples = np.concatenate([read_audio(file, RATE) for file in given.recordings])
    duration = len(samples) / RATE
    print(
        "| method | seconds | real-time factor | to plain | tokens per pass | accepted | encoder |"
    )
    print("|---|---|---|---|---|---|---|")
    if given.torch:
        checkpoint, assistant = given.torch
        for name, paths in {
            "torch": (checkpoint,),
            "torch, draft": (checkpoint, assistant),
        }.items():
            print(row(name, on_torch(*paths)(samples)[0], None, duration, None), flush=True)
        return
    drafts = SpeechPipeline(given.main, given.draft)
    curve = drafts.prepare()
    methods = {
        "plain": own(drafts, num_assistant_tokens=0),
        "draft": own(drafts),
        **{f"draft, {n}": own(drafts, num_assistant_tokens=n) for n in given.lengths},
    }
    if "suffix" in given.others:
        matches = SpeechPipeline(given.main)
        matches.prepare()
        methods["suffix"] = own(matches)
    if "genai" in given.others:
        methods["openvino.genai"] = genai(given.main)
    times = {name: [] for name in methods}
    stats = {}
    for number in range(given.rounds + 1):  # the first is for warming up
        # Softer each time, for what was heard before is not encoded again.
        names = list(methods)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            # Nor is what another method of the same pipeline has heard.
            factor = 1.0 - 0.01 * number - 0.001 * names.index(name)
            seconds, stats[name] = methods[name](samples * np.float32(factor))
            print(f"round {number}, {name}: {seconds:.2f} s", file=sys.stderr, flush=True)
            if number:
                times[name].append(seconds)
    plain = median(times["plain"])
    for name, all_seconds in times.items():
        print(row(name, median(all_seconds), stats[name], duration, plain))
    print(f"\n{duration:.1f} s of speech, medians of {given.rounds} rounds in turns")
    for other in (name for name in times if name != "draft"):
        ratios = [a / b for a, b in zip(times[other], times["draft"], strict=True)]
        print(f"draft / {other}: {interval(ratios)}")
    for name, kind in (("main", curve.main), ("draft", curve.draft)):
        print(
            name,
            ", ".join(
                f"{size}: {kind.at(size, CACHED) / kind.at(1, CACHED):.2f}" for size in SIZES
            ),
        )


if __name__ == "__main__":
    main()
