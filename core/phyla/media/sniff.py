"""Tells by its first bytes what a file looks like, for error messages and for base64 text."""

from __future__ import annotations

_IMAGES = {
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"BM": "a BMP image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"II+\0": "a TIFF image",
    b"MM\0+": "a TIFF image",
    b"\0\0\1\0": "an icon",
    b"\0\0\0\x0cjP  ": "a JPEG 2000 image",
    b"\xff\x4f\xff\x51": "a JPEG 2000 image",
    b"qoif": "a QOI image",
    b"8BPS": "a Photoshop document",
    b"\xff\x0a": "a JPEG XL image",
    b"\0\0\0\x0cJXL ": "a JPEG XL image",
    **{
        f"P{digit}".encode() + space: "a PNM image" for digit in "123456" for space in (b"\n", b" ")
    },
}
_RIFF = {b"WEBP": "a WebP image", b"WAVE": "a WAV sound", b"AVI ": "an AVI video"}
_SOUNDS_AND_VIDEOS = {
    b"ID3": "an MP3 sound",
    b"fLaC": "a FLAC sound",
    b"OggS": "an Ogg file",
    b"RF64": "a WAV sound",
    b".snd": "an AU sound",
    b"caff": "a CAF sound",
    b"#!AMR": "an AMR sound",
    b"MAC ": "a Monkey's Audio sound",
    b"wvpk": "a WavPack sound",
    b"\x1aE\xdf\xa3": "a Matroska or WebM video",
    b"FLV\1": "an FLV video",
    b"0&\xb2u\x8ef\xcf\x11": "an ASF file (WMA or WMV)",
    b"\0\0\1\xba": "an MPEG video",
    b"\0\0\1\xb3": "an MPEG video",
    **dict.fromkeys((b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa"), "an MP3 sound"),
    **dict.fromkeys((b"\xff\xf1", b"\xff\xf9"), "an AAC sound"),
}
_OTHERS = {
    b"%PDF": "a PDF document",
    b"PK\3\4": "a ZIP archive or an office document",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"\xfd7zXZ\0": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive",
    b"Rar!": "a RAR archive",
    b"%!PS": "a PostScript document",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself",
    b"#EXTM3U": "a playlist",
    b"ffconcat": "a playlist",
}
_HEIF = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")


def media_type(data: bytes) -> str | None:
    """The kind of image, sound or video that the bytes begin like, as words; None for others."""
    if data[:4] == b"RIFF" and len(data) >= 12:
        return _RIFF.get(data[8:12])
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "an AIFF sound"
    if data[4:8] == b"ftyp":
        if data[8:12] in (b"avif", b"avis"):
            return "an AVIF image"
        return "a HEIC image" if data[8:12] in _HEIF else "an MP4 or QuickTime file"
    if data[4:8] in (b"moov", b"mdat", b"wide"):
        return "an MP4 or QuickTime file"
    if len(data) > 376 and data[0] == data[188] == data[376] == 0x47:
        return "an MPEG transport stream"
    for table in (_IMAGES, _SOUNDS_AND_VIDEOS):
        for start, name in table.items():
            if data.startswith(start):
                return name
    return None


def looks_like(data: bytes) -> str:
    """What the bytes look like, in words that go on after "it looks like"."""
    if not data:
        return "an empty file"
    found = media_type(data)
    if found:
        return found
    for start, name in _OTHERS.items():
        if data.startswith(start):
            return name
    head = data[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if b"<svg" in head:
        return "an SVG drawing"
    if head.startswith((b"<!doctype html", b"<html")) or b"<html" in head:
        return "an HTML page, such as a server's error message"
    if head.startswith((b"<?xml", b"<!doctype")):
        return "an XML document"
    if head.startswith((b"{", b"[")):
        return "JSON"
    try:
        text = data[:1020].decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        if error.start < len(data[:1020]) - 4:
            return "no kind of file that is known"
        text = data[: error.start].decode("utf-8")
    printable = all(letter.isprintable() or letter.isspace() for letter in text)
    return "plain text" if printable else "no kind of file that is known"


def truncated(data: bytes) -> bool:
    """Whether an image file lacks its end, as far as its outer structure tells."""
    if data[:4] == b"RIFF":
        return len(data) < 8 + int.from_bytes(data[4:8], "little")
    if data.startswith(b"\x89PNG"):
        return b"IEND" not in data[-4096:]
    if data.startswith(b"\xff\xd8"):
        return b"\xff\xd9" not in data[-4096:]
    if data.startswith(b"GIF8"):
        return b"\x3b" not in data[-64:]
    return data[4:8] == b"ftyp" and _boxes_end(data) > len(data)


def _boxes_end(data: bytes) -> int:
    """Where the last of a file's boxes (ISO 14496-12) should end."""
    place = 0
    while place + 8 <= len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if size == 1:
            size = int.from_bytes(data[place + 8 : place + 16], "big")
        if size < 8:  # zero: up to the end of the file
            return len(data)
        place += size
    return place
