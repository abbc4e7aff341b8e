from __future__ import annotations

import gzip
import io
import struct
import threading
import warnings
import zlib

import numpy as np
import PIL.Image  # noqa: TID253  (the tests are about it)
import pytest

from phyla.errors import MediaError
from phyla.media import MediaLimits, open_image

GRADIENT = np.stack(
    [
        np.tile(np.arange(24) * 10, (16, 1)),
        np.tile(np.arange(16)[:, None] * 15, (1, 24)),
        np.full((16, 24), 40),
    ],
    axis=-1,
).astype(np.uint8)
# What is done to a picture that is the right way up to store it under each orientation.
STORED = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: np.rot90(p, 1),
    7: lambda p: np.rot90(p.transpose(1, 0, 2), 2),
    8: lambda p: np.rot90(p, -1),
}


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(array=GRADIENT, mode=None):
    image = PIL.Image.fromarray(np.ascontiguousarray(array))
    return image.convert(mode) if mode else image


def exif(value):
    block = PIL.Image.Exif()
    block[0x0112] = value
    return block


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width, height, depth, color, rows, *chunks):
    """A PNG made by hand: depth and colour type as in its header."""
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)),
            *chunks,
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        )
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_every_format_comes_out_the_right_way_up(kind, orientation):
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(kind, {})
    stored = picture(STORED[orientation](GRADIENT))
    opened = open_image(saved(stored, kind, exif=exif(orientation), **options))
    assert opened.size == (24, 16)
    found = opened.pixels()
    assert found.shape == (16, 24, 3)
    assert np.abs(found.astype(int) - GRADIENT).mean() < (6 if kind == "AVIF" else 2)


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_png_may_tell_its_orientation_after_its_pixels(orientation):
    data = saved(picture(STORED[orientation](GRADIENT)), "PNG")
    block = exif(orientation).tobytes().removeprefix(b"Exif\0\0")
    end = len(data) - 12
    opened = open_image(data[:end] + chunk(b"eXIf", block) + data[end:])
    assert opened.size == (24, 16)
    assert (opened.pixels() == GRADIENT).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_pillow_image_is_turned_by_its_own_exif(orientation):
    image = picture(STORED[orientation](GRADIENT))
    image.getexif()[0x0112] = orientation
    opened = open_image(image)
    assert opened.size == (24, 16)
    assert (opened.pixels() == GRADIENT).all()


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG"])
def test_a_pillow_image_of_a_file_is_turned_once(kind, loaded):
    image = PIL.Image.open(io.BytesIO(saved(picture(np.rot90(GRADIENT)), kind, exif=exif(6))))
    if loaded:
        image.load()
    opened = open_image(image)
    assert opened.size == (24, 16)
    assert np.abs(opened.pixels().astype(int) - GRADIENT).mean() < 8


@pytest.mark.parametrize("value", [0, 9, 77])
def test_an_orientation_that_does_not_exist_is_ignored(value):
    opened = open_image(saved(picture(), "PNG", exif=exif(value)))
    assert (opened.pixels() == GRADIENT).all()


def test_broken_exif_does_not_spoil_a_picture():
    opened = open_image(saved(picture(), "PNG", exif=b"MM\0*\0\0\0\x08\xff\xff junk" + b"\1" * 40))
    assert (opened.pixels() == GRADIENT).all()


