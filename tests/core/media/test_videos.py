from __future__ import annotations

import io
from fractions import Fraction

import av  # noqa: TID253  (the tests are about it)
import numpy as np
import PIL.Image  # noqa: TID253
import pytest

from phyla.errors import MediaError, RequestError
from phyla.media import MediaLimits, open_video
from phyla.media import film as module
from phyla.media.film import Turn
from phyla.testing.footage import Footage

KINDS = [
    {},
    {"codec": "libx264", "options": {"bf": "3", "g": "6", "x264-params": "open-gop=1"}},
    {"codec": "libx264", "options": {"bf": "3"}, "container": "matroska"},
    {"codec": "libx264", "container": "mpegts"},
    {"codec": "libx264", "container": "flv"},
    {"codec": "libx265", "options": {"x265-params": "log-level=none"}},
    {"codec": "libvpx-vp9", "container": "webm"},
    {"codec": "mpeg4", "container": "avi"},
    {"codec": "mpeg4", "container": "avi", "options": {"bf": "2"}},
    {"codec": "mjpeg", "container": "avi", "pixels": "yuvj420p"},
    {"codec": "gif", "container": "gif", "pixels": "rgb8"},
    {"codec": "apng", "container": "apng", "pixels": "rgba"},
    {"codec": "qtrle", "container": "mov", "pixels": "argb"},
    {"codec": "prores_ks", "container": "mov", "pixels": "yuv422p10le"},
    {"codec": "ffv1", "container": "matroska", "pixels": "yuv420p10le"},
    {"codec": "ffv1", "container": "matroska", "pixels": "yuva420p"},
    {"codec": "ffv1", "container": "matroska", "pixels": "yuv444p", "size": (63, 47)},
    {"codec": "libx264", "pixels": "yuv420p", "container_options": {"movflags": "frag_keyframe"}},
]


def label(kind):
    return "-".join(str(value) for value in kind.values()) or "plain"


