"""Recordings through real models: plain, speculative decoding and transformers agree."""

import gc
import weakref
from threading import Event, Thread

import pytest

from ov_specdec import ModelError, SessionError, SpeculativePipeline
from ov_specdec.graph.attention import give_weights
from ov_specdec.models.exported import open_exported
from ov_specdec.speech.words import timed_words
from ov_specdec.speech_pipeline import SpeechPipeline
from tests.support.folders import change, changed
from tests.support.scripted import PATIENCE
from tests.support.server import wait_until
from tests.support.tiny_whisper import CASES, EOS, MAX_LENGTH, RATE, recording, reference_segments

PLAIN = {"temperature": 0.0, "logprob_threshold": None, "compression_ratio_threshold": None}
"""Without fallback, as transformers decodes unless it is asked for one."""


@pytest.fixture(scope="module")
def pipeline(whisper):
    with SpeechPipeline(whisper.main, whisper.draft, precision="exact") as made:
        made.prepare(seconds=0.1)
        yield made


def decoded(pipeline, case, **options):
    """Tokens of the segments of a case, and the result."""
    seconds, given = CASES[case]
    given = {"language": "en", "condition_on_prev_tokens": False, **given, **PLAIN, **options}
    if "prompt" in given:
        given["initial_prompt"] = given.pop("prompt")
    chunks = list(pipeline.stream((recording(seconds), RATE), **given))
    tokens = [t for chunk in chunks for piece in chunk.pieces for t in piece.token_ids]
    return tokens, chunks[-1]


@pytest.mark.parametrize("case", CASES)
def test_speculative_is_plain_is_transformers(whisper, pipeline, case):
    expected = [token for segment in whisper.expected[case] for token in segment]
    for length in (0, 4, "auto"):
        assert decoded(pipeline, case, num_assistant_tokens=length)[0] == expected


def test_some_draft_tokens_are_rejected(pipeline):
    stats = [decoded(pipeline, case, num_assistant_tokens=8)[1].stats for case in CASES]
    total = sum(each.generation.drafted for each in stats)
    assert 0 < sum(each.generation.accepted for each in stats) < total


def times(segments):
    """Start and end of each word."""
    return [[(word.start, word.end) for word in segment.words] for segment in segments]


def segments_of(pipeline, case, **options):
    seconds, given = CASES[case]
    given = {"language": "en", "condition_on_prev_tokens": False, **given, **PLAIN, **options}
    return pipeline.transcribe((recording(seconds), RATE), **given).segments


@pytest.mark.parametrize("case", ["told", pytest.param("long", marks=pytest.mark.deep)])
def test_words_are_timed_as_transformers_times_them(whisper, pipeline, case):
    options = {**CASES[case][1], "return_token_timestamps": True}
    expected = reference_segments(whisper.checkpoint, CASES[case][0], options)
    found = segments_of(pipeline, case, word_timestamps=True)
    # Of the last window transformers looks at what fills it up, too.
    found = [segment for segment in found if segment.seek < found[-1].seek]
    assert len(found) > 3
    for segment, whole in zip(found, expected, strict=False):
        assert list(segment.tokens) == whole["tokens"].tolist()
        ends = [round(float(time), 2) for time in whole["token_timestamps"]]
        text = [place for place, token in enumerate(segment.tokens) if token < EOS]
        spoken = timed_words(
            [(segment.tokens[i], ends[i - 1], ends[i]) for i in text],
            pipeline.tokenizer.decode,
            "en",
        )
        assert segment.words == tuple(spoken)
        assert "".join(word.text for word in segment.words) == segment.text


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([[2, 0]], "names head 0 of layer 2 among alignment_heads, the decoder has 2 layers of 4"),
        ([[1, 4]], "names head 4 of layer 1 among alignment_heads"),
        ([3], r"gives alignment_heads as \[3\], which is invalid"),
    ],
)
def test_heads_that_are_not_there_are_refused(whisper, tmp_path, heads, message):
    named = {"alignment_heads": heads}
    model = changed(whisper.main, tmp_path / "model", generation_config=named)
    with pytest.raises(ModelError, match=message), SpeechPipeline(model) as made:
        assert made.transcribe((recording(0.5), RATE), return_timestamps=True)
        made.stream((recording(0.5), RATE), word_timestamps=True)


def test_the_heads_that_a_model_names_are_listened_to(whisper, pipeline, tmp_path):
    named = {"alignment_heads": [[0, 1], [1, 2]]}
    model = changed(whisper.main, tmp_path / "model", generation_config=named)
    with SpeechPipeline(model, precision="exact") as made:
        found = segments_of(made, "told", word_timestamps=True)
    expected = segments_of(pipeline, "told", word_timestamps=True)
    assert [segment.tokens for segment in found] == [segment.tokens for segment in expected]
    assert times(found) != times(expected)


