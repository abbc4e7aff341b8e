from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest

from phyla.errors import MediaError
from phyla.media import MediaLimits, open_audio, open_video

RATE = 8000
TONE = np.sin(np.arange(RATE) * 0.1).astype(np.float32) * 0.5


def wav(body, *, form=1, channels=1, rate=RATE, bits=16, before=b"", size=None, total=None):
    """A WAV file made by hand."""
    step = channels * bits // 8
    fmt = struct.pack("<HHIIHH", form & 0xFFFF, channels, rate, rate * step, step, bits)
    if form == 0xFFFE:
        guid = b"\0\0\0\0\x10\0\x80\0\0\xaa\x008\x9bq"
        fmt += struct.pack("<HHIH", 22, bits, 0, 3 if bits == 32 else 1) + guid
    size = len(body) if size is None else size
    rest = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + before
    rest += b"data" + struct.pack("<I", size) + body
    return b"RIFF" + struct.pack("<I", len(rest) if total is None else total) + rest


def sixteen(samples):
    return np.round(samples * 32767).astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("codec", "container"),
    [
        *(("pcm_" + kind, "wav") for kind in ("u8", "s16le", "s24le", "s32le", "f32le", "f64le")),
        *(("pcm_" + kind, "wav") for kind in ("alaw", "mulaw", "s64le")),
        ("pcm_s16be", "aiff"),
        ("pcm_s24be", "aiff"),
        ("flac", "flac"),
        ("alac", "mov"),
        ("pcm_s16le", "matroska"),
    ],
)
def test_every_kind_of_sample_comes_out_the_same(sound, codec, container):
    clip = open_audio(sound(TONE[None], RATE, container, codec))
    assert clip.rate == RATE
    assert clip.seconds == 1
    found = clip.samples(RATE)
    assert found.dtype == np.float32
    assert np.abs(found - TONE).max() < (
        0.03 if codec in ("pcm_u8", "pcm_alaw", "pcm_mulaw") else 1e-4
    )


@pytest.mark.parametrize(
    ("codec", "container"),
    [("libmp3lame", "mp3"), ("aac", "mp4"), ("aac", "adts"), ("libopus", "ogg"), ("mp2", "mp2")],
)
def test_compressed_sounds_of_any_container_are_read(sound, codec, container):
    rate = 48000
    tone = np.sin(np.arange(rate) * 0.05).astype(np.float32) * 0.5
    clip = open_audio(sound(np.stack([tone, tone]), rate, container, codec, "stereo"))
    assert clip.rate == rate
    assert clip.seconds == pytest.approx(1, abs=0.1)
    assert 0.3 < np.abs(clip.samples(16000)).max() < 0.6


@pytest.mark.parametrize(
    ("layout", "channels"), [("mono", 1), ("stereo", 2), ("2.1", 3), ("5.1", 6), ("7.1", 8)]
)
def test_channels_are_averaged(sound, layout, channels):
    samples = np.stack([TONE * (place + 1) / channels for place in range(channels)])
    for codec, container in (("pcm_s16le", "wav"), ("flac", "flac")):
        clip = open_audio(sound(samples, RATE, container, codec, layout))
        assert np.abs(clip.samples(RATE) - samples.mean(0)).max() < 1e-3


def test_channels_are_mixed_before_resampling():
    stereo = np.stack([np.zeros(48000), np.sin(np.arange(48000) * 0.05)])
    body = sixteen(stereo.T)
    clip = open_audio(wav(body, channels=2, rate=48000))
    assert clip.seconds == 1
    found = clip.samples(16000)
    assert found.shape == (16000,)
    assert np.abs(found[100:-100] - stereo[1, ::3][100:-100] / 2).max() < 0.01


def test_a_rate_of_24_khz_becomes_16_khz():
    clip = open_audio(wav(sixteen(np.zeros(40800)), rate=24000))
    assert clip.seconds == pytest.approx(1.7)
    assert clip.samples(16000).shape == (27200,)


@pytest.mark.parametrize("form", [3, 0xFFFE])
def test_wav_files_of_floats_are_read(form):
    clip = open_audio(wav(TONE.astype("<f4").tobytes(), form=form, bits=32))
    assert np.abs(clip.samples(RATE) - TONE).max() < 1e-6


