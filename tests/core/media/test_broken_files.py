"""Random and damaged bytes give a result or a MediaError, and nothing else."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image  # noqa: TID253  (the tests write pictures)
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phyla.errors import MediaError
from phyla.media import MediaLimits, open_audio, open_image, open_video

LIMITS = MediaLimits(max_pixels=10**6, max_audio_seconds=30, max_video_seconds=60, max_frames=300)
NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
IMAGES = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO", "TGA", "PCX", "SGI", "QOI")
SOUNDS = {"wav": "pcm_s24le", "flac": "flac", "mp3": "libmp3lame", "ogg": "libopus", "mp4": "aac"}
FILMS = {"mp4": "libx264", "matroska": "mpeg4", "avi": "mjpeg", "mpegts": "libx264", "gif": "gif"}
PIXELS = {"mjpeg": "yuvj420p", "gif": "rgb8"}
examples = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damage(draw):
    """Overwrites, cuts, doublings: (kind, where, what), places as parts of the length."""
    part = st.floats(0, 1, exclude_max=True)
    return draw(
        st.lists(
            st.tuples(st.sampled_from(["set", "cut", "drop", "repeat"]), part, st.binary(min_size=1, max_size=8)),
            min_size=1,
            max_size=6,
        )
    )  # fmt: skip


def damaged(data, changes):
    out = bytearray(data)
    for kind, part, what in changes:
        place = int(part * len(out))
        if kind == "set":
            out[place : place + len(what)] = what
        elif kind == "cut":
            del out[max(place, 1) :]
        elif kind == "drop":
            del out[place : place + what[0]]
        else:
            out[place:place] = out[place : place + what[0]]
    return bytes(out)


def check(error):
    assert error.index == 1
    # What was promised when it was opened has to be given.
    assert "changed" not in str(error)


def look(data):
    try:
        opened = open_image(data, index=1, limits=LIMITS)
        width, height = opened.size
        pixels = opened.pixels()
    except MediaError as error:
        check(error)
    else:
        assert pixels.shape == (height, width, 3)
        assert pixels.dtype == np.uint8


def listen(data):
    try:
        clip = open_audio(data, index=1, limits=LIMITS)
        samples = clip.samples(clip.rate)
    except MediaError as error:
        check(error)
    else:
        assert len(samples) == round(clip.seconds * clip.rate) > 0
        assert np.isfinite(samples).all()
        assert np.abs(samples).max() <= 1


def watch(data):
    try:
        clip = open_video(data, index=1, limits=LIMITS)
        places = sorted({0, clip.count // 2, clip.count - 1})
        frames = clip.frames(places)
        clip.sound()
    except MediaError as error:
        check(error)
    else:
        assert frames.shape == (len(places), clip.size[1], clip.size[0], 3)
        assert clip.timestamps[0] == 0
        assert (np.diff(clip.timestamps) >= 0).all()


@examples
@given(data=st.binary(max_size=400))
def test_random_bytes_never_crash(data):
    look(data)
    listen(data)
    watch(data)


@pytest.mark.parametrize("kind", IMAGES)
@examples
@given(changes=damage())
def test_damaged_images_never_crash(kind, changes):
    file = io.BytesIO()
    PIL.Image.fromarray(NOISE).save(file, kind)
    look(damaged(file.getvalue(), changes))


@pytest.mark.parametrize("container", SOUNDS)
@examples
@given(changes=damage())
def test_damaged_sounds_never_crash(sound, container, changes):
    tone = np.sin(np.arange(4800) * 0.1)[None]
    listen(damaged(sound(tone, 48000, container, SOUNDS[container]), changes))


@pytest.mark.parametrize("container", FILMS)
@examples
@given(changes=damage())
def test_damaged_videos_never_crash(film, container, changes):
    codec = FILMS[container]
    data = film(container, codec, pixels=PIXELS.get(codec, "yuv420p"), times=range(8))
    watch(damaged(data, changes))
