"""What the preprocessor files say about pictures and videos, as values that were checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import Field, model_validator

from phyla.family import PREPROCESSOR_FILE, VIDEO_FILE, PixelSettings, Preprocessing
from phyla.validation import shown

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla.family import Section
    from phyla_families.qwen3.vision_config import VisionConfig


class ImageSettings(PixelSettings):
    """Keys of Qwen2VLImageProcessor, with the values of Qwen3-VL's files as defaults.

    Attributes:
        least_pixels: `size.shortest_edge`, which is no edge,
        most_pixels: and `size.longest_edge`.
        patch_size: None where the file does not say; the tower decides.
    """

    least_pixels: int = Field(default=65536, gt=0, validation_alias="shortest_edge")
    most_pixels: int = Field(default=16777216, gt=0, validation_alias="longest_edge")
    patch_size: int | None = Field(default=None, gt=0)
    merge_size: int | None = Field(default=None, gt=0)
    temporal_patch_size: int | None = Field(default=None, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _read_every_spelling(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        keys = cast("Mapping[str, Any]", data)
        raw = {str(key): value for key, value in keys.items() if value is not None}
        size = raw.pop("size", None)
        if size is not None:
            if not isinstance(size, Mapping):
                raise ValueError(f"an object whose 'size' is one too, not {shown(size)}")
            inner = cast("Mapping[str, Any]", size)
            raw.update({k: inner[k] for k in inner if k in _PIXELS.values() or k in _PIXELS})
        for older, key in _PIXELS.items():
            if older in raw:
                raw[key] = raw.pop(older)
        return raw

    @model_validator(mode="after")
    def _the_budget_is_a_range(self) -> Self:
        if self.least_pixels > self.most_pixels:
            raise ValueError(
                f"an object whose size's 'shortest_edge' ({self.least_pixels}) is at most its "
                f"'longest_edge' ({self.most_pixels})"
            )
        return self


# Older names of the two edges.
_PIXELS = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}


class VideoSettings(ImageSettings):
    """Keys of Qwen3VLVideoProcessor; the budget is for all frames together.

    Attributes:
        fps: frames per second to look at.
        min_frames: as few as this are looked at only where there are no more.
        max_frames: the most that are looked at.
        cap_pixels_per_frame: a frame gets no more than `max_video_tokens`, nor more than its share
            of the budget; transformers leaves it off where the key is absent.
    """

    least_pixels: int = Field(default=4096, gt=0, validation_alias="shortest_edge")
    most_pixels: int = Field(default=25165824, gt=0, validation_alias="longest_edge")
    fps: float = Field(default=2.0, gt=0)
    min_frames: int = Field(default=4, gt=0)
    max_frames: int = Field(default=768, gt=0)
    cap_pixels_per_frame: bool = False
    max_video_tokens: int = Field(default=768, gt=0)


_Settings = TypeVar("_Settings", bound=ImageSettings)


def image_settings(checkpoint: Checkpoint, vision: VisionConfig) -> ImageSettings:
    """Read what the checkpoint says about pictures.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    section = Preprocessing(checkpoint).section(ImageSettings, "image_processor", PREPROCESSOR_FILE)
    return _checked(section, vision)


def video_settings(checkpoint: Checkpoint, vision: VisionConfig) -> VideoSettings:
    """Read what the checkpoint says about videos.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    section = Preprocessing(checkpoint).section(VideoSettings, "video_processor", VIDEO_FILE)
    return _checked(section, vision)


def _checked(section: Section[_Settings], vision: VisionConfig) -> _Settings:
    section.check("patch_size", vision.patch_size)
    section.check("merge_size", vision.spatial_merge_size)
    section.check("temporal_patch_size", vision.temporal_patch_size)
    return section.settings