def check_picture(frame, place):
    """The picture that `film` writes: the top right in red, the left white, the rest black."""
    height, width = frame.shape[:2]
    corners = frame[[2, -3, 2], [-3, -3, 2]].astype(int)
    expected = [(place * 10, 0, 0), (0, 0, 0), (255, 255, 255)]
    assert np.abs(corners - expected).max() < 40
    assert abs(int(frame[height // 4, width * 3 // 4, 0]) - place * 10) < 24


@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_frames_of_any_container_come_in_the_order_of_presentation(film, kind):
    clip = open_video(film(**kind))
    assert clip.size == kind.get("size", (64, 48))
    assert clip.count == 20
    assert np.abs(clip.timestamps - np.arange(20) / 10).max() < 1e-2
    assert clip.fps == pytest.approx(10, rel=0.06)
    assert clip.seconds == pytest.approx(2, abs=0.11)
    frames = clip.frames(range(20))
    for place, frame in enumerate(frames):
        check_picture(frame, place)
    # Few frames are the same as all.
    assert (clip.frames([3, 3, 11, 19]) == frames[[3, 3, 11, 19]]).all()


@pytest.mark.parametrize(
    ("matrix", "turned"),
    [
        ((1, 0, 0, 1), lambda p: p),
        ((0, 1, -1, 0), lambda p: np.rot90(p, -1)),  # a phone held upright
        ((0, -1, 1, 0), np.rot90),
        ((-1, 0, 0, -1), lambda p: np.rot90(p, 2)),
        ((-1, 0, 0, 1), lambda p: p[:, ::-1]),
        ((1, 0, 0, -1), lambda p: p[::-1]),
        ((0, 1, 1, 0), lambda p: p.transpose(1, 0, 2)),
    ],
)
def test_videos_come_the_right_way_up(film, matrix, turned):
    plain = open_video(film()).frames([7])[0]
    clip = open_video(film(matrix=matrix))
    expected = turned(plain)
    assert clip.size == (expected.shape[1], expected.shape[0])
    assert (clip.frames([7])[0] == expected).all()


@pytest.mark.parametrize("degrees", [-45, 45, 89, 91, 180, 271, 359])
def test_the_nearest_quarter_turn_is_taken(degrees):
    angle = np.deg2rad(degrees)
    turn = [np.cos(angle), np.sin(angle), 0, -np.sin(angle), np.cos(angle), 0, 0, 0, 1]
    found = Turn.from_matrix(np.round(np.array(turn) * 65536).astype(np.int32).tobytes())
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    if degrees % 90 != 45:
        assert (found.apply(picture) == np.rot90(picture, -round(degrees / 90))).all()


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, -90])
def test_an_angle_is_the_same_turn_as_its_matrix(film, degrees):
    corner = {0: (1, 0), 90: (0, -1), 180: (-1, 0), 270: (0, 1), -90: (0, 1)}[degrees]
    cosine, sine = corner
    matrix = np.array([cosine, sine, 0, -sine, cosine, 0, 0, 0, 1 << 14], np.int32) << 16
    assert Turn.from_angle(degrees) == Turn.from_matrix(matrix.tobytes())
    with av.open(io.BytesIO(film(matrix=(cosine, sine, -sine, cosine))), "r") as container:
        frame = next(container.decode(video=0))
    assert Turn.from_angle(frame.rotation) == Turn.from_angle(degrees)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_still_image_is_a_video_of_one_frame(kind):
    picture = np.zeros((16, 24, 3), np.uint8)
    picture[:8] = 255
    file = io.BytesIO()
    PIL.Image.fromarray(picture).save(file, kind)
    clip = open_video(file.getvalue())
    assert clip.count == 1
    assert clip.size == (24, 16)
    assert np.abs(clip.frames([0])[0].astype(int) - picture).max() < 30


def test_variable_frame_rates_keep_their_times(film):
    times = [0, 1, 5, 6, 7, 20, 21, 22, 30, 31]
    for container in ("mp4", "matroska"):
        clip = open_video(film(container, times=times))
        assert np.abs(clip.timestamps - np.array(times) / 10).max() < 2e-3
        check_picture(clip.frames([5])[0], 5)


def test_times_count_from_the_first_frame(film):
    clip = open_video(film("mpegts", times=range(50, 60)))
    assert clip.timestamps[0] == 0
    assert clip.timestamps[-1] == pytest.approx(0.9)


def test_one_frame_is_a_video(film):
    for kind in ({}, {"codec": "gif", "container": "gif", "pixels": "rgb8"}):
        clip = open_video(film(times=[0], **kind))
        assert clip.count == 1
        assert clip.timestamps.tolist() == [0]
        assert clip.seconds >= 0
        check_picture(clip.frames([0])[0], 0)


def test_a_raw_stream_without_any_times_is_read(film):
    clip = open_video(film("h264"))
    assert clip.count == 20
    assert (np.diff(clip.timestamps) >= 0).all()
    check_picture(clip.frames([19])[0], 19)


def test_what_is_transparent_is_laid_on_white():
    file = io.BytesIO()
    with av.open(file, "w", format="mov") as output:
        stream = output.add_stream("qtrle", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "argb"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 4), np.uint8), format="argb")
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    assert (open_video(file.getvalue()).frames([0]) == 255).all()


def test_broken_frames_in_the_middle_are_left_out(film):
    data = bytearray(film("avi", "mjpeg", pixels="yuvj420p"))
    starts = [place for place in range(len(data) - 1) if data[place : place + 3] == b"\xff\xd8\xff"]
    assert len(starts) == 20
    for broken in (5, 6, 12):
        data[starts[broken] : starts[broken + 1] - 8] = bytes(
            starts[broken + 1] - 8 - starts[broken]
        )
    clip = open_video(bytes(data))
    good = [place for place in range(20) if place not in (5, 6, 12)]
    assert clip.count == 17
    assert np.abs(clip.timestamps - np.array(good) / 10).max() < 1e-6
    for place, frame in zip(good, clip.frames(range(17)), strict=True):
        check_picture(frame, place)


