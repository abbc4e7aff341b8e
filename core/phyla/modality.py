"""The kinds of media that a prompt may hold beside text. Knows nothing else of Phyla."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Modality: TypeAlias = Literal["image", "audio", "video"]

MODALITIES: tuple[Modality, ...] = get_args(Modality)

# How a sentence speaks of several.
PLURALS: Mapping[Modality, str] = {"image": "images", "audio": "audio", "video": "videos"}


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a loaded model reads: what its checkpoint holds the parts for."""

    text: bool = True
    image: bool = False
    audio: bool = False
    video: bool = False
