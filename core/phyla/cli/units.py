"""Numbers as people read them."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Bytes in the unit that fits: `540 B`, `22.5 KiB`, `93.8 MiB`."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            break
        count, unit = count / 1024, larger
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def count_text(count: float) -> str:
    """A number with a word: `134.5 million`."""
    for size, word in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if count >= size:
            return f"{count / size:.1f} {word}"
    return f"{count:.0f}"