@pytest.mark.parametrize(
    ("mode", "value", "shown"),
    [
        ("RGBA", (0, 0, 0, 0), (255, 255, 255)),
        ("RGBA", (255, 0, 0, 128), (255, 127, 127)),
        ("LA", (0, 0), (255, 255, 255)),
        ("LA", (100, 255), (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("1", 0, (0, 0, 0)),
        ("L", 90, (90, 90, 90)),
        ("I;16", 300, (1, 1, 1)),
        ("I;16", 65535, (255, 255, 255)),
        ("I", 300, (1, 1, 1)),
        ("I", 200, (200, 200, 200)),
        ("I", 65535, (255, 255, 255)),
        ("F", 1.0, (255, 255, 255)),
        ("F", 200.0, (200, 200, 200)),
        ("F", float("nan"), (0, 0, 0)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("YCbCr", (255, 128, 128), (255, 255, 255)),
        ("HSV", (0, 255, 255), (255, 0, 0)),
        ("LAB", (255, 128, 128), (255, 255, 255)),
        ("RGBX", (1, 2, 3, 0), (1, 2, 3)),
        ("RGBa", (0, 0, 0, 0), (255, 255, 255)),
        ("La", (0, 0), (255, 255, 255)),
    ],
)
def test_every_mode_becomes_rgb_on_white(mode, value, shown):
    found = open_image(PIL.Image.new(mode, (3, 2), value)).pixels()
    assert found.shape == (2, 3, 3)
    assert np.abs(found.astype(int) - shown).max() <= 1


def test_a_palette_with_transparency_is_laid_on_white():
    image = picture().quantize(4)
    for transparency in (0, bytes([0, 128, 255, 255])):
        found = open_image(saved(image, "PNG", transparency=transparency)).pixels()
        assert (found[np.asarray(image) == 0] == 255).all()
    assert (open_image(image.convert("PA")).pixels() == np.asarray(image.convert("RGB"))).all()


def test_sixteen_bits_of_grey_are_scaled_and_not_clipped():
    for stored in (np.full((2, 3), 300, np.uint16), np.full((2, 3), 65535, np.uint16)):
        for kind in ("PNG", "TIFF"):
            found = open_image(saved(PIL.Image.fromarray(stored), kind)).pixels()
            assert (found == round(stored[0, 0] / 257)).all()


def test_transparent_colours_of_sixteen_bits_are_laid_on_white():
    grey = png(1, 1, 16, 0, b"\0\x01\x2c", chunk(b"tRNS", b"\x01\x2c"))
    assert (open_image(grey).pixels() == 255).all()
    color = b"\x12\x34\x56\x78\x9a\xbc"
    assert (
        open_image(png(1, 1, 16, 2, b"\0" + color, chunk(b"tRNS", color))).pixels() == 255
    ).all()
    alpha = png(1, 1, 16, 4, b"\0\x01\x2c\xff\xff")
    assert (open_image(alpha).pixels() == 1).all()


def test_a_cmyk_jpeg_is_not_inverted():
    red = PIL.Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    found = open_image(saved(red, "JPEG", quality=100)).pixels()
    assert np.abs(found.astype(int) - (255, 0, 0)).max() < 12


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_first_frame_of_an_animation_counts(kind):
    frames = [PIL.Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    found = open_image(data).pixels()
    assert np.abs(found.astype(int) - (255, 0, 0)).max() < 12
    # Each time anew.
    opened = open_image(data)
    assert (opened.pixels() == opened.pixels()).all()


@pytest.mark.parametrize(
    "kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "QOI", "AVIF"]
)
def test_truncated_files_are_refused_and_not_padded_with_grey(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = saved(picture(noise), kind)
    for length in (len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(MediaError) as caught:
            open_image(data[:length], index=3).pixels()
        assert caught.value.index == 3
        assert "truncated" in str(caught.value)


def test_a_compressed_tiff_that_is_broken_inside_is_refused():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for compression in ("tiff_lzw", "tiff_deflate"):
        data = bytearray(saved(picture(noise), "TIFF", compression=compression))
        data[200 : len(data) // 2] = bytes(len(data) // 2 - 200)
        with pytest.raises(MediaError):
            open_image(bytes(data)).pixels()


def test_a_decompression_bomb_is_refused_by_its_header():
    bomb = png(50_000, 50_000, 8, 0, b"\0" * 10)
    with pytest.raises(MediaError, match="pixels"):
        open_image(bomb)
    with pytest.raises(MediaError, match="max_pixels"):
        open_image(saved(picture(), "PNG"), limits=MediaLimits(max_pixels=383))
    assert open_image(saved(picture(), "PNG"), limits=MediaLimits(max_pixels=384)).size == (24, 16)


def test_pillows_own_limit_neither_warns_nor_changes(monkeypatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 300)
    before = list(warnings.filters)
    assert (open_image(saved(picture(), "PNG")).pixels() == GRADIENT).all()
    assert PIL.Image.MAX_IMAGE_PIXELS == 300
    assert warnings.filters == before


def test_an_icon_cannot_hide_a_large_picture():
    bomb = png(20_000, 20_000, 8, 0, b"\0" * 10)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(bomb), 22)
    with pytest.raises(MediaError, match="pixels"):
        open_image(struct.pack("<HHH", 0, 1, 1) + entry + bomb).pixels()
    icon = saved(PIL.Image.new("RGBA", (32, 32), (0, 0, 0, 0)), "ICO", sizes=[(16, 16), (32, 32)])
    assert open_image(icon).size == (32, 32)
    assert (open_image(icon).pixels() == 255).all()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"<?xml version='1.0'?>\n<svg/>", "SVG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b'{"error": "not found"}', "JSON"),
        ("Grüße".encode(), "plain text"),
        (b"%PDF-1.7", "PDF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (gzip.compress(b"x", mtime=0), "gzip"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "PostScript"),
        (bytes(range(128, 256)) * 3, "no kind of file"),
        (png(0, 5, 8, 0, b""), "PNG"),
    ],
)
def test_what_is_no_image_is_named(data, words):
    with pytest.raises(MediaError, match=words) as caught:
        open_image(data, index=7)
    assert caught.value.index == 7
    assert "media[7]" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (GRADIENT, GRADIENT),
        (GRADIENT.transpose(2, 0, 1), GRADIENT),
        (GRADIENT / 255, GRADIENT),
        (GRADIENT.astype(np.float16) / 255, GRADIENT),
        (GRADIENT.astype(np.uint16) * 257, GRADIENT),
        (GRADIENT[..., 0], np.repeat(GRADIENT[..., :1], 3, -1)),
        (GRADIENT[..., :1], np.repeat(GRADIENT[..., :1], 3, -1)),
        (np.ones((2, 3), bool), np.full((2, 3, 3), 255)),
        (np.zeros((2, 3, 4), np.uint8), np.full((2, 3, 3), 255)),
        (np.zeros((2, 3, 2)), np.full((2, 3, 3), 255)),
        (np.full((5, 5), 300, np.uint16), np.full((5, 5, 3), 1)),
    ],
)
def test_arrays_are_pictures(array, shown):
    opened = open_image(array)
    assert opened.size == (shown.shape[1], shown.shape[0])
    assert (opened.pixels() == shown).all()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 4, 4, 3), np.uint8),
        np.zeros(7, np.uint8),
        np.zeros((9, 9, 9), np.uint8),
        np.full((4, 4), 255.0),
        np.full((4, 4), -1.0),
        np.full((4, 4), np.nan),
        np.zeros((4, 4), np.int64),
        np.zeros((4, 4), complex),
        np.array([["a"]]),
        np.array([[None]]),
    ],
)
def test_other_arrays_are_refused(array):
    with pytest.raises(MediaError):
        open_image(array)


def test_mlx_arrays_are_pictures():
    mx = pytest.importorskip("mlx.core")
    assert (open_image(mx.array(GRADIENT)).pixels() == GRADIENT).all()
    assert (open_image(mx.ones((2, 3), mx.bfloat16)).pixels() == 255).all()


def test_a_picture_does_not_change_with_its_source():
    array = GRADIENT.copy()
    opened = open_image(array)
    array[:] = 0
    opened.pixels()[:] = 0
    assert (opened.pixels() == GRADIENT).all()


def test_a_closed_pillow_image_is_refused():
    image = PIL.Image.open(io.BytesIO(saved(picture(), "PNG")))
    image.close()
    with pytest.raises(MediaError):
        open_image(image)


def test_threads_decode_at_once_and_leave_the_warning_filters_alone():
    data = saved(picture(), "PNG", exif=b"MM\0*\0\0\0\x08\xff\xff junk")
    before = list(warnings.filters)
    wrong = []

    def work():
        for _ in range(20):
            if not (open_image(data).pixels() == GRADIENT).all():
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert warnings.filters == before
