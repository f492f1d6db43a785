"""Recordings from files and arrays: what they become, and what is refused."""

import gc
import io
import tracemalloc

import av
import numpy as np
import pytest
from transformers import WhisperFeatureExtractor

from ov_specdec.engine.sequence import Cancelled
from ov_specdec.errors import AudioError
from ov_specdec.speech import audio
from ov_specdec.speech.audio import read_audio
from ov_specdec.speech.features import FeatureExtractor
from tests.support.recordings import CODECS, write_recording

RATE = 16000


def tone(seconds=1.0, rate=RATE):
    return (0.3 * np.sin(2 * np.pi * 440.0 * np.arange(int(seconds * rate)) / rate)).astype("f4")


def written(samples, form, rate=RATE):
    file = io.BytesIO()
    write_recording(file, samples, rate, form)
    return file.getvalue()


@pytest.mark.parametrize("form", CODECS)
@pytest.mark.parametrize("rate", [RATE, 48000])
def test_a_file_of_any_form_is_heard_alike(tmp_path, form, rate):
    path = tmp_path / f"tone.{form}"
    write_recording(path, tone(rate=rate), rate, form)
    read = read_audio(path, RATE)
    assert read.dtype == np.float32
    assert len(read) == pytest.approx(RATE, abs=0.1 * RATE)  # encoders fill up their frames
    delay = 1024 if form == "adts" else 0  # which says nothing of it
    start = 4000 + delay * RATE // rate
    np.testing.assert_allclose(read[start : start + 8000], tone()[4000:12000], atol=0.05)
    with path.open("rb") as opened:
        np.testing.assert_array_equal(read_audio(opened, RATE), read)


def test_channels_are_averaged_and_rates_converted():
    stereo = np.stack([tone(rate=44100), -tone(rate=44100) / 3], axis=1)
    read = read_audio((stereo, 44100), RATE)
    assert len(read) == RATE
    np.testing.assert_allclose(read[2000:-2000], tone()[2000:-2000] / 3, atol=1e-3)


def test_integers_are_scaled_by_the_range_of_their_type():
    whole = np.array([0, 16384, -32768], np.int16)
    np.testing.assert_array_equal(read_audio((whole, RATE), RATE), [0.0, 0.5, -1.0])


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_s24le", "pcm_f32le"])
def test_a_file_has_the_samples_that_were_written(codec):
    stereo = np.random.default_rng(4).integers(-(2**15), 2**15, (30_000, 2)) / 2**15
    file = io.BytesIO()
    write_recording(file, stereo, 44100, "wav", codec)
    file.seek(0)
    np.testing.assert_array_equal(read_audio(file, 44100), stereo.mean(axis=1, dtype=np.float32))


def test_what_changes_in_the_middle_of_a_file_is_heard():
    read = read_audio(
        io.BytesIO(b"".join(written(tone(rate=rate), "adts", rate) for rate in (48000, RATE))), RATE
    )
    assert len(read) == pytest.approx(2 * RATE, abs=0.2 * RATE)
    assert np.abs(read[4000:12000]).max() > 0.25
    assert np.abs(read[-8000:-2000]).max() > 0.25


def test_what_is_damaged_is_left_out():
    rng = np.random.default_rng(0)
    whole = written(rng.normal(size=4 * RATE, scale=0.3), "mp4")
    start, end = whole.index(b"mdat") + 4, whole.index(b"moov") - 4
    for first, last, seconds in ((start + 3000, start + 3300, (3.0, 3.99)), (start, end, None)):
        content = bytearray(whole)
        content[first:last] = rng.bytes(last - first)
        if seconds is not None:
            assert seconds[0] < len(read_audio(io.BytesIO(content), RATE)) / RATE < seconds[1]
        else:
            with pytest.raises(AudioError, match="is no recording that can be read"):
                read_audio(io.BytesIO(content), RATE)


def test_a_guessed_length_refuses_no_file():
    quiet, loud = np.zeros(2 * RATE), np.random.default_rng(0).normal(size=20 * RATE)
    content = written(quiet, "adts") + written(loud, "adts")
    with av.open(io.BytesIO(content)) as opened:
        assert opened.duration > 30 * av.time_base
    assert 21 < len(read_audio(io.BytesIO(content), RATE, 23.0)) / RATE < 23


def test_a_playlist_opens_no_other_file(tmp_path):
    write_recording(tmp_path / "secret.aac", tone(), RATE, "adts")
    playlist = tmp_path / "talk.m3u8"
    entry = f"#EXTINF:1,\n{tmp_path}/secret.aac\n"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n{entry}#EXT-X-ENDLIST\n")
    with pytest.raises(AudioError, match="is no recording that can be read"):
        read_audio(playlist, RATE)


