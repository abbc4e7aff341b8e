from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import PIL.Image  # noqa: TID253  (the tests write pictures)
import pytest

from phyla.errors import MediaError
from phyla.media import MediaLimits, open_audio, open_image, open_video


def _png():
    file = io.BytesIO()
    PIL.Image.new("RGB", (3, 2), "red").save(file, "PNG")
    return file.getvalue()


PNG = _png()
TEXT = base64.b64encode(PNG).decode()


def is_red(source, **settings):
    opened = open_image(source, **settings)
    return opened.size == (3, 2) and (opened.pixels() == (255, 0, 0)).all()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind_are_sources(kind):
    assert is_red(kind(PNG))
    assert is_red(np.frombuffer(PNG, np.uint8).data)


@pytest.mark.parametrize("name", ["a.png", "a b%20.png", "ä?#.png", "no-suffix", "a.jpg"])
def test_paths_and_file_urls_are_sources(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PNG)
    assert is_red(path)
    assert is_red(str(path))
    assert is_red(path.as_uri())
    assert is_red(path.as_uri().replace("file://", "file:"))
    assert is_red(path.as_uri().replace("file://", "FILE://localhost"))


def test_a_relative_path_is_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("abcd").write_bytes(PNG)  # which is base64, too
    assert is_red("abcd")


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{TEXT}",
        f"data:;base64,{TEXT}",
        f"DATA:image/png;name=a.png;charset=utf-8;BASE64,{TEXT}",
        f"data:image/png;base64,{TEXT.rstrip('=')}",
        f"data:image/png;base64,{quote(TEXT, safe='')}",
        f"data:image/png;base64,{TEXT.replace('+', '-').replace('/', '_')}",
        f"data:image/png,{quote(PNG)}",
        f"data:,{quote(PNG)}",
        "data:image/png;base64," + "\n".join(TEXT[i : i + 20] for i in range(0, len(TEXT), 20)),
        f"  data:image/png;base64,{TEXT}\n",
    ],
)
def test_data_urls_are_sources(url):
    assert is_red(url)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.rstrip("="),
        TEXT.replace("+", "-").replace("/", "_"),
        "\n".join(TEXT[i : i + 76] for i in range(0, len(TEXT), 76)),
    ],
)
def test_plain_base64_is_a_source(text):
    assert is_red(text)


def test_long_base64_is_named_by_what_is_in_it():
    with pytest.raises(MediaError, match="plain text"):
        open_image(base64.b64encode(b"hello " * 1000).decode())
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(noise).save(file, "PNG")
    opened = open_image(base64.b64encode(file.getvalue()).decode())
    assert (opened.pixels() == noise).all()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("missing.png", "neither the path of a file nor base64"),
        ("", "neither the path"),
        ("a" * 300, "neither the path"),
        ("\0", "neither the path"),
        ("QUJDRA==", "neither the path"),
        ("ftp://example.org/a.png", "begin with ftp:"),
        ("gopher://x", "begin with gopher:"),
        ("concat:a.wav|b.wav", "neither the path"),
        ("file://elsewhere/a.png", "another machine"),
        ("file:///no/such/file.png", "no file"),
        ("file:", "names no file"),
        ("file:///a%00b", "names no file"),
        ("file://[", "no URL"),
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,$$$", "no base64"),
        ("data:image/png;base64,A", "no base64"),
        ("data:,", "empty"),
        ("http://example.org/a.png", "off"),
        ("HTTPS://example.org/a.png", "off"),
        (Path("missing.png"), "no file"),
        (None, "NoneType"),
        (5, "int"),
        ({"url": "x"}, "dict"),
        (object(), "object"),
        (io.BytesIO(PNG), "BytesIO"),
    ],
)
@pytest.mark.parametrize("opener", [open_image, open_audio, open_video])
def test_what_is_no_source_is_refused_with_its_index(opener, source, words):
    with pytest.raises(MediaError, match=words) as caught:
        opener(source, index=6)
    assert caught.value.index == 6
    assert caught.value.field == "media[6]"
    assert "media[6]" in caught.value.message
    assert caught.value.hint


def test_the_source_shown_by_an_error_is_short():
    with pytest.raises(MediaError) as caught:
        open_image("!" * 10_000)
    assert len(str(caught.value)) < 600


def test_only_ordinary_files_are_read(tmp_path):
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(MediaError):
            open_image(path)
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no pipes with names here")
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    for opener in (open_image, open_audio, open_video):
        with pytest.raises(MediaError, match="no ordinary file"):
            opener(pipe)


def test_a_link_that_leads_nowhere_is_a_missing_file(tmp_path):
    link = tmp_path / "link.png"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(MediaError, match="no file"):
        open_image(str(link))


def test_the_size_of_a_file_is_limited(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    exactly, less = MediaLimits(max_bytes=len(PNG)), MediaLimits(max_bytes=len(PNG) - 1)
    for source in (PNG, path, path.as_uri(), TEXT, f"data:;base64,{TEXT}", f"data:,{quote(PNG)}"):
        assert is_red(source, limits=exactly)
        with pytest.raises(MediaError, match="max_bytes"):
            open_image(source, limits=less)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MediaError, match=r"pillow.*Install phyla\[media\]"):
        open_image(PNG)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MediaError, match=r"av.*Install phyla\[media\]"):
        open_audio(PNG)
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MediaError, match=r"soxr.*Install phyla\[media\]"):
        open_audio(np.zeros(10), rate=8000).samples(4000)


def test_importing_the_module_loads_no_heavy_library():
    code = (
        "import sys, phyla.media; from phyla.media import MediaLimits; print('|'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.strip().split("|")}
    assert loaded.isdisjoint({"PIL", "av", "librosa", "soxr", "numpy", "mlx", "pydantic", "scipy"})


def test_every_public_name_resolves():
    import phyla.media

    for name in phyla.media.__all__:
        assert getattr(phyla.media, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = phyla.media.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_where_files_are_not_read_nobody_learns_of_them(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    closed = MediaLimits(files=False)
    said = set()
    for name in ("a.png", "b.png"):
        path = tmp_path / name
        for source in (str(path), path, path.as_uri()):
            with pytest.raises(MediaError) as failure:
                open_image(source, limits=closed)
            said.add(str(failure.value).replace(name, ""))
    assert len(said) == 2  # of a text that might be base64, and of what can only be a path
    for source in (PNG, TEXT, f"data:image/png;base64,{TEXT}"):
        assert is_red(source, limits=closed)
