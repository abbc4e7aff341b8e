"""What the preprocessor files say about pictures and videos, as values that were checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from phyla.errors import CheckpointError
from phyla.validation import expected, place, shown

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla_families.qwen3.vision_config import VisionConfig

_Channels = tuple[float, float, float]
_Positive = Annotated[float, Field(gt=0)]

_IMAGE_FILE = "preprocessor_config.json"
_VIDEO_FILE = "video_preprocessor_config.json"
_BOTH_FILE = "processor_config.json"


class ImageSettings(BaseModel):
    """Keys of Qwen2VLImageProcessor, with the values of Qwen3-VL's files as defaults.

    Attributes:
        least_pixels: `size.shortest_edge`, which is no edge,
        most_pixels: and `size.longest_edge`.
        patch_size: None where the file does not say; the tower decides.
        resample: PIL's number of a filter; 3 is bicubic.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True, allow_inf_nan=False)

    least_pixels: int = Field(default=65536, gt=0, validation_alias="shortest_edge")
    most_pixels: int = Field(default=16777216, gt=0, validation_alias="longest_edge")
    patch_size: int | None = Field(default=None, gt=0)
    merge_size: int | None = Field(default=None, gt=0)
    temporal_patch_size: int | None = Field(default=None, gt=0)
    resample: int = Field(default=3, ge=0, le=5)
    do_rescale: bool = True
    rescale_factor: float = Field(default=1 / 255, gt=0)
    do_normalize: bool = True
    image_mean: _Channels = (0.5, 0.5, 0.5)
    image_std: tuple[_Positive, _Positive, _Positive] = (0.5, 0.5, 0.5)

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

    @property
    def scale(self) -> _Channels:
        """What pixels from 0 to 255 are multiplied by, for each colour."""
        factor = self.rescale_factor if self.do_rescale else 1.0
        red, green, blue = (factor / each for each in self._deviations)
        return red, green, blue

    @property
    def shift(self) -> _Channels:
        """What is added to them after that."""
        means = self.image_mean if self.do_normalize else (0.0, 0.0, 0.0)
        red, green, blue = (
            -mean / each for mean, each in zip(means, self._deviations, strict=True)
        )
        return red, green, blue

    @property
    def _deviations(self) -> _Channels:
        return self.image_std if self.do_normalize else (1.0, 1.0, 1.0)


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
    return _read(ImageSettings, checkpoint, vision, part="image_processor", file=_IMAGE_FILE)


def video_settings(checkpoint: Checkpoint, vision: VisionConfig) -> VideoSettings:
    """Read what the checkpoint says about videos.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    return _read(VideoSettings, checkpoint, vision, part="video_processor", file=_VIDEO_FILE)


def _read(
    kind: type[_Settings], checkpoint: Checkpoint, vision: VisionConfig, *, part: str, file: str
) -> _Settings:
    """Transformers 5 writes both into one file, which then goes before the others."""
    found: Any = checkpoint.preprocessing.get(_BOTH_FILE, {}).get(part)
    start = ""
    if found is not None:
        file, start = _BOTH_FILE, part
    else:
        found = checkpoint.preprocessing.get(file, {})
    try:
        settings = kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        key = place(start, first["loc"]) or "the whole"
        raise _wrong(file, key, expected(first), first["input"]) from None
    for key, size in (
        ("patch_size", vision.patch_size),
        ("merge_size", vision.spatial_merge_size),
        ("temporal_patch_size", vision.temporal_patch_size),
    ):
        said = getattr(settings, key)
        if said is not None and said != size:
            raise _wrong(file, place(start, (key,)), f"{size}, as the tower's", said)
    return settings


def _wrong(file: str, key: str, wanted: str, found: object) -> CheckpointError:
    wanted = wanted[:1].lower() + wanted[1:]
    return CheckpointError(
        f"{file}: {key} should be {wanted}; found {shown(found)}.",
        file=file,
        found=found,
        expected=wanted,
        field=key,
        hint=f"Compare {file} with the published one.",
    )
