"""What the preprocessor files say about pictures, videos and sounds, as values that were checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import AliasChoices, Field, model_validator

from phyla.family import (
    PREPROCESSOR_FILE,
    VIDEO_FILE,
    Affine,
    Channels,
    Deviations,
    MediaSettings,
    PixelSettings,
    Preprocessing,
)
from phyla_families.nemotron_h.omni_config import MERGE

if TYPE_CHECKING:
    from typing_extensions import Self

    from phyla.checkpoint import Checkpoint
    from phyla.family import Section
    from phyla_families.nemotron_h.omni_config import SoundConfig, VisionConfig

# CLIP's.
_MEAN: Channels = (0.48145466, 0.4578275, 0.40821073)
_DEVIATION: Channels = (0.26862954, 0.26130258, 0.27577711)


class ImageSettings(PixelSettings):
    """Keys of Nemotron Omni's image processor, with its defaults.

    Attributes:
        patch_size: None where the file does not say; the tower decides.
        min_num_patches: a smaller picture is made larger.
        max_num_patches: the most patches of a picture; 0 for no bound.
        max_model_len: soft tokens, of which the text around a picture needs a few, that bound it too.
    """

    image_mean: Channels = Field(
        default=_MEAN, validation_alias=AliasChoices("image_mean", "norm_mean")
    )
    image_std: Deviations = Field(
        default=_DEVIATION, validation_alias=AliasChoices("image_std", "norm_std")
    )
    patch_size: int | None = Field(default=None, gt=0)
    downsample_ratio: float = Field(default=1 / MERGE, gt=0)
    min_num_patches: int = Field(default=1024, gt=0)
    max_num_patches: int = Field(default=13312, ge=0)
    max_model_len: int = Field(default=16384, gt=0)

    @property
    def most_patches(self) -> int:
        """The most patches of a picture."""
        room = max((self.max_model_len - 4) * MERGE**2, self.min_num_patches)
        bounded = min(room, self.max_num_patches) if self.max_num_patches else room
        return max(bounded, self.min_num_patches)


class VideoSettings(MediaSettings):
    """Keys of Nemotron Omni's video processor.

    Published files say nothing of which frames to look at; then it is two for each second, and
    no more than 128 in all.

    Attributes:
        mean: subtracted from pixels between 0 and 1, for each colour,
        deviation: and what they are divided by then.
        patch_size: None where the file does not say; the tower decides.
        target: `video_target_num_patches`, about what each frame gets.
        keep_ratio: whether frames stay as wide as they are high; else they are made square.
        temporal_patch_size: None where the file does not say.
        num_frames: so many frames are looked at,
        fps: or so many for each second.
        do_sample_frames: whether not all are.
    """

    mean: Channels = Field(default=_MEAN, validation_alias="norm_mean")
    deviation: Deviations = Field(default=_DEVIATION, validation_alias="norm_std")
    patch_size: int | None = Field(default=None, gt=0)
    downsample_ratio: float = Field(default=1 / MERGE, gt=0)
    target: int = Field(default=1024, gt=0, validation_alias="video_target_num_patches")
    keep_ratio: bool = Field(default=True, validation_alias="video_maintain_aspect_ratio")
    temporal_patch_size: int | None = Field(default=None, gt=1)
    num_frames: int | None = Field(default=None, gt=0)
    fps: float = Field(default=2.0, gt=0)
    do_sample_frames: bool = True

    @property
    def affine(self) -> Affine:
        """What is done to pixels."""
        return Affine.normalizing(self.mean, self.deviation)


class MelSettings(MediaSettings):
    """Keys of ParakeetFeatureExtractor, with its defaults.

    Attributes:
        feature_size: mel bins; None where the file does not say, and the encoder decides.
        sampling_rate: in samples per second.
        hop_length: samples from one frame to the next.
        n_fft: samples of a frame; the window lies in their middle.
        win_length: samples of the window.
        preemphasis: so much of the sample before is subtracted from each one.
    """

    feature_size: int | None = Field(default=None, gt=0)
    sampling_rate: int = Field(default=16000, gt=0)
    hop_length: int = Field(default=160, gt=0)
    n_fft: int = Field(default=512, gt=0)
    win_length: int = Field(default=400, gt=1)
    preemphasis: float = Field(default=0.97, ge=0, lt=1)

    @model_validator(mode="after")
    def _the_window_fits(self) -> Self:
        if self.win_length > self.n_fft or self.n_fft % 2:
            raise ValueError(
                f"an even 'n_fft' of at least 'win_length' ({self.win_length}), not {self.n_fft}"
            )
        return self


def image_settings(checkpoint: Checkpoint, vision: VisionConfig) -> ImageSettings:
    """Read what the checkpoint says about pictures.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    section = Preprocessing(checkpoint).section(ImageSettings, "image_processor", PREPROCESSOR_FILE)
    _check_tower(section, vision)
    return section.settings


def video_settings(checkpoint: Checkpoint, vision: VisionConfig) -> VideoSettings:
    """Read what the checkpoint says about videos; transformers, too, falls back on pictures' file.

    Raises:
        CheckpointError: it cannot be read, or it is not about this tower.
    """
    section = Preprocessing(checkpoint).section(
        VideoSettings, "video_processor", VIDEO_FILE, PREPROCESSOR_FILE
    )
    _check_tower(section, vision)
    section.check("temporal_patch_size", vision.span)
    return section.settings


def mel_settings(checkpoint: Checkpoint, sound: SoundConfig) -> MelSettings:
    """Read what the checkpoint says about sounds.

    Raises:
        CheckpointError: it cannot be read, or it is not about this encoder.
    """
    section = Preprocessing(checkpoint).section(MelSettings, "feature_extractor", PREPROCESSOR_FILE)
    section.check("feature_size", sound.num_mel_bins)
    return section.settings


def _check_tower(
    section: Section[ImageSettings] | Section[VideoSettings], vision: VisionConfig
) -> None:
    section.check("patch_size", vision.patch_size)
    section.check("downsample_ratio", 1 / MERGE)