def test_a_graph_without_attention_to_a_source_is_refused(tiny_pair):
    with pytest.raises(ModelError, match="no readable cross-attention: export it again"):
        give_weights(open_exported(tiny_pair[0]).model, None)


def test_main_and_draft_share_the_encoder(pipeline):
    assert pipeline.shares_encoder
    assert "feature extractor: same" in list(pipeline.guard_report.lines())
    _, last = decoded(pipeline, "long", num_assistant_tokens=4)
    assert 0 < last.stats.encoder_share < 1


def test_nothing_passes_the_last_position(pipeline):
    tokens, _ = decoded(pipeline, "short", num_assistant_tokens=8)
    assert len(tokens) + 4 == MAX_LENGTH
    limited, _ = decoded(pipeline, "short", max_new_tokens=5)
    assert limited == tokens[:5]
    beyond, _ = decoded(pipeline, "short", max_new_tokens=MAX_LENGTH, num_assistant_tokens=8)
    assert beyond == tokens


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup", "none"])
def test_drafters_without_a_model_decode_the_same(whisper, drafter):
    expected = [token for segment in whisper.expected["told"] for token in segment]
    with SpeechPipeline(whisper.main, drafter=drafter, precision="exact") as made:
        length = {} if drafter == "none" else {"num_assistant_tokens": 3}
        assert decoded(made, "told", **length)[0] == expected


def test_models_that_do_not_fit_are_refused_in_one_line(whisper, tiny_pair, tmp_path):
    with pytest.raises(ModelError, match="does not transcribe: give a Whisper"):
        SpeechPipeline(tiny_pair[0])
    with pytest.raises(ModelError, match="not texts: use a model for text"):
        SpeculativePipeline(whisper.main, drafter="none")
    with pytest.raises(ModelError, match="give two of one kind"):
        SpeechPipeline(whisper.main, tiny_pair[1])
    feature_size = {"feature_size": 128}
    deaf = changed(whisper.draft, tmp_path / "draft", preprocessor_config=feature_size)
    with pytest.raises(ModelError, match="feature_size: main 80, draft 128"):
        SpeechPipeline(whisper.main, deaf)
    change(deaf / "preprocessor_config.json", feature_size="many")
    with pytest.raises(ModelError, match="gives feature_size as 'many'"):
        SpeechPipeline(whisper.main, deaf)


def test_a_stream_that_waits_for_another_thread_is_cancelled_within_a_pass(pipeline):
    begun, may_go_on, has_ended = Event(), Event(), Event()
    calls, chunks = [], []

    def hold(_tokens, logits):
        calls.append(None)
        if len(calls) == 1:
            begun.set()
            assert may_go_on.wait(PATIENCE)
        elif len(calls) == 3:  # the other is let go after a pass, not after this window
            assert has_ended.wait(PATIENCE)
        return logits

    def read():
        chunks.extend(second)
        has_ended.set()

    given = {"language": "en", "num_assistant_tokens": 0, **PLAIN}
    first = pipeline.stream((recording(1.5), RATE), logits_processor=[hold], **given)
    second = pipeline.stream((recording(1.5), RATE), **given)
    threads = [Thread(target=list, args=[first]), Thread(target=read)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads[1].start()
    wait_until(lambda: second._cancel.__self__._decoding is not None)
    second.cancel()
    may_go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert has_ended.is_set()
    assert [chunk.finish_reason for chunk in chunks] == ["cancelled"]
    assert len(calls) > 3


def test_closing_frees_the_models(whisper):
    pipeline = SpeechPipeline(whisper.main, whisper.draft)
    assert pipeline.transcribe((recording(0.5), RATE), language="en", max_new_tokens=2).stats
    runners = [weakref.ref(model.runner) for model in (pipeline.main, pipeline.draft)]
    pipeline.close()
    gc.collect()
    assert [runner() for runner in runners] == [None, None]
    pipeline.close()


def test_a_closed_pipeline_says_so(whisper):
    pipeline = SpeechPipeline(whisper.main)
    stream = pipeline.stream((recording(1.5), RATE), language="en")
    pipeline.close()
    for use in (
        pipeline.prepare,
        lambda: list(stream),
        lambda: pipeline.transcribe((recording(0.5), RATE)),
    ):
        with pytest.raises(SessionError, match="closed"):
            use()