def test_odd_chunks_before_the_samples_are_skipped():
    odd = b"LIST" + struct.pack("<I", 5) + b"INFOx\0" + b"junk" + struct.pack("<I", 3) + b"abc\0"
    clip = open_audio(wav(sixteen(TONE), before=odd))
    assert np.abs(clip.samples(RATE) - TONE).max() < 1e-4


@pytest.mark.parametrize(("size", "total"), [(0xFFFFFFFF, 0xFFFFFFFF), (10**9, None), (0, 0)])
def test_a_wav_header_that_lies_about_its_length_is_no_matter(size, total):
    assert open_audio(wav(sixteen(TONE), size=size, total=total)).seconds == pytest.approx(1)


def test_what_is_no_number_counts_as_silence():
    broken = TONE.copy()
    broken[10:20] = np.nan
    broken[30] = np.inf
    found = open_audio(wav(broken.astype("<f4").tobytes(), form=3, bits=32)).samples(RATE)
    assert np.isfinite(found).all()
    assert (found[10:20] == 0).all()
    assert np.abs(found[40:] - TONE[40:]).max() < 1e-6


def test_loud_floats_are_cut_to_the_scale():
    loud = wav((TONE * 3).astype("<f4").tobytes(), form=3, bits=32)
    for rate in (RATE, 16000):
        assert np.abs(open_audio(loud).samples(rate)).max() <= 1


@pytest.mark.parametrize(
    ("codec", "container"), [("flac", "flac"), ("libmp3lame", "mp3"), ("pcm_s16le", "wav")]
)
def test_of_a_truncated_file_what_decodes_is_read(sound, codec, container):
    rate = 16000
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, rate))
    data = sound(noise, rate, container, codec)
    clip = open_audio(data[: len(data) // 2])
    assert 0.2 < clip.seconds < 0.8
    assert len(clip.samples(rate)) == round(clip.seconds * rate)


def test_a_broken_place_in_the_middle_is_left_out(sound):
    rate = 16000
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (1, rate * 4))
    data = bytearray(sound(noise, rate, "mp3", "libmp3lame"))
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    assert 2 < open_audio(bytes(data)).seconds <= 4.2


def test_the_rate_may_change_within_a_file(sound):
    first = sound(np.stack([TONE[:4000]]), 16000, "adts", "aac")
    second = sound(np.stack([np.tile(TONE, 3)]), 48000, "adts", "aac")
    clip = open_audio(first + second)
    alone = open_audio(first).seconds + open_audio(second).seconds
    assert clip.seconds == pytest.approx(alone, abs=0.2)


def test_a_cover_picture_is_no_sound_and_no_obstacle(film, sound):
    import av
    from av.stream import Disposition

    file = io.BytesIO()
    with av.open(file, "w", format="mp3") as output:
        track = output.add_stream("libmp3lame", rate=16000, layout="mono")
        cover = output.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt = 16, 16, "rgb24"
        cover.disposition = Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
        output.mux(cover.encode(picture))
        output.mux(cover.encode(None))
        tone = np.zeros((1, 16000), np.float32)
        frame = av.AudioFrame.from_ndarray(tone, format="fltp", layout="mono")
        frame.sample_rate = 16000
        output.mux(track.encode(frame))
        output.mux(track.encode(None))
    assert open_audio(file.getvalue()).seconds == pytest.approx(1, abs=0.1)
    with pytest.raises(MediaError, match="cover picture"):
        open_video(file.getvalue())
    assert open_audio(film(sound=True)).seconds == pytest.approx(2, abs=0.3)
    with pytest.raises(MediaError, match="no sound"):
        open_audio(film())


def test_what_cannot_be_heard_is_said_without_numbers_of_the_library():
    with pytest.raises(MediaError, match="its sound is empty: it has no samples"):
        open_audio(wav(b""))
    with pytest.raises(MediaError) as caught:
        open_audio(b"These are some notes.\n" * 30)
    assert "looks like plain text" in str(caught.value)
    assert "Errno" not in str(caught.value)


def test_decoding_stops_at_the_limit(sound):
    data = sound(np.zeros((1, RATE * 60)), RATE, "flac", "flac")
    limits = MediaLimits(max_audio_seconds=59.5)
    with pytest.raises(MediaError, match="max_audio_seconds") as caught:
        open_audio(data, index=2, limits=limits)
    assert caught.value.index == 2
    assert open_audio(data, limits=MediaLimits(max_audio_seconds=60)).seconds == 60


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"not a sound",
        wav(b""),
        wav(b"\0"),
        wav(sixteen(TONE), rate=0),
        wav(sixteen(TONE), channels=0),
        wav(sixteen(TONE), form=0x1234),
        b"ID3\4\0\0\0\0\0\0",
        b"fLaC" + bytes(100),
        b"OggS" + bytes(100),
        b"<html>404</html>",
        bytes(5000),
    ],
)
def test_what_is_no_sound_is_refused(data):
    with pytest.raises(MediaError) as caught:
        open_audio(data, index=4)
    assert caught.value.index == 4
    assert caught.value.hint