def test_of_a_truncated_video_what_decodes_is_promised(film):
    for container in ("matroska", "mpegts"):
        data = film(container, "mpeg4", times=range(100), options={"g": "10"})
        clip = open_video(data[: len(data) // 2])
        assert 10 < clip.count < 80
        assert len(clip.frames(range(clip.count))) == clip.count
    data = film()
    with pytest.raises(MediaError):  # its index is at the end
        open_video(data[: len(data) // 2])


def test_a_header_that_lies_about_size_and_duration_is_no_matter(film):
    data = bytearray(film())
    for box, offset in ((b"mvhd", 20), (b"tkhd", 24), (b"mdhd", 20)):
        place = data.index(box) + offset
        data[place : place + 4] = b"\x7f\xff\xff\xff"
    place = data.index(b"tkhd") + 4 + 76
    data[place : place + 8] = (9999 << 16).to_bytes(4, "big") * 2
    clip = open_video(bytes(data))
    assert clip.count == 20
    assert clip.size == (64, 48)
    assert clip.seconds == pytest.approx(2, abs=0.2)


def test_a_size_that_changes_midway_is_brought_to_the_first(film):
    data = film("mpegts") + film("mpegts", size=(96, 80))
    clip = open_video(data)
    assert clip.size == (64, 48)
    assert clip.count > 20
    assert (np.diff(clip.timestamps) >= 0).all()
    assert clip.frames([clip.count - 1]).shape == (1, 48, 64, 3)


def test_webp_animations_are_videos():
    frames = [PIL.Image.new("RGB", (16, 12), (place * 50, 0, 0)) for place in range(5)]
    file = io.BytesIO()
    frames[0].save(
        file, "WEBP", save_all=True, append_images=frames[1:], lossless=True,
        duration=[100, 200, 300, 400, 500],
    )  # fmt: skip
    clip = open_video(file.getvalue())
    assert clip.size == (16, 12)
    assert clip.timestamps == pytest.approx([0, 0.1, 0.3, 0.6, 1.0])
    assert clip.seconds == pytest.approx(1.5)
    assert clip.frames([1, 4])[:, 0, 0, 0].tolist() == [50, 200]
    assert clip.frames([0, 0, 2])[:, 0, 0, 0].tolist() == [0, 0, 100]
    assert clip.sound() is None
    with pytest.raises(MediaError, match="truncated"):
        open_video(file.getvalue()[:-30])
    with pytest.raises(MediaError, match="max_frames"):
        open_video(file.getvalue(), limits=MediaLimits(max_frames=4))


def test_gif_animations_keep_their_times():
    frames = [PIL.Image.new("RGB", (16, 12), color) for color in ("red", "blue", "lime")]
    file = io.BytesIO()
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=[100, 200, 300], loop=0
    )
    clip = open_video(file.getvalue())
    assert clip.timestamps == pytest.approx([0, 0.1, 0.3])
    assert clip.seconds == pytest.approx(0.6)
    assert clip.frames([0, 1, 2])[:, 5, 5].tolist() == [[255, 0, 0], [0, 0, 255], [0, 255, 0]]


@pytest.mark.parametrize("shape", [(5, 4, 6, 3), (5, 4, 6, 1)])
def test_arrays_are_videos(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    clip = open_video(array, fps=2)
    assert clip.size == (6, 4)
    assert clip.fps == 2
    assert clip.timestamps.tolist() == [0, 0.5, 1, 1.5, 2]
    assert clip.seconds == 2.5
    assert (clip.frames([1, 1, 4]) == array[[1, 1, 4]]).all()
    assert (open_video(array / 255).frames(range(5)) == array).all()
    assert open_video(array).fps is None
    assert clip.sound() is None


def test_mlx_arrays_are_videos():
    mx = pytest.importorskip("mlx.core")
    assert (open_video(mx.ones((2, 4, 4, 3))).frames([1]) == 255).all()


def test_a_sequence_of_images_is_a_video(tmp_path):
    path = tmp_path / "one.png"
    PIL.Image.new("RGB", (6, 4), "red").save(path)
    images = [
        path,
        path.read_bytes(),
        PIL.Image.new("RGB", (6, 4), "red"),
        np.zeros((4, 6, 3), np.uint8),
    ]
    clip = open_video(images)
    assert clip.size == (6, 4)
    assert clip.count == 4
    assert clip.frames(range(4))[:, 0, 0, 0].tolist() == [255, 255, 255, 0]


def test_pictures_of_a_sequence_have_one_size():
    sizes = [PIL.Image.new("RGB", (6, 4)), PIL.Image.new("RGB", (4, 6))]
    with pytest.raises(MediaError, match="picture 1") as caught:
        open_video(sizes, index=5)
    assert caught.value.index == 5


@pytest.mark.parametrize(
    "source",
    [
        [],
        [b"x"],
        b"",
        b"hello",
        bytes(5000),
        b"<html>",
        np.zeros((4, 6, 3), np.uint8),
        np.zeros((0, 4, 6, 3), np.uint8),
        np.zeros((2, 9, 6, 7), np.uint8),
        np.full((2, 4, 6, 3), 200.0),
        {"path": "x"},
        b"RIFF\4\0\0\0WEBP",
    ],
)
def test_what_is_no_video_is_refused(source):
    with pytest.raises(MediaError) as caught:
        open_video(source, index=2)
    assert caught.value.index == 2
    assert caught.value.hint


def test_a_sound_is_no_video(sound):
    with pytest.raises(MediaError, match="no video"):
        open_video(sound(np.zeros((1, 8000)), 8000))


def test_limits_are_kept(film):
    data = film()
    for limits in (
        MediaLimits(max_frames=19),
        MediaLimits(max_video_seconds=1.8),
        MediaLimits(max_pixels=64 * 48 - 1),
        MediaLimits(max_bytes=1000),
    ):
        with pytest.raises(MediaError, match="Media"):
            open_video(data, limits=limits)
    assert open_video(data, limits=MediaLimits(max_frames=20, max_pixels=64 * 48)).count == 20
    with pytest.raises(MediaError, match="max_frames"):
        open_video(np.zeros((3, 4, 4, 3), np.uint8), limits=MediaLimits(max_frames=2))
    with pytest.raises(MediaError, match="max_video_seconds"):
        open_video(np.zeros((3, 4, 4, 3), np.uint8), fps=1, limits=MediaLimits(max_video_seconds=2))


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "libx264"), ("webm", "libvpx-vp9"), ("gif", "gif")]
)
def test_a_video_that_is_too_large_is_told_its_size(film, container, codec):
    data = film(container, codec, pixels="rgb8" if codec == "gif" else "yuv420p")
    with pytest.raises(MediaError, match=r"64x48 pixels; the limit is 99 in all\. Scale it down"):
        open_video(data, limits=MediaLimits(max_pixels=99))


def test_a_gif_that_claims_a_huge_canvas_is_refused():
    file = io.BytesIO()
    PIL.Image.new("RGB", (16, 12), "red").save(file, "GIF")
    data = bytearray(file.getvalue())
    data[6:10] = b"\xff\xff\xff\xff"
    with pytest.raises(MediaError, match="max_pixels"):
        open_video(bytes(data))


def test_the_sound_track_is_given_on_request(film):
    clip = open_video(film(sound=True))
    track = clip.sound()
    assert track is not None
    assert track.rate == 8000
    assert track.seconds == pytest.approx(2, abs=0.3)
    assert np.abs(track.samples(16000)).max() > 0.3
    assert open_video(film()).sound() is None


@pytest.mark.parametrize("indices", [[-1], [20], [5, 4], [0, 20]])
def test_indices_ascend_within_the_video(film, indices):
    with pytest.raises(RequestError) as caught:
        open_video(film()).frames(indices)
    assert caught.value.field == "indices"


def test_no_frames_are_no_frames(film):
    assert open_video(film()).frames([]).shape == (0, 48, 64, 3)
    assert open_video(film()).frames(np.array([2, 3]).tolist()).shape == (2, 48, 64, 3)


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf"), "2"])
def test_a_number_of_frames_per_second_is_positive(fps):
    with pytest.raises(MediaError, match="fps"):
        open_video(np.zeros((2, 4, 4, 3), np.uint8), fps=fps)


def test_a_file_that_changes_or_goes_is_noticed(film, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(film())
    clip = open_video(path)
    path.write_bytes(film(times=range(5)))
    with pytest.raises(MediaError, match="changed"):
        clip.frames([10])
    path.unlink()
    with pytest.raises(MediaError, match="no file"):
        clip.frames([0])


def test_time_bases_do_not_matter(film):
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream("ffv1", rate=Fraction(30000, 1001))
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for place in range(30):
            frame = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = place, Fraction(1001, 30000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    clip = open_video(file.getvalue())
    assert clip.fps == pytest.approx(29.97, abs=0.01)
    assert np.abs(clip.timestamps - np.arange(30) * 1001 / 30000).max() < 2e-3


def test_frames_come_one_at_a_time_in_one_pass_over_the_file(film, monkeypatch):
    clip = open_video(film(times=range(100)))
    opened, drawn = [], []
    open_, draw = module.opened, module._rgb
    monkeypatch.setattr(module, "opened", lambda *args: opened.append(1) or open_(*args))
    monkeypatch.setattr(module, "_rgb", lambda *args: drawn.append(1) or draw(*args))
    indices = [index * 100 // 96 for index in range(96)]
    frames = clip.each(indices)
    assert not opened  # until the first is taken
    for place, frame in enumerate(frames):
        assert frame.shape == (48, 64, 3)
        assert len(drawn) == place + 1
    assert (len(opened), len(drawn)) == (1, 96)


def test_a_frame_may_be_taken_more_than_once():
    footage = Footage(5)
    assert [int(frame[0, 0, 0]) for frame in footage.clip.each([0, 2, 2, 2, 4])] == [0, 2, 2, 2, 4]
    assert footage.decoded == [0, 2, 4]
    assert footage.clip.frames([]).shape == (0, 48, 64, 3)
    assert not list(footage.clip.each([]))
    assert footage.clip.frames(range(5)).shape == (5, 48, 64, 3)
    assert footage.most_held <= 2
    for wrong in ([1, 0], [-1], [5]):
        with pytest.raises(RequestError, match=r"0\.\.4"):
            footage.clip.each(wrong)


def test_what_is_done_to_a_frame_does_not_change_the_video():
    clip = open_video(np.zeros((2, 4, 4, 3), np.uint8))
    for frame in clip.each([0, 1]):
        frame[:] = 255
    assert not clip.frames([0, 1]).any()


@pytest.mark.parametrize(
    ("footage", "rate", "steady"),
    [
        (Footage(10, fps=25.0), 25.0, True),
        (Footage(10, fps=25.0, times=[place / 25 + 0.01 for place in range(10)]), 25.0, True),
        (Footage(10, fps=25.0, times=[*range(9), 30]), 25.0, False),
        (Footage(11, times=[place / 5 for place in range(11)]), 5.0, True),
        (Footage(3, times=[0, 1, 9]), 2 / 9, False),
        (Footage(1), 1.0, True),
        (Footage(1, fps=30.0), 30.0, True),
    ],
)
def test_the_rate_is_the_sources_or_comes_from_the_times(footage, rate, steady):
    assert footage.clip.rate == pytest.approx(rate)
    assert footage.clip.steady is steady


def test_a_rate_that_nothing_tells_is_said_to_be_unknown():
    clip = Footage(3, times=[0, 0, 0]).clip
    for ask in (lambda: clip.rate, lambda: clip.steady, lambda: clip.count_at(1)):
        with pytest.raises(ValueError, match=r"convert it, .* 'source_fps'"):
            ask()
    assert clip.count_at(12, rate=24) == 1


@pytest.mark.parametrize(
    ("fps", "count"),
    [(1, 10), (2.55, 25), (10, 100), (11, 100), (0.01, 0), (1e308, 100), (float("inf"), 100),
     (5e-324, 0)],
)  # fmt: skip
def test_so_many_frames_a_second_are_at_most_all(fps, count):
    assert Footage(100, fps=10.0).clip.count_at(fps) == count
    assert Footage(100).clip.count_at(fps, rate=10.0) == count


def test_a_rate_near_nothing_does_no_harm():
    assert Footage(100, fps=5e-324, times=range(100)).clip.count_at(1) == 100
