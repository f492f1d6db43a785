"""Measures transcription: plain, suffix and draft against openvino.genai and torch, in turns.

`python -m tests.benchmarks speech-speed MAIN DRAFT RECORDING...`

MAIN, DRAFT: exported Whispers; RECORDING: files, which are joined to one. All run with the same
options: English, greedy, no fallback, no previous text, timestamps. Each round begins with another
method. Prints a table of medians over rounds, and ratios with bootstrap intervals of 95 %; then
what a pass of the main model over several tokens costs, in passes over one. --torch: transformers
in f32, plain and with an assistant, once each.
"""

from statistics import median
from time import perf_counter

import click
import numpy as np

from ov_specdec import SpeechPipeline
from ov_specdec.speech.audio import read_audio
from tests.benchmarks.figures import head, interval, row
from tests.benchmarks.options import PATH, several

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
OTHERS = "suffix", "genai"
TITLES = (
    *("method", "seconds", "real-time factor", "to plain"),
    *("tokens per pass", "accepted", "encoder"),
)


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


def show(name, seconds, stats, duration, plain):
    """Print a method's row of the table."""
    figures = ["", "", ""]
    if stats is not None:
        decoding = stats.generation
        accepted = f"{decoding.acceptance_rate:.0%}" if decoding.drafted else ""
        share = f"{stats.encoder_share:.0%}"
        figures = [f"{decoding.tokens_per_main_pass:.2f}", accepted, share]
    ratio = f"{plain / seconds:.2f}" if plain else ""
    row(name, f"{seconds:.2f}", f"{seconds / duration:.3f}", ratio, *figures)


@click.command()
@click.argument("main", type=PATH)
@click.argument("draft", type=PATH)
@click.argument("recordings", type=PATH, nargs=-1, required=True)
@click.option("--rounds", default=3, show_default=True, help="After one to warm up.")
@several("--lengths", int, (4,), says="Constant draft lengths.")
@several("--others", str, OTHERS, says="What runs besides.", among=OTHERS)
@click.option(
    "--torch",
    "checkpoints",
    type=PATH,
    nargs=2,
    metavar="MAIN DRAFT",
    help="Measure these checkpoints on torch instead.",
)
def speech_speed(main, draft, recordings, rounds, lengths, others, checkpoints):
    """Measure transcription: plain, suffix and draft against others, in turns."""
    samples = np.concatenate([read_audio(file, RATE) for file in recordings])
    duration = len(samples) / RATE
    head(*TITLES)
    if checkpoints:
        for name, paths in {"torch": checkpoints[:1], "torch, draft": checkpoints}.items():
            show(name, on_torch(*paths)(samples)[0], None, duration, None)
        return
    drafts = SpeechPipeline(main, draft)
    curve = drafts.prepare()
    methods = {
        "plain": own(drafts, num_assistant_tokens=0),
        "draft": own(drafts),
        **{f"draft, {n}": own(drafts, num_assistant_tokens=n) for n in lengths},
    }
    if "suffix" in others:
        matches = SpeechPipeline(main)
        matches.prepare()
        methods["suffix"] = own(matches)
    if "genai" in others:
        methods["openvino.genai"] = genai(main)
    times = {name: [] for name in methods}
    stats = {}
    for number in range(rounds + 1):  # the first is for warming up
        # Softer each time, for what was heard before is not encoded again.
        names = list(methods)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            # Nor is what another method of the same pipeline has heard.
            factor = 1.0 - 0.01 * number - 0.001 * names.index(name)
            seconds, stats[name] = methods[name](samples * np.float32(factor))
            click.echo(f"round {number}, {name}: {seconds:.2f} s", err=True)
            if number:
                times[name].append(seconds)
    plain = median(times["plain"])
    for name, all_seconds in times.items():
        show(name, median(all_seconds), stats[name], duration, plain)
    click.echo(f"\n{duration:.1f} s of speech, medians of {rounds} rounds in turns")
    for other in (name for name in times if name != "draft"):
        ratios = [a / b for a, b in zip(times[other], times["draft"], strict=True)]
        click.echo(f"draft / {other}: {interval(ratios)}")
    for name, kind in (("main", curve.main), ("draft", curve.draft)):
        passes = (f"{size}: {kind.at(size, CACHED) / kind.at(1, CACHED):.2f}" for size in SIZES)
        click.echo(f"{name} {', '.join(passes)}")