def test_a_film_without_sound_is_refused(tmp_path):
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=5, width=16, height=16)
        image = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8))
        container.mux([*stream.encode(image), *stream.encode(None)])
    with pytest.raises(AudioError, match="has no sound: give a recording"):
        read_audio(path, RATE)


def flac(num_claimed):
    """A second of silence, whose head claims so many samples; 0: says nothing of its length."""
    content = bytearray(written(np.zeros(RATE), "flac"))
    content[21] = content[21] & 0xF0 | num_claimed >> 32
    content[22:26] = (num_claimed & 0xFFFFFFFF).to_bytes(4, "big")
    return io.BytesIO(content)


def test_a_recording_may_be_too_long(monkeypatch):
    assert len(read_audio(flac(2**36 - 1), RATE)) == len(read_audio(flac(0), RATE)) == RATE
    monkeypatch.setattr(audio, "MAX_SAMPLES", RATE)
    assert len(read_audio(flac(0), RATE)) == RATE
    for rate in (RATE + 1, RATE * 2):  # at the model's rate there are more
        with pytest.raises(AudioError, match=r"cut it into parts"):
            read_audio(flac(0), rate)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros(0), RATE), "the recording is empty"),
        ((np.array([0.0, np.nan]), RATE), "a sample of the recording is [nan]"),
        ((tone(), 0), "sampling_rate=0 must be a whole number"),
        ((tone(),), "must be (samples, sampling_rate)"),
        ((np.zeros((2, 16000)), RATE), "with up to 64 channels"),
        (
            (np.zeros(9, np.int64), RATE),
            "of type int64 and shape [9] are no recording: give floats",
        ),
        (([[1.0, 2.0], [1.0]], RATE), "inhomogeneous shape"),
        (tone(), "neither a file nor samples with their rate"),
        ("nowhere.wav", "'nowhere.wav' is not a file"),
        (io.BytesIO(b"no audio"), "the file is no recording that can be read"),
    ],
)
def test_what_is_no_recording_is_refused(given, message):
    with pytest.raises(AudioError) as error:
        read_audio(given, RATE)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("form", ["mp3", "flac", "wav"])
def test_an_empty_file_is_said_to_be_so_and_no_library_prints_more(tmp_path, capfd, form):
    path = tmp_path / f"talk.{form}"
    path.touch()
    with path.open("rb") as file:
        for given in (path, file):
            with pytest.raises(AudioError, match="is empty: give a recording"):
                read_audio(given, RATE)
    gc.collect()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("bins", [80, 128])
@pytest.mark.parametrize("seconds", [0.01, 2.0, 33.33])
def test_features_are_those_of_transformers(bins, seconds):
    noise = np.random.default_rng(1).normal(size=int(seconds * RATE)).astype("f4")
    samples = tone(seconds) + 0.01 * noise
    settings = {} if seconds < 30 else {"truncation": False, "padding": "longest"}
    reference = WhisperFeatureExtractor(feature_size=bins)
    expected = reference(samples, sampling_rate=RATE, **settings)["input_features"][0]
    extractor = FeatureExtractor(bins)
    found = extractor.features(samples)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_file_is_only_decoded_as_far_as_it_may_be(monkeypatch):
    blocks = []
    for claimed in (10 * RATE, 0):  # the second one's head says nothing of its length
        content = bytearray(written(np.zeros(10 * RATE), "flac"))
        content[22:26] = claimed.to_bytes(4, "big")
        with pytest.raises(AudioError, match=r"longer than 3 seconds"):
            read_audio(io.BytesIO(content), RATE, 3.0, lambda: blocks.append(1))
    assert len(blocks) == 2 * (1 + 3 * RATE // 1152)  # frames of both
    assert len(read_audio(io.BytesIO(content), RATE, 10.0)) == 10 * RATE


def test_decoding_can_be_ended():
    def enough():
        raise Cancelled

    with pytest.raises(Cancelled):
        read_audio(flac(RATE), RATE, on_block=enough)


def test_a_file_is_converted_while_it_is_decoded(tmp_path):
    write_recording(tmp_path / "tone.wav", tone(60.0, rate=48000), 48000)
    tracemalloc.start()
    read = read_audio(tmp_path / "tone.wav", RATE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(read) == 60 * RATE
    assert peak < 2.5 * read.nbytes  # at its own rate it has three times as many
    np.testing.assert_allclose(read[5000:-5000], tone(60.0)[5000:-5000], atol=1e-3)
