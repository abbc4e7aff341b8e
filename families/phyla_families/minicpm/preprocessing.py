"""What a checkpoint's preprocessor files say of pictures and videos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from phyla.family import (
    PREPROCESSOR_FILE,
    PROCESSOR_FILE,
    VIDEO_FILE,
    Channels,
    Deviations,
    MediaSettings,
    Origin,
    PixelSettings,
    Preprocessing,
)
from phyla_families.minicpm.tower_config import DownsampleMode  # noqa: TC001 (pydantic reads it)

if TYPE_CHECKING:
    from phyla.checkpoint import Checkpoint
    from phyla_families.minicpm.tower_config import TowerConfig


def _thrice(value: object) -> object:
    return [value] * 3 if isinstance(value, int | float) else value


class PictureSettings(PixelSettings):
    """Keys of MiniCPMV4_6ImageProcessor, with the defaults of the class.

    Attributes:
        scale_resolution: side of the square whose area an overview or a slice has, about.
        max_slice_nums: the most slices.
        use_image_id: whether each item is numbered in the prompt.
        downsample_mode: the tower's where the key is absent.
    """

    do_resize: Literal[True] = True
    # One number stands for three.
    image_mean: Annotated[Channels, BeforeValidator(_thrice)] = (0.5, 0.5, 0.5)
    image_std: Annotated[Deviations, BeforeValidator(_thrice)] = (0.5, 0.5, 0.5)
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


class VideoSettings(PictureSettings):
    """Keys of MiniCPMV4_6VideoProcessor, with the defaults of the class.

    Attributes:
        max_num_frames: the most moments to look at.
        stack_frames: frames to a second: one by itself, the others on one canvas.
    """

    max_num_frames: int = Field(default=128, gt=0)
    stack_frames: int = Field(default=1, gt=0)
    do_sample_frames: bool = True


class _Shared(MediaSettings):
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
    files = Preprocessing(checkpoint)
    pictures = files.section(PictureSettings, "image_processor", PREPROCESSOR_FILE)
    videos = files.section(VideoSettings, "video_processor", VIDEO_FILE, PREPROCESSOR_FILE)
    for section in (pictures, videos):
        section.check("patch_size", tower.patch_size)
        section.check("downsample_mode", tower.downsample_mode)
    whole = checkpoint.preprocessing.get(PROCESSOR_FILE, {})
    numbered = Origin(PROCESSOR_FILE).read(_Shared, whole).use_image_id
    return Settings(
        pictures.settings,
        videos.settings,
        pictures.settings.use_image_id if numbered is None else numbered,
    )
