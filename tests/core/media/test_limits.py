from __future__ import annotations

from typing import Any

import pytest

from phyla.errors import RequestError
from phyla.media import MediaLimits


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("max_bytes", "max_pixels", "max_frames") for value in (0, -1, 1.5, True, None, "9")),
        *(
            (field, value)
            for field in ("max_audio_seconds", "max_video_seconds", "http_seconds")
            for value in (0, -1, float("inf"), float("nan"), True, None, "9")
        ),
        ("http", 1),
        ("http", None),
        ("hosts", "example.org"),
        ("hosts", ["example.org"]),
        ("hosts", ("",)),
        ("hosts", (1,)),
    ],
)  # fmt: skip
def test_nonsense_is_refused_by_name(field, value):
    settings: dict[str, Any] = {field: value}
    with pytest.raises(RequestError) as caught:
        MediaLimits(**settings)
    assert caught.value.field == field


def test_sensible_values_are_taken():
    limits = MediaLimits(max_bytes=1, max_audio_seconds=2, http=True, hosts=("example.org",))
    assert limits.hosts == ("example.org",)
    assert MediaLimits() == MediaLimits()
    assert not MediaLimits().http