def test_a_rate_that_no_sound_has_is_refused():
    with pytest.raises(MediaError, match="samples per second"):
        open_audio(wav(sixteen(TONE), rate=2**31 - 1))


def test_playlists_are_refused(tmp_path):
    other = tmp_path / "other.wav"
    other.write_bytes(wav(sixteen(TONE)))
    lists = [
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{other}\n#EXT-X-ENDLIST\n",
        f"ffconcat version 1.0\nfile '{other}'\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{other}\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    ]
    for place, text in enumerate(lists):
        path = tmp_path / f"{place}.m3u8"
        path.write_text(text)
        for source in (path, text.encode()):
            with pytest.raises(MediaError):
                open_audio(source)


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (TONE, TONE),
        (TONE[None], TONE),
        (TONE[:, None], TONE),
        (np.stack([TONE, -TONE]), np.zeros(RATE)),
        (np.stack([TONE, TONE / 2], axis=1), TONE * 0.75),
        ((TONE * 32768).astype(np.int16), TONE),
        ((TONE.astype(float) * 2**31).astype(np.int32), TONE),
        (np.full(100, 128, np.uint8), np.zeros(100)),
        (TONE.astype(np.float64), TONE),
    ],
)
def test_arrays_are_sounds(array, shown):
    clip = open_audio(array, rate=RATE)
    assert clip.rate == RATE
    assert np.abs(clip.samples(RATE) - shown).max() < 1e-3


@pytest.mark.parametrize(
    ("array", "rate"),
    [
        (TONE, None),
        (TONE, 0),
        (TONE, 16000.0),
        (TONE[:0], RATE),
        (np.zeros((4, 4)), RATE),
        (np.zeros((100, 100)), RATE),
        (np.zeros((2, 2, 100)), RATE),
        (np.array(0.5), RATE),
        (TONE * 32768, RATE),
        (np.full(10, np.nan), RATE),
        (np.zeros(10, np.int64), RATE),
        (np.zeros(10, bool), RATE),
        (np.zeros(RATE * 3601, np.int8), RATE),
    ],
)
def test_other_arrays_are_refused(array, rate):
    with pytest.raises(MediaError):
        open_audio(array, rate=rate)


def test_mlx_arrays_are_sounds():
    mx = pytest.importorskip("mlx.core")
    assert np.abs(open_audio(mx.array(TONE), rate=RATE).samples(RATE) - TONE).max() == 0


@pytest.mark.parity
@pytest.mark.parametrize(("found", "wanted"), [(44100, 16000), (48000, 16000), (8000, 24000)])
def test_resampling_is_that_of_librosa(found, wanted):
    librosa = pytest.importorskip("librosa")
    ours = open_audio(TONE, rate=found).samples(wanted)
    assert (ours == librosa.resample(TONE, orig_sr=found, target_sr=wanted)).all()


@pytest.mark.parametrize("rate", [0, -1, 2.5, None])
def test_a_rate_asked_for_is_a_positive_integer(rate):
    with pytest.raises(MediaError, match="positive integer"):
        open_audio(TONE, rate=RATE).samples(rate)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_few_samples_are_resampled(count):
    clip = open_audio(np.full(count, 0.5), rate=RATE)
    assert clip.samples(16000).shape == (2 * count,)


def test_a_file_of_the_standard_library_is_read():
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(3)
        output.setframerate(RATE)
        whole = np.round(TONE.astype(float) * (2**23 - 1)).astype("<i4")
        output.writeframes(whole.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
    assert np.abs(open_audio(file.getvalue()).samples(RATE) - TONE).max() < 1e-5
