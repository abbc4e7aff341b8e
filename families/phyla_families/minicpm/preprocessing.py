"""What a checkpoint's preprocessor files say of pictures and videos."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from phyla.errors import CheckpointError
from phyla.validation import expected, place
from phyla_families.minicpm.tower_config import (
    DownsampleMode,
)

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.minicpm.tower_config import TowerConfig

_PROCESSOR = "processor_config.json"
_PICTURES = "preprocessor_config.json"
_VIDEOS = "video_preprocessor_config.json"


def _thrice(value: object) -> object:
    return [value] * 3 if isinstance(value, int | float) else value


_Channels = Annotated[tuple[float, float, float], BeforeValidator(_thrice)]
_Deviations = Annotated[
    tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)],
          Annotated[float, Field(gt=0)]],
    BeforeValidator(_thrice),
]  # fmt: skip


class PictureSettings(BaseModel):
    """Keys of MiniCPMV4_6ImageProcessor, with the defaults of the class.

    Attributes:
        resample: PIL's number of the filter; 3 is bicubic.
        scale_resolution: side of the square whose area an overview or a slice has, about.
        max_slice_nums: the most slices.
        use_image_id: whether each item is numbered in the prompt.
        downsample_mode: the tower's where the key is absent.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    do_resize: Literal[True] = True
    do_rescale: bool = True
    rescale_factor: float = Field(default=1 / 255, gt=0)
    do_normalize: bool = True
    image_mean: _Channels = (0.5, 0.5, 0.5)
    image_std: _Deviations = (0.5, 0.5, 0.5)
    resample: int = Field(default=3, ge=0, le=5)
    max_slice_nums: int = Field(default=9, gt=0)
    scale_resolution: int = Field(default=448, gt=0)
    patch_size: int | None = Field(default=None, gt=0)
    slice_mode: bool = True
    downsample_mode: DownsampleMode | None = None
    use_image_id: bool = True

    @property
    def max_slices(self) -> int:
        """The most slices; 1 for none."""
        return self.max_slice_nums if self.slice_mode else 1

    @property
    def affine(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What a byte of each channel is multiplied by, and what is then added."""
        factor = self.rescale_factor if self.do_rescale else 1.0
        if not self.do_normalize:
            return (factor,) * 3, (0.0,) * 3
        scales = tuple(factor / std for std in self.image_std)
        shifts = tuple(
            -mean / std for mean, std in zip(self.image_mean, self.image_std, strict=True)
        )
        return scales, shifts


class VideoSettings(PictureSettings):
    """Keys of MiniCPMV4_6VideoProcessor, with the defaults of the class.

    Attributes:
        max_num_frames: the most moments to look at.
        stack_frames: frames to a second: one by itself, the others on one canvas.
    """

    max_num_frames: int = Field(default=128, gt=0)
    stack_frames: int = Field(default=1, gt=0)
    do_sample_frames: bool = True


class _Shared(BaseModel):
    """Keys of the processor around both."""

    use_image_id: bool | None = None


@dataclass(frozen=True)
class Settings:
    """Of both; whether items are numbered is the processor's to say, else the pictures'."""

    pictures: PictureSettings
    videos: VideoSettings
    numbered: bool


def read_settings(checkpoint: Checkpoint, tower: TowerConfig) -> Settings:
    """Read whichever files there are.

    Version 5 of transformers keeps all in processor_config.json; before, each had a file, and
    videos that of pictures where they had none.

    Raises:
        CheckpointError: a value is wrong, or contradicts the tower; names the file, the key,
            expected and found.
    """
    files = checkpoint.preprocessing
    whole = files.get(_PROCESSOR, {})
    picture_file, pictures = _first(
        (f"{_PROCESSOR} (image_processor)", whole.get("image_processor")),
        (_PICTURES, files.get(_PICTURES)),
    )
    video_file, videos = _first(
        (f"{_PROCESSOR} (video_processor)", whole.get("video_processor")),
        (_VIDEOS, files.get(_VIDEOS)),
        (_PICTURES, files.get(_PICTURES)),
    )
    picture_settings = _read(PictureSettings, picture_file, pictures)
    video_settings = _read(VideoSettings, video_file, videos)
    _agree(picture_settings, picture_file, tower)
    _agree(video_settings, video_file, tower)
    numbered = _read(_Shared, _PROCESSOR, whole).use_image_id
    return Settings(
        picture_settings,
        video_settings,
        picture_settings.use_image_id if numbered is None else numbered,
    )


def _first(*places: tuple[str, object]) -> tuple[str, object]:
    return next(((file, found) for file, found in places if found is not None), (_PICTURES, {}))


Keys = TypeVar("Keys", bound=BaseModel)


def _read(kind: type[Keys], file: str, found: object) -> Keys:
    if not isinstance(found, Mapping):
        raise _wrong(file, None, "a mapping", found)
    raw = cast("Mapping[str, Any]", found)
    try:
        return kind.model_validate({key: value for key, value in raw.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise _wrong(file, place("", first["loc"]), expected(first), first["input"]) from None


def _agree(settings: PictureSettings, file: str, tower: TowerConfig) -> None:
    """Check that the tower would be given what it reads."""
    for key in ("patch_size", "downsample_mode"):
        found, wanted = getattr(settings, key), getattr(tower, key)
        if found is not None and found != wanted:
            raise _wrong(file, key, f"{wanted!r}, as in config.json", found)


def _wrong(file: str, key: str | None, wanted: str, found: object) -> CheckpointError:
    what = f"key {key!r} of {file}" if key else file
    return CheckpointError(
        f"minicpm: {what} should be {wanted[:1].lower() + wanted[1:]}, found {found!r}.",
        file=file,
        field=key,
        expected=wanted,
        found=found,
        hint="Compare the file with the published one.",
    )
