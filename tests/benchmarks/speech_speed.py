"""Transcription: plain, suffix and draft against openvino.genai, in turns.

RECORDINGS are files, which are joined to one. All run with the same options: English, greedy, no
fallback, no previous text, timestamps. Each round begins with another method. Beside it,
what passes of the models over several tokens cost, in passes over one.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

import click
import numpy as np

from ov_specdec import SpeechPipeline
from ov_specdec.speech.audio import read_audio
from tests.benchmarks import speed
from tests.benchmarks.measuring import Measurements, in_turns, measures
from tests.benchmarks.options import PATH, Models, model_options, several
from tests.benchmarks.record import Row
from tests.benchmarks.tables import across, middle, table, value

RATE = 16000
OPTIONS = {
    "language": "en",
    "temperature": 0.0,
    "logprob_threshold": None,
    "compression_ratio_threshold": None,
    "condition_on_prev_tokens": False,
    "return_timestamps": True,
}
SIZES, CACHED = (1, 2, 3, 5, 9, 17), 64
OTHERS = "suffix", "genai"


def genai(main):
    """openvino.genai's pipeline: seconds of a transcription of some samples."""
    import openvino_genai

    pipeline = openvino_genai.WhisperPipeline(str(main), "CPU")
    config = pipeline.get_generation_config()
    config.language, config.task, config.return_timestamps = "<|en|>", "transcribe", True

    def run(samples):
        start = perf_counter()
        pipeline.generate(samples.tolist(), config)
        return {"seconds": perf_counter() - start}

    return run


def own(pipeline, **options):
    """This project's: seconds, and what its statistics say."""

    def run(samples):
        start = perf_counter()
        stats = pipeline.transcribe((samples, RATE), **OPTIONS, **options).stats
        seconds, decoding = perf_counter() - start, stats.generation
        return {
            "seconds": seconds,
            "tokens": decoding.generated_tokens,
            "passes": decoding.main_passes,
            "drafted": decoding.drafted,
            "accepted": decoding.accepted,
            "encoder": stats.encoder_share,
        }

    return run


def methods_of(models, lengths, others):
    """What transcribes samples, by name; and the cost curve of the models."""
    settings = {"device": models.device, "precision": models.precision}
    settings["properties"] = models.properties
    drafts = SpeechPipeline(models.main, models.draft, **settings)
    curve = drafts.prepare()
    methods = {
        "plain": own(drafts, num_assistant_tokens=0),
        "draft": own(drafts),
        **{f"draft@{n}": own(drafts, num_assistant_tokens=n) for n in lengths},
    }
    if "suffix" in others:
        matches = SpeechPipeline(models.main, **settings)
        matches.prepare()
        methods["suffix"] = own(matches)
    if "genai" in others:
        methods["openvino.genai"] = genai(models.main)
    return methods, curve


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Times by method, ratios as of `speed`, and the passes of the models."""
    timed = [row for row in rows if "method" in row]
    columns = {
        "seconds": middle("seconds"),
        "real-time factor": middle("real-time factor", ".3f"),
        "encoder": middle("encoder", ".0%"),
    }
    yield table(timed, ["method"], columns)
    yield from speed.tables(timed)
    passes = [row for row in rows if "model" in row]
    yield table(passes, ["model"], across(passes, "tokens", value("passes", ".2f")))


@click.command()
@model_options
@click.argument("recordings", type=PATH, nargs=-1, required=True)
@click.option("--rounds", default=3, show_default=True, help="After one to warm up.")
@several("--lengths", int, (4,), says="Constant draft lengths.")
@several("--others", str, OTHERS, says="What runs besides.", among=OTHERS)
@measures
def speech_speed(
    models: Models,
    recordings: tuple[Path, ...],
    rounds: int,
    lengths: tuple[int, ...],
    others: tuple[str, ...],
) -> Measurements:
    """Measure transcription: plain, suffix and draft against others, in turns."""
    samples = np.concatenate([read_audio(file, RATE) for file in recordings])
    methods, curve = methods_of(models, lengths, others)
    for name, kind in (("main", curve.main), ("draft", curve.draft)):
        for size in SIZES:
            passes = kind.at(size, CACHED) / kind.at(1, CACHED)
            yield {"model": name, "tokens": size}, partial(dict, passes=passes)
    names = list(methods)

    def measure(name: str, turn: int) -> Row:
        # Softer each time, for what was heard before is not encoded again; nor is what another
        # method of the same pipeline has heard.
        factor = np.float32(1.0 - 0.01 * turn - 0.001 * names.index(name))
        row = methods[name](samples * factor)
        duration = len(samples) / RATE
        return {**row, "real-time factor": row["seconds"] / duration, "speed": 1 / row["seconds"]}

    for name in names:
        measure(name, 0)
    for turn in range(1, rounds + 1):
        for name in in_turns(names, turn):
            yield {"turn": turn, "task": "speech", "method": name}, partial(measure, name, turn)
